"""A tap on the wire: forwards between a client and a server and keeps the head of every frame.

The server advertises 127.0.0.2, where the tap listens on the server's own ports, so that clients meet
the tap without knowing it. Nothing is changed on the way.
"""

import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

TAP_HOST = "127.0.0.2"


@dataclass(frozen=True)
class FrameHead:
    """What the first 8 bytes of a frame say: who sent it, and the serialize type of its header.

    connection: which one of the tap's, in the order in which they were made.
    """

    connection: int
    from_client: bool
    serialize_type: int
    size: int


class Tap:
    """Listens on 127.0.0.2 at each port and forwards to 127.0.0.1; `frames` grows as they pass."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.frames: list[FrameHead] = []
        self.connections = 0
        # Those of the console, which asks its broker from time to time.
        self.own: set[int] = set()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        for port in ports:
            server = socket.create_server((TAP_HOST, port))
            self._sockets.append(server)
            self._run(self._accept, server, port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _end(each)
        for thread in self._threads:
            thread.join(10)

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket, port: int) -> None:
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", port), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets += [near, far]
                self.connections += 1
                connection = self.connections
            self._run(self._forward, near, far, connection, True)
            self._run(self._forward, far, near, connection, False)

    def _forward(
        self, source: socket.socket, target: socket.socket, connection: int, from_client: bool
    ) -> None:
        buffer = bytearray()
        try:
            while data := source.recv(65536):
                target.sendall(data)
                buffer += data
                self._take(buffer, connection, from_client)
        except OSError:
            pass
        _end(source)
        _end(target)

    def _take(self, buffer: bytearray, connection: int, from_client: bool) -> None:
        while len(buffer) >= 8:
            size = int.from_bytes(buffer[:4], "big")
            if len(buffer) < 4 + size:
                return
            if from_client and b'"language":"PYTHON"' in buffer[: 4 + size]:
                self.own.add(connection)
            with self._lock:
                self.frames.append(FrameHead(connection, from_client, buffer[4], size))
            del buffer[: 4 + size]


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
