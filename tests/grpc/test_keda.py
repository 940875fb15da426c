"""KEDA asks the gRPC port what a group has left to do; it is told of a change within a second."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pocketmq.broker.broker import Broker
from pocketmq.grpc.http2.call import GrpcStatus
from pocketmq.grpc.messages import make
from pocketmq.grpc.services.keda import KEDA
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, records
from tests.grpc.asking import Answer, Asking, asking
from tests.grpc.front_site import ack, front, message, receive, send

KINDS = make(KEDA)
PAGE = Path(__file__).parents[2] / "docs" / "keda.md"
IN_ALL = {"consumerGroup": "g"}
IN_T = {**IN_ALL, "topic": "T"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[Broker, Asking]]:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        yield broker, client


def reference(metadata: dict[str, str]) -> Any:
    return KINDS["ScaledObjectRef"](name="workers", namespace="shop", scalerMetadata=metadata)


async def asked(client: Asking, call: str, request: Any) -> Answer:
    return await client.end_of(client.begin(f"/{KEDA.path}/{call}", request))


async def is_active(client: Asking, metadata: dict[str, str]) -> bool:
    answer = await asked(client, "IsActive", reference(metadata))
    assert answer.status == 0, answer.text
    return bool(KINDS["IsActiveResponse"].FromString(answer.messages[0]).result)


async def metrics(client: Asking, metadata: dict[str, str], name: str = "") -> dict[str, float]:
    request = KINDS["GetMetricsRequest"](scaledObjectRef=reference(metadata), metricName=name)
    answer = await asked(client, "GetMetrics", request)
    assert answer.status == 0, answer.text
    found = KINDS["GetMetricsResponse"].FromString(answer.messages[0])
    return {each.metricName: each.metricValueFloat for each in found.metricValues}


async def refusal(client: Asking, metadata: dict[str, str]) -> tuple[int | None, str]:
    answer = await asked(client, "IsActive", reference(metadata))
    return answer.status, answer.text.replace("%27", "'")


async def test_a_group_that_pulls(site: tuple[Broker, Asking]) -> None:
    """A group that has never come has all of a named topic to do, and nothing of its own topics."""
    broker, client = site
    assert not await is_active(client, IN_T)
    await send(client, *(message(body=b"%d" % number) for number in range(3)))
    assert await is_active(client, IN_T)
    assert await metrics(client, IN_T) == {"lag": 3}
    async with await Peer.at(broker) as member:
        await member.heartbeat("g", {"T": "*"}, client_id="me")
        for queue_id in range(4):
            assert await metrics(client, IN_T) != {"lag": 0}
            found = await member.pull("g", "T", 0, queue_id=queue_id)
            count = len(records(found)) if found.code == 0 else 0
            # What is in hand needs its member: only a committed offset lets it go.
            offset = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
            await member.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**offset, "commitOffset": count})
    for metadata in (IN_T, IN_ALL):
        assert await metrics(client, metadata) == {"lag": 0}
        assert not await is_active(client, metadata)
    await send(client, message(body=b"later"))
    assert await metrics(client, IN_ALL) == {"lag": 1}
    assert not await is_active(client, {**IN_ALL, "activationLagThreshold": "1"})


async def test_what_is_popped_needs_its_member(site: tuple[Broker, Asking]) -> None:
    """Else KEDA would stop the last worker in the middle of its work."""
    _, client = site
    await send(client, message())
    (got,) = await receive(client)
    assert await is_active(client, IN_T)
    assert await metrics(client, IN_T, "in-flight") == {"in-flight": 1}
    assert await metrics(client, IN_T) == {"lag": 1}
    assert await ack(client, got) == [20000]
    assert await metrics(client, IN_T) == {"lag": 0}
    assert not await is_active(client, IN_ALL)


async def test_what_is_popped_in_order_counts_once(site: tuple[Broker, Asking]) -> None:
    """Pops in order move the offset only when they are acknowledged."""
    broker, client = site
    attributes = {"message.type": "FIFO"}
    broker.parts.tables.topics.update(TopicConfig("F", 1, 1, attributes=attributes))
    broker.parts.tables.groups.update(GroupConfig("g", extra={"consumeMessageOrderly": True}))
    ordered = {"message_type": 2, "message_group": "one"}
    await send(client, *(message("F", b"%d" % number, **ordered) for number in range(3)))
    trigger = {**IN_ALL, "topic": "F"}
    assert await metrics(client, trigger) == {"lag": 3}
    got = await receive(client, "F")
    assert await metrics(client, trigger, "in-flight") == {"in-flight": len(got)}
    assert await metrics(client, trigger) == {"lag": 3}


async def test_targets_and_the_age_of_what_waits(site: tuple[Broker, Asking]) -> None:
    _, client = site

    async def targets(metadata: dict[str, str]) -> dict[str, float]:
        answer = await asked(client, "GetMetricSpec", reference(metadata))
        found = KINDS["GetMetricSpecResponse"].FromString(answer.messages[0])
        return {each.metricName: each.targetSizeFloat for each in found.metricSpecs}

    assert await targets(IN_T) == {"lag": 10}
    both = {**IN_T, "lagThreshold": "2.5", "waitingSecondsThreshold": "30"}
    assert await targets(both) == {"lag": 2.5, "waiting-seconds": 30}
    assert (await metrics(client, both))["waiting-seconds"] == 0
    await send(client, message())
    found = await metrics(client, both)
    assert found["lag"] == 1
    assert 0 <= found["waiting-seconds"] < 60
    stream = client.begin(f"/{KEDA.path}/StreamMetricSpec", reference(both))
    await client.until(lambda: client.answers[stream].messages)
    assert not client.answers[stream].ended


async def test_a_change_is_pushed(site: tuple[Broker, Asking]) -> None:
    broker, client = site
    stream = client.begin(f"/{KEDA.path}/StreamIsActive", reference(IN_T))
    other = client.begin(f"/{KEDA.path}/StreamIsActive", reference(IN_T))
    answer = client.answers[stream]

    def seen() -> list[bool]:
        return [KINDS["IsActiveResponse"].FromString(each).result for each in answer.messages]

    await client.until(lambda: seen() == [False])
    client.cancel(other)
    await send(client, message())
    await client.until(lambda: seen() == [False, True])
    (got,) = await receive(client)
    await ack(client, got)
    await client.until(lambda: seen() == [False, True, False])
    broker.parts.tables.topics.delete("T")
    await client.until(lambda: answer.ended)
    assert answer.status == GrpcStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "consumerGroup is the name of a group"),
        ({"consumerGroup": "g g"}, "consumerGroup is the name of a group"),
        ({**IN_T, "lagThreshhold": "5"}, "metadata 'lagThreshhold' is not known: use"),
        ({**IN_T, "lagThreshold": "0"}, "lagThreshold is a number, more than 0, not '0'"),
        ({**IN_T, "lagThreshold": "nan"}, "lagThreshold is a number, more than 0, not 'nan'"),
        ({**IN_T, "activationLagThreshold": "-1"}, "is a number, 0 or more, not '-1'"),
        ({"consumerGroup": "g", "topic": "a/b"}, "topic"),
        ({"consumerGroup": "g", "topic": "SCHEDULE_TOPIC_XXXX"}, "the broker's own"),
    ],
)
async def test_a_wrong_trigger_is_refused(
    site: tuple[Broker, Asking], metadata: dict[str, str], words: str
) -> None:
    status, text = await refusal(site[1], metadata)
    assert (status, words in text) == (GrpcStatus.INVALID_ARGUMENT, True), text


async def test_what_does_not_exist_is_named(site: tuple[Broker, Asking]) -> None:
    for metadata, name in (({**IN_T, "topic": "Nope"}, "topic Nope"), (IN_ALL, "group g")):
        status, text = await refusal(site[1], metadata)
        assert status == GrpcStatus.NOT_FOUND
        assert f"{name} does not exist" in text


async def test_accounts_by_the_words_of_the_trigger(tmp_path: Path) -> None:
    """KEDA cannot sign. Its reader sees no group or topic that it may not read."""
    (tmp_path / "acl.yml").write_text(
        "accounts:\n"
        "  - {accessKey: scaler-key, secretKey: scaler-secret, topicPerms: [T=SUB], groupPerms: [g=SUB]}\n"
    )
    settings: dict[str, Any] = {"acl_enable": True, "acl_file": str(tmp_path / "acl.yml")}
    right = {**IN_T, "accessKey": "scaler-key", "secretKeyFromEnv": "scaler-secret"}
    async with front(tmp_path / "store", **settings) as (_, server), asking(server.address) as one:
        assert not await is_active(one, right)
        for wrong in (
            IN_T,
            {**right, "secretKeyFromEnv": "other"},
            {**right, "accessKey": "unknown"},
            {**right, "consumerGroup": "h"},
            {**right, "topic": "U"},
        ):
            for call in KEDA.methods:
                request: Any = reference(wrong)
                if call == "GetMetrics":
                    request = KINDS["GetMetricsRequest"](scaledObjectRef=request)
                answer = await asked(one, call, request)
                assert answer.status == GrpcStatus.PERMISSION_DENIED, (call, wrong)
                assert "scaler-secret" not in answer.text


async def test_the_page_s_triggers_are_served(site: tuple[Broker, Asking]) -> None:
    blocks = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    objects = [each for block in blocks for each in yaml.safe_load_all(block.partition("```")[0])]
    scaled = [each for each in objects if each["kind"] == "ScaledObject"]
    assert scaled
    for trigger in (each for one in scaled for each in one["spec"]["triggers"]):
        assert trigger["type"] in ("external", "external-push")
        status, text = await refusal(site[1], trigger["metadata"])
        assert status in (0, GrpcStatus.NOT_FOUND), text
