"""LookUps: one look-up of a topic's route at a time, for all that want it meanwhile.

1. It belongs to no caller: one that gives up, at the end of its own time, leaves it to the others.
2. NoRoute is an answer of the moment: a caller that joined a look-up that ran already asks once more.
"""

import asyncio
from collections.abc import Awaitable, Callable

from pocketmq.client.errors import NoRoute, Unreachable
from pocketmq.client.network.route import TopicRoute
from pocketmq.client.network.runner import Runner

Ask = Callable[[str], Awaitable[TopicRoute]]


class LookUps:
    """Owner: MQClientInstance, whose runner has the tasks."""

    def __init__(self, runner: Runner, ask: Ask) -> None:
        """ask: looks a topic up. Raises: NoRoute and request errors."""
        self._runner = runner
        self._ask = ask
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
