"""Many topics of eight queues, and a tenth as many groups: what one costs does not grow with their number."""

import json
import math
import sys
from collections import Counter
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.serving import Peer
from tests.faults.watching import cpu_s, watched

QUEUES = 8
# In flight at once; the broker bounds what one client may have waiting.
_AT_ONCE = 100
_STARTS_MAX = 3
_START_S_MAX = 2.0
_SMALL = {"mapped_file_size_consume_queue": 40_000}


async def create(peer: Peer, topics: range) -> None:
    """Create topics, each with a message in each of its queues, and a group for every tenth of them."""
    for first in range(topics.start, topics.stop, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, topics.stop))
        asked = [peer.send(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic(number)) for number in some]
        asked += [
            peer.send(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=json.dumps({"groupName": f"Group{number}"}).encode(),
            )
            for number in some
            if number % 10 == 0
        ]
        await _succeed(peer, asked)
        await _succeed(
            peer,
            [
                peer.send_message(f"Topic{number}", queue_id=queue_id)
                for number in some
                for queue_id in range(QUEUES)
            ],
        )


async def _succeed(peer: Peer, asked: list[int]) -> None:
    codes = Counter([(await peer.next(60_000)).code for _ in asked])
    assert codes == {ResponseCode.SUCCESS: len(asked)}


def _topic(number: int) -> dict[str, object]:
    return {
        "topic": f"Topic{number}",
        "defaultTopic": "TBW102",
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }


async def test_topics_cost_the_same_however_many_there_are(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """50,000 with --many-topics 50000: started within 2 s of CPU beside an empty broker's, 300 MB at most."""
    count = int(request.config.getoption("--many-topics"))
    async with watched(tmp_path, store=_SMALL) as broker, await Peer.at(broker) as peer:
        before_s = cpu_s(broker.pid)
        await create(peer, range(count // 2))
        half_s = cpu_s(broker.pid)
        await create(peer, range(count // 2, count))
        first_s, second_s = half_s - before_s, cpu_s(broker.pid) - half_s
        empty_s, filled_rss = before_s, broker.rss
    start_s, rss = math.inf, 0
    # A machine that others use adds to a start now and then, and never takes away: the least counts.
    for _ in range(_STARTS_MAX):
        async with watched(tmp_path, store=_SMALL) as broker, await Peer.at(broker) as peer:
            start_s, rss = min(start_s, cpu_s(broker.pid)), max(rss, broker.rss)
            for number in (0, count - 1):
                answer = await peer.ask(
                    RequestCode.GET_MAX_OFFSET, {"topic": f"Topic{number}", "queueId": QUEUES - 1}
                )
                assert (answer.ext or {})["offset"] == "1"
        if start_s < empty_s + _START_S_MAX:
            break
    with capsys.disabled():
        sys.stdout.write(
            f"\n{count} topics: created in {first_s:.2f} and {second_s:.2f} CPU-s a half, "
            f"{filled_rss >> 20} MB; started in {start_s:.2f} (empty {empty_s:.2f}), {rss >> 20} MB\n"
        )
    # The first half warms up; what grew with the number would take three times as long in the second.
    assert second_s < 2 * first_s + 1
    assert start_s < empty_s + _START_S_MAX
    assert max(filled_rss, rss) < 300 << 20
