"""Languages of the pages, and what the brokers' settings mean in those other than English."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = {"en": "English", "zh": "中文"}


@cache
def meanings(language: str) -> Mapping[str, str]:
    """By setting; nothing for English, in which each setting tells its own meaning, and unknown languages."""
    path = files("pocketmq.console") / "i18n" / f"settings.{language}.json"
    if language not in LANGUAGES or not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text("utf-8"))
    return found
