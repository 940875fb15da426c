"""KVConfig: key-value settings by namespace, kept in kvConfig.json. Source: KVConfigManager, 4.9.7.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicTest":"broker-a:4"}}}

1. Every change is in the file before it is answered.
2. All keys and values together have SIZE_MAX characters: each change writes the whole file.
3. An unreadable file is an error at start: it is never overwritten with an empty table.
Owner: the name server; `ConfigFile` alone writes.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from pocketmq.remoting.errors import HeaderError, IllegalArgument

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
SIZE_MAX = 4 << 20


class TableFile(Protocol):
    """The table's file, replaced as a whole or not at all: ConfigFile of the store."""

    def load(self) -> Any:
        """Return the content, or None if there is no file yet."""
        ...

    def save(self, data: Any) -> None:
        """Replace the content durably. Raises: OSError."""
        ...


class KVConfig:
    """Namespaces of keys and values."""

    def __init__(self, file: TableFile | None = None) -> None:
        """file: None keeps the table in memory only."""
        self._file = file
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file. Raises: HeaderError, and what the file raises."""
        data = self._file.load() if self._file is not None else None
        if data is None:
            return
        table = data.get("configTable") if isinstance(data, Mapping) else None
        if not isinstance(table, Mapping):
            raise HeaderError(
                "kvConfig.json has no configTable: repair the file, or remove it to start with no values"
            )
        self._table = {
            str(namespace): {str(key): str(value) for key, value in pairs.items()}
            for namespace, pairs in table.items()
            if isinstance(pairs, Mapping)
        }

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises: IllegalArgument (invariant 2), OSError if it cannot be saved; then nothing has changed.
        """
        old = self._table.get(namespace, {}).get(key)
        if old == value:
            return
        more = len(value) - len(old) if old is not None else len(namespace) + len(key) + len(value)
        if more > 0 and self._size() + more > SIZE_MAX:
            raise IllegalArgument(
                f"all values of a name server have at most {SIZE_MAX} characters: delete some before"
            )
        self._table.setdefault(namespace, {})[key] = value
        self._save(namespace, key, old)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; an unknown one is not an error. Raises: OSError, as put."""
        old = self._table.get(namespace, {}).pop(key, None)
        if old is not None:
            self._save(namespace, key, old)

    def _size(self) -> int:
        return sum(
            len(namespace) + len(key) + len(value)
            for namespace, pairs in self._table.items()
            for key, value in pairs.items()
        )

    def _save(self, namespace: str, key: str, old: str | None) -> None:
        if self._file is None:
            return
        try:
            self._file.save({"configTable": self._table})
        except OSError:
            if old is None:
                self._table[namespace].pop(key, None)
            else:
                self._table[namespace][key] = old
            raise

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all keys of a namespace, or None if it never had one."""
        return self._table.get(namespace)
