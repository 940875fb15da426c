"""StoredTable: a ConfigManager whose rows are on disk before any client relies on them.

1. A put row is on disk before it is answered or announced; if the save fails, the row gets its old value back
   and the waiters get the error. `keep` is for rows that the broker creates itself, and would create again:
   they stay, and the next save includes them.
2. While `saving` runs, rows are saved off the event loop, all pending ones with one write; responses wait for
   `stored`. Otherwise, as in tools and while a broker starts or stops, each put saves at once.
3. A table of more than WHOLE_MAX rows is not rewritten for each row: changes go to a ConfigJournal until it
   is so large that rewriting the file pays off. A clean stop leaves only the whole file.
4. A row that cannot be read is written back as it is until it is put anew, so that it can be repaired.
Owner: the broker, on its event loop; one write at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.data_version import DataVersion
from pocketmq.store import ConfigFile
from pocketmq.store.config_journal import ConfigJournal
from pocketmq.store.side_tasks import SURVIVED, SideTasks, in_thread

log = logging.getLogger(__name__)

WHOLE_MAX = 1_000
# Bytes of journal for each row of the table from which on the whole file is written.
_JOURNAL_ROW_SIZE = 64
# Rows that are encoded together.
_PIECE = 256


class TableRow(Protocol):
    """A row of the file."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse a row. Raises: AttributeError, KeyError, TypeError, ValueError if it is malformed."""


V = TypeVar("V", bound=TableRow)


class _Batch(Generic[V]):
    """Rows saved by one write."""

    def __init__(self) -> None:
        # Key -> the value that is on the disk; None: no such row.
        self.old: dict[str, V | None] = {}
        self.kept: set[str] = set()
        self.after: list[Callable[[], None]] = []
        self.done: asyncio.Future[None] | None = None


class StoredTable(ConfigManager, Generic[V]):
    """table: the rows' name in the file; row_class: their type; key: the row attribute that names them,
    and key_name its field in the file.
    """

    table: ClassVar[str]
    key: ClassVar[str]
    key_name: ClassVar[str]
    row_class: type[V]

    def __init__(self, file: ConfigFile, now_ms: int) -> None:
        super().__init__(file)
        self.rows: dict[str, V] = {}
        self.data_version = DataVersion(now_ms)
        self._unread: dict[str, Any] = {}
        self._journal = ConfigJournal(file.path + ".changes")
        self._next: _Batch[V] = _Batch()
        self._now: _Batch[V] | None = None
        self._wake: asyncio.Event | None = None
        # The file may hold what was rolled back: it is written as a whole.
        self._stale = False
        # Of a table that is rewritten for each row: key -> the row, and it as the file has it. Writers' only.
        self._members: dict[str, tuple[V, bytes]] = {}

    # ------------------------------------------------------------ file

    def to_json(self) -> dict[str, Any]:
        rows = {name: row.to_json() for name, row in self.rows.items()}
        return {"dataVersion": self.data_version.to_json(), self.table: {**self._unread, **rows}}

    def _encoded(
        self, rows: dict[str, V], unread: dict[str, Any], version: dict[str, int]
    ) -> Iterator[bytes]:
        """Yield what to_json returns as the file has it, piece by piece.

        Encoded at once, 50,000 topics would take 60 MB, and hold up every other thread for that time.
        """
        encode = self._file.encode
        yield encode({"dataVersion": version, self.table: {}})[:-2]
        between = b""
        left = {name: row for name, row in unread.items() if name not in rows}
        if left:
            yield encode(left)[1:-1]
            between = b","
        keep = len(rows) <= WHOLE_MAX
        if not keep or len(self._members) > 2 * WHOLE_MAX:
            self._members.clear()
        rest = iter(rows.items())
        while some := b",".join(self._members_of(islice(rest, _PIECE), keep=keep)):
            yield between + some
            between = b","
        yield b"}}"

    def _members_of(self, some: Iterable[tuple[str, V]], *, keep: bool) -> Iterator[bytes]:
        """Yield rows as the file has them; keep: rows are not changed in place, so that nearly all of a table
        that is written for one row were encoded for the last one.
        """
        for name, row in some:
            known = self._members.get(name)
            if known is not None and known[0] is row:
                yield known[1]
                continue
            member = self._file.encode({name: row.to_json()})[1:-1]
            if keep:
                self._members[name] = row, member
            yield member

    def from_json(self, data: Any) -> None:
        table = data.get(self.table) if isinstance(data, dict) else None
        for name, fields in (table or {}).items():
            try:
                # As in RocketMQ the key in the table is the name; a row that an operator added by hand may
                # lack the name inside, or hold another's.
                row = self.row_class.from_json({**fields, self.key_name: name})
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                log.error(
                    "%s: skipped a row that cannot be read row=%s reason=%r", self.name, name, error
                )
                self._unread[name] = fields
                continue
            self.rows[getattr(row, self.key)] = row
        if isinstance(data, dict):
            self.data_version = DataVersion.of_file(data.get("dataVersion"))
        log.info("%s: loaded rows=%d", self.name, len(self.rows))

    def load(self) -> None:
        super().load()
        known = self.data_version.to_json()["counter"]
        for change in self._journal.load():
            if change["version"]["counter"] <= known:
                continue
            if change["row"] is None:
                self.rows.pop(change["key"], None)
            else:
                self.rows[change["key"]] = self.row_class.from_json(change["row"])
            self.data_version = DataVersion.of_file(change["version"])
        self.dirty = self._journal.size > 0

    def persist(self) -> None:
        self._writer(None)()
        self.dirty = False

    def begin_save(self) -> Callable[[], None]:
        self.dirty = False
        return self._writer(None)

    def _writer(self, batch: _Batch[V] | None) -> Callable[[], None]:
        """Return what writes a batch (None: the whole table) to disk, to be called in a thread."""
        version = self.data_version.to_json()
        large = len(self.rows) > WHOLE_MAX
        journal_full = self._journal.size > len(self.rows) * _JOURNAL_ROW_SIZE
        if batch is not None and large and not journal_full and not self._stale:
            changes = [
                {"key": key, "row": self._row(key), "version": version}
                for key in (*batch.old, *batch.kept)
            ]
            return lambda: self._journal.append(changes)
        rows, unread = dict(self.rows), dict(self._unread)

        def write() -> None:
            self._file.write(self._encoded(rows, unread, version))
            if self._journal.size:
                self._journal.remove()

        return write

    def _row(self, key: str) -> dict[str, Any] | None:
        value = self.rows.get(key)
        return None if value is None else value.to_json()

    # ------------------------------------------------------------ changing

    def put(
        self,
        key: str,
        value: V | None,
        *,
        keep: bool = False,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Set a row, or remove it; `after` is called when it is on disk (invariants 1 and 2).

        Raises: OSError if it is saved at once and that fails.
        """
        batch = self._next
        self._unread.pop(key, None)
        if keep:
            if key not in batch.old:
                batch.kept.add(key)
        elif key not in batch.old:
            batch.old[key] = self.rows.get(key)
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
        self.dirty = True
        if after is not None:
            batch.after.append(after)
        if self._wake is not None:
            self._wake.set()
            return
        self._next = _Batch()
        try:
            self._writer(batch)()
        except OSError:
            self._undo(batch)
            raise
        self._saved(batch)

    def take_all(self, rows: dict[str, V], version: Any) -> None:
        """Replace the whole table by a master's; saved like kept rows (1)."""
        self.rows.clear()
        self._unread.clear()
        self.rows.update(rows)
        self.data_version = DataVersion.of_file(version)
        self.dirty = self._stale = True
        if self._wake is None:
            self.persist()
        else:
            self._wake.set()

    def stored(self, key: str | None = None) -> "asyncio.Future[None] | None":
        """Return a future done when a row, or all rows, are on disk; None if they already are.

        The future is shared: wait with a shield. It fails if the save does.
        """
        for batch in (self._next, self._now):
            if batch is None:
                continue
            if key in batch.old if key is not None else batch.old or batch.kept:
                if batch.done is None:
                    batch.done = asyncio.get_running_loop().create_future()
                    batch.done.add_done_callback(_retrieve)
                return batch.done
        return None

    # ------------------------------------------------------------ saving

    async def saving(self, side_tasks: SideTasks) -> None:
        """Save changed rows until cancelled."""
        self._wake = asyncio.Event()
        try:
            await side_tasks.repeat(self.name, self._round)
        finally:
            self._wake = None

    async def _round(self) -> None:
        assert self._wake is not None
        await self._wake.wait()
        self._wake.clear()
        batch, self._next = self._next, _Batch()
        self._now = batch
        try:
            await in_thread(self._writer(batch))
        except SURVIVED as error:
            self._failed(batch, error)
            raise
        finally:
            self._now = None
        self._stale = False
        self._saved(batch)

    def _saved(self, batch: _Batch[V]) -> None:
        self.dirty = bool(self._journal.size or self._next.old or self._next.kept)
        self.after_saved(batch.after)
        if batch.done is not None:
            self.done(batch.done)

    def after_saved(self, calls: list[Callable[[], None]]) -> None:
        """Call what was given to `put` for rows that are on disk now."""
        for call in calls:
            call()

    def done(self, waiters: "asyncio.Future[None]") -> None:
        """Resolve the waiters whose rows are now on disk."""
        resolve(waiters)

    def _failed(self, batch: _Batch[V], error: Exception) -> None:
        """Roll back, newest first; kept rows and the file as it should be are saved with the next try."""
        newer, self._next = self._next, _Batch()
        for each in (newer, batch):
            self._undo(each)
            self._next.kept |= each.kept
            if each.done is not None and not each.done.done():
                each.done.set_exception(error)
        self._stale = True
        assert self._wake is not None
        self._wake.set()

    def _undo(self, batch: _Batch[V]) -> None:
        for key, old in batch.old.items():
            if old is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = old


def resolve(waiters: "asyncio.Future[None]") -> None:
    """Resolve the waiters' future if it is still pending."""
    if not waiters.done():
        waiters.set_result(None)


def _retrieve(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()
