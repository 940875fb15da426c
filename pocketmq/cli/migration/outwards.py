"""Outwards: an Apache broker takes over from ours, which it first follows as a slave.

    step        what it does                                                 undone by
    prepare     writes the Apache broker's broker.conf, as a slave           (stop the slave)
    follow      waits until the slave has the log, the topics, the queues    -
    begin       clients are routed through a passage; delays wait            clients are served as before
    settle      waits until the slave has the offsets and delays of now      -
    hold        clients wait; the log stands still, and the slave has it     clients resume here
    lead        the slave is started anew, as the master                     (stop it; its conf is a slave's)
    hand to     offsets are written there, held requests are passed on       (impossible)
    see out     late clients are passed on until they have the new route

An Apache slave cannot be promoted while it runs, so the pause is its restart. Sends during the pause wait for
two seconds, and are then refused, not stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from pocketmq.admin import Admin
from pocketmq.cli.migration.report import LOOK_S, MigrationRefused, MigrationReport, insisted
from pocketmq.cli.migration.source import BrokerFacts, Source
from pocketmq.client.errors import BrokerRefused
from pocketmq.client.network.gather import together
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import format_properties

log = logging.getLogger(__name__)

# No group consumes by this name: its offset says how fresh a slave's copy of the offsets is.
_MARK = "pocketmq-migration"
_ASKED_AT_ONCE = 16
# Well within the time after which the broker closes a silent connection, and with it undoes the move.
_HOLD_AGAIN_MS = 5_000
# Timers and pops that a successor takes over: all; none; none, and late ones are waited for.
ANYTHING, EMPTY, EMPTY_AGAIN = "anything", "empty", "empty again"
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Successor:
    """The Apache broker. address: `ip:port`; store: its storePathRootDir; conf: its broker.conf; takes:
    ANYTHING, EMPTY or EMPTY_AGAIN."""

    address: str
    store: str
    conf: Path
    restart_command: str | None
    takes: str = ANYTHING

    def settings(self, facts: BrokerFacts, source: Source, name_servers: str) -> dict[str, str]:
        """Return its broker.conf, except for its role."""
        host, _, port = self.address.rpartition(":")
        carried = {
            name: facts.settings[name]
            for name in ("mappedFileSizeCommitLog", "messageDelayLevel", "flushDiskType")
            if facts.settings.get(name)
        }
        return {
            **carried,
            "brokerClusterName": source.cluster,
            "brokerName": source.name,
            "namesrvAddr": name_servers,
            "brokerIP1": host,
            "brokerIP2": host,
            "listenPort": port,
            "haListenPort": str(int(port) + 1),
            "storePathRootDir": self.store,
            "storePathCommitLog": f"{self.store}/commitlog",
        }


class StillPending(MigrationRefused):
    """Since the last check clients made timers or popped messages, which RocketMQ 4.9 never delivers."""


class Outwards:
    """Owner of the steps. route_ms: how long clients may keep using the route that they know."""

    def __init__(
        self,
        admin: Admin,
        source: Source,
        successor: Successor,
        talk: MigrationReport,
        *,
        route_ms: int,
    ) -> None:
        self._admin = admin
        self._source = source
        self._successor = successor
        self._talk = talk
        self._route_ms = route_ms
        self._number = source.free_number
        self._settings: dict[str, str] = {}
        self._monotonic_ms = admin.clock.monotonic_ms
        self._end = 0
        self.pause_ms = -1

    async def run(self, facts: BrokerFacts) -> None:
        """Run all steps. Raises: MigrationRefused, PocketMQError."""
        name_servers = ";".join(self._admin.name_servers)
        self._settings = self._successor.settings(facts, self._source, name_servers)
        self._write("SLAVE", self._number)
        self._talk.say(
            f"{self._successor.conf} has been written: start the Apache broker with it now (mqbroker -c "
            f"{self._successor.conf})"
        )
        try:
            await self.follow()
            await self._talk.confirm(
                f"{self._successor.address} is level with {self._source.address}, and now takes its place"
            )
        except asyncio.CancelledError:
            self._talk.say(
                "nothing was changed: clients are served here as before; stop the slave if you do not need it"
            )
            raise
        while True:
            try:
                await self.take_over()
                break
            except StillPending:
                if self._successor.takes != EMPTY_AGAIN:
                    raise
                await self._source.drained(self._talk.say)
        self._talk.say(f"{self._successor.address} leads; clients waited for {self.pause_ms} ms")
        await self.see_out()

    async def take_over(self) -> None:
        """Run the steps from begin to hand to. Raises: MigrationRefused, PocketMQError, with all undone."""
        async with AsyncExitStack() as undo:
            # Before it: its answer may be lost.
            undo.push_async_callback(self._undo)
            await self._change("begin")
            # Every client beats once meanwhile, and so can be made known to the other broker.
            beaten_ms = self._monotonic_ms() + self._route_ms
            await self.settle()
            await asyncio.sleep(max(0, beaten_ms - self._monotonic_ms()) / 1000)
            began_ms = self._monotonic_ms()
            self._talk.say("clients wait now")
            await self._change("hold")
            await self._check_pending()
            offsets = await self._level()
            undo.callback(self._write, "SLAVE", self._number)
            await self.lead()
            await self._write_offsets(offsets)
            undo.pop_all()
            await self._insist(
                "hand-to",
                f"{self._successor.address} leads, but {self._source.address} still holds its clients: "
                f"stop {self._source.address}",
                target=self._successor.address,
                broker_id=self._number,
            )
            self.pause_ms = self._monotonic_ms() - began_ms

    async def _change(self, act: str, **how: object) -> None:
        await self._admin.replicas.change(self._source.address, act, **how)  # type: ignore[arg-type]

    async def _insist(self, act: str, by_hand: str, **how: object) -> None:
        await insisted(lambda: self._change(act, **how), by_hand)

    async def _undo(self) -> None:
        try:
            await self._insist(
                "undo",
                f"{self._source.address} is still being moved, and undoes that by itself once it notices "
                f"that this program has ended",
            )
        except BrokerRefused as error:
            log.info("nothing to undo reason=%s", error)
        self._talk.say(
            "undone: clients are served here as before; stop the slave if you do not need it"
        )

    async def _check_pending(self) -> None:
        """Check again that nothing is pending, now that no client can add any. Raises: StillPending."""
        if self._successor.takes == ANYTHING:
            return
        timers, pops = await self._source.pending()
        if timers or pops:
            why = (
                f"{timers} timers and {pops} pops have arrived meanwhile, which "
                f"RocketMQ 4.9 would never deliver: stop the clients that create them"
            )
            self._talk.say(why)
            raise StillPending(why)

    def _write(self, role: str, number: int) -> None:
        conf = {**self._settings, "brokerRole": role, "brokerId": str(number)}
        self._successor.conf.write_text(format_properties(conf), "utf-8")

    # ------------------------------------------------------------ follow

    async def follow(self) -> None:
        """Wait until the slave has the log, the topics and the groups, and its queues end where ours do."""
        await self._until(self._is_following, "the slave follows", "waiting for the slave")
        facts = await self._source.facts()

        async def has_tables() -> bool:
            theirs = await self._there.facts()
            return theirs.topics.keys() >= facts.topics.keys() and (
                theirs.groups.keys() >= facts.groups.keys()
            )

        await self._until(
            has_tables, "topics and groups have been copied", "waiting for topics and groups"
        )
        queues = await self._check_queues(facts)
        self._talk.say(f"the same: {queues} queues")

    @property
    def _there(self) -> Source:
        source, address = self._source, self._successor.address
        return Source(self._admin, source.name, source.cluster, address, source.numbers)

    async def _is_following(self) -> bool:
        status = await self._admin.replicas.status(self._source.address)
        for slave in status.get("haConnectionInfo") or ():
            if slave["refused"]:
                raise MigrationRefused(
                    f"the slave at {slave['addr']} is refused: {slave['refused']}"
                )
        return await self._end_there() >= int(status["masterCommitLogMaxOffset"])

    async def _end_there(self) -> int:
        runtime = await self._admin.settings.runtime(self._successor.address)
        return int(runtime["commitLogMaxOffset"])

    async def _check_queues(self, facts: BrokerFacts) -> int:
        """Compare the ends of all queues. Raises: MigrationRefused."""
        api = self._admin.site.api

        async def check(queue: MessageQueue) -> None:
            end = await api.max_offset(self._source.address, queue)

            async def is_there() -> bool:
                return await api.max_offset(self._successor.address, queue) >= end

            await self._until(is_there)

        queues = [
            MessageQueue(topic, self._source.name, queue_id)
            for topic, row in facts.topics.items()
            for queue_id in range(int(row["writeQueueNums"]))
        ]
        return len(await together(check, queues, _ASKED_AT_ONCE))

    async def _until(
        self, state: Callable[[], Awaitable[bool]], done: str = "", waits: str = ""
    ) -> None:
        """Wait for a state; a broker that does not answer is asked again."""
        said = False
        while True:
            try:
                if await state():
                    break
            except MigrationRefused:
                raise
            except (PocketMQError, OSError) as error:
                log.debug("not yet reason=%s", error)
            if waits and not said:
                self._talk.say(waits)
                said = True
            await asyncio.sleep(LOOK_S)
        if done:
            self._talk.say(done)

    # ------------------------------------------------------------ settle, hold, lead

    async def settle(self) -> None:
        """Wait until the slave has copied current offsets and delays: 10 s with 4.9, a minute with 5.x."""
        api, source = self._admin.site.api, self._source
        mark = self._admin.clock.now_ms() % 1_000_000_000
        queue = MessageQueue(source.name, source.name, 0)
        await api.update_consumer_offset(source.address, _MARK, queue, mark, oneway=False)

        async def has_mark() -> bool:
            table = await self._offsets(self._successor.address)
            return table.get(f"{source.name}@{_MARK}", {}).get("0") == mark

        await self._until(
            has_mark,
            "offsets and delays have been copied",
            "waiting for offsets and delays (up to a minute)",
        )
        # The delays come right behind the offsets.
        await asyncio.sleep(1)

    async def _offsets(self, address: str) -> Offsets:
        api = self._admin.site.api
        answer = await api.requests.ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = fastjson.loads(answer.body).get("offsetTable") or {}
        return {
            str(key): {str(queue): int(offset) for queue, offset in queues.items()}
            for key, queues in table.items()
        }

    async def _level(self) -> Offsets:
        """Wait until the slave has the end of the log. Returns: the offsets, which do not change either."""
        end = (await self._admin.replicas.status(self._source.address))["masterCommitLogMaxOffset"]
        self._end = int(end)

        async def has_end() -> bool:
            return await self._end_there() >= self._end

        await self._until(has_end)
        return await self._offsets(self._source.address)

    async def lead(self) -> None:
        """Wait until the Apache broker leads, with all data. Raises: MigrationRefused."""
        successor = self._successor
        self._write("ASYNC_MASTER", MASTER_ID)
        if successor.restart_command is None:
            self._talk.say("restart the Apache broker now: its broker.conf makes it the master")
        else:
            process = await asyncio.create_subprocess_shell(
                successor.restart_command, stdin=asyncio.subprocess.DEVNULL
            )
            if await process.wait():
                raise MigrationRefused(f"{successor.restart_command!r} failed")

        end = 0
        held_ms = self._monotonic_ms()

        async def leads() -> bool:
            nonlocal end, held_ms
            if self._monotonic_ms() - held_ms >= _HOLD_AGAIN_MS:
                await self._hold_on()
                held_ms = self._monotonic_ms()
            settings = await self._admin.settings.broker(successor.address)
            # One of 4.9 has no numbers in its first second.
            end = await self._end_there()
            return settings.get("brokerRole") != "SLAVE" and await self._source.is_routed_to(
                successor.address
            )

        await self._until(leads, "the Apache broker leads", "waiting for it to lead")
        if end < self._end:
            raise MigrationRefused(
                f"the Apache broker's log ends at {end} since its restart, but it must end at {self._end}"
            )

    async def _hold_on(self) -> None:
        """Tell this broker that the program still runs: else it would lead again beside the other.

        Raises: MigrationRefused if it does lead again; PocketMQError.
        """
        try:
            await self._change("hold")
        except BrokerRefused as error:
            raise MigrationRefused(
                f"{self._source.address} leads again, because this program was silent for too long: stop the "
                f"Apache broker, and begin again ({error})"
            ) from error

    async def _write_offsets(self, offsets: Offsets) -> None:
        """Write the offsets that groups have committed since the slave's last copy."""
        there = await self._offsets(self._successor.address)
        api = self._admin.site.api

        async def write(changed: tuple[str, str, int]) -> None:
            key, queue_id, offset = changed
            topic, _, group = key.partition("@")
            queue = MessageQueue(topic, self._source.name, int(queue_id))
            try:
                await api.update_consumer_offset(
                    self._successor.address, group, queue, offset, oneway=False
                )
            except BrokerRefused as error:
                log.warning("an offset was not accepted key=%s reason=%s", key, error)

        changed = (
            (key, queue_id, offset)
            for key, queues in offsets.items()
            for queue_id, offset in queues.items()
            if key.partition("@")[2] != _MARK and there.get(key, {}).get(queue_id) != offset
        )
        await together(write, changed, _ASKED_AT_ONCE)

    async def see_out(self) -> None:
        """Forward late clients; afterwards this broker is only a slave of the Apache broker."""
        there = self._there
        self._talk.say(f"clients with the old route are passed on for {self._route_ms / 1000:g} s")
        end_ms = self._monotonic_ms() + self._route_ms
        while self._monotonic_ms() < end_ms:
            if not await there.is_routed_to(there.address):
                await there.register()
            await asyncio.sleep(min(1.0, self._route_ms / 1000))
        await self._insist("end", f"{self._source.address} still passes clients on: stop it")
        self._talk.say(
            f"{self._source.address} is now its slave: stop it, or keep it as a copy of every message"
        )
