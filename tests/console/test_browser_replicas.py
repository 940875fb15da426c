"""The page of replicas in Chromium: a master and its slave change places by its buttons."""

from pathlib import Path

import pytest

from tests.cli.servers import Server
from tests.console.browser import Browser

# How much of the first table is out of sight.
HIDDEN = "const [it] = document.querySelectorAll('.table'); return it.scrollWidth - it.clientWidth"


def test_master_and_slave_change_places(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demoted one takes a number that is free: with that of the other slave it would hide it."""
    ports = [
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        "--grpc-port",
        "-1",
        "--console-port",
        "0",
    ]
    server = Server(
        tmp_path, "up", "--replicas", "2", "--data", "pair", "--broker-name", "b", *ports
    )
    try:
        ready = server.ready()
        monkeypatch.setattr(browser, "base", ready["console"])
        master, slave = ready["broker"].split(",")
        browser.open("/")
        browser.click("Replicas", within="#nav")

        def shown(*wanted: tuple[str, str, str, str]) -> None:
            lines = [(f"{name}\n{address}", *rest) for name, address, *rest in wanted]
            browser.wait_for_rows("Brokers", lambda rows: [tuple(row[:3]) for row in rows] == lines)

        shown(
            ("b 0", master, "SYNC_MASTER", "Slaves in sync: 1"), ("b 1", slave, "SLAVE", "Follows")
        )
        narrow = {"width": 1_120, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        assert browser.run(HIDDEN) <= 1
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.click("Demote")
        browser.wait_for("it takes no more messages")
        browser.dialog("Demote")
        browser.wait_for_rows(
            "Brokers",
            lambda rows: (
                [tuple(row[:2]) for row in rows]
                == [(f"b 1\n{slave}", "SLAVE"), (f"b 2\n{master}", "SLAVE")]
            ),
        )
        browser.click("Promote", within="tbody tr:first-of-type")
        browser.wait_for("will be the master of its name")
        browser.dialog("Promote")
        shown(
            ("b 0", slave, "ASYNC_MASTER", "Slaves in sync: 1"), ("b 2", master, "SLAVE", "Follows")
        )
        browser.click("Resync", within="tbody tr:nth-of-type(2)")
        browser.wait_for("A slave cuts the end of its log")
        browser.dialog("Resync")
        shown(
            ("b 0", slave, "ASYNC_MASTER", "Slaves in sync: 1"), ("b 2", master, "SLAVE", "Follows")
        )
        assert server.stop() == 0
    finally:
        server.kill()
