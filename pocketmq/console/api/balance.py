"""The balance of a group: its books, the messages of one state, and what was lost given back."""

import asyncio
from typing import Any

from pocketmq.admin.views.balance import BalanceView, balance_view, losses_of
from pocketmq.client.errors import BrokerFailed
from pocketmq.console.api.request import ApiRequest, paged
from pocketmq.console.errors import ApiError, api_error, bad_request, not_found
from pocketmq.console.state import Console
from pocketmq.model.balance import State

# Rows of the timeline; the rest is in the list of lost messages.
LOSSES_MAX = 200
# Messages a second of each broker, and for how long one request gives them.
RATE, TURNS_MAX = 1_000, 20
_GIVEN_BACK = (State.LOST.value, State.SKIPPED.value)


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    group = call.path["group"]
    topic, begin = call.query.text_or_none("topic"), call.query.number("begin", 0)
    view = await _view(console, group, topic, begin)
    lost = await console.admin.balances.listed(group, [State.LOST], topic, begin)
    losses = losses_of(lost)
    return {
        "group": group,
        "brokers": view.brokers,
        "total": view.sum.to_json(),
        "topics": [each.to_json() for each in view.rows],
        "states": [
            {"state": state.value, "severity": state.severity.value, "count": view.sum.of(state)}
            for state in State
        ],
        "losses": [each.to_json() for each in losses[:LOSSES_MAX]],
        "lossesLeft": max(0, len(losses) - LOSSES_MAX),
    }


async def _view(console: Console, group: str, topic: str | None, begin: int) -> BalanceView:
    view = await balance_view(console.admin, group, topic, begin)
    if not view.brokers:
        raise not_found(
            f"no broker accounts for group {group!r}",
            "check its name; brokers of Apache RocketMQ cannot account for messages",
        )
    # Brokers keep the balance from now on, so looking again costs little.
    console.figures.may_lose.add(group)
    return view


async def messages(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return ranges of messages in one state, in the order of the queues."""
    word = call.path["state"]
    if word not in {each.value for each in State}:
        known = ", ".join(each.value for each in State)
        raise bad_request(f"there is no state {word!r}", f"states are {known}")
    topic, begin = call.query.text_or_none("topic"), call.query.number("begin", 0)
    found = await console.admin.balances.listed(call.path["group"], [State.of(word)], topic, begin)
    page, size = call.page()
    return paged([each.to_json() for each in found], page, size)


async def redeliver(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Give lost or skipped messages back; the question before it is a dry run."""
    group, word = call.path["group"], call.body.text("state", State.LOST.value)
    if word not in _GIVEN_BACK:
        raise bad_request(
            f"messages that are {word!r} cannot be given back", "send lost or skipped"
        )
    topic, begin = call.body.text_or_none("topic"), call.body.number("begin", 0)

    async def give(count: int) -> dict[str, int]:
        told = await console.admin.balances.redeliver(
            group, State.of(word), topic, begin, count=count
        )
        if not told:
            raise not_found("no broker here can give messages back", "PocketMQ's brokers can")
        return {
            key: sum(each[key] for each in told.values())
            for key in ("given", "left", "unwanted", "deleted")
        }

    try:
        plan = await give(0)
    except BrokerFailed as error:
        # It refuses while members differ.
        found = api_error(error)
        raise ApiError(409, "CONFLICT", found.error, found.what_to_do) from error
    call.confirm(
        "group.redeliver",
        {"group": group, "state": word, **plan},
        f"Group {group!r}, and no other, will get {plan['left']} {word} messages again through its retry "
        f"topic, {RATE} a second of each broker. {plan['unwanted']} that no member wants now and "
        f"{plan['deleted']} that are deleted are left out. No message is given twice.",
    )
    given = 0
    for turn in range(TURNS_MAX):
        if turn:
            await asyncio.sleep(1.0)
        plan = await give(RATE)
        given += plan["given"]
        if not plan["given"] or not plan["left"]:
            break
    return {**plan, "given": given}
