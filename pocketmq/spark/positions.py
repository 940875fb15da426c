"""Converts options to what planning needs: topics, start, end, row filters."""

import logging
import re
from collections.abc import Collection, Iterable

from pocketmq.bulk.moments import checked_ms
from pocketmq.bulk.offsets import Offsets, Positions, QueueKey, each, lookup, parse_offsets
from pocketmq.bulk.partition import Filters, Sizes, Topics
from pocketmq.model.names import is_group_topic
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.options import Options

GROUP = "group"
_log = logging.getLogger("pocketmq.spark")
_NAMED_MAX = 5


def topics_of(options: Options) -> Topics:
    """Return the topics. Raises: IllegalArgument if several of the three ways are used, or the pattern is
    bad.
    """
    given = [
        name
        for name, value in (
            ("subscribe", options.subscribe or options.topic),
            ("subscribePattern", options.subscribe_pattern),
            ("assign", options.assign),
        )
        if value.strip()
    ]
    if len(given) > 1:
        raise IllegalArgument(f"give one of {' and '.join(given)}, not both")
    if options.subscribe_pattern:
        try:
            re.compile(options.subscribe_pattern)
        except re.error as error:
            raise IllegalArgument(
                f"subscribePattern must be a regular expression, not "
                f"{options.subscribe_pattern!r}: {error}"
            ) from None
    return Topics(
        options.topics,
        options.subscribe_pattern or None,
        options.assigned,
        options.include_system_topics,
    )


def starting_of(options: Options, default: str) -> Positions:
    """Return where to begin; "group" stays a word for the reader to look up.

    default: "earliest" or "latest". Raises: IllegalArgument.
    """
    word, offsets = default, None
    text = options.starting_offsets.strip()
    if text.startswith("{"):
        offsets = parse_offsets(text, "startingOffsets")
    elif text:
        if text.lower() not in ("earliest", "latest", GROUP):
            raise IllegalArgument(
                "startingOffsets must be earliest, latest, group or JSON "
                f'{{"topic":{{"broker":{{"queue":offset}}}}}}, not {text!r}'
            )
        word = text.lower()
    if word == GROUP and not options.group:
        raise IllegalArgument("startingOffsets=group needs option group, the consumer group's name")
    by_queue = options.starting_offsets_by_timestamp.strip()
    return Positions(
        word,
        offsets,
        options.milliseconds("startingTimestamp"),
        _times(by_queue, "startingOffsetsByTimestamp"),
        options.starting_strategy,
    )


def ending_of(options: Options) -> Positions:
    """Return where to end. Raises: IllegalArgument."""
    text = options.ending_offsets.strip()
    offsets = None
    if text.startswith("{"):
        offsets = parse_offsets(text, "endingOffsets", minimum=-1)
    elif text.lower() != "latest":
        raise IllegalArgument(
            'endingOffsets must be latest or JSON {"topic":{"broker":{"queue":offset}}}, '
            f"not {text!r}"
        )
    by_queue = options.ending_offsets_by_timestamp.strip()
    return Positions(
        "latest",
        offsets,
        options.milliseconds("endingTimestamp"),
        _times(by_queue, "endingOffsetsByTimestamp"),
    )


def _times(text: str, option: str) -> Offsets | None:
    """Parse a time for each queue, ms; None if there is no text. Raises: IllegalArgument."""
    if not text:
        return None
    found = parse_offsets(text, option, minimum=0)
    for key, ms in each(found):
        try:
            checked_ms(ms)
        except IllegalArgument as error:
            raise IllegalArgument(f"{option}, topic {key.topic}: {error}") from None
    return found


def check_batch(starting: Positions, ending: Positions) -> None:
    """Refuse a batch that can have no rows, as Kafka's source does. Raises: IllegalArgument."""
    by_time = starting.ms is not None or starting.ms_by_queue is not None
    if starting.word == "latest" and starting.offsets is None and not by_time:
        raise IllegalArgument(
            "a batch with startingOffsets=latest has no rows: use earliest, or a stream"
        )
    if starting.ms is not None and ending.ms is not None and starting.ms > ending.ms:
        raise IllegalArgument(
            f"startingTimestamp {starting.ms} is later than endingTimestamp {ending.ms}, so no "
            "row can be between: exchange them"
        )
    for what, begin, end in (
        ("Offsets", starting.offsets, ending.offsets),
        ("OffsetsByTimestamp", starting.ms_by_queue, ending.ms_by_queue),
    ):
        for key, first in each(begin or {}):
            last = lookup(end, key)
            if last is not None and first > last >= 0:
                # JSON for one broker leaves its name out.
                broker = f"broker {key.broker_name}, " if key.broker_name else ""
                raise IllegalArgument(
                    f"topic {key.topic}, {broker}queue {key.queue_id}: there is nothing to read, "
                    f"because starting{what} {first} is beyond ending{what} {last}"
                )


def say_defaults(topics: Topics, keys: Collection[QueueKey], starting: Positions) -> None:
    """Log what a selection includes beyond what its options name."""
    if starting.offsets is not None:
        left_out = [k for k in keys if lookup(starting.offsets, k) is None]
        if left_out:
            _log.warning(
                "queues_without_starting_offset count=%d first=%s; they begin at their earliest offset",
                len(left_out),
                _some(f"{k.topic}/{k.broker_name}/{k.queue_id}" for k in left_out),
            )
    if not topics.named() and topics.pattern is None:
        again = {k.topic for k in keys if is_group_topic(k.topic)}
        if again:
            _log.warning(
                "retry_and_dead_letter_topics count=%d first=%s; a retried message is one row "
                "for each try. To leave them out, name topics with option subscribe",
                len(again),
                _some(sorted(again)),
            )


def _some(names: Iterable[str]) -> str:
    return ",".join(list(names)[:_NAMED_MAX])


def filters_of(options: Options) -> Filters:
    """Return the filters by tag and key."""
    return Filters(options.tags, options.wanted_keys)


def sizes_of(options: Options) -> Sizes:
    """Return how to divide work into tasks and batches. Raises: IllegalArgument."""
    return Sizes(
        options.partition_bytes, max(1, options.min_partitions), options.read_batch_bytes()
    )
