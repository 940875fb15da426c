"""Hooks of mkdocs.yml: docs/ as a site, from the same pages that the repository shows.

- A relative link that leaves docs/, or names a folder, leads to the repository: the site has no such page.
- Every decision is in the navigation.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    config["nav"].append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return outward(markdown, page.file.src_uri, config["repo_url"])


def outward(markdown: str, page: str, repository: str) -> str:
    """Point the links of a page that lead out of docs/, or to a folder, into the repository.

    page: its path below docs/. repository: its URL. Links within docs/ stay as they are.
    """

    def replaced(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        inside = path.startswith("docs/") and not target.endswith("/")
        kind = "tree" if target.endswith("/") else "blob"
        place = f"{repository}/{kind}/main/{path}{anchor or ''}"
        return link[0] if inside else f"{text}({place})"

    return _LINK.sub(replaced, markdown)
