"""What a Java 5.5.0 client popped from a real 5.5.0 broker, asked of ours: the same fields in the answers."""

import re
from collections.abc import Mapping
from pathlib import Path

from pocketmq.model.message_codec import get_property
from pocketmq.model.record import read_records
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, serving
from tests.namesrv.recordings import Exchange, exchanges

# Sends, heartbeats of the group, and pop's own codes.
ASKED = {34, 310, 401, 200050, 200051, 200053}
RECEIPT = re.compile(rb"^(\d+) \d+ (\d+) \d+ (\d) golden-a (\d+) (\d+)$")


def without_luck(ext: Mapping[str, str] | None) -> dict[str, str]:
    """The fields without times, the queue of the revive log and the order of queues."""
    found = dict(ext or {})
    for name in ("popTime", "reviveQid"):
        if name in found:
            found[name] = "some"
    for name in ("startOffsetInfo", "msgOffsetInfo"):
        if name in found:
            found[name] = ";".join(sorted(found[name].split(";")))
    return found


def messages(answer: RemotingCommand) -> list[tuple[object, ...]]:
    """What a client sees of the messages, receipts without times."""
    found = []
    for record in read_records(answer.body):
        receipt = RECEIPT.match(get_property(record.properties, b"POP_CK") or b"")
        found.append(
            (
                bytes(record.body),
                record.topic,
                record.queue_id,
                record.queue_offset,
                record.reconsume_times,
                receipt and receipt.groups(),
            )
        )
    return sorted(found, key=repr)


class Replay:
    """Asks ours what the recording asked; receipts are those that ours gave."""

    def __init__(self, peer: Peer, clock: ManualClock) -> None:
        self.peer, self.clock = peer, clock
        # popTime of the recording -> popTime and revive queue of ours
        self.times: dict[str, tuple[str, str]] = {}

    async def ask(self, exchange: Exchange) -> None:
        request, real = exchange.request, exchange.answer
        assert real is not None
        ext = dict(request.ext or {})
        if "bornTime" in ext:
            ext["bornTime"] = str(self.clock.now_ms())
        if "extraInfo" in ext:
            words = ext["extraInfo"].split(" ")
            words[1], words[3] = self.times[words[1]]
            ext["extraInfo"] = " ".join(words)
        ours = await self.peer.ask(request.code, ext, bytes(request.body), version=513)
        assert ours.code == real.code, exchange.name
        if request.code < RequestCode.POP_MESSAGE:
            return
        assert without_luck(ours.ext) == without_luck(real.ext), exchange.name
        if request.code == RequestCode.POP_MESSAGE:
            assert ours.ext is not None
            assert real.ext is not None
            self.times[real.ext["popTime"]] = ours.ext["popTime"], ours.ext["reviveQid"]
            assert (ours.remark, messages(ours)) == (real.remark, messages(real))


async def test_pops_acks_and_changes_are_answered_as_by_the_real_broker(tmp_path: Path) -> None:
    """Six messages go out, one is postponed by 10 s and comes again, all are acknowledged."""
    clock = ManualClock()
    compared = 0
    async with (
        serving(tmp_path, clock=clock, broker_cluster_name="GoldenCluster") as broker,
        await Peer.at(broker) as peer,
    ):
        broker.config.broker_name = "golden-a"
        broker.parts.tables.topics.update(TopicConfig("WtPop", 2, 2))
        replay = Replay(peer, clock)
        waiting: Exchange | None = None
        for exchange in exchanges("b550-java550-fiveonly", "broker"):
            request, ext = exchange.request, exchange.request.ext or {}
            topic = ext.get("topic", "") + ext.get("b", "")
            about = "WtPop" in topic or b"WtGidPop" in bytes(request.body)
            if request.code not in ASKED or not about or exchange.answer is None:
                continue
            found = (exchange.answer.ext or {}).get("startOffsetInfo", "")
            if request.code == RequestCode.POP_MESSAGE and found == "1 0 0":
                # It waited for the postponed message.
                waiting = exchange
                continue
            if waiting is not None and ext.get("topic") == "%RETRY%WtGidPop_WtPop":
                clock.advance_ms(10_000)
                broker.parts.services.pop.step()
                await replay.ask(waiting)
                waiting = None
                compared += 1
            await replay.ask(exchange)
            compared += request.code >= RequestCode.POP_MESSAGE
        assert len(broker.parts.services.pop.log.state) == 0
    # Two pops, six acks, one change; the pop that waited at the end has no answer.
    assert compared == 9
