"""Refused, OffsetMoved: what an act raises when it does not do what it was asked."""

from pocketmq.remoting.codes import ResponseCode


class Refused(Exception):
    """Nothing was done, because of `remark`; each front has its own words for `code`."""

    def __init__(self, code: ResponseCode, remark: str | None = None) -> None:
        super().__init__(remark or code.name)
        self.code = code
        self.remark = remark


class OffsetMoved(Exception):
    """A pull whose client must go on at `offset` instead."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"go on at {offset}")
        self.offset = offset
