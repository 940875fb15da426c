"""MasterGate: refuses the requests that only a master answers, while this broker follows one."""

from pocketmq.broker.role import MASTER_ONLY
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection, Handler


class MasterGate:
    """Edits the server's table of handlers; while it is open, requests pass through no extra check."""

    def __init__(self, handlers: dict[int, Handler]) -> None:
        self._handlers = handlers
        self._masters = {code: handlers[code] for code in MASTER_ONLY}

    def open(self) -> None:
        self._handlers.update(self._masters)

    def shut(self) -> None:
        self._handlers.update({code: _refusal(*why) for code, why in MASTER_ONLY.items()})


def _refusal(code: ResponseCode, remark: str) -> Handler:
    def refuse(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.answer(code, remark, {})

    return refuse
