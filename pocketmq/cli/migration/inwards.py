"""Inwards: a broker of ours takes over from the master that it follows.

    step          what it does                                               undone by
    follow        copies the log and the tables, as a slave                  stopping this broker
    verify        compares the ends of all queues, and pieces of the log     -
    come between  clients find this broker in the route; requests are        routes name the source again, and
                  passed on to the source                                    clients come back to it
    take over     clients wait; the source refuses sends; the rest is        clients resume at the source,
                  copied; this broker leads and answers what waited          which accepts sends again
    see out       the source is stopped                                      (it has missed messages)

1. Only "take over" is a pause. No client has to find another address in it: all are here already.
2. Until this broker leads, whatever goes wrong or stops it, each step is undone, the last first.
3. The source may register at its name servers once more, and does so for as long as it lives: whenever
   they name it as the master this broker registers, too. Both lead to the same messages.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from random import Random

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.follower import Follower
from pocketmq.broker.ha.taking import fetched_slices
from pocketmq.cli.migration.report import LOOK_S, MigrationRefused, MigrationReport
from pocketmq.cli.migration.source import Source
from pocketmq.client.network.gather import together
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.errors import PocketMQError, RequestTimeout
from pocketmq.remoting.transport.proxy import Proxy

log = logging.getLogger(__name__)

ROUTE_LOOK_S = 0.3
QUIET_MS = 3_000
_NEAR_SIZE = 4 << 20
_PIECES = 64
_PIECE_SIZE = 64 << 10
_ASKED_AT_ONCE = 16
# A source that is busy is asked for a piece again, after pauses that double.
_ASKED_AT_MOST = 6
_UNREGISTERS_MS = 60_000


class Inwards:
    """Owner of the steps.

    route_ms: how long clients may keep using the route that they know. role: this broker's, when it leads.
    """

    def __init__(
        self, broker: Broker, source: Source, talk: MigrationReport, *, route_ms: int, role: str
    ) -> None:
        self._broker = broker
        self._source = source
        self._say = talk.say
        self._confirm = talk.confirm
        self._route_ms = route_ms
        self._role = role
        self._number = broker.config.broker_id
        self._replication = broker.parts.services.replication
        self._store = broker.parts.messages.store
        self._monotonic_ms = broker.clock.monotonic_ms
        self._own_ha_address = broker.registration.identity.ha_address
        # From here on there is no way back (2).
        self.leads = False
        self.pause_ms = -1

    async def run(self) -> None:
        """Run all steps to the take-over. Raises: MigrationRefused, PocketMQError, OSError."""
        await self.follow()
        await self.verify()
        await self._confirm(
            f"{self._source.name} at {self._source.address} has been copied to this broker, which "
            f"now takes its place"
        )
        async with AsyncExitStack() as undo:
            passage = await self.come_between(undo)
            await self.wait_for_clients(passage)
            await self.take_over(passage, undo)
            undo.pop_all()

    @property
    def follower(self) -> Follower:
        follower = self._replication.follower
        assert follower is not None, "this broker already leads"
        return follower

    # ------------------------------------------------------------ follow

    async def follow(self) -> None:
        """Follow until level with the source, and the tables are copied."""
        self._say(f"following {self._source.name} at {self._source.address}")
        began_ms = shown_ms = self._monotonic_ms()
        first = self._store.commit_log_max_position
        while True:
            state, metadata = self.follower.state, self._replication.metadata
            assert metadata is not None
            end = self._store.commit_log_max_position
            behind = state.master_end - end
            if state.connected and behind < _NEAR_SIZE and metadata.rounds:
                await self._level()
                break
            now_ms = self._monotonic_ms()
            if now_ms - shown_ms >= 2_000:
                shown_ms = now_ms
                trouble = "" if state.connected else state.trouble
                done = progress(end - first, max(behind, 0), now_ms - began_ms)
                self._say(f"  not following yet: {trouble}" if trouble else f"  {done}")
            await asyncio.sleep(LOOK_S)
        self._say(f"level at {self._store.commit_log_max_position} bytes")

    async def _level(self) -> None:
        """Wait until everything that the source has now is here; RocketMQ sends it within 100 ms."""
        while True:
            try:
                end = await self.follower.master.end()
                break
            except RequestTimeout as error:
                # Nothing is at stake yet: a source that is busy is asked again.
                log.warning("the source responds slowly reason=%s", error)
        while self._store.commit_log_max_position < end:
            await asyncio.sleep(LOOK_S / 5)

    # ------------------------------------------------------------ verify

    async def verify(self) -> None:
        """Compare the ends of all queues, and pieces of the log. Raises: MigrationRefused."""
        queues = await self._check_queues()
        sizes = await self._check_log()
        self._say(
            f"the same: {queues} queues, {sum(sizes)} bytes of the log in {len(sizes)} places"
        )

    async def _check_queues(self) -> int:
        api, address, store = self._source.admin.site.api, self._source.address, self._store

        async def ask(queue: tuple[str, int]) -> int:
            topic, queue_id = queue
            return await api.max_offset(address, MessageQueue(topic, self._source.name, queue_id))

        queues = list(store.queues())
        ends = await together(ask, queues, _ASKED_AT_ONCE)
        # Messages stored there since are on their way.
        await self._level()
        for (topic, queue_id), end in zip(queues, ends, strict=True):
            if store.max_offset(topic, queue_id) < end:
                raise MigrationRefused(
                    f"queue {queue_id} of {topic} ends at {store.max_offset(topic, queue_id)} "
                    f"here and at {end} at the source, although the logs are level"
                )
        return len(queues)

    async def _check_log(self) -> list[int]:
        """Compare pieces of the log, the first and the last among them. Returns: their sizes. Raises:
        MigrationRefused.
        """
        store = self._store
        low, high = store.commit_log_min_position, store.commit_log_max_position
        begins = range(low, high, _PIECE_SIZE)
        chosen = {*begins[:1], *begins[-1:]}
        chosen.update(Random(high).sample(begins, min(_PIECES - len(chosen), len(begins))))

        async def compare(begin: int) -> int:
            mine = store.raw(begin, min(_PIECE_SIZE, high - begin))
            assert mine is not None
            theirs = await self._fetched(begin, len(mine))
            if bytes(mine) != theirs:
                raise MigrationRefused(f"the two logs differ somewhere after byte {begin}")
            return len(mine)

        return await together(compare, sorted(chosen), _ASKED_AT_ONCE)

    async def _fetched(self, position: int, size: int) -> bytes:
        """Return bytes of the source's log. Raises: MigrationRefused."""
        address = self.follower.state.master
        for number in range(_ASKED_AT_MOST):
            try:
                return await fetched_slices(address, position, size)
            except (OSError, EOFError) as error:
                # Nothing is at stake yet.
                reason = str(error) or type(error).__name__
                log.warning("the source gives no log position=%d reason=%s", position, reason)
                await asyncio.sleep(LOOK_S * 2**number)
        raise MigrationRefused(
            f"{self._source.name} did not give its log after byte {position} to {address}, asked "
            f"{_ASKED_AT_MOST} times ({reason}): begin again when it is less busy"
        )

    # ------------------------------------------------------------ come between

    async def come_between(self, undo: AsyncExitStack) -> Proxy:
        """Have name servers give clients this broker's address, and forward their requests to the source."""
        server = self._broker.server
        passage = Proxy(server, self._source.address, self._monotonic_ms, self._source.knows)
        passage.open()
        undo.push_async_callback(self._step_back, passage)
        for connection in list(server.connections):
            connection.close()
        # Other slaves of the source continue to follow it.
        await self._broker.registration.renumber(MASTER_ID, self.follower.state.master)
        if not await self._source.is_routed_to(self._broker.address):
            raise MigrationRefused(
                f"name servers still list {self._source.address} as the master of {self._source.name}; "
                "this always happens if a name server runs inside the old broker's process"
            )
        self._say(
            f"clients are directed to {self._broker.address}, which passes them on to the source"
        )
        return passage

    async def _step_back(self, passage: Proxy) -> None:
        try:
            await self._source.register()
        finally:
            await self._broker.registration.renumber(self._number, self._own_ha_address)
            self._say(
                f"clients are directed to the source again; for {self._route_ms / 1000:g} s, requests "
                f"that arrive here are still passed on to it"
            )
            try:
                # Between those two this broker may have registered as the master again: whenever its table of
                # topics changes, which follows the source's.
                await self._source.register()
                await asyncio.sleep(self._route_ms / 1000)
            finally:
                passage.close()

    async def keep_route(self) -> None:
        """Maintain invariant 3, until a minute after the source has gone."""
        gone_ms = 0
        while not gone_ms or self._monotonic_ms() - gone_ms < _UNREGISTERS_MS:
            if self.leads and not self._broker.role.leads:
                # It has been moved on.
                return
            if not await self._is_ours():
                await self._broker.registration.start()
            if self.leads and not gone_ms and not await self._source.is_there():
                gone_ms = self._monotonic_ms()
            await asyncio.sleep(ROUTE_LOOK_S)

    async def _is_ours(self) -> bool:
        try:
            return await self._source.is_routed_to(self._broker.address)
        except (PocketMQError, OSError) as error:
            log.warning("a name server does not answer reason=%s", error)
            return True

    async def wait_for_clients(self, passage: Proxy) -> None:
        """Wait until every client has looked up the route once."""
        self._say(f"waiting {self._route_ms / 1000:g} s for clients to look up the route")
        end_ms = self._monotonic_ms() + self._route_ms
        while self._monotonic_ms() < end_ms:
            if not await self._is_ours():
                await self._broker.registration.start()
            await asyncio.sleep(min(ROUTE_LOOK_S, self._route_ms / 1000))
        self._say(f"{len(passage.passed)} connections now pass through this broker")

    # ------------------------------------------------------------ take over

    async def take_over(self, passage: Proxy, undo: AsyncExitStack) -> None:
        """Run the pause. Raises: MigrationRefused."""
        began_ms = self._monotonic_ms()
        self._say("clients wait now")
        passage.hold()
        undo.callback(passage.go_on)
        while not passage.is_quiet and self._monotonic_ms() - began_ms < QUIET_MS:
            await asyncio.sleep(LOOK_S / 5)
        undo.push_async_callback(self._source.accept_sends)
        await self._source.refuse_sends()
        await self._copy_rest(began_ms + QUIET_MS)
        self.leads = True
        await self._replication.promote(self._role, force=True)
        await self._broker.registration.renumber(MASTER_ID, self._own_ha_address)
        passage.serve_here()
        self.pause_ms = self._monotonic_ms() - began_ms
        self._say(f"this broker leads; clients waited for {self.pause_ms} ms")

    async def _copy_rest(self, until_ms: int) -> None:
        """Copy the tables, then the log. Raises: MigrationRefused.

        In this order: what the source delivers or hands out by itself meanwhile comes twice at worst. An
        offset without the delayed message or the check point that it is past would lose a message.
        """
        metadata = self._replication.metadata
        assert metadata is not None
        end = -1
        while end != self._store.commit_log_max_position:
            end = await self.follower.master.end()
            await metadata.round()
            await self._catch_up(until_ms)
            if self._monotonic_ms() > until_ms:
                return

    async def _catch_up(self, until_ms: int) -> None:
        """Wait until the source's log stops growing and is copied. Raises: MigrationRefused."""
        master, store = self.follower.master, self._store
        end = -1
        while True:
            last, end = end, await master.end()
            if store.commit_log_max_position >= end == last:
                return
            if self._monotonic_ms() > until_ms:
                # Appends by the source itself, such as delayed messages, may never stop.
                if store.commit_log_max_position >= last >= 0:
                    return
                raise MigrationRefused(
                    f"{end - store.commit_log_max_position} bytes have not arrived yet: the "
                    f"source writes faster than this broker copies"
                )
            await asyncio.sleep(LOOK_S / 5)


def progress(done: int, left: int, spent_ms: int) -> str:
    """Describe what was copied, what is missing, and how long that will take.

    >>> progress(300 << 20, 600 << 20, 3_000)
    '300.0 MiB of 900.0 MiB, 100.0 MiB/s, 6 s left'
    >>> progress(0, 1 << 20, 10)
    '0.0 MiB of 1.0 MiB'
    """
    text = f"{done / (1 << 20):.1f} MiB of {(done + left) / (1 << 20):.1f} MiB"
    rate = done / max(spent_ms, 1) * 1000
    if not rate:
        return text
    return f"{text}, {rate / (1 << 20):.1f} MiB/s, {left / rate:.0f} s left"
