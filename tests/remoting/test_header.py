"""A header's class becomes a dataclass when it is first used."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.header import Header, wire


def test_a_header_class_is_made_once_by_concurrent_threads() -> None:
    for _ in range(20):

        class Asked(Header):
            topic: str = wire("b")
            queue_id: int
            bname: str | None = None

        assert "__init__" not in vars(Asked)  # what ninety of them cost at each start
        with ThreadPoolExecutor(8) as threads:
            parsed = [threads.submit(Asked.parse, {"b": "T", "queueId": "3"}) for _ in range(4)]
            made = [threads.submit(Asked, "T", queue_id=3) for _ in range(4)]
        headers = [each.result() for each in (*parsed, *made)]
        assert all(each == headers[0] for each in headers)
        assert headers[-1].ext() == {"b": "T", "queueId": "3"}


def test_a_header_that_derives_from_another_has_its_fields_first() -> None:
    class Asked(Header):
        topic: str
        bname: str | None = wire("n", default=None)

    class AskedTwice(Asked):
        again: bool | None = None

    assert repr(AskedTwice("T", "b", True)) == "AskedTwice(topic='T', bname='b', again=True)"
    assert Asked("T", "b").ext() == {"topic": "T", "n": "b"}
    assert AskedTwice.parse({"topic": "T", "again": "TRUE"}).again is True


def test_a_number_of_our_own_requests_is_one() -> None:
    """Else "since=yesterday" would redeliver messages of all time. RocketMQ's requests ignore it."""

    class OfRocketMQ(Header):
        since: int | None = None

    class Ours(Header, own=True):
        since: int | None = None

    assert OfRocketMQ.parse({"since": "yesterday"}).since is None
    assert (Ours.parse({}).since, Ours.parse({"since": "5"}).since) == (None, 5)
    with pytest.raises(HeaderError, match="'since' is not a number: 'yesterday'"):
        Ours.parse({"since": "yesterday"})
