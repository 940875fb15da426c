"""How soon a push consumer's failed message comes again when its SDK asks for no pause at all."""

from typing import Any

import pytest

from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, Code
from pocketmq.grpc.services.backoff import pause_ms
from pocketmq.model.tables import GroupConfig
from pocketmq.testing.in_process import InProcess
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import message, receive, send

EXPONENTIAL = {
    "groupRetryPolicy": {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 200, "max": 60_000, "multiplier": 2},
    }
}


async def _failed(client: Asking, got: Any, ms: int = 0, **fields: Any) -> int:
    """Ask for a message again in `ms`; returns the time that its new handle has."""
    asked = classes["ChangeInvisibleDurationRequest"](
        group={"name": "g"},
        topic={"name": "T"},
        receipt_handle=got.system_properties.receipt_handle,
        invisible_duration={"nanos": ms * 1_000_000},
        **fields,
    )
    answer = await client.ask("ChangeInvisibleDuration", asked)
    assert answer.status.code == Code.OK
    return int(answer.receipt_handle.split(" ")[2])


def _settings(client_type: ClientType) -> Any:
    return classes["Settings"](
        client_type=client_type,
        subscription={
            "group": {"name": "g"},
            "subscriptions": [{"topic": {"name": "T"}, "expression": {"expression": "*"}}],
        },
    )


@pytest.mark.parametrize("says_settings", [False, True])
async def test_a_push_consumer_that_asks_for_no_pause_gets_its_groups(says_settings: bool) -> None:
    """Node's SDK 1.0.8; sixteen attempts took two seconds."""
    with InProcess() as server:
        server.admin.topics.create("T", queues=1)
        async with asking(server.grpc) as client:
            if says_settings:
                await client.talk(_settings(ClientType.PUSH_CONSUMER))
            await send(client, message())
            for attempt, pause in enumerate((1_000, 5_000, 10_000), 1):
                (got,) = await receive(client, auto_renew=True)
                assert got.system_properties.delivery_attempt == attempt
                assert await _failed(client, got, ms=50) == pause
                server.clock.advance(pause / 1000 - 0.5)
                assert await receive(client, wait_s=0, auto_renew=True) == []
                server.clock.advance(0.6)


async def test_a_group_with_short_pauses_keeps_them() -> None:
    with InProcess() as server:
        server.admin.topics.create("T", queues=1)
        server.admin.groups.create(GroupConfig("g", extra=EXPONENTIAL))
        async with asking(server.grpc) as client:
            await send(client, message())
            (got,) = await receive(client, auto_renew=True)
            assert await _failed(client, got) == 200
            server.clock.advance(1)
            (got,) = await receive(client, auto_renew=True)
            assert await _failed(client, got, ms=700) == 700


@pytest.mark.parametrize("suspends", [False, True])
async def test_others_get_what_they_ask_for(suspends: bool) -> None:
    """A simple consumer that returns a message, and a push consumer that has not tried it."""
    with InProcess() as server:
        server.admin.topics.create("T", queues=1)
        async with asking(server.grpc) as client:
            await send(client, message())
            (got,) = await receive(client, auto_renew=suspends)
            assert await _failed(client, got, suspend=suspends) == 0


def test_the_pauses_are_those_that_sdks_read_in_the_policy() -> None:
    policy = classes["RetryPolicy"]()
    policy.customized_backoff.next.add(seconds=1)
    policy.customized_backoff.next.add(seconds=7)
    assert [pause_ms(policy, attempt) for attempt in (0, 1, 2, 99)] == [1_000, 1_000, 7_000, 7_000]
    policy = classes["RetryPolicy"](
        exponential_backoff={"initial": {"seconds": 1}, "max": {"seconds": 9}, "multiplier": 3}
    )
    found = [pause_ms(policy, attempt) for attempt in (1, 2, 3, 1 << 40)]
    assert found == [1_000, 3_000, 9_000, 9_000]
    assert pause_ms(classes["RetryPolicy"](), 1) == 0
