"""Follower: a slave's connection to its master's port for slaves. Source: HAClient, RocketMQ 4.9.7.

1. Before it follows it asks the master for its settings and ends (codes 26, 28): the files of the log must
   be of one size, and a master in another mode speaks another language on that port.
2. Then it compares the ends of the two logs (tail.py). Another end than the master's is not followed: it
   is refused in words, or cut back and kept in a file (slaveDivergence).
3. It reports what it has after each read, and takes the records in bounded steps between two reads.
4. With an empty log it asks for the master's whole log; 0 would bring the last file only. Where that log
   begins at 0 it asks for byte 1, since byte 0 of a log is always 0.
5. What ends a connection is tried again after RETRY_MS, at the address that was known last.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from pocketmq.broker.ha.config import CUT, HaConfig
from pocketmq.broker.ha.flow import Flow
from pocketmq.broker.ha.tail import Ends, common_end
from pocketmq.broker.ha.wire import HaWireError, Slices, report
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError
from pocketmq.store import MessageStore
from pocketmq.store.following import Following

log = logging.getLogger(__name__)

RETRY_MS = 1_000
_CONNECT_MS = 3_000
_READ_SIZE = 1 << 20
_BUFFER_SIZE = 4 << 20


class CannotFollow(PocketMQError):
    """Why a slave does not follow, in one sentence; somebody has to do something."""


class MasterAsked(Protocol):
    """What is known of the master, and asked of it by remoting (metadata.py)."""

    @property
    def ha_address(self) -> str:
        """`ip:port` of its port for slaves; empty while none is known."""
        ...

    def look_again(self) -> None:
        """It is not there: perhaps another one is, or it is elsewhere."""
        ...

    async def ends(self) -> Ends:
        """Its log's. Raises: PocketMQError, OSError."""
        ...

    async def settings(self) -> dict[str, str]:
        """Its broker.conf. Raises: PocketMQError, OSError."""
        ...


@dataclass(slots=True)
class FollowState:
    """What there is to say of it. Times are monotonic.

    connected: the two logs have been compared, and this one follows. trouble: why it does not.
    """

    master: str = ""
    connected: bool = False
    trouble: str = "it has just begun"
    heard_ms: int = 0
    received: Flow = field(default_factory=Flow)
    master_end: int = 0
    cuts: list[str] = field(default_factory=list)


class Follower:
    """Owner of the connection."""

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        store: MessageStore,
        master: MasterAsked,
        after_cut: Callable[[], None],
    ) -> None:
        """after_cut: called when the log was cut back, before anything else comes."""
        self._config = config
        self._monotonic_ms = clock.monotonic_ms
        self._store = store
        self.master = master
        self.state = FollowState()
        # An administrator wants the two to agree whatever it costs here: once.
        self.may_cut_once = False
        self._after_cut = after_cut
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Try at once."""
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
                log.warning("not following, tried again every %d ms: %s", RETRY_MS, trouble)
            self.state.trouble = trouble
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_MS / 1000):
                    await self._hurry.wait()
            self._hurry.clear()

    async def _once(self) -> None:
        """One connection, to its end. Raises: OSError, EOFError, PocketMQError."""
        address = self.master.ha_address
        if not address:
            raise CannotFollow("no master of this name is known to the name server")
        self.state.master = address
        ends = await self._check_master()
        following = await self._agree(address, ends)
        begin = self._begin(following, ends)
        async with _connected(address) as (reader, writer):
            writer.write(report(begin))
            self.state.heard_ms = self._monotonic_ms()
            self.state.connected, self.state.trouble = True, ""
            log.info("following master=%s from=%d", address, begin)
            await self._take(following, reader, writer)

    # ------------------------------------------------------------ before it

    async def _check_master(self) -> Ends:
        """Invariant 1."""
        settings = await self.master.settings()
        for name in ("enableControllerMode", "enableDLegerCommitLog", "duplicationEnable"):
            if settings.get(name) == "true":
                raise CannotFollow(
                    f"the master has {name}=true and speaks another language on its port for slaves"
                )
        size = int(settings.get("mappedFileSizeCommitLog", 0))
        own = self._store.log_file_size
        if size and size != own:
            if not self._store.log_is_empty:
                raise CannotFollow(
                    f"the master's log has files of {size} bytes and this one's have {own}: empty this "
                    f"store and set mappedFileSizeCommitLog={size}"
                )
            self._store.use_log_file_size(size)
        return await self.master.ends()

    async def _agree(self, address: str, ends: Ends) -> Following:
        """Invariant 2. Returns: what takes the bytes."""
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
                f"this log ends at {own}, the master's begins at {ends.low}: empty this store, so that "
                "it copies everything"
            )

        async def fetch(position: int, size: int) -> bytes:
            return await fetched(address, position, size)

        common = await common_end(store, ends, fetch)
        if common == own:
            return following if following.diverged is None else store.follow()
        if common is None:
            raise CannotFollow(
                f"this log ({store.commit_log_min_position} to {own}) and the master's ({ends.low} to "
                f"{ends.high}) have nothing in common: empty this store if the master's is the right one"
            )
        if self._config.slave_divergence != CUT and not self.may_cut_once:
            raise CannotFollow(
                f"this log ends at {own}, the master's at {ends.high}, and only up to {common} are they "
                f"the same: {own - common} bytes are here and not there. Keep the right one; to give "
                "these up (they are kept in a file) run `pocketmq ha resync`"
            )
        self.may_cut_once = False
        kept = store.cut_back(common)
        self.state.cuts += kept
        self._after_cut()
        log.error(
            "this log was another than the master's from %d on, and was cut back bytes=%d kept_in=%s",
            common,
            own - common,
            ",".join(kept),
        )
        assert store.following is not None
        return store.following

    def _begin(self, following: Following, ends: Ends) -> int:
        """What to report first (invariant 4)."""
        if self._store.log_is_empty:
            following.begin_at(ends.low)
            if ends.high and not ends.low:
                following.receive(b"\0")
        return following.received

    # ------------------------------------------------------------ following

    async def _take(
        self, following: Following, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Invariant 3. Raises: OSError, EOFError, PocketMQError."""
        slices, config = Slices(), self._config
        state = self.state
        while True:
            data = await self._read(reader)
            if data:
                state.heard_ms = self._monotonic_ms()
                for offset, piece in slices.feed(data):
                    if offset != following.received:
                        raise HaWireError(
                            f"the master sends {offset} where {following.received} comes next"
                        )
                    following.receive(piece)
                    state.received.add(len(piece), state.heard_ms)
                state.master_end = max(state.master_end, following.received)
            elif self._monotonic_ms() - state.heard_ms > config.ha_housekeeping_interval:
                raise TimeoutError("the master says nothing any more")
            writer.write(report(following.received))
            while following.step():
                await asyncio.sleep(0)
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """What has come; nothing when it is time for a sign of life. Raises: EOFError, OSError."""
        try:
            async with asyncio.timeout(self._config.ha_send_heartbeat_interval / 1000):
                data = await reader.read(_READ_SIZE)
        except TimeoutError:
            return b""
        if not data:
            raise EOFError("the master has closed the connection")
        return data


async def fetched(address: str, position: int, size: int) -> bytes:
    """Bytes of a master's log, over a connection of their own. Raises: OSError, EOFError, HaWireError."""
    slices = Slices()
    # Invariant 4: byte 0 is known, and to ask for it would bring the last file.
    found = bytearray(0 if position else 1)
    async with _connected(address) as (reader, writer), asyncio.timeout(_CONNECT_MS / 1000):
        writer.write(report(position + len(found)))
        while len(found) < size:
            data = await reader.read(_READ_SIZE)
            if not data:
                raise EOFError("the master has closed the connection")
            for offset, piece in slices.feed(data):
                if offset != position + len(found):
                    raise HaWireError(f"asked for {position + len(found)}, was sent {offset}")
                found += piece
    return bytes(found[:size])


@contextlib.asynccontextmanager
async def _connected(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_CONNECT_MS / 1000):
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), int(port), limit=_BUFFER_SIZE
        )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
