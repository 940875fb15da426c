"""A proxy before a broker that lets plain sends through in groups of one size, and their answers, too.

How many answers a read brings decides how often a client is woken: a matter of time, which is another under
valgrind and from run to run. In groups every run has the same reads.
"""

import contextlib
import socket
import threading
from typing import Self

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import decode
from pocketmq.remoting.frames import FrameDecoder

_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)


class InStep:
    """group: how many sends go together; the first of a connection goes alone."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            # Waiting callers learn of this, where close() alone would leave them waiting.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def open(self, target: tuple[str, int]) -> None:
        """Let connections through to this address from now on."""
        threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def _accept(self, target: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(target)
                self._sockets += (client, broker)
                threading.Thread(target=self._serve, args=(client, broker), daemon=True).start()

    def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        held: set[int] = set()
        answers = threading.Thread(target=self._answer, args=(client, broker, held), daemon=True)
        answers.start()
        frames = FrameDecoder()
        sends: list[bytes] = []
        wanted = 1
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 18):
                for frame in _whole(frames, data):
                    command = decode(frame[4:])
                    if command.code not in _SENDS:
                        broker.sendall(frame)
                        continue
                    sends.append(frame)
                    held.add(command.opaque)
                    if len(sends) == wanted:
                        broker.sendall(b"".join(sends))
                        sends, wanted = [], self._group
            broker.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, broker: socket.socket, held: set[int]) -> None:
        frames = FrameDecoder()
        answers: list[bytes] = []
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 18):
                for frame in _whole(frames, data):
                    opaque = decode(frame[4:]).opaque
                    if opaque not in held:
                        client.sendall(frame)
                        continue
                    answers.append(frame)
                    held.discard(opaque)
                    if not held:
                        client.sendall(b"".join(answers))
                        answers = []
            client.shutdown(socket.SHUT_WR)


def _whole(frames: FrameDecoder, data: bytes) -> list[bytes]:
    """Frames that are whole now, with their length."""
    return [len(each).to_bytes(4, "big") + each for each in frames.feed(data)]
