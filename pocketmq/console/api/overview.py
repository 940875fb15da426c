"""Overview: rates, lag, warnings; the charts' history; the stream of live figures."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pocketmq.console.api.request import ApiRequest, EventStream
from pocketmq.console.errors import bad_request
from pocketmq.console.overview_warnings import OF_SITE, warnings_of
from pocketmq.console.quiet import Finding, finding_of
from pocketmq.console.state import Console
from pocketmq.console.time.history import RINGS, SeriesKind
from pocketmq.console.users.sight import Sight
from pocketmq.remoting import json_codec

_TOP = 10


async def overview(console: Console, call: ApiRequest) -> dict[str, Any]:
    await console.figures.fresh()
    if console.quiet.settle(_ended(console)):
        await asyncio.to_thread(console.quiet.save)
    return overview_content(console)


def _ended(console: Console) -> list[Finding]:
    """Return the dismissed findings that have ended, as far as that has been looked at."""
    sampler = console.figures
    now = set(map(finding_of, warnings_of(sampler)))
    return [
        each
        for each in console.quiet.dismissed - now
        if each[1] in sampler.symptoms or (each[0] in OF_SITE and sampler.last.failure is None)
    ]


def overview_content(console: Console) -> dict[str, Any]:
    """Return the overview of the last sample."""
    sampler = console.figures
    sample = sampler.last
    topics = sampler.topic_rates()
    busiest = sorted(topics, key=lambda name: (-topics[name]["in"] - topics[name]["out"], name))
    behind = sorted(sampler.groups.items(), key=lambda each: (-each[1].lag, each[0]))
    return {
        "at": sample.at_ms,
        "brokers": sample.brokers,
        "counts": {
            "brokers": len(sample.brokers),
            "topics": sample.topic_count,
            "groups": sample.group_count,
            "members": sum(each.members or 0 for each in sampler.groups.values()),
        },
        **sampler.totals(),
        "topTopics": [{"topic": name, **topics[name]} for name in busiest[:_TOP]],
        "topGroups": [
            {"group": name, "lag": figures.lag, "out": round(figures.rate, 2)}
            for name, figures in behind[:_TOP]
        ],
        "warnings": [{**each, "quiet": console.quiet.of(each)} for each in warnings_of(sampler)],
    }


async def history(console: Console, call: ApiRequest) -> dict[str, Any]:
    await console.figures.fresh()
    text = call.query.text("kind", SeriesKind.CLUSTER.value)
    try:
        kind = SeriesKind(text)
    except ValueError:
        raise bad_request(f"kind is one of {', '.join(SeriesKind)}, not {text!r}") from None
    name = None if kind is SeriesKind.CLUSTER else call.query.text_or_none("name")
    now_ms = console.clock.now_ms()
    since_ms = call.query.number("since", max(0, now_ms - RINGS[0].span_ms))
    until_ms = call.query.number("until", max(now_ms, console.figures.last.at_ms) + 1)
    if until_ms <= since_ms:
        raise bad_request("'until' must be later than 'since'")
    found = console.figures.history.view(kind, name, since_ms, until_ms, now_ms)
    seen = [each for each in found["series"] if _is_seen(console.sight, kind, each["name"])]
    return {**found, "series": seen}


def _is_seen(sight: Sight, kind: SeriesKind, name: str) -> bool:
    if kind is SeriesKind.TOPICS:
        return sight.topic(name)
    return sight.group(name) if kind is SeriesKind.GROUPS else sight.cluster


async def live(console: Console, call: ApiRequest) -> EventStream:
    await console.figures.fresh()
    return EventStream(_events(console))


async def _events(console: Console) -> AsyncIterator[bytes]:
    """Yield each sample as an event until the console closes, which also ends the wait for the next one."""
    closing = console.closing
    while not closing.is_set():
        data = json_codec.dumps(overview_content(console))
        yield b"event: overview\nid: %d\ndata: %b\n\n" % (console.figures.last.at_ms, data)
        await console.figures.next()
