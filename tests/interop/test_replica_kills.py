"""Kills of masters and slaves of both kinds at random moments."""

import logging
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
)
from pocketmq.client.sync import Producer, PushConsumer
from pocketmq.remoting.errors import PocketMQError
from tests.cli.servers import Server
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.interop.conftest import or_missing
from tests.interop.pairs import FILE, follow, send
from tests.kit.waiting import until

SMALL_LOG = {"mappedFileSizeCommitLog": FILE}


SLAVE = {"brokerRole": "SLAVE", **SMALL_LOG}


SYNC = {"brokerRole": "SYNC_MASTER", **SMALL_LOG}


log = logging.getLogger(__name__)


class Load:
    """One message after the other, and a group that takes them in the order of their queues."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._over = False
        self._pause_s = 0.0
        self.acknowledged: set[bytes] = set()
        # Of each queue: offset -> body, and the largest offset.
        self.read: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._last: dict[int, int] = defaultdict(lambda: -1)
        self.skipped: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        consumer = PushConsumer(
            "orderly",
            listener=self._take,
            orderly=True,
            name_server=self._namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            poll_name_server_interval_ms=500,
        )
        consumer.subscribe("Replicated")
        producer = Producer("load", name_server=self._namesrv, poll_name_server_interval_ms=500)
        with producer, consumer:
            sending = threading.Thread(target=self._send, args=(producer,))
            sending.start()
            try:
                yield
            finally:
                self.stop()
                sending.join()

    def stop(self) -> None:
        """Send no more."""
        self._over = True

    @contextmanager
    def slower(self) -> Iterator[None]:
        """Some 200 a second: while a broker starts, which needs the processor that a flood would take."""
        self._pause_s = 0.005
        try:
            yield
        finally:
            self._pause_s = 0.0

    def _send(self, producer: Producer) -> None:
        number = 0
        while not self._over:
            body = b"%d" % (number := number + 1)
            try:
                producer.send(Message("Replicated", body), timeout_ms=1_000)
            except PocketMQError:
                # Perhaps stored: nothing was promised.
                time.sleep(0.01)
            else:
                self.acknowledged.add(body)
            if self._pause_s:
                time.sleep(self._pause_s)

    def _take(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        for each in messages:
            last = self._last[each.queue_id]
            if each.queue_offset > last + 1:
                self.skipped.append(f"{each.queue_id}: {last} {each.queue_offset}")
            self._last[each.queue_id] = max(last, each.queue_offset)
            self.read[each.queue_id][each.queue_offset] = each.body
        return ConsumeResult.SUCCESS

    def more(self, count: int) -> None:
        enough = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= enough, f"{count} more acknowledged", 120)

    def missing(self) -> set[bytes]:
        """What was acknowledged and has not been read."""
        return self.acknowledged - {
            body for queue in self.read.values() for body in list(queue.values())
        }


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("ours", ["SYNC_MASTER", "SLAVE"])
def test_kills_at_random_moments_lose_nothing_and_keep_the_order(
    tmp_path: Path,
    version: str,
    ours: str,
    running: list[RunningBroker],
    names: Server,
    pytestconfig: pytest.Config,
) -> None:
    """kill -9 of the master, of the slave or of both, one of which is a real broker."""
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.info("seed %d", seed)
    chance = random.Random(seed)
    namesrv = names.ready()["namesrv"]

    def made(role: str) -> RunningBroker:
        folder, number = tmp_path / role, int(role == "SLAVE")
        config = SLAVE if number else SYNC
        if role == ours:
            return PocketBroker(folder, config=config, namesrv=namesrv, broker_id=number)
        return or_missing(
            lambda: JavaBroker(
                folder, version=version, config=config, namesrv=namesrv, broker_id=number
            )
        )

    pair = [made("SYNC_MASTER"), made("SLAVE")]
    running += pair
    for broker in pair:
        broker.start()
    load = Load(namesrv)
    with load.running():
        load.more(20)
        # The four cases share the kills, rounded up to each of the three deaths as often.
        turns = range(-(-int(pytestconfig.getoption("--replica-kills")) // 12))
        kinds = [pair[:1], pair[1:], pair]
        for number, dying in enumerate(each for _ in turns for each in chance.sample(kinds, 3)):
            time.sleep(chance.uniform(0, 1))  # the moment
            log.info("round %d: %s", number, [broker.config["brokerRole"] for broker in dying])
            for broker in dying:
                broker.kill()
            with load.slower():
                for broker in dying:
                    broker.start()
            load.more(20)
        load.stop()
        until(lambda: not load.missing(), "every acknowledged message is read", 120)
    send(pair[0], 1, "Last")
    follow(*pair)
    log.info("%d acknowledged", len(load.acknowledged))
    assert not load.skipped, seed
