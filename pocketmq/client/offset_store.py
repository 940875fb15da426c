"""Where a group's offsets are stored: at the broker (clustering) or in a file (broadcasting) (S54 to S58).

1. An offset is the next one to read: after consuming 0 and 1 it is 2 (S55).
2. `update` with increase_only never lowers an offset, whatever the order of the calls.
3. LocalFileOffsetStore writes Java's layout: `<root>/<clientId>/<group>/offsets.json`, the one before as
   `.bak`: {"offsetTable":{{"brokerName","queueId","topic"}:offset}}.
Owner: one consumer. Sources: RemoteBrokerOffsetStore, LocalFileOffsetStore, RocketMQ 4.9.7.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Protocol

from pocketmq.model.message import MessageQueue
from pocketmq.model.queue_json import message_queue, queue_key
from pocketmq.remoting import fastjson
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)


class ReadFrom(Enum):
    """Where `read` looks."""

    MEMORY = "memory"
    STORE = "store"
    MEMORY_FIRST = "memory first"


class OffsetTable:
    """queue -> next offset, in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set an offset (invariant 2)."""
        old = self._offsets.get(queue)
        if old is None or not increase_only or offset > old:
            self._offsets[queue] = offset

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        """Return a copy; an empty topic means all."""
        return {
            queue: offset
            for queue, offset in self._offsets.items()
            if not topic or queue.topic == topic
        }

    def keep_only(self, queues: Iterable[MessageQueue]) -> None:
        """Drop the queues that are not in the list."""
        kept = set(queues)
        for queue in [each for each in self._offsets if each not in kept]:
            log.info("dropped the offset of a queue that is no longer assigned queue=%s", queue)
            del self._offsets[queue]

    def items(self) -> list[tuple[MessageQueue, int]]:
        return list(self._offsets.items())


class OffsetStore(Protocol):
    """The offset store as a consumer needs it."""

    table: OffsetTable

    async def load(self) -> None: ...

    async def read(self, queue: MessageQueue, read_from: ReadFrom) -> int | None:
        """Return the next offset; None if absent. Raises: request errors of the broker."""
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, final: bool = False) -> None:
        """Store the offsets of these queues; final: wait for the answer, since the consumer leaves."""
        ...


class ConsumerOffsets(Protocol):
    """The two requests of RemoteBrokerOffsetStore; MQClientInstance serves them."""

    async def query_offset(self, group: str, queue: MessageQueue) -> int | None: ...

    async def update_offset(self, group: str, queue: MessageQueue, offset: int) -> None: ...


class RemoteBrokerOffsetStore:
    """Stored by the broker, in consumerOffset.json (S57).

    A commit is one-way, as RocketMQ's members send it: a restarted broker that has not received this
    member's heartbeat yet would take a two-way one for an administrator's reset of the group.
    """

    def __init__(self, brokers: ConsumerOffsets, group: str) -> None:
        self.table = OffsetTable()
        self._brokers = brokers
        self._group = group

    async def load(self) -> None:
        """Do nothing: offsets are read when a queue is taken."""

    async def read(self, queue: MessageQueue, read_from: ReadFrom) -> int | None:
        if read_from is not ReadFrom.STORE:
            offset = self.table.get(queue)
            if offset is not None or read_from is ReadFrom.MEMORY:
                return offset
        offset = await self._brokers.query_offset(self._group, queue)
        if offset is not None:
            self.table.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, final: bool = False) -> None:
        last: dict[str, MessageQueue] = {}
        for queue in queues:
            offset = self.table.get(queue)
            if offset is None:
                continue
            try:
                await self._brokers.update_offset(self._group, queue, offset)
                last[queue.broker_name] = queue
            except PocketMQError as error:
                log.warning(
                    "could not persist an offset queue=%s offset=%s reason=%r",
                    queue,
                    offset,
                    str(error),
                )
        for queue in last.values() if final else ():
            try:
                # A connection is served in order: when this is answered, the commits are done.
                await self._brokers.query_offset(self._group, queue)
            except PocketMQError as error:
                log.warning(
                    "not allowed to persist offsets broker=%s reason=%r",
                    queue.broker_name,
                    str(error),
                )


class LocalFileOffsetStore:
    """Stored in a file of this client (S58)."""

    def __init__(self, client_id: str, group: str, root: Path | None = None) -> None:
        """root: default `~/.rocketmq_offsets`."""
        self.table = OffsetTable()
        folder = (root or default_root()) / safe_name(client_id) / group
        self.path = folder / "offsets.json"
        self._backup = folder / "offsets.json.bak"
        # The timer's write and the last one of shutdown() must not meet in the file.
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file. Raises: OffsetFileBroken if neither it nor its backup is readable."""
        for queue, offset in (await asyncio.to_thread(self._read)).items():
            self.table.update(queue, offset, increase_only=False)

    def _read(self) -> dict[MessageQueue, int]:
        try:
            return _parse(self.path)
        except FileNotFoundError:
            pass
        except (fastjson.FastjsonError, OSError) as error:
            log.warning(
                "cannot read the offsets, trying the backup path=%s reason=%r",
                self.path,
                str(error),
            )
        try:
            return _parse(self._backup)
        except FileNotFoundError:
            return {}
        except (fastjson.FastjsonError, OSError) as error:
            raise OffsetFileBroken(
                f"neither {self.path} nor its backup can be read ({error}). Repair or delete them; "
                "without them this consumer starts where consume_from_where says"
            ) from error

    async def read(self, queue: MessageQueue, read_from: ReadFrom) -> int | None:
        offset = self.table.get(queue)
        if read_from is ReadFrom.MEMORY or (
            offset is not None and read_from is ReadFrom.MEMORY_FIRST
        ):
            return offset
        stored = (await asyncio.to_thread(self._read)).get(queue)
        if stored is not None:
            self.table.update(queue, stored, increase_only=False)
        return stored

    async def persist(self, queues: Iterable[MessageQueue], *, final: bool = False) -> None:
        wanted = set(queues)
        async with self._writing:
            offsets = {queue: offset for queue, offset in self.table.items() if queue in wanted}
            if offsets:
                await asyncio.to_thread(self._write, offsets)

    def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        # What the file holds of queues that are not ours now stays, as in Java 5.
        try:
            merged = {**self._read(), **offsets}
        except OffsetFileBroken:
            merged = dict(offsets)
        body = {"offsetTable": {queue_key(queue): merged[queue] for queue in sorted(merged)}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(f".{os.getpid()}.tmp")
        with beside.open("wb") as file:
            file.write(fastjson.dumps(body))
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            os.replace(self.path, self._backup)
        os.replace(beside, self.path)


class OffsetFileBroken(PocketMQError):
    """The offset file of a broadcasting consumer is unreadable."""


def _parse(path: Path) -> dict[MessageQueue, int]:
    data = fastjson.loads(path.read_bytes())
    table = data.get("offsetTable") if isinstance(data, Mapping) else None
    if not isinstance(table, Mapping):
        raise fastjson.FastjsonError(f"{path} holds no offsetTable")
    try:
        return {message_queue(key): int(offset) for key, offset in table.items()}
    except (TypeError, ValueError) as error:
        raise fastjson.FastjsonError(f"{path} holds an offset that is no number") from error


def default_root() -> Path:
    return Path.home() / ".rocketmq_offsets"


def safe_name(client_id: str) -> str:
    """Return the client id as a folder name; Windows allows no colon."""
    return client_id.replace(":", "_") if os.name == "nt" else client_id
