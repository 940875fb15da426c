"""kill -9 of the whole broker under load, again and again: nothing acknowledged is lost.

Four producers send one message after the other; the broker is killed at a random moment, started on
the same store, and so on. In the end every acknowledged message is where its answer said, with the
body it had, and the queues hold only what was sent. The seed is printed; POCKETMQ_SEED replays
it (as far as the machine's own timing allows).
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.model.record import read_records
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import (
    PullMessageHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
)
from pocketmq.remoting.transport.client import RemotingClient
from tests.interop.brokers import PocketBroker
from tests.kit.nursery import Nursery

log = logging.getLogger(__name__)
TOPIC = "KillLoop"
PRODUCERS = 4


class Ledger:
    """What was sent, and what was acknowledged at which queue offset."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: dict[tuple[int, int], bytes] = {}


def send_request(queue_id: int, body: bytes) -> RemotingCommand:
    header = SendMessageV2Header(
        producer_group="killers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=PRODUCERS,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=SystemClock().now_ms(),
        flag=0,
        properties=f"KEYS\x01{body.decode()}\x02",
    )
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, header.ext(), body)


async def produce(address: str, queue_id: int, ledger: Ledger, numbers: Iterator[int]) -> None:
    """Send until the connection dies; each message of this producer goes to its own queue."""
    async with RemotingClient({}, SystemClock()) as client:
        while True:
            body = b"%d-%d" % (queue_id, next(numbers))
            ledger.sent.add(body)
            try:
                answer = await client.invoke(address, send_request(queue_id, body), 10_000)
            except RemotingError:
                return
            assert answer.code == 0, answer.remark
            header = SendMessageResponseHeader.parse(answer.ext)
            place = header.queue_id, header.queue_offset
            assert place not in ledger.acknowledged, "a queue offset was given out twice"
            ledger.acknowledged[place] = body


async def stored_messages(address: str) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    async with RemotingClient({}, SystemClock()) as client:
        for queue_id in range(PRODUCERS):
            offset = 0
            while True:
                header = PullMessageHeader(
                    consumer_group="readers",
                    topic=TOPIC,
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_msg_nums=32,
                    sys_flag=PullSysFlag.SUBSCRIPTION,
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    sub_version=0,
                    subscription="*",
                )
                answer = await client.invoke(
                    address, RemotingCommand(RequestCode.PULL_MESSAGE, header.ext()), 10_000
                )
                if answer.code != 0:
                    assert answer.code == 19, answer.remark
                    break
                for record in read_records(answer.body):
                    found[queue_id, record.queue_offset] = bytes(record.body)
                    offset = record.queue_offset + 1
    return found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_by_kill_9(
    flush: str, tmp_path: Path, request: pytest.FixtureRequest, nursery: Nursery
) -> None:
    """R1: every round kills at a random moment of 20 to 250 ms."""
    rounds = int(request.config.getoption("--kill-rounds")) // 2
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.info("seed %d", seed)
    chance = random.Random(seed)
    ledger = Ledger()
    numbers = [iter(range(10**9)) for _ in range(PRODUCERS)]
    # Small files: the loop crosses file ends too.
    broker = PocketBroker(
        tmp_path,
        config={
            "flushDiskType": flush,
            "mappedFileSizeCommitLog": 1 << 20,
            "mappedFileSizeConsumeQueue": 2_000,
        },
        nursery=nursery,
    )

    async def one_round(kill_after_s: float) -> None:
        async with asyncio.TaskGroup() as producers:
            for queue_id in range(PRODUCERS):
                producers.create_task(produce(broker.address, queue_id, ledger, numbers[queue_id]))
            await asyncio.sleep(kill_after_s)
            await asyncio.to_thread(broker.kill)

    done = 0
    # On a busy machine few sends are answered before the kill: continue until there is something to lose.
    while done < rounds or (len(ledger.acknowledged) <= rounds and done < 10 * rounds):
        broker.start()
        asyncio.run(one_round(chance.uniform(0.02, 0.25)))
        done += 1
    broker.start()
    stored = asyncio.run(stored_messages(broker.address))
    broker.stop()

    assert len(ledger.acknowledged) > rounds
    lost = {place: body for place, body in ledger.acknowledged.items() if stored.get(place) != body}
    assert not lost, f"{len(lost)} of {len(ledger.acknowledged)} acknowledged messages: seed {seed}"
    assert set(stored.values()) <= ledger.sent
    assert len(set(stored.values())) == len(stored), "a message was stored twice"
    for queue_id in range(PRODUCERS):
        offsets = sorted(offset for queue, offset in stored if queue == queue_id)
        assert offsets == list(range(len(offsets))), "a queue has a hole"
