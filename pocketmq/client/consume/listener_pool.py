"""The pools that call listeners: on the event loop, or in threads (S34, S59, S62)."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from queue import SimpleQueue

from pocketmq.client.consume.call_context import base_of, calling_pool
from pocketmq.client.consume.listener import (
    ConsumeContext,
    ConsumeResult,
    Listener,
    ListenerCall,
    ListenerHooks,
    ListenerRun,
    Outcome,
    Together,
    is_coroutine_listener,
)
from pocketmq.client.network.runner import Runner
from pocketmq.remoting.clock import Clock

log = logging.getLogger(__name__)

_SUCCESS = ConsumeResult.SUCCESS


def _judge(listener_result: object) -> ConsumeResult:
    if listener_result is None:
        return ConsumeResult.SUCCESS
    if isinstance(listener_result, ConsumeResult):
        return listener_result
    raise TypeError(f"a listener must return a ConsumeResult or None, not {listener_result!r}")


class ListenerPool:
    """Calls the listener, at most `concurrency` at a time.

    1. A call of a queue that this client still has, and whose messages all succeeded, goes to `together` with
       the others of this turn of the loop, not to its own `done`. Until then it stands in `succeeded`.
    2. A call ends, for `drain`, once either has it.
    3. Each call has context variables of its own (call_context.py).
    """

    def __init__(
        self, listener: Listener, around: Sequence[ListenerHooks], concurrency: int, clock: Clock
    ) -> None:
        self._listener = listener
        self._around = around
        self._concurrency = concurrency
        self._clock = clock
        self._together: Together | None = None
        self.succeeded: list[ListenerRun] = []
        self._base = base_of(self)
        self._under_way = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, together: Together | None = None) -> None:
        """together: None has every call passed to its `done`."""
        self._together = together

    def submit(self, run: ListenerRun) -> None:
        """Have a run's messages consumed."""
        if not self._under_way:
            self._idle.clear()
        self._under_way += len(run.starts)

    def settle(self) -> None:
        """Pass on what has succeeded in this turn (invariant 1)."""
        runs = self.succeeded[:]
        self.succeeded.clear()
        if not runs or self._together is None:
            return
        try:
            self._together(runs)
        except Exception:
            log.exception("could not process consume results queue=%s", runs[0].queue)
        finally:
            for run in runs:
                count = len(run.good)
                run.good.clear()
                run.cost_s = 0.0
                self._end(count)

    def _done(self, run: ListenerRun, call: ListenerCall, outcome: Outcome | None) -> None:
        try:
            run.done(call, outcome)
        except Exception as error:
            log.exception("could not process a consume result queue=%s", run.queue)
            if outcome is not None:
                self._has_failed(run, call, error)
        finally:
            self._end(1)

    @staticmethod
    def _has_failed(run: ListenerRun, call: ListenerCall, error: Exception) -> None:
        """Let a call fail whose listener has left no number in its context: its messages would stand still,
        and the offset of their queue with them.
        """
        call.context = ConsumeContext(run.queue)
        try:
            run.done(call, Outcome(None, error, 0))
        except Exception:
            log.exception("could not process a failed call either queue=%s", run.queue)

    def _end(self, count: int) -> None:
        self._under_way -= count
        if self._under_way == 0:
            self._idle.set()

    def _unwanted(self, run: ListenerRun) -> bool:
        queue = run.process_queue
        return self._draining or (queue is not None and queue.dropped)

    def _ended_well(
        self, run: ListenerRun, at: int, context: ConsumeContext, cost_s: float
    ) -> bool:
        """Note a call that returned SUCCESS for `together`. Returns: whether that takes it.

        The last call of a run may be short; where its ack_index is as well, `done` looks closer.
        """
        queue = run.process_queue
        if (
            queue is None
            or queue.dropped
            or context.ack_index < run.size - 1
            or self._together is None
        ):
            return False
        good = run.good
        if not good:
            self.succeeded.append(run)
        good.append(at)
        run.cost_s += cost_s
        return True

    def _after(self, call: ListenerCall, tokens: list[object], outcome: Outcome) -> None:
        try:
            for each, token in zip(reversed(self._around), reversed(tokens), strict=True):
                each.after(call, token, outcome)
        except Exception:
            log.exception(
                "the processing after a listener call failed queue=%s", call.context.queue
            )

    async def drain(self, within_ms: int) -> bool:
        """Wait for running calls; pending ones are cancelled. False: not all ended."""
        self._draining = True
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    @property
    def is_calling_this(self) -> bool:
        """Return True if the code that asks runs inside a call of the listener."""
        return self._under_way > 0 and calling_pool() is self

    def stop(self) -> None:
        """Do nothing: the task that called the listener has ended, or the runner ends it."""


class _Stamp:
    """The wall clock as messages carry it, read once in a millisecond."""

    __slots__ = ("_clock", "_stale_at", "_text")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stale_at = 0.0
        self._text = ""

    def at(self, now: float) -> str:
        """The time of the call that begins at `now`, seconds of time.monotonic."""
        if now >= self._stale_at:
            self._text = str(self._clock.now_ms())
            self._stale_at = now + 0.001
        return self._text


class CoroutinePool(ListenerPool):
    """Awaits a coroutine function on the event loop."""

    # A listener that never waits would keep the loop for a whole backlog.
    _TURN_S = 0.005

    def __init__(
        self,
        listener: Listener,
        around: Sequence[ListenerHooks],
        concurrency: int,
        clock: Clock,
        runner: Runner,
    ) -> None:
        super().__init__(listener, around, concurrency, clock)
        self._runner = runner
        self._calls: deque[tuple[ListenerRun, int]] = deque()
        self._resting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def start(self, together: Together | None = None) -> None:
        super().start(together)
        for number in range(self._concurrency):
            self._begin_worker(f"listener-{number}")

    def _begin_worker(self, name: str) -> None:
        self._runner.spawn(self._work(name), name=name, context=self._base.copy())

    def submit(self, run: ListenerRun) -> None:
        """See ListenerPool."""
        super().submit(run)
        self._calls.extend([(run, at) for at in run.starts])
        if not self._waking:
            self._wake()

    def _wake(self) -> None:
        """Wake one worker, and another in the loop's next turn if calls are left by then.

        One is enough for a listener that never waits, and waking a worker costs more than such a call.
        """
        self._waking = False
        resting = self._resting
        while self._calls and resting:
            worker = resting.popleft()
            if not worker.done():
                worker.set_result(None)
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake)
                return

    async def _work(self, name: str) -> None:
        """Call the listener. After a call that leaves context variables another worker follows: to count
        them costs next to nothing, unlike a task or a context for each call.
        """
        loop = asyncio.get_running_loop()
        worker = asyncio.current_task()
        calls, listener, around = self._calls, self._listener, self._around
        clean = len(copy_context())
        succeeded, read_clock, stamp = self.succeeded, time.monotonic, _Stamp(self._clock)
        settles = self._together is not None
        # The clock is read once a call: one begins when the one before has ended, or after a rest.
        now = turn_ends = 0.0
        while True:
            if len(copy_context()) > clean:
                self._begin_worker(name)
                return
            if now >= turn_ends or not calls:
                await (self._rest() if not calls else asyncio.sleep(0))
                now = read_clock()
                turn_ends = now + self._TURN_S
                continue
            run, at = calls.popleft()
            context = ConsumeContext(run.queue)
            process_queue, size = run.process_queue, run.size
            if self._draining or (process_queue is not None and process_queue.dropped):
                self._done(run, run.call(at, context), None)
                continue
            began, started = now, stamp.at(now)
            messages = [run.messages[at]] if size == 1 else run.messages[at : at + size]
            call = tokens = None
            try:
                for message in messages:
                    message.note_start(started)
                if around:
                    call = run.call(at, context)
                    tokens = [each.before(call) for each in around]
                returned = await listener(messages, context)  # type: ignore[misc]
                result = _SUCCESS if returned is None else _judge(returned)
                now = read_clock()
                if (
                    result is _SUCCESS
                    and tokens is None
                    and process_queue is not None
                    and not process_queue.dropped
                    and context.ack_index >= size - 1
                    and settles
                ):
                    if not succeeded:
                        loop.call_soon(self.settle)
                    if not (good := run.good):
                        succeeded.append(run)
                    good.append(at)
                    run.cost_s += now - began
                    continue
                outcome = Outcome(result, None, int((now - began) * 1000))
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and worker and worker.cancelling():
                    self._end(1)
                    raise
                # The listener's fault, or what it waited for was cancelled: that is an outcome.
                now = read_clock()
                outcome = Outcome(None, error, int((now - began) * 1000))
            except BaseException:
                self._end(1)
                raise
            if call is None:
                call = run.call(at, context)
            if tokens is not None:
                self._after(call, tokens, outcome)
            self._done(run, call, outcome)

    async def _rest(self) -> None:
        while not self._calls:
            rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            await rest


class ThreadPool(ListenerPool):
    """Calls a plain function in threads, which are started on demand.

    Results of the threads are collected and passed to the event loop in one go, not one by one.
    """

    def __init__(
        self,
        listener: Listener,
        around: Sequence[ListenerHooks],
        concurrency: int,
        clock: Clock,
        name: str,
    ) -> None:
        super().__init__(listener, around, concurrency, clock)
        self._name = name
        self._calls: SimpleQueue[tuple[ListenerRun, int] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._finished: deque[_Finished] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, together: Together | None = None) -> None:
        super().start(together)
        self._loop = asyncio.get_running_loop()

    def submit(self, run: ListenerRun) -> None:
        """See ListenerPool."""
        super().submit(run)
        wanted = min(self._under_way, self._concurrency)
        while len(self._threads) < wanted:
            thread = threading.Thread(
                target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The process has too many now. The calls are in the queue, and the next ones try again.
                log.warning("could not start a thread for listeners reason=%s", error)
                break
            self._threads.append(thread)
        put = self._calls.put
        for at in run.starts:
            put((run, at))

    def _work(self) -> None:
        take, finished = self._calls.get, self._finished
        stamp = _Stamp(self._clock)
        while (taken := take()) is not None:
            run, at = taken
            context = ConsumeContext(run.queue)
            outcome, cost_s = (
                (None, 0.0)
                if self._unwanted(run)
                else self._base.copy().run(self._call, run, at, context, stamp)
            )
            finished.append((run, at, context, outcome, cost_s))
            # Set before the loop empties the deque, so a call is never left behind unannounced.
            if not self._handing_over:
                self._handing_over = True
                assert self._loop is not None
                try:
                    self._loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:
                    return  # the loop is closed: no task waits for outcomes

    def _call(
        self, run: ListenerRun, at: int, context: ConsumeContext, stamp: _Stamp
    ) -> tuple[Outcome, float]:
        began = time.monotonic()
        started = stamp.at(began)
        messages = run.messages[at : at + run.size]
        call = tokens = None
        try:
            for message in messages:
                message.note_start(started)
            if self._around:
                call = run.call(at, context)
                tokens = [each.before(call) for each in self._around]
            returned = self._listener(messages, context)
            result = _SUCCESS if returned is None else _judge(returned)
            cost_s = time.monotonic() - began
            if result is _SUCCESS and cost_s < 0.001:
                outcome = _AT_ONCE
            else:
                outcome = Outcome(result, None, int(cost_s * 1000))
        except BaseException as error:  # noqa: BLE001 - an outcome; sys.exit() would end but the thread
            cost_s = time.monotonic() - began
            outcome = Outcome(None, error, int(cost_s * 1000))
        if call is not None and tokens is not None:
            self._after(call, tokens, outcome)
        return outcome, cost_s

    def _hand_over(self) -> None:
        self._handing_over = False
        finished = self._finished
        while finished:
            run, at, context, outcome, cost_s = finished.popleft()
            well = outcome is not None and outcome.result is _SUCCESS
            try:
                well = well and self._ended_well(run, at, context, cost_s)
            except TypeError:
                # The listener's ack_index is no number: `done` finds that, too.
                well = False
            if not well:
                self._done(run, run.call(at, context), outcome)
        self.settle()

    def stop(self) -> None:
        """End the threads; one that is still in a listener is left to end by itself."""
        for _ in self._threads:
            self._calls.put(None)
        if self._under_way == 0:
            # All wait for a call and get None: this takes microseconds.
            for thread in self._threads:
                thread.join()


_Finished = tuple[ListenerRun, int, ConsumeContext, Outcome | None, float]
"""A call that has ended: run, where it begins, context, outcome, how long the listener took, seconds."""
_AT_ONCE = Outcome(_SUCCESS, None, 0)


def make_pool(
    listener: Listener,
    around: Sequence[ListenerHooks],
    concurrency: int,
    clock: Clock,
    runner: Runner,
) -> ListenerPool:
    """Create the pool that suits the listener."""
    if is_coroutine_listener(listener):
        return CoroutinePool(listener, around, concurrency, clock, runner)
    return ThreadPool(listener, around, concurrency, clock, runner.name)
