"""Languages of the pages. What brokers and the server say themselves is English: in other languages, settings
have descriptions and units of their own, and English sentences a table of what stands for them.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = {"en": "English", "zh": "中文"}


@cache
def meanings(language: str) -> Mapping[str, str]:
    """Return them by setting; nothing for English, since settings describe themselves, or if unknown."""
    return _table("settings", language)


@cache
def spoken(language: str) -> Mapping[str, str]:
    """Return the sentences that stand for the server's English ones, by their template, both with {holes};
    the first that fits counts. Nothing for English, or if unknown.
    """
    return _table("spoken", language)


def _table(name: str, language: str) -> Mapping[str, str]:
    path = files("pocketmq.console") / "i18n" / f"{name}.{language}.json"
    if language not in LANGUAGES or not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text("utf-8"))
    return found
