"""What waits for a topic goes with it: the topic that is made again under its name begins empty."""

from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import TRANS_HALF_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, serving
from tests.kit.waiting import until_async

LEVELS = {"message_delay_level": "1s 2s"}
CHECKS: dict[str, Any] = {"transaction_check_interval": 200, "transaction_time_out": 1}
COMMIT = 8


async def send(peer: Peer, body: bytes, **properties: object) -> RemotingCommand:
    text = properties_to_text({name: str(value) for name, value in properties.items()})
    return await peer.produce("T", body, more={"i": text})


async def make(peer: Peer) -> None:
    ext = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
           "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0


async def delete(peer: Peer) -> None:
    assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0


async def commit(peer: Peer, half: RemotingCommand) -> RemotingCommand:
    assert half.ext is not None
    ext = {"producerGroup": "p", "tranStateTableOffset": half.ext["queueOffset"],
           "commitLogOffset": int(half.ext["msgId"][16:], 16), "commitOrRollback": COMMIT,
           "fromTransactionCheck": "false", "msgId": "m", "transactionId": "x"}  # fmt: skip
    return await peer.ask(RequestCode.END_TRANSACTION, ext)


def stored(broker: Broker) -> int:
    return broker.parts.messages.store.max_offset("T", 0)


async def test_what_waited_for_a_deleted_topic_never_comes(tmp_path: Path) -> None:
    """By level, by time, as a half message; what was sent to the new topic does, after a restart too."""
    async with serving(tmp_path, store=LEVELS, **CHECKS) as broker, await Peer.at(broker) as peer:
        await make(peer)
        await send(peer, b"now")
        for way in ({"DELAY": 2}, {"TIMER_DELAY_MS": 2_000, "UNIQ_KEY": "old"}):
            assert (await send(peer, b"old", **way)).code == 0
        half = await send(peer, b"old", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="half")
        late = await send(peer, b"old", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="late")
        await delete(peer)
        refused = await commit(peer, half)
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert "deleted" in (refused.remark or "")
        await make(peer)
    async with serving(tmp_path, store=LEVELS, **CHECKS) as broker, await Peer.at(broker) as peer:
        assert stored(broker) == 0
        for way in ({"DELAY": 2}, {"TIMER_DELAY_MS": 2_500, "UNIQ_KEY": "new"}):
            assert (await send(peer, b"new", **way)).code == 0
        new = await send(peer, b"new", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="newer")
        assert (await commit(peer, new)).code == 0
        # Behind the old ones in their queues.
        await until_async(lambda: stored(broker) == 3, "the new topic's three messages")
        half_queue = broker.parts.services.half
        await until_async(lambda: half_queue.waiting_count == 0, "no half message waits")
        assert (await commit(peer, late)).code == ResponseCode.TOPIC_NOT_EXIST
        assert set(await peer.bodies("g", "T")) == {b"new"}
        assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 3


async def test_what_is_due_makes_no_queue_of_a_deleted_topic(tmp_path: Path) -> None:
    async with serving(tmp_path, store=LEVELS, **CHECKS) as broker, await Peer.at(broker) as peer:
        await make(peer)
        await send(peer, b"old", DELAY=1)
        await send(peer, b"old", TIMER_DELAY_MS=1_000, UNIQ_KEY="old")
        await delete(peer)
        store = broker.parts.messages.store
        await until_async(
            lambda: broker.parts.services.delay.offsets.get(1, 0) == 1, "the level is empty"
        )
        await until_async(
            lambda: not broker.parts.services.timer.pending.counts["T"], "no timer waits"
        )
        assert store.queues("T") == []
        assert not (tmp_path / "consumequeue" / "T").exists()
