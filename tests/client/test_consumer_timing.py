"""When a push consumer does what: heartbeats, rebalances, pulls, commits, on a clock that jumps."""

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from pocketmq.client import (
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
)
from pocketmq.client.network.instance import MQClientInstance
from pocketmq.client.network.runner import Runner
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_service import PullMessageService, PullRequest
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.command import RemotingCommand
from tests.client.fake_cluster import Asked, FakeBroker, FakeCluster
from tests.client.timing import NS, Listener, consumer, member, times
from tests.client.virtual_time import START_MS, LoopClock, run_virtual, until


def instance(made: PushConsumer) -> MQClientInstance:
    return member(made).instance


# ------------------------------------------------------------ pull service


def make_request(queue_id: int, group: str = "g") -> PullRequest:
    return PullRequest(group, MessageQueue("T", "b", queue_id), ProcessQueue(0), 0)


def test_the_pull_service_keeps_order_and_survives_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S1, S2, S3: take, pull, continue (at once where a pull says so); delays are kept."""
    caplog.set_level(logging.INFO)
    served: list[tuple[int, int]] = []

    async def main() -> None:
        clock = LoopClock()
        runner = Runner("test")

        async def pull(request: PullRequest) -> bool:
            served.append((request.queue.queue_id, clock.monotonic_ms()))
            if request.queue.queue_id == 1:
                raise RuntimeError("a bug in a pull")
            request.next_offset += 1
            return request.queue.queue_id == 2 and request.next_offset < 3

        service = PullMessageService(runner, lambda group: pull if group == "g" else None)
        await runner.start()
        runner.spawn(service.run(), name="pull")
        service.execute_later(make_request(9), 500)
        for queue_id in (0, 1, 2):
            service.execute_immediately(make_request(queue_id))
        service.execute_immediately(make_request(5, group="gone"))
        await asyncio.sleep(1)
        await runner.stop()

    run_virtual(main)
    assert served == [(0, 0), (1, 0), (2, 0), (2, 0), (2, 0), (9, 500)]
    assert "PullMessageService service started" in caplog.text
    assert "PullMessageService service end" in caplog.text
    assert "Pull Message Service Run Method exception" in caplog.text


def test_nothing_is_pulled_before_the_first_rebalance() -> None:
    """S4, S25: the first pull request comes from the rebalance, with queue and offset."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        cluster.on(RC.GET_CONSUMER_LIST_BY_GROUP, lambda asked: asked.reply(1, "not yet"))
        async with consumer(cluster, Listener()):
            await asyncio.sleep(60)
            assert cluster.asked(RC.PULL_MESSAGE) == []
            cluster.answers.clear()
            await until(lambda: len(cluster.asked(RC.PULL_MESSAGE, topic="T")) >= 2)
            first = cluster.asked(RC.PULL_MESSAGE, topic="T")[0]
            assert first.ext["queueOffset"] == "0"
            assert first.ext["consumerGroup"] == "g"

    run_virtual(main)


# ------------------------------------------------------------ the instance's clocks


def test_heartbeats_leave_at_the_start_after_1_s_then_each_30_s() -> None:
    """S35, S36: at start, at 1 000 ms, then every 30 s."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.topics["%RETRY%g"] = 1
        async with consumer(cluster, Listener()):
            await asyncio.sleep(95)
            beats = times(cluster.asked(RC.HEART_BEAT))
            # One when it starts, one each for the rebalances of T and %RETRY%g, then the clock's.
            assert beats[0] < 100
            assert [at for at in beats if at >= 900] == [1_000, 31_000, 61_000, 91_000]

    run_virtual(main)


def test_producers_send_heartbeats_to_masters_only() -> None:
    """S37: a slave keeps consumers, since they may read from it, but no producers."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        slave = FakeBroker("broker-a", "10.0.0.9:10911", broker_id=1)
        cluster.brokers.append(slave)
        async with Producer(
            "p",
            name_server=NS,
            clock=cluster.clock,
            transport=cluster.transport,
            client_ip="1.1.1.1",
        ) as producer:
            await producer.send(Message("T", b"x"))
            await asyncio.sleep(70)
            assert {each.address for each in cluster.asked(RC.HEART_BEAT)} == {"10.0.0.2:10911"}
            cluster.log.clear()
            async with consumer(cluster, Listener()) as one:
                await asyncio.sleep(5)
                mine = [
                    e for e in cluster.asked(RC.HEART_BEAT) if e.json["clientID"] == one.client_id
                ]
                assert {each.address for each in mine} == {"10.0.0.2:10911", slave.address}

    run_virtual(main)


def test_a_heartbeat_carries_what_the_article_shows() -> None:
    """S38, S39, S40: subscription data, the retry topic, and the group's attributes."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with consumer(cluster, Listener(), expression="B"):
            await asyncio.sleep(0.5)
            first = cluster.asked(RC.HEART_BEAT)[0].json
            assert list(first) == ["clientID", "consumerDataSet", "producerDataSet"]
            [data] = first["consumerDataSet"]
            assert {name: data[name] for name in data if name != "subscriptionDataSet"} == {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": "g",
                "messageModel": "CLUSTERING",
                "unitMode": False,
            }
            retry, own = data["subscriptionDataSet"]
            assert own["subVersion"] == START_MS
            assert json.dumps(own | {"subVersion": 1696901014319}, separators=(",", ":")) == (
                '{"classFilterMode":false,"codeSet":[66],"expressionType":"TAG","subString":"B",'
                '"subVersion":1696901014319,"tagsSet":["B"],"topic":"T"}'
            )
            assert (retry["topic"], retry["subString"], retry["tagsSet"]) == ("%RETRY%g", "*", [])

    run_virtual(main)


def test_offsets_are_committed_first_after_10_s_then_every_5_s() -> None:
    """S55, S56: the value is the next offset to read; code 15 at 10 s, 15 s, 20 s."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener()
        for body in (b"0", b"1"):
            cluster.put("T", 0, body)
        async with consumer(cluster, listener):
            await until(lambda: len(listener.messages) == 2)
            await asyncio.sleep(21)
            commits = cluster.asked(RC.UPDATE_CONSUMER_OFFSET, topic="T")
            assert [each.ext["commitOffset"] for each in commits] == ["2", "2", "2"]
            assert times(commits) == [10_000, 15_000, 20_000]
            assert all(each.oneway for each in commits)

    run_virtual(main)


def test_routes_refresh_every_30_s_and_drop_offline_brokers() -> None:
    """S36: the poll of the name server, and cleanOfflineBroker before a heartbeat."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        async with consumer(cluster, Listener()):
            await asyncio.sleep(65)
            polls = times(cluster.asked(RC.GET_ROUTEINFO_BY_TOPIC, topic="T"))
            assert [at for at in polls if at > 1_000] == [30_010, 60_010]
            gone = cluster.brokers.pop()
            await asyncio.sleep(60)
            cluster.log.clear()
            await asyncio.sleep(60)
            assert gone.address not in {each.address for each in cluster.log}

    run_virtual(main)


def test_a_rebalance_runs_every_20_s_and_on_notification() -> None:
    """S5: waitForRunning(20 s), woken by NOTIFY_CONSUMER_IDS_CHANGED."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with consumer(cluster, Listener()):
            await asyncio.sleep(10)
            cluster.log.clear()
            cluster.notify(cluster.brokers[0], "g")
            await asyncio.sleep(50)
            asked = times(cluster.asked(RC.GET_CONSUMER_LIST_BY_GROUP))
            assert asked[0] == 10_000
            assert sorted(set(asked)) == [10_000, 30_000, 50_000]

    run_virtual(main)


def test_a_failing_rebalance_does_not_stop_other_consumers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S6: both walk in one instance; the first raises."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        second = Listener()
        cluster.put("T", 0, b"x")
        first = consumer(cluster, Listener(), group="a", instance_name="shared")
        other = consumer(cluster, second, group="b", instance_name="shared")
        async with first:

            async def broken() -> None:
                raise RuntimeError("a bug in a rebalance")

            member(first).do_rebalance = broken  # type: ignore[method-assign]
            async with other:
                assert instance(first) is instance(other)
                await until(lambda: second.messages)

    run_virtual(main)
    assert "cannot rebalance, will try again group=a" in caplog.text


def test_a_paused_consumer_neither_rebalances_nor_pulls() -> None:
    """S7: suspend, no change; resume continues."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener()
        async with consumer(cluster, listener) as one:
            await asyncio.sleep(5)
            one.suspend()
            cluster.topics["T"] = 3
            cluster.put("T", 0, b"x")  # answers the pull that is held at the broker
            await until(lambda: listener.messages)
            cluster.log.clear()
            await asyncio.sleep(70)
            assert cluster.asked(RC.PULL_MESSAGE, topic="T") == []
            assert cluster.asked(RC.GET_CONSUMER_LIST_BY_GROUP) == []
            assert len([q for q in one.assignment() if q.topic == "T"]) == 1
            one.resume()
            await until(lambda: len([q for q in one.assignment() if q.topic == "T"]) == 3)

    run_virtual(main)


# ------------------------------------------------------------ rebalance


def test_queues_and_ids_are_sorted_before_they_are_shared() -> None:
    """S11: two members see the ids in different orders, and still share without overlap. One has two
    connections, and is named twice by an Apache broker.
    """

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=4)
        turn = [0]

        def shuffled(asked: Asked) -> RemotingCommand:
            turn[0] += 1
            ids = ["10.9.9.9@one", "10.9.9.9@two", "10.9.9.9@one"]
            if turn[0] % 2:
                ids.reverse()
            return asked.reply(body=json.dumps({"consumerIdList": ids}).encode())

        cluster.on(RC.GET_CONSUMER_LIST_BY_GROUP, shuffled)
        one = consumer(cluster, Listener(), instance_name="one")
        two = consumer(cluster, Listener(), instance_name="two")
        async with one, two:
            await asyncio.sleep(65)
            own = [[q.queue_id for q in each.assignment() if q.topic == "T"] for each in (one, two)]
            assert own == [[0, 1], [2, 3]]

    run_virtual(main)


def test_a_first_start_before_its_topic_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S8, S12: no crash, one line that names the next step, nothing of the retry topic or the members."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.auto_create = False
        async with consumer(cluster, Listener(), "Unknown") as one:
            one.subscribe("T")
            await asyncio.sleep(45)
            assert {queue.topic for queue in one.assignment()} == {"T", "%RETRY%g"}

    run_virtual(main)
    [said] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "topic=Unknown" in said.getMessage()
    assert "pocketmq topic create Unknown" in said.getMessage()


@pytest.mark.parametrize("subscribes", [True, False])
def test_a_consumer_that_subscribes_to_nothing_is_one_warning(
    caplog: pytest.LogCaptureFixture, *, subscribes: bool
) -> None:
    """Subscribing after the start is legal in Java: ten seconds are left for it."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with consumer(cluster, Listener(), topic="") as one:
            await asyncio.sleep(5)
            if subscribes:
                one.subscribe("T")
            await asyncio.sleep(60)

    run_virtual(main)
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    warning = (
        "this consumer has no subscription and receives nothing: call subscribe(topic) group=g"
    )
    assert said == ([] if subscribes else [warning])


def test_a_strategy_that_raises_leaves_everything_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S13: an error in the log, the table untouched."""

    class Raising:
        name = "RAISING"
        on = False

        def __call__(
            self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
        ) -> list[MessageQueue]:
            if self.on:
                raise ValueError("no idea")
            return list(queues)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        strategy = Raising()
        async with consumer(cluster, Listener(), strategy=strategy) as one:
            await asyncio.sleep(5)
            before = one.assignment()
            strategy.on = True
            await asyncio.sleep(60)
            assert one.assignment() == before
            assert len(before) == 3

    run_virtual(main)
    assert "allocate strategy failed, nothing changes strategy=RAISING" in caplog.text


def test_a_second_member_takes_half_until_it_leaves() -> None:
    """S21, S26, S27: red, green and yellow; each change bumps the version and heartbeats at once."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=4)
        one = consumer(cluster, Listener(), instance_name="one")
        two = consumer(cluster, Listener(), instance_name="two")

        def own(each: PushConsumer) -> list[int]:
            return [queue.queue_id for queue in each.assignment() if queue.topic == "T"]

        async with one:
            await until(lambda: own(one) == [0, 1, 2, 3])
            kept = {q: p for q, p in member(one).rebalance.table.items() if q.queue_id < 2}
            lost = [p for q, p in member(one).rebalance.table.items() if q.queue_id >= 2]
            version = member(one).rebalance.subscriptions["T"].sub_version
            await asyncio.sleep(7)
            async with two:
                await until(lambda: own(one) == [0, 1] and own(two) == [2, 3])
                table = member(one).rebalance.table
                assert all(table[queue] is process_queue for queue, process_queue in kept.items())
                assert all(process_queue.dropped for process_queue in lost)
                bumped = member(one).rebalance.subscriptions["T"].sub_version
                assert bumped >= version + 7_000
                seen = cluster.brokers[0].subscriptions["g"]["T"].sub_version
                assert seen >= bumped
                await asyncio.sleep(3)
                cluster.log.clear()
                await asyncio.sleep(60)
                # An idle rebalance emits nothing: the versions stay.
                assert member(one).rebalance.subscriptions["T"].sub_version == bumped
            await until(lambda: own(one) == [0, 1, 2, 3])

    run_virtual(main)


def test_queues_of_an_unsubscribed_topic_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S9: truncateMessageQueueNotMyTopic."""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2, U=1)
        async with consumer(cluster, Listener()) as one:
            one.subscribe("U")
            await until(lambda: len(one.assignment()) == 4)
            dropped = [p for q, p in member(one).rebalance.table.items() if q.topic == "U"]
            one.unsubscribe("U")
            await until(lambda: len(one.assignment()) == 3)
            assert [process_queue.dropped for process_queue in dropped] == [True]
            await asyncio.sleep(40)
            cluster.log.clear()
            await asyncio.sleep(40)
            assert cluster.asked(RC.PULL_MESSAGE, topic="U") == []

    run_virtual(main)
    assert "its topic is no longer subscribed" in caplog.text


def test_an_unknown_start_offset_is_asked_again_next_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S23, S24: removeDirtyOffset, computePullFromWhere; an error does not add the queue."""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(
            RC.QUERY_CONSUMER_OFFSET,
            lambda asked: asked.reply(1, "busy") if asked.ext["topic"] == "T" else None,
        )
        async with consumer(cluster, Listener()) as one:
            await asyncio.sleep(15)
            assert [q for q in one.assignment() if q.topic == "T"] == []
            cluster.answers.clear()
            await until(lambda: [q for q in one.assignment() if q.topic == "T"])
            queue = MessageQueue("T", "broker-a", 0)
            # put-if-absent: adding it a second time changes nothing.
            assert await member(one).rebalance._add(queue) is None

    run_virtual(main)
    assert "cannot learn where to begin" in caplog.text
    assert "has the queue already" in caplog.text


def test_the_start_offsets_of_many_queues_are_asked_together() -> None:
    """A member of a topic with 1,024 queues waited for 1,024 answers, one after the other."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=300)
        cluster.latency_s = 0.1
        async with consumer(cluster, Listener()) as one:
            began_ms = cluster.clock.monotonic_ms()
            await until(lambda: len([q for q in one.assignment() if q.topic == "T"]) == 300)
            assert cluster.clock.monotonic_ms() - began_ms < 3_000
            asked = cluster.asked(RC.QUERY_CONSUMER_OFFSET, topic="T")
            assert len({each.ext["queueId"] for each in asked}) == len(asked) == 300

    run_virtual(main)
