"""Where queues of brokers reach a time: many queues together, since each step waits for an answer."""

from collections.abc import Generator, Mapping
from itertools import islice

from pocketmq.model.record import read_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RequestRefused
from pocketmq.remoting.header import Header
from pocketmq.remoting.headers import SearchOffsetHeader, SearchOffsetResponseHeader
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.brokers.pull import PullSettings, pull_header

# The message that a broker calls nearest, the one before it, and the one behind it.
_NEIGHBOURS = 3
# What is to be asked next, the answer, and what was found.
_Search = Generator[tuple[RequestCode, Header], RemotingCommand, int | None]


def first_at_time(
    client: BrokerClient,
    spans: Mapping[BrokerQueue, tuple[int, int]],
    ms: int,
    settings: PullSettings,
) -> dict[BrokerQueue, int | None]:
    """Return for each queue the first offset low <= o < high stored at `ms` or later; None if all are older.

    spans: low and high of the queues. Raises: RequestRefused, RemotingError.
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
    """The broker's own answer is close (4.9: the nearest message), so its neighbours mostly decide; if not,
    doubling steps and a binary search over single messages find the exact one.
    """
    end = high
    header = SearchOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=ms)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = yield code, header
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark, queue.address, code.in_words())
    near = SearchOffsetResponseHeader.parse(answer.ext).offset
    first = max(low, min(near, high - 1) - 1)
    if low < high:
        around = yield from _times(queue, first, min(_NEIGHBOURS, high - first), settings)
        for offset in sorted(around):
            if around[offset] >= ms:
                high = offset
                break
            low = offset + 1
        low, high = yield from _doubled(queue, low, high, near, ms, settings)
    while low < high:
        middle = (low + high) // 2
        if (yield from _reached(queue, middle, ms, settings)):
            high = middle
        else:
            low = middle + 1
    return None if low >= end else low


def _doubled(
    queue: BrokerQueue, low: int, high: int, near: int, ms: int, settings: PullSettings
) -> Generator[tuple[RequestCode, Header], RemotingCommand, tuple[int, int]]:
    """Narrow low and high by steps away from `near`."""
    step = 1
    if high <= near:
        while high - step >= low and (yield from _reached(queue, high - step, ms, settings)):
            high -= step
            step *= 2
        return max(low, high - step + 1), high
    while low + step < high and not (yield from _reached(queue, low + step, ms, settings)):
        low += step + 1
        step *= 2
    return low, min(high, low + step)


def _reached(
    queue: BrokerQueue, offset: int, ms: int, settings: PullSettings
) -> Generator[tuple[RequestCode, Header], RemotingCommand, bool]:
    """Whether the message of an offset is there and was stored at `ms` or later."""
    times = yield from _times(queue, offset, 1, settings)
    return times.get(offset, -1) >= ms


def _times(
    queue: BrokerQueue, first: int, count: int, settings: PullSettings
) -> Generator[tuple[RequestCode, Header], RemotingCommand, dict[int, int]]:
    """Return when messages from an offset on were stored, as many of `count` as the broker gives together.

    Offsets that were not asked for would lead out of the queue, and are left out.
    """
    some = PullSettings(settings.group, "*", "TAG", count)
    answer = yield RequestCode.PULL_MESSAGE, pull_header(queue, first, some)
    if answer.code != ResponseCode.SUCCESS:
        return {}
    wanted = range(first, first + count)
    records = (r for r in read_records(answer.body, check_crc=False) if r.queue_offset in wanted)
    return {r.queue_offset: r.store_ms for r in islice(records, count)}
