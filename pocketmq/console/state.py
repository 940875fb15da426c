"""Console: the state passed to the handlers of the API and the pages."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pocketmq.admin import Admin
from pocketmq.console.circuit_breaker import CircuitBreaker
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.quiet import Quiet
from pocketmq.console.security import Security
from pocketmq.console.time.alarm_hook import AlarmWatch
from pocketmq.console.time.history_file import kept_history
from pocketmq.console.time.sampler import Sampler
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.console.remote_broker import RemoteBroker

_REQUEST_TIMEOUT_MS = 3_000


@dataclass(slots=True)
class Console:
    """The parts. here, elsewhere: brokers of this very process, and of others that it answers for (for
    /metrics and /health); may be none.

    closing is set when the server ends: handlers that keep an answer open must watch it. message_types are
    the types of topics that api/topic.py learned last. choose picks the queue of a test message.
    """

    config: ConsoleConfig
    clock: Clock
    admin: Admin
    security: Security
    sampler: Sampler
    watch: AlarmWatch
    quiet: Quiet
    here: "Sequence[Broker]" = ()
    elsewhere: "Sequence[RemoteBroker]" = ()
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    message_types: dict[str, str] | None = None
    message_types_until_ms: int = 0
    choose: Callable[[Sequence[MessageQueue]], MessageQueue] = random.choice


@asynccontextmanager
async def opened(
    config: ConsoleConfig,
    options: dict[str, Any],
    clock: Clock,
    here: "Sequence[Broker]",
    elsewhere: "Sequence[RemoteBroker]",
) -> AsyncIterator[Console]:
    """Open a console with its connections to name servers and brokers."""
    # A broker that hangs must not hold up a page for longer than a person waits.
    given: dict[str, Any] = {"request_timeout_ms": _REQUEST_TIMEOUT_MS, **options}
    usual_ms = given["request_timeout_ms"]
    admin = Admin(around=lambda inner: CircuitBreaker(inner, clock, usual_ms), **given)
    async with AsyncExitStack() as stack:
        history = stack.enter_context(kept_history(config.folder, config.sample_interval_ms))
        await stack.enter_async_context(admin)
        sampler = Sampler(admin, clock, history)
        yield Console(
            config,
            clock,
            admin,
            Security(config, clock, machine_name=socket.gethostname()),
            sampler,
            AlarmWatch(config.alarm_file, sampler, clock),
            Quiet(config.folder, clock),
            here,
            elsewhere,
        )
