"""From options to what planning needs: which topics, where to begin, where to end, which rows."""

import re

from pocketmq.bulk.offsets import Positions, parse_offsets
from pocketmq.bulk.planner import Filters, Sizes, Topics
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.options import Options

GROUP = "group"


def topics_of(options: Options) -> Topics:
    """Raises: IllegalArgument when several of the three ways are used, or the pattern is none."""
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
    """Where to begin; "group" is left as the word for the reader to look up.

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
        parse_offsets(by_queue, "startingOffsetsByTimestamp", minimum=0) if by_queue else None,
        options.starting_strategy,
    )


def ending_of(options: Options) -> Positions:
    """Where to end. Raises: IllegalArgument."""
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
        parse_offsets(by_queue, "endingOffsetsByTimestamp", minimum=0) if by_queue else None,
    )


def filters_of(options: Options) -> Filters:
    """Rows chosen by tag and key."""
    return Filters(options.tags, options.wanted_keys)


def sizes_of(options: Options) -> Sizes:
    """How work is cut into tasks and batches. Raises: IllegalArgument."""
    return Sizes(
        options.partition_bytes, max(1, options.min_partitions), options.read_batch_bytes()
    )
