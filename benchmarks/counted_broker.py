"""A broker that handles requests when it is told to: the inside of benchmarks.instructions.

    python counted_broker.py READS HOST:PORT pocketmq-arguments...

READS is a pickled dictionary: name -> what one read of a socket brings, again and again. A line `name|count`
on standard input has so many reads handled on the loop, as if a connection had brought them, and the index
brought up to date; the line is printed again when that is done. No system call for a socket and no timer is
between the reads, so that the instructions of two runs are the same but for a few.
A name that begins with `grpc` goes to the gRPC port, as one connection that begins anew each time; what a
receive brings is acknowledged, and both are counted.
Where it begins with COPIED, what a slave in this process does with the same messages is counted instead;
where it begins with WAITED, sends of a SYNC_MASTER whose slave has each read's messages at once.
It imports nothing of the project before the broker does, and asks of it only Connection, IndexService and
GrpcServer (and what those two need of ha/), so that older commits can be counted too.
"""

import asyncio
import functools
import gc
import itertools
import os
import pickle
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_INDEX_EVERY = 1_000
COPIED, WAITED = "copied", "waited for"


class _Sink(asyncio.Transport):
    """Takes answers and keeps none."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40_000 if name == "peername" else 10_911)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None: ...

    def writelines(self, list_of_data: Any) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def _find(kind: type, fits: Callable[[Any], bool] = lambda each: True) -> Any:
    """The newest object of a class, or None; the broker freezes what it began with."""
    gc.unfreeze()
    found = [each for each in gc.get_objects() if isinstance(each, kind) and fits(each)]
    gc.freeze()
    return found[-1] if found else None


def _part(connection: Any, name: str) -> Any:
    """The part of a connection that does this; of an older commit, which has no such part, all of it."""
    return getattr(connection, name, connection)


async def _handle(handle: Callable[[bytes], None], index: Any, reads: Iterable[bytes]) -> None:
    def one(_: None, read: bytes) -> None:
        handle(read)
        if len(index.pending) >= _INDEX_EVERY:
            index.drain()

    # Counted is what is done within this function (COUNTED_FUNCTION): no timer of the broker's.
    functools.reduce(one, reads, None)
    functools.reduce(lambda *_: index.drain(), [None, None], None)
    while index.behind:
        index.drain()


class _Answers(_Sink):
    """Keeps what was written last."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def messages(self) -> list[bytes]:
        """Of the answer, whose only call had its frames of data."""
        from benchmarks.grpc_calls import frames, messages

        return list(messages(b"".join(data for kind, *_, data in frames(self.written) if not kind)))


async def _handle_grpc(server: Any, index: Any, reads: list[bytes], count: int) -> None:
    await server.load()
    from benchmarks.grpc_calls import ack_request, call_of
    from pocketmq.grpc.messages import classes

    connection, sink = server.connection(), _Answers()
    sys.modules["pocketmq.grpc.http2.connection"].TURN_MS = 1 << 40  # type: ignore[attr-defined]
    connection.connection_made(sink)
    ack_headers, *reads = reads
    for number, read in enumerate(reads[:count]):
        sink.written = b""
        functools.reduce(lambda _, each: connection.data_received(each), [read], None)
        if ack_headers:
            parse = classes["ReceiveMessageResponse"].FromString
            request = ack_request(map(parse, sink.messages()))
            assert len(request.entries) == 32, request
            ack = call_of(4 * number + 3, ack_headers, request.SerializeToString())
            functools.reduce(lambda _, each: connection.data_received(each), [ack], None)
        if len(index.pending) >= _INDEX_EVERY:
            functools.reduce(lambda *_: index.drain(), [None], None)
    assert not connection.calls
    while index.behind:
        index.drain()
    connection.connection_lost(None)


class _WaitingMaster:
    """The broker as a SYNC_MASTER, and a slave that acknowledges what a read brought."""

    def __init__(self, connection: Any) -> None:
        listening = sys.modules["pocketmq.broker.ha.listener"]
        self._client = connection
        self._listener = _find(listening.HaListener)
        self._slave = listening.SlaveConnection(self._listener)

    def __enter__(self) -> Callable[[bytes], None]:
        self._listener.config.broker_role = "SYNC_MASTER"
        self._slave.connection_made(_Sink())
        self._acknowledge()
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._listener.config.broker_role = "ASYNC_MASTER"
        self._slave.connection_lost(None)

    def _handle(self, read: bytes) -> None:
        self._client.data_received(read)
        self._listener._send()
        self._acknowledge()
        _part(self._client, "_outbox").flush()

    def _acknowledge(self) -> None:
        self._slave.data_received(self._listener.store.commit_log_max_position.to_bytes(8, "big"))


class _CopyingSlave:
    """A second store, which follows the broker's."""

    def __init__(self) -> None:
        from pocketmq.broker.ha.taking import FollowState, SliceTaking
        from pocketmq.remoting.clock import SystemClock
        from pocketmq.store import MessageStore, StoreConfig

        self._source = _find(sys.modules["pocketmq.broker.ha.listener"].HaListener).store
        self._folder = tempfile.TemporaryDirectory()
        store = MessageStore(
            StoreConfig(store_path_root_dir=self._folder.name),
            clock=SystemClock(),
            store_host=bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F)),
        )
        store.opens_following = True
        store.open()
        following = store.following
        assert following is not None
        self._step = following.step
        self.index = following.index
        self._taking = SliceTaking(following, FollowState(), SystemClock())
        self._taking.connection_made(_Sink())
        following.begin_at(0)
        self._taking.begin()
        self._position = 0

    def slices(self, handle: Callable[[bytes], None], reads: Iterable[bytes]) -> list[bytes]:
        """What a master sends for each of the reads. What came before is taken now."""
        for frame in self._new():
            self.take(frame)
        self.index.drain()
        found: list[bytes] = []
        for read in reads:
            handle(read)
            found += self._new()
        return found

    def _new(self) -> Iterator[bytes]:
        """What is new in the source."""
        while piece := self._source.raw(self._position, 1 << 16):
            yield struct.pack(">qi", self._position, len(piece)) + bytes(piece)
            self._position += len(piece)

    def take(self, frame: bytes) -> None:
        self._taking.data_received(frame)
        while self._step():
            pass


def _follow(works: dict[str, list[bytes]], address: str) -> None:
    host, _, port = address.rpartition(":")
    while True:
        try:
            client = socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.1)
    # Its first byte decides that it is plain; the request that it begins never comes.
    client.sendall(b"\0")
    peer = f"{host}:{client.getsockname()[1]}"
    connection = None
    while connection is None:
        time.sleep(0.1)
        remoting = sys.modules["pocketmq.remoting.transport.connection"]
        connection = _find(remoting.Connection, lambda each: bool(each.peer == peer))
    loop = _find(asyncio.Task).get_loop()
    index = _find(sys.modules["pocketmq.store.index.index_service"].IndexService)
    grpc = _find(sys.modules["pocketmq.grpc.server"].GrpcServer)
    for module in ("connection", "dispatch"):
        if f"pocketmq.remoting.transport.{module}" in sys.modules:
            sys.modules[f"pocketmq.remoting.transport.{module}"].TURN_MS = 1 << 40  # type: ignore[attr-defined]
    opened = threading.Event()

    def open_sink() -> None:
        connection.connection_made(_Sink())
        connection._decoder = type(connection._decoder)()
        opened.set()

    loop.call_soon_threadsafe(open_sink)
    opened.wait()
    print("following", flush=True)
    # A work resumes where it was: what is sent again may be a repetition.
    cycles = {name: itertools.cycle(reads) for name, reads in works.items()}
    for line in sys.stdin:
        name, _, count = line.partition("|")
        if name.startswith("grpc"):
            work = _handle_grpc(grpc, index, works[name], int(count))
        else:
            work = _work(name, connection, index, list(itertools.islice(cycles[name], int(count))))
        asyncio.run_coroutine_threadsafe(work, loop).result()
        print(line, end="", flush=True)


def _end(failed: threading.ExceptHookArgs) -> None:
    """The counting process learns of it."""
    sys.__excepthook__(failed.exc_type, failed.exc_value or Exception(), failed.exc_traceback)
    os._exit(1)


async def _work(name: str, connection: Any, index: Any, several: list[bytes]) -> None:
    if name.startswith(WAITED):
        with _WaitingMaster(connection) as handle:
            await _handle(handle, index, several)
    elif name.startswith(COPIED):
        slave = _slave()
        slices = slave.slices(connection.data_received, several)
        await _handle(slave.take, slave.index, slices)
    else:
        await _handle(connection.data_received, index, several)
    assert not _part(connection, "_dispatch")._waiting


@functools.cache
def _slave() -> _CopyingSlave:
    return _CopyingSlave()


def main() -> None:
    works = pickle.loads(Path(sys.argv[1]).read_bytes())
    threading.excepthook = _end
    threading.Thread(target=_follow, args=(works, sys.argv[2]), daemon=True).start()
    sys.argv[1:] = sys.argv[3:]
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from pocketmq.cli.__main__ import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
