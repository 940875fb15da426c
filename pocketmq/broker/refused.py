"""Refused, OffsetMoved: how an act declines a request."""

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import Carried


class Refused(Carried, Exception):
    """Nothing was done, because of `remark`; each front translates `code` for its clients."""

    def __init__(self, code: ResponseCode, remark: str | None = None) -> None:
        super().__init__(remark or code.name)
        self.code = code
        self.remark = remark


class OffsetMoved(Carried, Exception):
    """A pull whose client must continue at `offset` instead."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"go on at {offset}")
        self.offset = offset
