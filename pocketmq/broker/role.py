"""Role: what runs and what is answered only while this broker is the master of its name.

A master writes on its own: due delayed messages, transaction checks, redelivered pops, automatically created
topics. A broker that follows a master must do none of this: its log is the master's, byte for byte. All of it
is listed here, and no other module asks whether this broker leads.

1. The services are tasks; `lead` starts them, `follow` ends them and waits for their end.
2. MASTER_ONLY names the requests that a follower refuses. While it follows, refusals replace their entries
   in the table of handlers; while it leads, requests pass through no extra check.
3. `leads` decides on the side effects of requests: while the broker follows, a heartbeat creates no retry
   topic and a pull stores no offset.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pocketmq.remoting.codes import RequestCode, ResponseCode

_C, _R = RequestCode, ResponseCode

_SEND = (
    _R.SERVICE_NOT_AVAILABLE,
    "service not available now: this broker is a slave, send to its master",
)
_POP = (_R.SERVICE_NOT_AVAILABLE, "this broker is a slave: pop and acknowledge at its master")
_TABLE = (
    _R.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker.",
)

# Request -> code and remark of a follower's answer. Source of the codes: the checks of
# `BrokerRole.SLAVE` in the processors of RocketMQ 4.9.7.
MASTER_ONLY: Mapping[int, tuple[ResponseCode, str]] = {
    _C.SEND_MESSAGE: _SEND,
    _C.SEND_MESSAGE_V2: _SEND,
    _C.SEND_BATCH_MESSAGE: _SEND,
    _C.SEND_REPLY_MESSAGE: _SEND,
    _C.SEND_REPLY_MESSAGE_V2: _SEND,
    _C.CONSUMER_SEND_MSG_BACK: (_R.NO_PERMISSION, "the broker is a slave: send back to its master"),
    _C.END_TRANSACTION: (
        _R.SLAVE_NOT_AVAILABLE,
        "the broker is a slave: end the transaction at its master",
    ),
    _C.RECALL_MESSAGE: (
        _R.SLAVE_NOT_AVAILABLE,
        "recall failed, broker service not available",
    ),
    _C.RESUME_CHECK_HALF_MESSAGE: _SEND,
    _C.POP_MESSAGE: _POP,
    _C.POP_LITE_MESSAGE: _POP,
    _C.LITE_SUBSCRIPTION_CTL: _POP,
    _C.ACK_MESSAGE: _POP,
    _C.BATCH_ACK_MESSAGE: _POP,
    _C.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    _C.UPDATE_AND_CREATE_TOPIC: _TABLE,
    _C.UPDATE_AND_CREATE_TOPIC_LIST: _TABLE,
    _C.DELETE_TOPIC_IN_BROKER: _TABLE,
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _TABLE,
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _TABLE,
    _C.DELETE_SUBSCRIPTIONGROUP: _TABLE,
}


@dataclass(frozen=True, slots=True)
class Service:
    """Something that only a master does; run: works until it is cancelled, may be run again."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


class Gate(Protocol):
    """Guards the requests that only a master answers (wire/gate.py)."""

    def open(self) -> None:
        """Let them through."""
        ...

    def shut(self) -> None:
        """Refuse them as MASTER_ONLY says."""
        ...


class Role:
    """Owner of the services' tasks and of the requests that a follower refuses."""

    def __init__(self) -> None:
        self._services: tuple[Service, ...] = ()
        self._gate: Gate | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self.running: list[asyncio.Task[None]] = []
        self.leads = False

    def begin(
        self,
        services: Iterable[Service],
        gate: Gate,
        tasks: asyncio.TaskGroup,
        *,
        leads: bool = True,
    ) -> None:
        """Lead, or stay silent. tasks: the parent of the services."""
        self._services = tuple(services)
        self._gate = gate
        self._tasks = tasks
        if leads:
            self.lead()
        else:
            gate.shut()

    def lead(self) -> None:
        """Become the master."""
        assert self._tasks is not None
        assert self._gate is not None
        self.leads = True
        self._gate.open()
        self.running = [
            self._tasks.create_task(each.run(), name=each.name) for each in self._services
        ]

    async def follow(self) -> None:
        """Stop leading; returns when every service has ended."""
        assert self._gate is not None
        self.leads = False
        self._gate.shut()
        await self.stop()

    async def stop(self) -> None:
        """End the services, and wait for their end."""
        running, self.running = self.running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
