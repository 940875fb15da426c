"""LookUps: one look-up of a topic's route at a time, for all that want it meanwhile.

1. It belongs to no caller: one that gives up, at the end of its own time, leaves it to the others.
2. NoRoute is an answer of the moment: a caller that joined a look-up that ran already asks once more.
3. A topic whose broker failed is looked up at once, then after pauses that grow to a second, until it has
   another route or no failure is reported for a while: its brokers may have another master now. PocketMQ
   only: Java's clients wait for their next poll, up to 30 s.
4. A broker of RocketMQ that was elected may lack topics of the last seconds. A send makes such a topic again
   where that is allowed; the address comes with the route of the topic that every such broker has.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from pocketmq.client.errors import NoRoute, Unreachable
from pocketmq.client.network.route import TopicRoute
from pocketmq.client.network.runner import Runner
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.fastjson import FastjsonError

log = logging.getLogger(__name__)

AGAIN_MIN_MS, AGAIN_MAX_MS = 100, 1_000
CALM_MS = 3_000

Ask = Callable[[str], Awaitable[TopicRoute]]


class LookUps:
    """Owner: MQClientInstance, whose runner has the tasks."""

    def __init__(self, runner: Runner, ask: Ask, monotonic_ms: Callable[[], int]) -> None:
        """ask: looks a topic up. Raises: NoRoute and request errors."""
        self._runner = runner
        self._ask = ask
        self._monotonic_ms = monotonic_ms
        # Topics that are looked up again and again (invariant 3), and until when.
        self._failing: dict[str, int] = {}
        self._under_way: dict[str, asyncio.Future[TopicRoute]] = {}

    async def route(self, topic: str) -> TopicRoute:
        """Return what the next look-up finds. Raises: as `ask` does; Unreachable while the client closes."""
        running = self._under_way.get(topic)
        if running is not None:
            try:
                return await asyncio.shield(running)
            except NoRoute:
                # Invariant 2. Another caller may have begun the next one.
                running = self._under_way.get(topic)
        return await asyncio.shield(running or self._begin(topic))

    def broker_failed(self, topic: str, known: TopicRoute | None) -> None:
        """Look a topic up again and again, from now on (invariant 3). known: its route when that began."""
        runs = topic in self._failing
        self._failing[topic] = self._monotonic_ms() + CALM_MS
        if not runs:
            task = self._runner.spawn(
                self._look_for_another(topic, known), name=f"look again {topic}"
            )
            if task is None:
                del self._failing[topic]
            else:
                task.add_done_callback(lambda _: self._failing.pop(topic, None))

    def looks_again(self, topic: str) -> bool:
        """Return True while a topic is looked up because its broker failed."""
        return topic in self._failing

    async def _look_for_another(self, topic: str, known: TopicRoute | None) -> None:
        pause_ms = AGAIN_MIN_MS
        while True:
            try:
                route = await self.route(topic)
            except (PocketMQError, FastjsonError) as error:
                log.info("no new route topic=%s reason=%r", topic, str(error))
                if isinstance(error, NoRoute):
                    await self._learn_addresses()
            else:
                if route is not known and not route.lacks_masters:
                    return
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(AGAIN_MAX_MS, 2 * pause_ms)
            if self._monotonic_ms() > self._failing[topic]:
                return

    async def _learn_addresses(self) -> None:
        """Apply invariant 4."""
        with contextlib.suppress(PocketMQError, FastjsonError):
            await self.route(AUTO_CREATE_TOPIC)

    def _begin(self, topic: str) -> "asyncio.Future[TopicRoute]":
        found: asyncio.Future[TopicRoute] = asyncio.get_running_loop().create_future()
        self._under_way[topic] = found
        task = self._runner.spawn(self._look_up(topic, found), name=f"look up {topic}")
        if task is None:
            self._end(topic, found)
        else:
            task.add_done_callback(lambda _: self._end(topic, found))
        return found

    async def _look_up(self, topic: str, found: "asyncio.Future[TopicRoute]") -> None:
        try:
            route = await self._ask(topic)
        except Exception as error:  # noqa: BLE001 - it belongs to those that wait
            found.set_exception(error)
        else:
            found.set_result(route)

    def _end(self, topic: str, found: "asyncio.Future[TopicRoute]") -> None:
        if self._under_way.get(topic) is found:
            del self._under_way[topic]
        if not found.done():
            found.set_exception(Unreachable(f"topic {topic!r}: this client is being closed"))
        # All that waited may have given up.
        found.exception()
