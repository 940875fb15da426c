"""Languages of the pages, and the descriptions of the brokers' settings in those other than English."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = {"en": "English", "zh": "中文"}


@cache
def meanings(language: str) -> Mapping[str, str]:
    """Return them by setting; nothing for English, since settings describe themselves, or if unknown."""
    path = files("pocketmq.console") / "i18n" / f"settings.{language}.json"
    if language not in LANGUAGES or not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text("utf-8"))
    return found
