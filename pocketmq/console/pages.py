"""Pages: the HTML frame of the console, its style, scripts and sentences.

One shell is served for every page; the scripts fetch figures from the JSON API (API.md) and draw them.

1. There is no build step and nothing external: the files under static/ are served as they are, at an address
   with a hash of their content, so that browsers may cache them for ever.
2. Every sentence that people see is in i18n/<language>.json; the shell contains the whole table.
3. The shell holds no inline script or style and no figure, so it needs no secret and no login.
4. Values of cookies and headers are looked up in a table; nothing from a request is put into the page.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from pocketmq.console.languages import LANGUAGES, spoken

THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE = "pocketmq_language"
THEME_COOKIE = "pocketmq_theme"

# (path, its sentence, whether a new block of the menu begins there)
MENU = (
    ("/", "overview", False),
    ("/cluster", "cluster", False),
    ("/replicas", "replicas", False),
    ("/topics", "topics", True),
    ("/groups", "groups", False),
    ("/producers", "producers", False),
    ("/messages", "messages", True),
    ("/dead-letters", "deadLetters", False),
    ("/delays", "delays", False),
    ("/schedules", "schedules", False),
    ("/trace", "trace", False),
    ("/settings", "settings", True),
    ("/acl", "acl", False),
    ("/audit", "audit", False),
    ("/alarms", "alarms", False),
    ("/name-server", "nameServer", False),
)
# Pages that are reached from others, by a name in their query. The module of a page has the name of its path.
DETAIL_PAGES = ("/broker", "/topic", "/group", "/balance", "/message", "/login", "/search")

# What every page needs at once; its own module follows.
_PRELOAD = ("main.js", "dom.js", "text.js", "api.js", "dialog.js", "table.js")
_FOREVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file; packed is the same compressed with gzip."""

    content: bytes
    packed: bytes
    content_type: str


@cache
def sentences(language: str) -> Mapping[str, str]:
    """Return the table of a language: key -> sentence, with {names} for values."""
    text = (_folder() / "i18n" / f"{language}.json").read_text("utf-8")
    found: dict[str, str] = json.loads(text)
    return found


@cache
def assets() -> Mapping[str, Asset]:
    """Return the files under static/, by path."""
    found: dict[str, Asset] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif (suffix := "." + entry.name.rpartition(".")[2]) in _TYPES:
                content = entry.read_bytes()
                packed = gzip.compress(content, mtime=0)
                found[prefix + entry.name] = Asset(content, packed, _TYPES[suffix])

    walk(_folder() / "static", "")
    return dict(sorted(found.items()))


@cache
def version() -> str:
    """Return a hash of the content of all assets (rule 1)."""
    digest = hashlib.sha256()
    for path, asset in assets().items():
        digest.update(path.encode() + b"\0" + asset.content)
    return digest.hexdigest()[:12]


@cache
def shell(language: str, theme: str) -> str:
    """Return the frame as HTML."""
    source = (_folder() / "templates" / "shell.html").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    strings: dict[str, object] = dict(sentences(language))
    if rules := spoken(language):
        strings["spoken"] = rules
    table = json.dumps(strings, ensure_ascii=False, separators=(",", ":"))
    return environment.from_string(source).render(
        language=language,
        languages=LANGUAGES,
        menu=MENU,
        pages=Markup(json.dumps(sorted(_PATHS))),
        preload=_PRELOAD,
        static=f"/static/{version()}",
        # No `<` in it can end the script element that holds it.
        strings=Markup(table.replace("<", "\\u003c")),
        t=sentences(language),
        theme=theme,
    )


def language_of(request: Request) -> str:
    """Return the cookie's language, else the first of Accept-Language that we have, else English."""
    chosen = request.cookies.get(LANGUAGE_COOKIE)
    if chosen in LANGUAGES:
        return chosen
    for part in request.headers.get("accept-language", "").split(","):
        name = part.partition(";")[0].strip().partition("-")[0].lower()
        if name in LANGUAGES:
            return name
    return "en"


def theme_of(request: Request) -> str:
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else "auto"


async def _page(request: Request) -> Response:
    status = 200 if request.url.path in _PATHS else 404
    headers = {"Cache-Control": "no-cache", "Vary": "Cookie, Accept-Language"}
    return HTMLResponse(shell(language_of(request), theme_of(request)), status, headers)


async def _asset(request: Request) -> Response:
    asset = assets().get(request.path_params["path"])
    if asset is None:
        return PlainTextResponse("no such file", 404)
    # A page from before an update asks for the old name: it gets today's file, but may not keep it.
    current = request.path_params["version"] == version()
    headers = {"Cache-Control": _FOREVER if current else "no-store", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(asset.content, 200, headers, asset.content_type)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.packed, 200, headers, asset.content_type)


async def _icon(request: Request) -> Response:
    return Response(assets()["icon.svg"].content, media_type="image/svg+xml")


def page_routes(console: object) -> list[BaseRoute]:
    """Return routes for everything but the API; an unknown page gets the frame, which says so, with 404.

    The frames are rendered now, in the thread that loads the console, so that no first page blocks the
    loop.
    """
    for language in LANGUAGES:
        shell(language, THEMES[0])
    return [
        Route("/static/{version}/{path:path}", _asset, methods=["GET"]),
        Route("/favicon.ico", _icon, methods=["GET"]),
        Route("/{path:path}", _page, methods=["GET"]),
    ]


def _folder() -> Traversable:
    return files("pocketmq.console")


_PATHS = frozenset({path for path, _, _ in MENU} | set(DETAIL_PAGES))
