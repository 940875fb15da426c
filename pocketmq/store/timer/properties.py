"""The properties of timer messages: as requested by a producer, and as stored in the waiting record.

    requested  TIMER_DELAY_SEC, else TIMER_DELAY_MS, else TIMER_DELIVER_MS (ms since 1970)
    waiting    TIMER_OUT_MS: the second in which it is due, ms; REAL_TOPIC, REAL_QID
    recall     TIMER_DEL_UNIQKEY: the message that is not to be delivered
    delivered  TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS; TIMER_ROLL_TIMES if it went round

Source: HookUtils, TimerMessageStore, RocketMQ 5.5.0.
"""

from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.remoting.java_number import long
from pocketmq.store.errors import RecordIllegal

PRECISION_MS = 1_000
DELAY_SEC, DELAY_MS, DELIVER_MS = b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"
OUT_MS, DEL_KEY, ROLL_TIMES = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"TIMER_ROLL_TIMES"
ENQUEUE_MS, DEQUEUE_MS = b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"


class TimerIllegal(RecordIllegal):
    """A timer property that is not a time, or one too far ahead."""


def has_timer(properties: bytes) -> bool:
    """Return True if a message requests a delivery time and is not waiting or delivered already."""
    return (
        b"TIMER_D" in properties
        and get_property(properties, OUT_MS) is None
        and any(get_property(properties, name) for name in (DELAY_SEC, DELAY_MS, DELIVER_MS))
    )


def without_timer(properties: bytes) -> bytes:
    """Remove the requested delivery time: a delay level takes precedence."""
    for name in (DELAY_SEC, DELAY_MS, DELIVER_MS):
        properties = remove_property(properties, name)
    return properties


def waits_anew(properties: bytes, delay_ms: int) -> bytes:
    """Return the properties of a message that waits once more, from now on."""
    for name in (OUT_MS, ROLL_TIMES, ENQUEUE_MS, DEQUEUE_MS):
        properties = remove_property(properties, name)
    return add_property(without_timer(properties), DELAY_MS, str(delay_ms).encode())


def due_ms(properties: bytes, now_ms: int, delay_ms_max: int) -> int | None:
    """TIMER_OUT_MS of a message; None when its time is over. Raises: TimerIllegal.

    >>> due_ms(b"TIMER_DELIVER_MS\\x015500\\x02", 1000, 10_000)
    5000
    >>> due_ms(b"TIMER_DELAY_SEC\\x014", 1000, 10_000)
    4000
    >>> due_ms(b"TIMER_DELIVER_MS\\x01900", 1000, 10_000)
    """
    for name, unit, start in (
        (DELAY_SEC, 1_000, now_ms),
        (DELAY_MS, 1, now_ms),
        (DELIVER_MS, 1, 0),
    ):
        text = get_property(properties, name)
        if text is None:
            continue
        try:
            deliver_ms = start + long(text.decode("utf-8", "replace")) * unit
        except ValueError:
            raise TimerIllegal(f"{name.decode()} is not a number: {text[:40]!r}") from None
        if deliver_ms <= now_ms:
            return None
        if deliver_ms - now_ms > delay_ms_max:
            raise TimerIllegal(
                f"{name.decode()} is {(deliver_ms - now_ms) // 1000} s ahead, which is more than "
                f"timerMaxDelaySec "
                f"{delay_ms_max // 1000}"
            )
        # An exact second counts as the one before: a second is delivered when it is over.
        return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS
    return None


def delete_keys(topic: bytes, unique_key: bytes) -> tuple[bytes, bytes]:
    """Return the names a recall may use for a message: 5.3 writes topic+key, 5.5 the key alone."""
    return topic + b"+" + unique_key, unique_key


def recalls_of(topic: bytes, unique_key: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return what a recall of a message may name: its topic, and either name of the message."""
    return tuple((topic, each) for each in delete_keys(topic, unique_key))


def digits(text: bytes | None) -> int:
    """Return a number that a client may have written; 0 if absent, no number, or longer than 18 digits.

    >>> digits(b"12"), digits(b"-1"), digits(b"9" * 5000), digits(None)
    (12, 0, 0, 0)
    """
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else 0


# What passed_on adds at most.
PASSED_ON_SIZE = 128


def passed_on(properties: bytes, store_ms: int, now_ms: int, *, goes_round: bool) -> bytes:
    """Return the properties of a waiting message that is delivered or goes round, with both times added."""
    for name, ms in ((ENQUEUE_MS, store_ms), (DEQUEUE_MS, now_ms)):
        properties = add_property(remove_property(properties, name), name, str(ms).encode())
    if goes_round:
        count = digits(get_property(properties, ROLL_TIMES)) + 1
        properties = remove_property(properties, ROLL_TIMES)
        properties = add_property(properties, ROLL_TIMES, str(count).encode())
    return properties
