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
from pocketmq.console.time.figures import Figures
from pocketmq.console.time.history_file import kept_history
from pocketmq.console.time.sampler import Sampler
from pocketmq.console.users.seats import Seats
from pocketmq.console.users.sight import EVERYTHING, Sight
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.credentials import Credentials

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.console.remote_broker import RemoteBroker

_REQUEST_TIMEOUT_MS = 3_000


@dataclass(slots=True)
class Console:
    """The parts, as one session sees them: a user of the brokers gets a copy (users/view.py).

    admin: signs as the viewer; own: as the console. sight: what the viewer sees of figures and names. seats:
    None if no users of the brokers log in. here, elsewhere: brokers of this process, and of others that it
    answers for (for /metrics and /health); may be none.

    closing is set when the server ends: handlers that keep an answer open must watch it. message_types are
    the types of topics that api/topic.py learned last. choose picks the queue of a test message.
    """

    config: ConsoleConfig
    clock: Clock
    admin: Admin
    own: Admin
    security: Security
    sampler: Sampler
    figures: Figures
    watch: AlarmWatch
    quiet: Quiet
    here: "Sequence[Broker]" = ()
    elsewhere: "Sequence[RemoteBroker]" = ()
    seats: Seats | None = None
    sight: Sight = EVERYTHING
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

    def connect(credentials: Credentials | None = None) -> Admin:
        signing = {} if credentials is None else {"credentials": credentials}
        return Admin(around=lambda inner: CircuitBreaker(inner, clock, usual_ms), **given | signing)

    admin = connect()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(kept_history(config.folder, config.sample_interval_ms))
        await stack.enter_async_context(admin)
        sampler = Sampler(admin, clock, history)
        seats = None
        if config.broker_users:
            seats = await stack.enter_async_context(Seats(admin, clock, connect))
        yield Console(
            config,
            clock,
            admin,
            admin,
            Security(config, clock, machine_name=socket.gethostname()),
            sampler,
            sampler,
            AlarmWatch(config.alarm_file, sampler, clock),
            Quiet(config.folder, clock),
            here,
            elsewhere,
            seats,
        )
