"""Browser: headless Chromium, driven as a person would: by what is written on the page.

Chromium and its driver come from Debian's packages (tools/setup.sh); nothing is downloaded here. Pages are
asked again until they show what is expected, since their figures come and refresh by themselves.
"""

import base64
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.interop.toolchain import program
from tests.kit.waiting import until

T = TypeVar("T")

PICTURE_WIDTH = 1_120
# A laptop and a telephone.
SCREENS = ((1_280, 900), (375, 812))
INSTALL = "Chromium with its driver (Debian: apt install chromium chromium-driver)"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--window-size=1280,900",
    "--lang=en",
)


class Browser:
    """Use as a context. `base` is the console's address; errors(): what the page complained of."""

    @staticmethod
    def check() -> tuple[str, str]:
        """Paths of Chromium and its driver. Raises: ToolchainMissing."""
        return program("chromium", INSTALL), program("chromedriver", INSTALL)

    def __init__(self, base: str) -> None:
        """Raises: ToolchainMissing."""
        chromium, driver = self.check()
        self.base = base
        self._profile = tempfile.mkdtemp(prefix="pocketmq-browser-")
        options = Options()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={self._profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(executable_path=driver))
        # Below the driver's own patience, so that a page that hangs is named.
        self.driver.set_page_load_timeout(90)

    def close(self) -> None:
        self.driver.quit()
        shutil.rmtree(self._profile, ignore_errors=True)

    # ------------------------------------------------------------ going and seeing

    def open(self, path: str) -> None:
        """Open a page and wait until its figures are there."""
        self.driver.get(self.base + path)
        self.settle()

    def settle(self) -> None:
        script = "return !document.querySelector('#page')?.hasAttribute('aria-busy')"
        until(lambda: self.run(script), f"{self.driver.current_url} is drawn")

    def run(self, script: str, *arguments: object) -> Any:
        """What a function body of JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def run_until(self, script: str) -> None:
        """Wait until a function body of JavaScript returns something true."""
        until(lambda: self.run(script), script, ignoring=WebDriverException)

    @property
    def text(self) -> str:
        """What the page shows, dialogs and notices among it."""
        return str(self.run("return document.body.innerText"))

    def wait_for(self, *texts: str) -> None:
        until(
            lambda: all(text in self.text for text in texts),
            f"{self.driver.current_url} shows {texts}; it shows:\n{self.text}",
        )

    def find(self, css: str) -> WebElement:
        """The first visible element; waits for it."""

        def visible() -> WebElement | None:
            found = self.driver.find_elements(By.CSS_SELECTOR, css)
            return next((each for each in found if each.is_displayed()), None)

        found = until(
            visible, f"{css} is on {self.driver.current_url}", ignoring=WebDriverException
        )
        assert found is not None
        return found

    def rows(self, caption: str) -> list[list[str]]:
        """The cells of a table by its caption, row by row; waits for the table."""
        script = """
            const table = [...document.querySelectorAll('table')]
              .find((each) => each.caption?.textContent === arguments[0]);
            return table && [...table.tBodies[0].rows].map((row) =>
              [...row.cells].map((cell) => cell.innerText.trim()));
        """
        found: list[list[str]] = until(
            lambda: self.run(script, caption), f"a table {caption!r}; there is:\n{self.text}"
        )
        return found

    def wait_for_rows(self, caption: str, fit: Callable[[list[list[str]]], T]) -> list[list[str]]:
        """The rows of a table once `fit(rows)` is true; the page refreshes by itself."""
        last: list[list[str]] = []

        def state() -> bool:
            last[:] = self.rows(caption)
            return bool(fit(last))

        try:
            until(state, f"rows of {caption!r}")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{json.dumps(last, indent=1)}") from error
        return last

    # ------------------------------------------------------------ doing

    def click(self, label: str, within: str = "main") -> None:
        """Press the button or follow the link that says exactly this."""
        script = """
            return [...document.querySelectorAll(arguments[1] + ' :is(button, a, summary)')]
              .find((each) => each.innerText.trim() === arguments[0] && each.checkVisibility());
        """

        def press() -> bool:
            found = self.run(script, label, within)
            if found is None:
                return False
            found.click()
            return True

        until(
            press,
            f"{label!r} in {within} of {self.driver.current_url}",
            ignoring=WebDriverException,
        )

    def dialog(self, label: str) -> None:
        """Press a button of the dialog on top."""
        self.find("dialog[open]:last-of-type")
        self.click(label, "dialog[open]:last-of-type")

    def fill(self, name: str, value: str, within: str = "dialog[open]") -> None:
        """Type into a field or choose in it, by its name."""
        field = self.find(f"{within} [name='{name}']:not([type='radio'])")
        if field.tag_name == "select":
            field.find_element(By.CSS_SELECTOR, f"option[value='{value}']").click()
            return
        field.clear()
        field.send_keys(value)

    def choose(self, name: str, value: str) -> None:
        self.find(f"dialog[open] [name='{name}'][value='{value}']").click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, label: str, presses_max: int = 60) -> None:
        """Move the focus by Tab alone until it is on what is called `label`."""
        for _ in range(presses_max):
            self.press(Keys.TAB)
            if self.focused() == label:
                return
        raise AssertionError(f"{label!r} is not reached by {presses_max} presses of Tab")

    def focused(self) -> str:
        """Name of what has the focus."""
        script = """
            const at = document.activeElement;
            return (at.getAttribute('aria-label') ?? at.labels?.[0]?.innerText ?? at.innerText ?? '').trim();
        """
        return str(self.run(script))

    # ------------------------------------------------------------ looking back

    def errors(self) -> list[str]:
        """What the browser's log complains of since the last call."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["level"] in ("SEVERE", "WARNING")
        ]

    def pictures(self, folder: Path, name: str) -> None:
        """The page as it is: wide and narrow, light and dark; `name-1280-light.webp` and so on."""
        theme = "document.documentElement.dataset.theme"
        before = self.run(f"return {theme}")
        try:
            for width, height in SCREENS:
                screen = {"width": width, "height": height, "deviceScaleFactor": 1}
                self.driver.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride", {**screen, "mobile": width < 600}
                )
                for colours in ("light", "dark"):
                    self.run(f"{theme} = arguments[0]", colours)
                    taken = self.driver.execute_cdp_cmd(
                        "Page.captureScreenshot", {"format": "webp", "quality": 60}
                    )
                    path = folder / f"{name}-{width}-{colours}.webp"
                    path.write_bytes(base64.b64decode(taken["data"]))
        finally:
            self.run(f"{theme} = arguments[0]", before)
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def picture(self, path: Path, height_max: int = 1_400) -> None:
        """The page as a PNG, as high as it is."""
        size = self.driver.get_window_size()
        self.driver.set_window_size(PICTURE_WIDTH, size["height"])
        height = self.run("return document.documentElement.scrollHeight")
        chrome = size["height"] - self.run("return window.innerHeight")
        self.driver.set_window_size(PICTURE_WIDTH, min(height, height_max) + chrome)
        try:
            path.write_bytes(base64.b64decode(self.driver.get_screenshot_as_base64()))
        finally:
            self.driver.set_window_size(size["width"], size["height"])
