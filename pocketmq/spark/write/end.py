"""Ends half messages in bulk: commits them, or rolls them back.

1. RocketMQ carries out every END_TRANSACTION, so a repeated commit delivers its message twice. Source:
   EndTransactionProcessor, RocketMQ 4.9.7. (PocketMQ remembers what is decided.)
2. A commit makes a message with the half message's UNIQ_KEY visible, which QUERY_MESSAGE finds as soon as the
   broker's index has it. Repeating a rollback is harmless.
3. So if a lost connection left a commit without an answer, its message is searched _SETTLE_S later, and the
   commit repeated only if the message is missing. If the broker keeps no index (messageIndexEnable=false), a
   message may be delivered twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pocketmq.model.message_codec import get_property, parse_offset_msg_id
from pocketmq.model.record import read_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import PocketMQError, RemotingError, RequestRefused
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.headers import EndTransactionHeader, QueryMessageHeader
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.retry import BUSY, RetryPause
from pocketmq.spark.write.send import Half

_IN_FLIGHT = 256
_SETTLE_S = 4.0
_FOREVER_MS = (1 << 63) - 1


@dataclass
class Ended:
    """What became of the half messages. refused, unknown: with the last error of each."""

    done: int = 0
    refused: list[tuple[Half, PocketMQError]] = field(default_factory=list)
    unknown: list[tuple[Half, PocketMQError]] = field(default_factory=list)


@dataclass
class _Round:
    """One try. unsent: certainly not carried out; unanswered: perhaps."""

    unsent: list[tuple[Half, PocketMQError]] = field(default_factory=list)
    unanswered: list[tuple[Half, PocketMQError]] = field(default_factory=list)


class HalfEnder:
    """Commits or rolls back the half messages of one write, at all brokers together."""

    def __init__(
        self,
        client: BrokerClient,
        group: str,
        *,
        commit: bool,
        patience: RetryPause,
    ) -> None:
        self._client = client
        self._group = group
        self._commit = commit
        self._patience = patience

    def end(self, halves: Sequence[Half]) -> Ended:
        """End them all, or report which are not; faults are retried as `patience` allows."""
        result = Ended()
        left = list(halves)
        while left:
            tried = self._try(left, result)
            lost = tried.unanswered
            if not tried.unsent and not lost:
                break
            try:
                error = (lost or tried.unsent)[0][1]
                self._patience.pause(error, at_least_s=_SETTLE_S if lost else 0.0)
                visible = self._visible([h for h, _ in lost])
            except PocketMQError:
                result.unknown += tried.unsent + lost
                break
            result.done += len(visible)
            left = [h for h, _ in tried.unsent + lost if h.unique_key not in visible]
        return result

    def _try(self, halves: Iterable[Half], result: Ended) -> _Round:
        """Send each once, a window at a time at every broker; the answers are counted in `result`."""
        waiting: dict[str, list[Half]] = defaultdict(list)
        for half in halves:
            waiting[half.address].append(half)
        tried = _Round()
        while waiting:
            under_way = {
                address: self._send(address, of_broker[:_IN_FLIGHT], tried)
                for address, of_broker in waiting.items()
            }
            for address, sent in under_way.items():
                of_broker = waiting.pop(address)
                rest = of_broker[_IN_FLIGHT:]
                whole = len(sent) == len(of_broker) - len(rest)
                if self._collect(address, sent, tried, result) and whole:
                    if rest:
                        waiting[address] = rest
                else:
                    reason = (tried.unanswered or tried.unsent)[-1][1]
                    tried.unsent += [(h, reason) for h in rest]
        return tried

    def _send(self, address: str, halves: list[Half], tried: _Round) -> list[tuple[Half, int]]:
        sent: list[tuple[Half, int]] = []
        try:
            connection = self._client.connection(address)
        except RemotingError as error:
            tried.unsent += [(h, error) for h in halves]
            return sent
        for number, half in enumerate(halves):
            try:
                opaque = connection.request(RequestCode.END_TRANSACTION, self._header(half))
            except RemotingError as error:
                # Part of this one may have gone out; answers to those before it will not come.
                self._client.forget(address)
                tried.unanswered += [(h, error) for h in halves[: number + 1]]
                tried.unsent += [(h, error) for h in halves[number + 1 :]]
                return []
            sent.append((half, opaque))
        return sent

    def _collect(
        self, address: str, sent: list[tuple[Half, int]], tried: _Round, result: Ended
    ) -> bool:
        """Collect answers; return whether the connection held."""
        what = RequestCode.END_TRANSACTION.in_words()
        for number, (half, opaque) in enumerate(sent):
            try:
                answer = self._client.connection(address).answer(opaque, what)
            except RemotingError as error:
                self._client.forget(address)
                tried.unanswered += [(h, error) for h, _ in sent[number:]]
                return False
            if answer.code == ResponseCode.SUCCESS:
                result.done += 1
                self._patience.succeeded()
                continue
            refused = RequestRefused(answer.code, answer.remark, address, what)
            if answer.code in BUSY:
                tried.unsent.append((half, refused))
            else:
                result.refused.append((half, refused))
        return True

    def _header(self, half: Half) -> EndTransactionHeader:
        flag = (
            MessageSysFlag.TRANSACTION_COMMIT
            if self._commit
            else MessageSysFlag.TRANSACTION_ROLLBACK
        )
        return EndTransactionHeader(
            producer_group=self._group,
            tran_state_table_offset=half.offset,
            commit_log_offset=parse_offset_msg_id(half.msg_id)[1],
            commit_or_rollback=int(flag),
            msg_id=half.unique_key,
            from_transaction_check=False,
            transaction_id=half.unique_key,
            topic=half.topic,
        )

    def _visible(self, halves: Sequence[Half]) -> set[str]:
        """Return the unique keys of those whose messages can be read (invariant 2)."""
        found: set[str] = set()
        for half in halves if self._commit else ():
            header = QueryMessageHeader(
                topic=half.topic,
                key=half.unique_key,
                max_num=32,
                begin_timestamp=0,
                end_timestamp=_FOREVER_MS,
            )
            try:
                answer = self._client.call(half.address, RequestCode.QUERY_MESSAGE, header)
            except RequestRefused as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            # The index knows hashes: another message may have the same.
            for record in read_records(answer.body, check_crc=False):
                if get_property(record.properties, b"UNIQ_KEY") == half.unique_key.encode():
                    found.add(half.unique_key)
        return found
