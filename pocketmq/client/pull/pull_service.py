"""PullMessageService: takes pull requests one after the other and starts their pulls (S1 to S4).

A PullRequest is the right to pull one queue from one offset on. Rebalance creates it, and a pull returns it
once its answer is handled. There is one per queue, so at most one pull per queue is in flight.
Source: PullMessageService, PullRequest, RocketMQ 4.9.7.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from pocketmq.client.network.runner import Runner
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_pace import PullPace
from pocketmq.model.message import MessageQueue

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PullRequest:
    """Where to pull next; previously_locked: an orderly consumer has fixed the offset after its lock."""

    group: str
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False
    pace: PullPace = field(default_factory=PullPace)


Pull = Callable[[PullRequest], Coroutine[Any, Any, bool]]
"""Pulls once. Returns: whether to pull again at once; else the request was passed on, or is over."""


class PullMessageService:
    """The queue of pull requests of one client instance. Owner: MQClientInstance's runner."""

    def __init__(self, runner: Runner, pull_of: Callable[[str], Pull | None]) -> None:
        """pull_of: returns the pull of a group's consumer; None if the group has left."""
        self._runner = runner
        self._pull_of = pull_of
        self._requests: asyncio.Queue[PullRequest] = asyncio.Queue()

    def execute_immediately(self, request: PullRequest) -> None:
        """Pull once the requests before it were started."""
        self._requests.put_nowait(request)

    def execute_later(self, request: PullRequest, delay_ms: int) -> None:
        """Pull after a while, unless the instance stops before."""
        self._runner.call_later(delay_ms, lambda: self.execute_immediately(request))

    async def run(self) -> None:
        """Serve until cancelled. A pull that fails to start is logged and does not stop the loop."""
        log.info("PullMessageService service started")
        try:
            while True:
                self._start(await self._requests.get())
        finally:
            log.info("PullMessageService service end")

    def _start(self, request: PullRequest) -> None:
        pull = self._pull_of(request.group)
        if pull is None:
            log.warning(
                "dropped a pull request without a consumer group=%s queue=%s",
                request.group,
                request.queue,
            )
            return
        try:
            self._runner.spawn(self._guarded(pull, request))
        except Exception:
            log.exception("Pull Message Service Run Method exception queue=%s", request.queue)

    async def _guarded(self, pull: Pull, request: PullRequest) -> None:
        try:
            # One task pulls until the pull ends: a task for each would be a tenth of what a pull costs.
            while await pull(request):
                pass
        except Exception:
            log.exception("Pull Message Service Run Method exception queue=%s", request.queue)
