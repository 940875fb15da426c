"""Where queues of brokers reach a time: many queues together, since each step waits for an answer."""

from collections.abc import Generator, Mapping

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import Refused
from pocketmq.remoting.header import Header
from pocketmq.remoting.headers import SearchOffsetHeader, SearchOffsetResponseHeader
from pocketmq.remoting.record import read_records
from pocketmq.remoting.request_words import request_words
from pocketmq.spark.broker_client import BrokerClient, BrokerQueue
from pocketmq.spark.broker_pull import PullSettings, pull_header

# What is to be asked next, the answer, and what was found.
_Search = Generator[tuple[RequestCode, Header], RemotingCommand, int | None]


def first_at_time(
    client: BrokerClient,
    spans: Mapping[BrokerQueue, tuple[int, int]],
    ms: int,
    settings: PullSettings,
) -> dict[BrokerQueue, int | None]:
    """Return for each queue the first offset low <= o < high stored at `ms` or later; None if all are older.

    spans: low and high of the queues. Raises: Refused, RemotingError.
    """
    found: dict[BrokerQueue, int | None] = {}
    running = {q: _search(q, low, high, ms, settings) for q, (low, high) in spans.items()}
    asked = {queue: next(search) for queue, search in running.items()}
    while asked:
        answers = client.many([(queue.address, *request) for queue, request in asked.items()])
        following: dict[BrokerQueue, tuple[RequestCode, Header]] = {}
        for queue, answer in zip(asked, answers, strict=True):
            try:
                following[queue] = running[queue].send(answer)
            except StopIteration as ended:
                found[queue] = ended.value
        asked = following
    return found


def _search(queue: BrokerQueue, low: int, high: int, ms: int, settings: PullSettings) -> _Search:
    """The broker's own answer is close (4.9: the nearest message); from there doubling steps and a binary
    search over single messages find the exact one.
    """
    end = high
    header = SearchOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=ms)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = yield code, header
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer.code, answer.remark, queue.address, request_words(code))
    near = SearchOffsetResponseHeader.parse(answer.ext).offset
    near = min(max(near, low), max(low, high - 1))
    step = 1
    if low < high and (yield from _reached(queue, near, ms, settings)):
        high = near
        while high - step >= low and (yield from _reached(queue, high - step, ms, settings)):
            high -= step
            step *= 2
        low = max(low, high - step + 1) if high - step >= low else low
    elif low < high:
        low = near + 1
        while low + step < high and not (yield from _reached(queue, low + step, ms, settings)):
            low += step
            step *= 2
        high = min(high, low + step)
    while low < high:
        middle = (low + high) // 2
        if (yield from _reached(queue, middle, ms, settings)):
            high = middle
        else:
            low = middle + 1
    return None if low >= end else low


def _reached(
    queue: BrokerQueue, offset: int, ms: int, settings: PullSettings
) -> Generator[tuple[RequestCode, Header], RemotingCommand, bool]:
    """Whether the message of an offset is there and was stored at `ms` or later."""
    one = PullSettings(settings.group, "*", "TAG", 1)
    answer = yield RequestCode.PULL_MESSAGE, pull_header(queue, offset, one)
    if answer.code != ResponseCode.SUCCESS:
        return False
    return any(r.store_ms >= ms for r in list(read_records(answer.body, check_crc=False))[:1])
