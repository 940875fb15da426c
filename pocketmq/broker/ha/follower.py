"""Follower: a slave's connection to its master's HA port. Source: HAClient, RocketMQ 4.9.7.

1. Before following, it queries the master's settings and log ends (codes 26, 28): the log files must have
   the same size, and a master in another mode speaks another protocol on that port.
2. Then it compares the ends of the two logs (tail.py). If they have diverged it does not follow: it refuses
   with a message, or cuts its end off and keeps that in a file (slaveDivergence).
3. Each read is acknowledged at once; the records are appended in bounded steps between two reads.
4. With an empty log it asks for the master's whole log; 0 would bring the last file only. Where that log
   begins at 0 it asks for byte 1, since byte 0 of a log is always 0.
5. After a lost connection it retries every RETRY_MS, at the last known address.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from pocketmq.broker.ha.config import CUT, SLAVE, HaConfig
from pocketmq.broker.ha.tail import Ends, common_end
from pocketmq.broker.ha.taking import (
    CONNECT_S,
    CannotFollow,
    FollowState,
    SliceTaking,
    Taking,
    fetched_slices,
    host_and_port,
)
from pocketmq.broker.ha.wire import COMPARED, report
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError
from pocketmq.store import MessageStore
from pocketmq.store.following import Following

log = logging.getLogger(__name__)

RETRY_MS = 1_000
# An int of Java's.
_FILE_SIZE_MAX = (1 << 31) - 1
_DIGITS_MAX = 10


def _file_size(text: str) -> int:
    """Return the size that a master's settings give; 0: they give none. Raises: CannotFollow."""
    size = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else -1
    if not 0 <= size <= _FILE_SIZE_MAX:
        raise CannotFollow(f"the master's mappedFileSizeCommitLog is no size: {text[:100]!r}")
    return size


class MasterAsked(Protocol):
    """What a slave knows of its master, and queries over remoting (table_sync.py)."""

    @property
    def address(self) -> str:
        """Return `ip:port` of the broker; empty while unknown."""
        ...

    @property
    def ha_address(self) -> str:
        """Return `ip:port` of its HA port; empty while unknown."""
        ...

    def look_again(self) -> None:
        """Look the master up again: it cannot be reached, so it may have moved or been replaced."""
        ...

    async def ends(self) -> Ends:
        """Return the ends of its log. Raises: PocketMQError, OSError."""
        ...

    async def end(self) -> int:
        """Return the end of its log. Raises: PocketMQError, OSError."""
        ...

    async def settings(self) -> dict[str, str]:
        """Return its broker.conf. Raises: PocketMQError, OSError."""
        ...

    async def ticket(self) -> int | None:
        """Return what opens one connection to its HA port; None if that takes none (proof.py).

        Raises: PocketMQError, OSError.
        """
        ...


class Follower:
    """Owner of the connection. retry_ms: the pause after a connection that ended."""

    retry_ms = RETRY_MS

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        store: MessageStore,
        master: MasterAsked,
        after_cut: Callable[[], None],
    ) -> None:
        """after_cut: called when the log was cut back, before anything else is received."""
        self._config = config
        self._clock = clock
        self._store = store
        self.master = master
        self.state = FollowState()
        # An administrator wants the two to agree whatever it costs here: once.
        self.may_cut_once = False
        self._after_cut = after_cut
        self._hurry = asyncio.Event()
        self._master_is_ours = False

    def hurry(self) -> None:
        """Retry at once."""
        self._hurry.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            trouble = ""
            try:
                await self._once()
            except (OSError, EOFError, PocketMQError) as error:
                trouble = str(error) or type(error).__name__
            finally:
                self.state.connected = False
            self.master.look_again()
            if trouble != self.state.trouble:
                log.warning(
                    "not following the master, next try in %d ms: %s", self.retry_ms, trouble
                )
            self.state.trouble = trouble
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.retry_ms / 1000):
                    await self._hurry.wait()
            self._hurry.clear()

    async def _once(self) -> None:
        """Follow over one connection until it ends. Raises: OSError, EOFError, PocketMQError."""
        # First, since it is the proved master that gives the address of its HA port.
        ends = await self._check_master()
        address = self.master.ha_address
        if not address:
            raise CannotFollow("the name server knows no master of this name")
        self.state.master = address
        following = await self._agree(address, ends)
        begin = self._begin(following, ends)
        await self._take(following, address, begin)

    # ------------------------------------------------------------ before it

    async def _check_master(self) -> Ends:
        """Check invariant 1; return the ends of the master's log."""
        settings = await self.master.settings()
        # A setting of the version that has the greeting, and of no Apache broker.
        self._master_is_ours = "masterAddress" in settings
        self._check_mode(settings)
        self._check_files(settings)
        return await self.master.ends()

    def _check_mode(self, settings: Mapping[str, str]) -> None:
        """Check that the master speaks this protocol. Raises: CannotFollow."""
        for name in ("enableControllerMode", "enableDLegerCommitLog", "duplicationEnable"):
            if settings.get(name) == "true":
                raise CannotFollow(
                    f"the master has {name}=true and speaks another protocol on its port for slaves"
                )

    def _check_files(self, settings: Mapping[str, str]) -> None:
        """Check that the master is one, and that its log has files of the same size. Raises: CannotFollow."""
        if settings.get("brokerRole") == SLAVE:
            raise CannotFollow(f"no master: the broker {self.master.address} is a slave, too")
        size = _file_size(settings.get("mappedFileSizeCommitLog", "0"))
        own = self._store.log_file_size
        if size and size != own:
            if not self._store.log_is_empty:
                raise CannotFollow(
                    f"the master's log has files of {size} bytes, but this one's have {own}: empty this "
                    f"store and set mappedFileSizeCommitLog={size}"
                )
            self._store.use_log_file_size(size)

    async def _agree(self, address: str, ends: Ends) -> Following:
        """Apply invariant 2. Returns: what receives the bytes."""
        store = self._store
        following = store.following
        assert following is not None
        following.drop_rest()
        own = store.commit_log_max_position
        self.state.master_end = ends.high
        if store.log_is_empty:
            return following
        if own < ends.low:
            raise CannotFollow(
                f"this log ends at {own}, but the master's begins at {ends.low}: empty this store, so that "
                "it copies everything"
            )

        async def fetch(position: int, size: int) -> bytes:
            greeting = self._greeting(await self.master.ticket())
            return await fetched_slices(address, position, size, greeting)

        common = await common_end(store, ends, fetch)
        if common == own:
            return following if following.diverged is None else store.follow()
        if common is None:
            raise CannotFollow(
                f"this log ({store.commit_log_min_position} to {own}) and the master's ({ends.low} to "
                f"{ends.high}) have nothing in common: if the master's is the right one, empty this store"
            )
        if self._config.slave_divergence != CUT and not self.may_cut_once:
            raise CannotFollow(
                f"this log ends at {own}, the master's at {ends.high}, and they differ from {common} on: "
                f"{own - common} bytes are here only. Keep the right log; to give these bytes up (they are "
                "saved to a file) run `pocketmq ha resync`"
            )
        self.may_cut_once = False
        following = self._cut_back(common, common)
        self._after_cut()
        return following

    def _cut_back(self, common: int, to: int) -> Following:
        """Cut the log at `to`, the end of a record at or before `common`; the rest is kept in a file.

        Returns: what receives the master's bytes instead.
        """
        store = self._store
        own = store.commit_log_max_position
        kept = store.cut_back(to)
        self.state.cuts += kept
        log.error(
            "this log differed from the master's from %d on, and was cut back bytes=%d kept_in=%s",
            common,
            own - common,
            ",".join(kept),
        )
        assert store.following is not None
        return store.following

    def _begin(self, following: Following, ends: Ends) -> int:
        """Return the first position to report (invariant 4)."""
        if self._store.log_is_empty:
            following.begin_at(ends.low)
            if ends.high and not ends.low:
                following.receive(b"\0")
        return following.received

    def _greeting(self, ticket: int | None) -> list[int]:
        """Return what comes before the first report (wire.py); nothing to masters that do not know it."""
        if ticket is not None:
            return [ticket]
        return [COMPARED] if self._master_is_ours else []

    async def _take(self, following: Following, address: str, begin: int) -> None:
        """Receive the log (invariant 3). Raises: OSError, EOFError, PocketMQError."""
        host, port = host_and_port(address)
        ticket = await self.master.ticket()
        async with asyncio.timeout(CONNECT_S):
            transport, taking = await asyncio.get_running_loop().create_connection(
                lambda: SliceTaking(following, self.state, self._clock), host, port
            )
        for each in self._greeting(ticket):
            transport.write(report(each))
        await self._stay(taking, begin)

    async def _stay(self, taking: Taking, begin: int) -> None:
        """Receive until the connection ends. Raises: OSError, EOFError, PocketMQError."""
        state, config, clock = self.state, self._config, self._clock
        try:
            taking.begin()
            state.heard_ms = clock.monotonic_ms()
            state.connected, state.trouble = True, ""
            log.info("following the master master=%s from=%d", state.master, begin)
            while not taking.ended.done():
                # A sign of life, the other way as well: the master counts on it.
                await asyncio.wait(
                    (taking.ended,), timeout=config.ha_send_heartbeat_interval / 1000
                )
                if clock.monotonic_ms() - state.heard_ms > config.ha_housekeeping_interval:
                    raise TimeoutError("the master no longer answers")
                taking.report()
            await taking.ended
        finally:
            taking.abort()
