"""MessageFilter: which messages a search or a live view lets through; every condition must hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pocketmq.console.api.request import Fields
from pocketmq.model.message import MessageExt


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """tag: the whole tag; key: how one of its keys begins; name, value: a property, with any value if that is
    None; text: a part of the body, in any case of letters. None: no such condition.
    """

    tag: str | None = None
    key: str | None = None
    name: str | None = None
    value: str | None = None
    text: str | None = None

    @classmethod
    def of(cls, query: Fields) -> Self:
        """Read `tag`, `key`, `property` (NAME, or NAME=VALUE) and `text`."""
        name, equals, value = query.text("property", "").partition("=")
        text = query.text_or_none("text")
        return cls(
            query.text_or_none("tag"),
            query.text_or_none("key"),
            name.strip() or None,
            value.strip() if equals else None,
            None if text is None else text.casefold(),
        )

    def lets_through(self, message: MessageExt) -> bool:
        """Return True if every condition holds."""
        properties: Mapping[str, str] = message.properties
        if self.tag is not None and properties.get("TAGS") != self.tag:
            return False
        if self.key is not None and not any(
            each.startswith(self.key) for each in properties.get("KEYS", "").split()
        ):
            return False
        if self.name is not None:
            found = properties.get(self.name)
            if found is None or self.value not in (None, found):
                return False
        return self.text is None or self.text in message.body.decode(errors="replace").casefold()
