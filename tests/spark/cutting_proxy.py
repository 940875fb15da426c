"""A proxy in front of a broker that ends connections at chosen requests, as a network or a restart does."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pocketmq.remoting.command import RemotingCommand, decode
from pocketmq.remoting.frames import FrameDecoder


class CuttingProxy:
    """Listens on 127.0.0.1 and forwards requests one by one.

    `cut` sees each request and says "" (forward it), "request" (it is lost with the connection) or "answer"
    (it reaches the broker, but its answer and those that are under way are lost). `passed` keeps every
    request that reached the broker.
    """

    def __init__(self, target: str, cut: Callable[[RemotingCommand], str]) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._cut = cut
        self.passed: list[RemotingCommand] = []
        self.cuts = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [self._server, *self._sockets]:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [near, far]
            threading.Thread(target=self._requests, args=(near, far), daemon=True).start()
            threading.Thread(target=self._answers, args=(far, near), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        frames = FrameDecoder()
        try:
            while data := near.recv(65536):
                for frame in frames.feed(data):
                    request = decode(frame)
                    cut = self._cut(request)
                    if cut:
                        self.cuts += 1
                        _end(near)
                    if cut != "request":
                        self.passed.append(request)
                        far.sendall(len(frame).to_bytes(4, "big") + frame)
                    if cut:
                        return
        except OSError:
            pass
        finally:
            _end(near)
            _shut(far)

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while data := far.recv(65536):
                try:
                    near.sendall(data)
                except OSError:
                    # Taken and thrown away: a reset now would lose what the broker has not read.
                    continue
        except OSError:
            pass
        finally:
            _end(near)
            _end(far)


def _shut(each: socket.socket) -> None:
    # The broker reads all that was sent before it sees the end.
    try:
        each.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _end(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    each.close()
