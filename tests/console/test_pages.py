"""The console's frame, files and sentences, without a browser."""

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hatchling.builders.wheel import WheelBuilder
from starlette.applications import Starlette

from pocketmq.console import pages
from pocketmq.console.languages import LANGUAGES

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "pocketmq" / "console"
SCRIPTS = sorted((CONSOLE / "static").rglob("*.js"))
LOADED_MAX = 100_000
SENT_MAX = 40_000


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=pages.page_routes(None)))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as made:
        yield made


def placeholders(sentence: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", sentence))


def test_every_language_says_everything_that_english_says() -> None:
    """Same keys, same values to fill in, nothing empty."""
    english = pages.sentences("en")
    for language in LANGUAGES:
        table = pages.sentences(language)
        assert list(table) == list(english)
        for key, sentence in table.items():
            assert sentence.strip(), key
            assert placeholders(sentence) == placeholders(english[key]), (language, key)


def test_each_sentence_of_the_scripts_exists_and_is_used() -> None:
    """Keys stand in scripts as they are, or with a prefix for names that the API gives."""
    sources = "\n".join(path.read_text() for path in [*SCRIPTS, CONSOLE / "templates/shell.html"])
    literal = set(re.findall(r'"([a-zA-Z][\w.]*)"', sources)) | {key for _, key, _ in pages.MENU}
    prefixes = set(re.findall(r'named\("(\w+)"', sources)) | set(
        re.findall(r"`(\w+)\.\$\{", sources)
    )
    asked: set[str] = set()
    for call in re.findall(r"\b(?:t|sentence)\(([^()]*)", sources):
        asked |= set(re.findall(r'"([a-zA-Z][\w.]*)"', call))
    asked |= set(re.findall(r'\n  title: "(\w+)"', sources))
    written = set(pages.sentences("en"))
    assert asked, "the scripts ask for sentences"
    assert asked <= written
    idle = {key for key in written - literal if key.partition(".")[0] not in prefixes | {"theme"}}
    assert not idle


def test_no_script_parses_html_or_runs_text() -> None:
    """Message data enters a page as text only."""
    for path in SCRIPTS:
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function"
            r"|setHTML|createContextualFragment",
            path.read_text(),
        )
        assert not found, path


async def test_the_frame_holds_no_inline_script_style_or_handler(client: httpx.AsyncClient) -> None:
    """What `script-src 'self'` would refuse is not there; the table of sentences is data."""
    html = (await client.get("/")).text
    for tag in re.findall(r"<script[^>]*>", html):
        assert 'type="application/json"' in tag or 'src="/static/' in tag
    assert "<style" not in html
    assert not re.search(r"\s(style|on\w+)=", html)
    assert not re.search(r'(src|href)="(https?:)?//', html)


async def test_language_and_colours_follow_browser_or_choice(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/topics", headers={"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"})
    assert '<html lang="zh" data-theme="auto">' in answer.text
    chosen = {"Accept-Language": "zh", "Cookie": "pocketmq_language=en; pocketmq_theme=dark"}
    assert '<html lang="en" data-theme="dark">' in (await client.get("/", headers=chosen)).text
    foreign = {"Cookie": 'pocketmq_language=../x; pocketmq_theme="><script>'}
    assert '<html lang="en" data-theme="auto">' in (await client.get("/", headers=foreign)).text


async def test_an_unknown_page_is_the_frame_with_404(client: httpx.AsyncClient) -> None:
    assert (await client.get("/nowhere")).status_code == 404
    assert (await client.get("/static/x/nothing.js")).status_code == 404
    assert (await client.get("/static/x/..%2fpages.py")).status_code == 404


async def test_assets_named_by_content_are_cached_for_ever(
    client: httpx.AsyncClient,
) -> None:
    path = re.findall(r'src="(/static/[^"]+)"', (await client.get("/")).text)[0]
    answer = await client.get(path)
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    other = await client.get(re.sub(r"/static/\w+/", "/static/000000000000/", path))
    assert other.headers["cache-control"] == "no-store"
    assert other.content == answer.content


def loaded_by(module: str) -> set[str]:
    """What a page loads: its module and all that these import."""
    found: set[str] = set()
    wanted = ["main.js", f"pages/{module}"]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.add(name)
        source = pages.assets()[name].content.decode()
        for other in re.findall(r'from "(\.[^"]+)"', source):
            path = (CONSOLE / "static" / name).parent / other
            wanted.append(str(path.resolve().relative_to((CONSOLE / "static").resolve())))
    return found


@pytest.mark.parametrize("module", sorted(path.name for path in CONSOLE.glob("static/pages/*.js")))
def test_no_page_loads_more_than_100_kb_of_scripts_and_style(module: str) -> None:
    names = loaded_by(module) | {"console.css"}
    contents = [pages.assets()[name].content for name in names]
    assert sum(map(len, contents)) < LOADED_MAX
    assert sum(len(gzip.compress(each)) for each in contents) < SENT_MAX


def test_the_wheel_carries_pages_scripts_and_sentences() -> None:
    """An installed wheel must have them."""
    builder = WheelBuilder(str(ROOT))
    packed = {
        file.distribution_path
        for file in builder.recurse_included_files()
        if "console" in file.distribution_path
    }
    for kind in (
        "templates/*.html",
        "static/**/*.js",
        "static/*.css",
        "static/*.svg",
        "i18n/*.json",
    ):
        wanted = {f"pocketmq/console/{path.relative_to(CONSOLE)}" for path in CONSOLE.glob(kind)}
        assert wanted
        assert wanted <= packed
