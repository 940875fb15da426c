"""The ledger of delivery=ledger: which rows each task of a batch has sent whole.

A broker keeps it as offsets of a group without consumers, SPARK_LEDGER_<query>: "queue" = partition, and

    bits 62-48  (batch + 1) modulo 2**15
    bits 47-0   digest of the batch's number and of the partition's rows

1. A task is skipped only if its rows are those that were noted for its partition number: after a restart with
   other cuts (minPartitions, cores, a shuffle) that number may hold other rows. Each note stands for messages
   of its own, so skipping loses no row, whatever the cuts are.
2. The digest is a sum over the rows, so their order does not matter: after a shuffle it may differ.
3. Rows are kept aside only if a note of this batch exists, so only by a task that runs again.
"""

import hashlib
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.write.rows import RowMessage

_GROUP = "SPARK_LEDGER_"
_BATCH_BITS = 15
_DIGEST_BITS = 48
# Rows kept aside beyond this many bytes go to a temporary file.
_IN_MEMORY_BYTES = 16 << 20


def row_digest(row: RowMessage) -> bytes:
    """Return 16 bytes that identify what a row says: topic, body, properties, flag and queue."""
    head = f"{row.topic}\0{row.flag}\0{row.queue_id}\0{len(row.body)}\0{row.properties}\0"
    return hashlib.blake2b(head.encode() + row.body, digest_size=16).digest()


class Tally:
    """The digest of a partition's rows, in any order (invariant 2)."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, digest: bytes) -> None:
        """Count a row by its row_digest()."""
        self.rows += 1
        self._sum += int.from_bytes(digest)

    def note(self, batch: int) -> int:
        """Return what the ledger holds of this partition of a batch."""
        text = f"{batch}/{self.rows}/{self._sum % (1 << 128)}"
        digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BITS // 8).digest()
        return _tag(batch) << _DIGEST_BITS | int.from_bytes(digest)


def _tag(batch: int) -> int:
    return (batch + 1) % (1 << _BATCH_BITS)


class Ledger:
    """The notes of one query. The broker of the topic's first queue keeps them."""

    def __init__(self, client: BrokerClient, topic: str, query: str) -> None:
        self._client = client
        self._group = _GROUP + query.replace("-", "")
        first = min(client.queues(topic, Perm.WRITE), key=lambda q: (q.broker_name, q.queue_id))
        self._place = first
        body = fastjson.dumps(
            {
                "groupName": self._group,
                "consumeEnable": True,
                "consumeFromMinEnable": True,
                "consumeBroadcastEnable": False,
                "retryQueueNums": 0,
                "retryMaxTimes": 0,
                "brokerId": 0,
                "whichBrokerWhenConsumeSlowly": 1,
                "notifyConsumerIdsChangedEnable": False,
            }
        )
        raw = body if isinstance(body, bytes) else body.encode()
        client.call(first.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, raw)

    def noted(self, partition: int, batch: int) -> int | None:
        """Return the note of this partition of this batch; None if it was not sent whole."""
        found = self._client.group_offset(self._queue(partition), self._group) or 0
        return found if found > 0 and found >> _DIGEST_BITS == _tag(batch) else None

    def write(self, partition: int, note: int) -> None:
        """Note a partition whose rows are all acknowledged."""
        self._client.commit_offset(self._queue(partition), self._group, note)

    def _queue(self, partition: int) -> BrokerQueue:
        place = self._place
        return BrokerQueue(place.topic, place.broker_name, place.address, partition)


@contextmanager
def rows_aside(rows: Iterable[RowMessage]) -> Iterator[tuple[Tally, Iterator[RowMessage]]]:
    """Read all rows of a task before the first is sent. Yields: their tally, and the rows again.

    Many rows wait in a temporary file.
    """
    tally = Tally()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        for row in rows:
            tally.add(row_digest(row))
            pickle.dump(row, file, pickle.HIGHEST_PROTOCOL)
        file.seek(0)
        yield tally, (pickle.load(file) for _ in range(tally.rows))
