"""Taskiq's broker and results: delivery, delays in the broker, priorities, acknowledgements, results."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import pytest
from taskiq import AckableMessage, BrokerMessage, Context, TaskiqDepends, TaskiqResult
from taskiq.api import run_receiver_task
from taskiq.exceptions import ResultGetError, ScheduledTaskCancelledError

from pocketmq.integrations.taskiq import PocketBroker, PocketResults
from pocketmq.integrations.taskiq_schedules import PocketSchedules
from pocketmq.testing import InProcess
from tests.kit.waiting import until_async


def broker_of(server: InProcess, name: str, **options: Any) -> PocketBroker:
    broker = PocketBroker(server.namesrv, topic=name, group=name, **options)
    broker.is_worker_process = True
    return broker


@asynccontextmanager
async def started(broker: Any) -> AsyncIterator[Any]:
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


def message(number: int, **labels: Any) -> BrokerMessage:
    return BrokerMessage(
        task_id=f"id-{number}", task_name="a.task", message=b"%d" % number, labels=labels
    )


async def taken(broker: PocketBroker) -> AckableMessage:
    async for found in broker.listen():
        assert isinstance(found, AckableMessage)
        return found
    raise AssertionError("listening ended")


async def acknowledge(found: AckableMessage) -> None:
    acked = found.ack()
    assert acked is not None
    await acked


async def test_a_kicked_task_is_done_when_it_is_acknowledged(
    server: InProcess,
) -> None:
    """A task that was taken and not acknowledged comes again to another worker."""
    async with started(broker_of(server, "plain", invisible_ms=1_000)) as first:
        await first.kick(message(1))
        await first.kick(message(2))
        one = await taken(first)
        assert one.data == b"1"
        await acknowledge(one)
        assert (await taken(first)).data == b"2"
    async with started(broker_of(server, "plain", invisible_ms=1_000)) as second:
        again = await taken(second)
        assert again.data == b"2"
        await acknowledge(again)


async def test_a_delay_waits_in_the_broker(server: InProcess) -> None:
    async with started(broker_of(server, "later")) as broker:
        began = time.time()
        await broker.kick(message(1, delay=2))
        found = await taken(broker)
        # Brokers deliver to the second.
        assert time.time() - began > 1
        await acknowledge(found)


async def test_the_highest_priority_comes_first(server: InProcess) -> None:
    async with started(broker_of(server, "urgent", priorities=10)) as broker:
        for number, priority in ((1, 3), (2, 7), (3, 99)):
            await broker.kick(message(number, priority=priority))
        order = []
        for _ in range(3):
            found = await taken(broker)
            order.append(found.data)
            await acknowledge(found)
        assert order == [b"3", b"2", b"1"]


async def test_tasks_run_by_a_receiver_and_their_results_are_read(server: InProcess) -> None:
    broker = broker_of(server, "whole").with_result_backend(PocketResults(server.namesrv))

    @broker.task(task_name="whole.add")
    async def add(x: int, y: int) -> int:
        return x + y

    async with started(broker):
        receiver = asyncio.get_running_loop().create_task(run_receiver_task(broker))
        try:
            tasks = [await add.kiq(number, 1) for number in range(20)]
            for number, task in enumerate(tasks):
                result = await task.wait_result(timeout=60)
                assert result.return_value == number + 1
        finally:
            receiver.cancel()
            await asyncio.wait((receiver,))


async def test_a_result_is_absent_until_it_is_set_and_keeps_its_log(server: InProcess) -> None:
    async with started(PocketResults[int](server.namesrv, topic="kept")) as results:
        assert not await results.is_result_ready("one")
        with pytest.raises(ResultGetError):
            await results.get_result("one")
        value = TaskiqResult(is_err=False, log="said", return_value=5, execution_time=0.1)
        await results.set_result("one", value)
        await until_async(lambda: results.is_result_ready("one"), "the result is in the index")
        assert (await results.get_result("one", with_logs=True)).log == "said"
        assert (await results.get_result("one")).log is None
        assert (await results.get_result("one")).return_value == 5


async def test_schedules_are_sent_by_the_broker_without_a_scheduler(server: InProcess) -> None:
    """A label, an interval and a time; each task has an id of its own, and a scheduler sends none of them."""
    broker = broker_of(server, "timed").with_result_backend(PocketResults(server.namesrv))
    ids: list[str] = []

    @broker.task(task_name="timed.note", schedule=[{"cron": "0 0 * * *", "args": ["label"]}])
    async def note(what: str, context: Annotated[Context, TaskiqDepends()]) -> None:
        ids.append(f"{what} {context.message.task_id}")

    source, task = PocketSchedules(broker), cast(Any, note)
    async with started(broker):
        receiver = asyncio.get_running_loop().create_task(run_receiver_task(broker))
        try:
            await task.schedule_by_interval(source, 1, "interval")
            soon = datetime.now(UTC) + timedelta(hours=2)
            once = await task.schedule_by_time(source, soon, "once")
            gone = await task.schedule_by_time(source, soon, "gone")
            await task.schedule_by_time(source, datetime.now(UTC), "now")
            listed = {each.schedule_id: each for each in await source.get_schedules()}
            assert len(listed) == 4
            assert (listed["timed.note:0"].cron, listed["timed.note:0"].args) == (
                "0 0 * * *",
                ["label"],
            )
            assert listed[once.schedule_id].time == soon.replace(
                microsecond=soon.microsecond // 1000 * 1000
            )
            with pytest.raises(ScheduledTaskCancelledError):
                source.pre_send(listed[once.schedule_id])
            await gone.unschedule()
            await gone.unschedule()
            await asyncio.to_thread(server.clock.advance, days=1)

            def words() -> list[str]:
                return [each.partition(" ")[0] for each in ids]

            await until_async(
                lambda: {"label", "interval", "once", "now"} <= set(words()), "all ran"
            )
            await until_async(lambda: words().count("interval") > 1, "it comes again")
            assert words().count("once") == words().count("label") == 1
            assert len(set(ids)) == len(ids)
            assert len(await source.get_schedules()) == 2, "what comes once is deleted then"
        finally:
            receiver.cancel()
            await asyncio.wait((receiver,))


async def test_labels_that_are_no_more_are_deleted(server: InProcess) -> None:
    for crons in (["0 1 * * *", "0 2 * * *"], ["0 3 * * *"]):
        broker = broker_of(server, "labels")
        rows = [{"cron": each, "cron_offset": timedelta(hours=2)} for each in crons]

        @broker.task(task_name="labels.nothing", schedule=rows)
        async def nothing() -> None: ...

        source = PocketSchedules(broker)
        async with started(broker):
            found = await source.get_schedules()
        assert [(each.cron, each.cron_offset) for each in found] == [
            (each, "Etc/GMT-2") for each in crons
        ]
