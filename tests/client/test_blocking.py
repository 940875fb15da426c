"""The blocking producer's begin_send: many threads, one hand-over, bounded, with an outcome for each."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from pocketmq.client import IllegalTopic, Message, NotRunning, SendResult, SendStatus
from pocketmq.client.sync import Producer
from pocketmq.testing import InProcess


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with InProcess() as server:
        server.create_topic("T", queues=1)
        yield server.namesrv


def test_messages_of_many_threads_get_an_outcome_each(name_server: str) -> None:
    """Leaving the `with` waits for what was begun; each thread's messages stay in order."""
    futures: list[list[Future[SendResult]]] = [[] for _ in range(4)]
    with Producer("many", name_server=name_server, in_flight_max=50) as producer:

        def send(number: int) -> None:
            for n in range(300):
                message = Message("T", b"%d-%d" % (number, n))
                futures[number].append(producer.begin_send(message))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for each in futures:
        results = [future.result(0) for future in each]
        assert all(result.status is SendStatus.SEND_OK for result in results)
        offsets = [result.queue_offset for result in results]
        assert offsets == sorted(offsets)
    assert len({f.result().queue_offset for each in futures for f in each}) == 1_200


def test_a_callback_may_send_again_and_an_error_is_an_outcome(name_server: str) -> None:
    """A full window does not stop the thread that empties it."""
    seconds: list[Future[SendResult]] = []
    with Producer("again", name_server=name_server, in_flight_max=1) as producer:

        def again(first: "Future[SendResult]") -> None:
            seconds.append(producer.begin_send(Message("T", b"second")))

        firsts = [producer.begin_send(Message("T", b"first")) for _ in range(20)]
        for future in firsts:
            future.add_done_callback(again)
        wait(firsts, 60)
        bad = producer.begin_send(Message("a/b", b"x"))
        assert isinstance(bad.exception(60), IllegalTopic)
        timed = producer.begin_send(Message("T", b"x"), timeout_ms=30_000)
        assert timed.result(60).status is SendStatus.SEND_OK
    assert len(seconds) == 20
    assert all(each.done() for each in seconds)
    with pytest.raises(NotRunning):
        producer.begin_send(Message("T", b"x"))
