"""Pops over resets, restarts, deletions and modes, and beside pulls."""

import json
from pathlib import Path

from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.pop_steps import Turned, step
from tests.broker.popping import Popper
from tests.broker.serving import Peer, batch, body_of, records, serving
from tests.kit.waiting import until_async


async def test_a_reset_offset_is_popped_from_also_after_a_restart(tmp_path: Path) -> None:
    """What is in flight from before does not undo the reset."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        for n in range(3):
            await peer.produce("T", b"%d" % n)
        assert len(await popper.pop()) == 3
        broker.parts.node.events.offset_reset("g", "T", 0, 1)
        broker.parts.tables.offsets.place("g", "T", 0, 1)
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        assert await Popper(peer, clock.now_ms).bodies() == [b"1", b"2"]


async def test_a_reset_of_a_group_moves_members_that_pop(tmp_path: Path) -> None:
    """They are told, and have no offsets of their own to set: the broker sets them."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        for n in range(3):
            await peer.produce("T", b"%d" % n)
        assert (await popper.batch_ack(await popper.pop())).code == 0
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        await peer.heartbeat("g", {"T": "*"})
        assert await popper.bodies() == []
        ext = {"topic": "T", "group": "g", "timestamp": 0, "isForce": True}
        answer = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert answer.code == 0, answer
        assert await popper.bodies() == [b"0", b"1", b"2"]
        await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**ext, "timestamp": -1})
        assert await popper.bodies() == []
        assert broker.parts.tables.offsets.query("g", "T", 0) == 3


async def test_a_restart_redelivers_exactly_the_unacknowledged(
    tmp_path: Path,
) -> None:
    """Nothing before its time; the group continues where it was."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        for n in range(4):
            await peer.produce("T", b"%d" % n)
        messages = await popper.pop(maxMsgNums=3)
        await popper.ack(messages[1])
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        assert await popper.bodies() == [b"3"]
        # A receipt from before is still good.
        assert (await popper.ack(messages[0])).code == 0
        clock.advance_ms(60_000)
        step(broker)
        assert await popper.bodies() == [b"2", b"3"]


async def test_with_sync_flush_an_ack_is_flushed_before_its_answer(
    tmp_path: Path,
) -> None:
    async with (
        serving(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as broker,
        await Peer.at(broker) as peer,
    ):
        popper = Popper(peer, broker.clock.now_ms)
        await peer.produce("T", b"one")
        [message] = await popper.pop()
        assert (await popper.ack(message)).code == 0
        assert broker.parts.messages.store.flush_behind_size == 0


async def test_a_message_track_tells_what_became_of_a_popped_message(tmp_path: Path) -> None:
    """Out, consumed, out again from the retry topic."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        for n in range(3):
            await peer.produce("T", b"%d" % n, UNIQ_KEY=f"KEY{n}")

        async def verdict(offset: int) -> tuple[str, str]:
            ext = {"topic": "T", "queueId": 0, "queueOffset": offset, "group": "g"}
            answer = await peer.ask(PocketRequestCode.GET_MESSAGE_TRACK, ext)
            [found] = body_of(answer)["tracks"]
            return found["verdict"], found["text"]

        messages = await popper.pop(maxMsgNums=2)
        await popper.ack(messages[0])
        assert (await verdict(0))[0] == "CONSUMED"
        assert (await verdict(1))[0] == "IN_FLIGHT"
        assert "popped and not acknowledged" in (await verdict(1))[1]
        assert (await verdict(2))[0] != "CONSUMED"
        clock.advance_ms(60_000)
        step(broker)
        assert (await verdict(1))[0] == "RETRYING"
        [again] = [m for m in await popper.pop() if m.body == b"1"]
        assert "delivered again" in (await verdict(1))[1]
        await popper.ack(again)
        assert (await verdict(1))[0] == "CONSUMED"


async def test_members_that_the_modes_keep_apart_do_not_pop(tmp_path: Path) -> None:
    """Ours: strict refuses whom it refused; an isolated group pulls, and is told so when it asks."""
    async with (
        serving(tmp_path, group_mode="isolate") as broker,
        await Peer.at(broker) as one,
        await Peer.at(broker) as two,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        await one.heartbeat("g", {"T": "a"}, client_id="one")
        await two.heartbeat("g", {"T": "b"}, client_id="two")
        answer = await Popper(one, broker.clock.now_ms).answer()
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "isolated" in (answer.remark or "")
        body = {
            "clientId": "one",
            "consumerGroup": "g",
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": "T",
        }
        mode = {"consumerGroup": "g", "mode": "POP", "topic": "T", "popShareQueueNum": 0}
        await one.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(mode).encode())
        found = body_of(
            await one.ask(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
        )
        shared_limits = [
            (a["mode"], a["messageQueue"]["queueId"]) for a in found["messageQueueAssignments"]
        ]
        assert shared_limits == [("PULL", 0), ("PULL", 1)]
    async with (
        serving(tmp_path / "strict", group_mode="strict") as broker,
        await Peer.at(broker) as one,
        await Peer.at(broker) as two,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        await one.heartbeat("g", {"T": "a"}, client_id="one")
        await two.heartbeat("g", {"T": "b"}, client_id="two")
        answer = await Popper(two, broker.clock.now_ms).answer()
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "strict" in (answer.remark or "")
        assert (await Popper(one, broker.clock.now_ms).answer()).code == 210


async def test_a_topic_that_is_deleted_takes_its_pops_with_it(tmp_path: Path) -> None:
    """What was out of it is not looked for in a topic that is made again, nor in its retry topic."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        await peer.produce("T", b"old")
        await popper.pop()
        clock.advance_ms(60_000)
        step(broker)
        await peer.produce("T", b"old, too")
        await popper.pop(maxMsgNums=1)
        assert broker.parts.tables.topics.get("%RETRY%g_T") is not None
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        assert broker.parts.tables.topics.get("%RETRY%g_T") is None
        await peer.produce("T", b"new")
        assert len(broker.parts.services.pop.log.state) == 0
        clock.advance_ms(60_000)
        step(broker)
        assert await popper.bodies() == [b"new"]


async def test_pulls_wait_and_are_woken_as_before_while_pops_wait(tmp_path: Path) -> None:
    """A group that pulls does not notice one that pops the same topic, and the other way round."""
    async with (
        serving(tmp_path) as broker,
        await Peer.at(broker) as puller,
        await Peer.at(broker) as peer,
        await Peer.at(broker) as producer,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        pop = Popper(peer, broker.clock.now_ms, group="pops").send(pollTime=15_000)
        await until_async(lambda: broker.parts.services.pop.polling.count == 1)
        pull = puller.send_pull("pulls", "T", 0, sys_flag=6, subscription="*")
        await until_async(lambda: broker.parts.services.long_polling.count == 1)
        both = batch((b"one", b""), (b"two", b""))
        code, more = RequestCode.SEND_BATCH_MESSAGE, {"m": True}
        assert (await producer.produce("T", both, code=code, more=more)).code == 0
        for waiting, opaque in ((puller, pull), (peer, pop)):
            answer = await waiting.answer(opaque)
            assert [bytes(record.body) for record in records(answer)] == [b"one", b"two"]
        assert broker.parts.tables.offsets.query("pulls", "T", 0) <= 0
        assert broker.parts.tables.offsets.query("pops", "T", 0) == 2
