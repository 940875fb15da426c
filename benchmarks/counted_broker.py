"""A broker that handles requests when it is told to: the inside of benchmarks.instructions.

    python counted_broker.py READS HOST:PORT pocketmq-arguments...

READS is a pickled dictionary: name -> what one read of a socket brings, again and again. A line `name|count`
on standard input has so many reads handled on the loop, as if a connection had brought them, and the index
brought up to date; the line is printed again when that is done. No system call for a socket and no timer is
between the reads, so that the instructions of two runs are the same but for a few.
A name that begins with `grpc` goes to the gRPC port, as one connection that begins anew each time; what a
receive brings is acknowledged, and both are counted.
It imports nothing of the project before the broker does, and asks of it only Connection, IndexService and
GrpcServer, so that older commits can be counted too.
"""

import asyncio
import functools
import gc
import itertools
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_INDEX_EVERY = 1_000


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


async def _handle(connection: Any, index: Any, reads: list[bytes], count: int) -> None:
    def handle(_: None, read: bytes) -> None:
        connection.data_received(read)
        if len(index.pending) >= _INDEX_EVERY:
            index.drain()

    # Counted is what is done within this function (COUNTED_FUNCTION): no timer of the broker's.
    functools.reduce(handle, itertools.islice(itertools.cycle(reads), count), None)
    assert not connection._waiting
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
    sys.modules["pocketmq.grpc.connection"].TURN_MS = 1 << 40  # type: ignore[attr-defined]
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
        remoting = sys.modules["pocketmq.remoting.connection"]
        connection = _find(remoting.Connection, lambda each: bool(each.peer == peer))
    loop = connection._loop
    index = _find(sys.modules["pocketmq.store.index_service"].IndexService)
    grpc = _find(sys.modules["pocketmq.grpc.server"].GrpcServer)
    remoting.TURN_MS = 1 << 40  # type: ignore[attr-defined]
    opened = threading.Event()

    def open_sink() -> None:
        connection.connection_made(_Sink())
        connection._decoder = type(connection._decoder)()
        opened.set()

    loop.call_soon_threadsafe(open_sink)
    opened.wait()
    print("following", flush=True)
    for line in sys.stdin:
        name, _, count = line.partition("|")
        if name.startswith("grpc"):
            work = _handle_grpc(grpc, index, works[name], int(count))
        else:
            work = _handle(connection, index, works[name], int(count))
        asyncio.run_coroutine_threadsafe(work, loop).result()
        print(line, end="", flush=True)


def _end(failed: threading.ExceptHookArgs) -> None:
    """Whoever counts learns of it."""
    sys.__excepthook__(failed.exc_type, failed.exc_value or Exception(), failed.exc_traceback)
    os._exit(1)


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
