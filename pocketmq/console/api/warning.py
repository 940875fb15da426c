"""Warnings: dismiss a finding of the overview, snooze it, show it again."""

import asyncio
from typing import Any

from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import not_found
from pocketmq.console.overview_warnings import OF_SITE, warnings_of
from pocketmq.console.quiet import finding_of
from pocketmq.console.state import Console

_SNOOZE_S_MAX = 30 * 86_400


async def silence(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Make a finding quiet: for a time, or until it ends."""
    body = call.body
    finding = body.text("kind"), body.text("subject", ""), body.text_or_none("topic") or ""
    seconds = body.number_or_none("forS", low=1, high=_SNOOZE_S_MAX)
    found = [each for each in warnings_of(console.figures) if finding_of(each) == finding]
    if not found:
        raise not_found("there is no such finding any more", "refresh the overview")
    until = None if seconds is None else console.clock.now_ms() + seconds * 1_000
    call.did("warning.silence", {"kind": finding[0], "subject": finding[1], "forS": seconds})
    console.quiet.silence(found[0], until)
    await asyncio.to_thread(console.quiet.save)
    return {"until": until}


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Show a finding again."""
    query = call.query
    finding = query.text("kind"), query.text("subject", ""), query.text_or_none("topic") or ""
    # One that has ended is still quiet, so the list of warnings does not know it.
    sight = console.sight
    if not (sight.cluster if finding[0] in OF_SITE else sight.group(finding[1])):
        raise not_found("there is no such finding", "refresh the overview")
    call.did("warning.show", {"kind": finding[0], "subject": finding[1]})
    console.quiet.show(finding)
    await asyncio.to_thread(console.quiet.save)
    return {}
