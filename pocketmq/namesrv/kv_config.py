"""KVConfig: key-value settings by namespace, kept in kvConfig.json. Source: KVConfigManager, 4.9.7.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicTest":"broker-a:4"}}}

1. Every change is in the file before it is answered.
2. All keys and values together have SIZE_MAX characters: each change writes the whole file.
3. An unreadable file is an error at start: it is never overwritten with an empty table. Later the known table
   stays, and a change is refused.
4. Name servers of one machine may share the file: each change is made to what stands there, by one at a time,
   and the others read it before their next answer.
Owner: the name server; `ConfigFile` alone writes.
"""

import contextlib
import logging
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pocketmq.remoting.errors import HeaderError, IllegalArgument, PocketMQError

log = logging.getLogger(__name__)

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

    def alone(self) -> AbstractContextManager[None]:
        """Hold off other processes. Raises: OSError."""
        ...

    def stamp(self) -> Hashable:
        """Return another value after each change, by whichever process."""
        ...


class KVConfig:
    """Namespaces of keys and values."""

    def __init__(self, file: TableFile | None = None) -> None:
        """file: None keeps the table in memory only."""
        self._file = file
        self._table: dict[str, dict[str, str]] = {}
        # The file's when it was last read or written.
        self._stamp: Hashable = None

    def load(self) -> None:
        """Read the file. Raises: HeaderError, and what the file raises."""
        if self._file is None:
            return
        self._stamp = self._file.stamp()
        data = self._file.load()
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
        with self._alone():
            self._put(namespace, key, value)

    def _put(self, namespace: str, key: str, value: str) -> None:
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
        with self._alone():
            old = self._table.get(namespace, {}).pop(key, None)
            if old is not None:
                self._save(namespace, key, old)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Apply invariant 4 to a change. Raises: OSError, HeaderError."""
        if self._file is None:
            yield
            return
        with self._file.alone():
            if self._file.stamp() != self._stamp:
                self.load()
            yield

    def _look(self) -> None:
        """Read what another process has changed (invariants 3 and 4)."""
        if self._file is None or self._file.stamp() == self._stamp:
            return
        try:
            self.load()
        except (OSError, PocketMQError) as error:
            log.error("cannot read kvConfig.json again, the known values stay reason=%s", error)

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
            self._stamp = self._file.stamp()
        except OSError:
            if old is None:
                self._table[namespace].pop(key, None)
            else:
                self._table[namespace][key] = old
            raise

    def get(self, namespace: str, key: str) -> str | None:
        self._look()
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all keys of a namespace, or None if it never had one."""
        self._look()
        return self._table.get(namespace)
