"""Seats: users of the brokers who are logged in, each with connections that sign with the user's password.

1. The password is compared by the brokers: a log-in is a request that each broker must accept, and that does
   nothing. A broker that checks no users is not asked; if there is no other, no user can log in.
2. What a user does is signed by the user: the broker decides, and its audit trail names the user.
3. While a seat is used, the brokers are asked again every CHECKED_MS: one that is refused there (another
   password, disabled, deleted) is lost, and the sight follows the policies.
4. A password is in memory only, as long as its seat. Seats end by log-out, after SESSION_MS, and when others
   need their place (SEATS_MAX).
5. Brokers that do not answer decide nothing; without an answer of any, a log-in fails and a seat stays as
   it is.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from pocketmq.admin import Admin, ClusterBroker
from pocketmq.client.errors import NoPermission, RequestNotSupported, Unauthorised
from pocketmq.console.errors import ApiError
from pocketmq.console.security import SESSION_MS, Session
from pocketmq.console.users.sight import UNKNOWN, Sight, sight_of
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument, PocketMQError, RemotingError
from pocketmq.remoting.headers import UnregisterClientHeader

log = logging.getLogger(__name__)

CHECKED_MS = 2_000
SEATS_MAX = 200
_SUPER = "Super"
_REFUSALS = (NoPermission, Unauthorised)
# No client has this name, so that nothing is unregistered.
_NO_CLIENT = "pocketmq-console-login"


@dataclass(slots=True, eq=False)
class Seat:
    """A logged-in user. view: what the console keeps for it, made by its owner."""

    user: str
    admin: Admin
    since_ms: int
    sight: Sight = UNKNOWN
    checked_ms: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    view: Any = None


class Seats:
    """Owner of the seats, by the id of their session; use as a context."""

    def __init__(self, own: Admin, clock: Clock, connect: Callable[[Credentials], Admin]) -> None:
        """own: the console's connections; connect: makes those of a user."""
        self._own = own
        self._clock = clock
        self._connect = connect
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for seat in self._seats.values():
            seat.left.set()
        await self._tasks.__aexit__(None, None, None)

    # ------------------------------------------------------------ coming and going

    async def check(self, user: str, password: str) -> Sight:
        """Return what a user sees, without a seat. Raises: as `prove`."""
        async with self._connect(_credentials(user, password)) as admin:
            await self._prove(admin)
            return await self._look(user, admin)

    async def prove(self, user: str, password: str) -> Seat:
        """Return a seat for a user whose password the brokers accept; `take` makes it a session's.

        Raises: ApiError 401 if one refuses it, 403 if none checks users, RemotingError if none answers.
        """
        admin = self._connect(_credentials(user, password))
        seat = Seat(user, admin, self._clock.monotonic_ms())
        opened = asyncio.Event()
        # Connections belong to one task, and requests come in many.
        self._tasks.create_task(_hold(seat, opened), name="console seat")
        await opened.wait()
        try:
            await self._prove(admin)
            seat.sight = await self._look(user, admin)
        except BaseException:
            seat.left.set()
            raise
        seat.checked_ms = self._clock.monotonic_ms()
        return seat

    def take(self, session: Session, seat: Seat) -> None:
        """Make a seat a session's."""
        self._seats[session.id] = seat
        while len(self._seats) > SEATS_MAX:
            _, oldest = self._seats.popitem(last=False)
            oldest.left.set()

    def leave(self, session: Session) -> None:
        """End a session's seat, if it has one."""
        seat = self._seats.pop(session.id, None)
        if seat is not None:
            seat.left.set()

    def has(self, session: Session) -> bool:
        """Return True if the session's user is still logged in."""
        seat = self._seats.get(session.id)
        if seat is not None and self._clock.monotonic_ms() - seat.since_ms > SESSION_MS:
            self.leave(session)
            return False
        return seat is not None

    async def of(self, session: Session) -> Seat:
        """Return the seat of a session, as the brokers have it now (invariant 3). Raises: ApiError 401."""
        if not self.has(session):
            raise ApiError(401, "LOGIN", "this needs a login", "log in first")
        seat = self._seats[session.id]
        self._seats.move_to_end(session.id)
        async with seat.lock:
            if self._clock.monotonic_ms() - seat.checked_ms < CHECKED_MS:
                return seat
            try:
                await self._prove(seat.admin)
                seat.sight = await self._look(seat.user, seat.admin)
                seat.checked_ms = self._clock.monotonic_ms()
            except ApiError as error:
                log.warning("console log-in ended user=%s why=%r", seat.user, error.error)
                self.leave(session)
                raise ApiError(
                    401, "LOGIN", "the brokers no longer accept this login", "log in again"
                ) from error
            except RemotingError as error:
                log.warning("cannot check a user of the console: %s", error)
        return seat

    # ------------------------------------------------------------ asking the brokers

    async def _prove(self, admin: Admin) -> None:
        """Apply invariant 1. Raises: ApiError 401, 403; RemotingError if no broker answers."""
        accepted, silent = 0, None
        for broker in await self._own.site.masters():
            try:
                if not await self._checks_users(broker):
                    continue
                await admin.site.api.requests.ask(
                    broker.address,
                    RequestCode.UNREGISTER_CLIENT,
                    UnregisterClientHeader(_NO_CLIENT),
                )
                accepted += 1
            except _REFUSALS as error:
                raise ApiError(401, "LOGIN", "user or password is wrong", None) from error
            except RemotingError as error:
                silent = error
        if accepted:
            return
        if silent is not None:
            raise silent
        raise ApiError(
            403,
            "FORBIDDEN",
            "no broker of this cluster checks users, so none can log in here",
            "set authenticationEnabled at the brokers, or consoleUser and consolePassword here",
        )

    async def _checks_users(self, broker: ClusterBroker) -> bool:
        """Return whether a broker refuses what no user has signed; its refusal is an answer, too."""
        try:
            settings = await self._own.settings.broker(broker.address)
        except _REFUSALS:
            return True
        return settings.get("authenticationEnabled") == "true"

    async def _look(self, user: str, admin: Admin) -> Sight:
        """Return what a user sees, by the policies that the console may read, or else the user."""
        kinds: set[object] = set()
        policies: list[tuple[str, Any]] = []
        for broker in await self._own.site.masters():
            try:
                found = await self._read(broker, user, admin)
            except RequestNotSupported:
                continue
            except RemotingError as error:
                log.warning("cannot read the policies of a broker: %s", error)
                continue
            if found is None:
                return UNKNOWN
            kinds.add(found[0])
            policies.append((broker.cluster, found[1]))
        try:
            return sight_of(kinds == {_SUPER}, policies) if policies else UNKNOWN
        except IllegalArgument as error:
            log.warning("cannot read the policies of %s: %s", user, error)
            return UNKNOWN

    async def _read(
        self, broker: ClusterBroker, user: str, admin: Admin
    ) -> tuple[object, list[Any]] | None:
        """Return the type and the policies of a user at a broker; None if neither may read them."""
        for asking in (self._own, admin):
            try:
                users = await asking.users.all(broker.address)
                lines = await asking.users.policies(broker.address)
            except _REFUSALS:
                continue
            kind = next((each.get("userType") for each in users if each["username"] == user), None)
            return kind, lines.get(user, [])
        return None


def _credentials(user: str, password: str) -> Credentials:
    """Return what a user signs with. Raises: ApiError 401 for what no user can have."""
    try:
        return Credentials(user, password)
    except PocketMQError as error:
        raise ApiError(401, "LOGIN", "user or password is wrong", None) from error


async def _hold(seat: Seat, opened: asyncio.Event) -> None:
    """Keep the connections of a seat open until it is left; a failure to close them ends no other seat."""
    try:
        async with seat.admin:
            opened.set()
            await seat.left.wait()
    except Exception:
        log.exception("cannot close the connections of a user of the console")
    finally:
        opened.set()
