"""docs/ as a site: it builds without a warning, and links out of docs/ lead to files of the repository."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.doc_blocks import ROOT
from tools.site_hooks import outward

URL = "https://github.com/pocketmq/pocketmq"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_built_and_reached_from_the_navigation(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    home = (site / "index.html").read_text("utf-8")
    for page in pages - {Path("README.md")}:
        place = page.parent / ("" if page.name == "README.md" else page.stem)
        assert (site / place / "index.html").exists(), page
        assert f'href="{place}/"' in home, page


def test_links_out_of_the_site_lead_to_files_of_the_repository(site: Path) -> None:
    pattern = re.compile(re.escape(URL) + r"/(?:blob|tree)/main/([^\"#]+)")
    led = {
        target
        for path in site.rglob("*.html")
        for target in pattern.findall(path.read_text("utf-8"))
    }
    assert "examples/README.md" in led
    assert [target for target in led if not (ROOT / target).exists()] == []


@pytest.mark.parametrize(
    ("page", "link", "leads_to"),
    [
        ("model.md", "[x](../README.md#y)", f"[x]({URL}/blob/main/README.md#y)"),
        ("protocol/wire.md", "[x](../../LICENSE)", f"[x]({URL}/blob/main/LICENSE)"),
        ("protocol/wire.md", "[x](../model.md)", "[x](../model.md)"),
        ("model.md", "[x](decisions/)", f"[x]({URL}/tree/main/docs/decisions)"),
        ("model.md", "[x](https://example.org/)", "[x](https://example.org/)"),
        ("model.md", "![x](screenshots/a.png)", "![x](screenshots/a.png)"),
    ],
)
def test_a_link_of_a_page_in_the_site(page: str, link: str, leads_to: str) -> None:
    assert outward(link, page, URL) == leads_to
