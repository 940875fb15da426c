"""Sink: a transport without a socket that keeps what is written."""

import asyncio
from collections.abc import Iterable
from typing import Any

from pocketmq.remoting.command import RemotingCommand, decode
from pocketmq.remoting.frames import FrameDecoder


class Sink(asyncio.Transport):
    """Takes all at once; its peer is 10.0.0.1:4711."""

    def __init__(self) -> None:
        super().__init__()
        self._written = b""
        self._closing = False

    def take(self) -> list[RemotingCommand]:
        """The frames written since."""
        written, self._written = self._written, b""
        return [decode(frame) for frame in FrameDecoder().feed(written)]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return "10.0.0.1", 4711

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        self._written += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._written += b"".join(list_of_data)

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
