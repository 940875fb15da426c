"""Numbers of administrators' requests that no program could use: refused in a sentence; nothing is stored.

A table with one of them breaks its readers: those of Java refuse it as a whole for a number that is no int.
"""

import json
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.grpc.messages import classes
from pocketmq.grpc.services.sessions import _retry
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.serving import Peer

CODE = RequestCode
INT, LONG = 1 << 31, 1 << 63


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("retryQueueNums", -1, "0 to 65536"),
        ("retryQueueNums", 65_537, "0 to 65536"),
        ("retryQueueNums", INT, "0 to 65536"),
        ("retryMaxTimes", -1, "0 to 2147483647"),
        ("retryMaxTimes", INT, "0 to 2147483647"),
        ("retryMaxTimes", "16x", "0 to 2147483647"),
        ("brokerId", -1, "0 to 9223372036854775807"),
        ("whichBrokerWhenConsumeSlowly", LONG, "0 to 9223372036854775807"),
        ("groupSysFlag", INT, "-2147483648 to 2147483647"),
        ("groupSysFlag", "x", "-2147483648 to 2147483647"),
        ("consumeTimeoutMinute", -1, "0 to 2147483647"),
        ("consumeTimeoutMinute", {}, "0 to 2147483647"),
        ("consumeMessageOrderly", "maybe", "true or false"),
        ("attributes", [1], "names and texts"),
        ("attributes", {"+a": [1]}, "names and texts"),
        ("groupRetryPolicy", 5, "an object"),
        ("groupRetryPolicy", {"customizedRetryPolicy": {"next": [-1]}}, "next"),
        ("groupRetryPolicy", {"customizedRetryPolicy": {"next": [LONG]}}, "next"),
        ("groupRetryPolicy", {"customizedRetryPolicy": {"next": []}}, "next"),
        ("groupRetryPolicy", {"exponentialRetryPolicy": {"initial": -1}}, "initial"),
        ("groupRetryPolicy", {"exponentialRetryPolicy": {"max": "soon"}}, "max"),
        ("groupRetryPolicy", {"exponentialRetryPolicy": {"multiplier": 0}}, "multiplier"),
    ],
)
@pytest.mark.parametrize("several", [False, True])
async def test_a_group_with_an_impossible_number_is_refused(
    broker: Broker, peer: Peer, field: str, value: Any, words: str, several: bool
) -> None:
    row = {"groupName": "g", field: value}
    if several:
        code, body = (
            CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": "good"}, row]},
        )
    else:
        code, body = CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, row
    answer = await peer.ask(code, {}, json.dumps(body).encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in (answer.remark or "")
    assert words in (answer.remark or "")
    assert "Traceback" not in (answer.remark or "")
    assert not {"g", "good"} & broker.parts.tables.groups.groups.keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"retryMaxTimes": INT - 1, "retryQueueNums": 0, "brokerId": LONG - 1},
        {"retryMaxTimes": "16", "consumeTimeoutMinute": 15, "groupSysFlag": 0},
        {"consumeMessageOrderly": True, "attributes": {"+a": "b"}, "subscriptionDataSet": None},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": None}},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}}},
        {"groupRetryPolicy": {"exponentialRetryPolicy": {"initial": 1, "multiplier": 2}}},
        {"somethingOfTomorrow": {"a": [-1]}},
    ],
)
async def test_what_tools_of_rocketmq_send_is_taken(
    broker: Broker, peer: Peer, fields: dict[str, Any]
) -> None:
    body = json.dumps({"groupName": "g", **fields}).encode()
    answer = await peer.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize("times", [INT - 1, 16])
def test_endless_retries_give_clients_of_5_a_policy(times: int) -> None:
    """One more than the largest int does not fit into what the client is told."""
    policy = classes["RetryPolicy"]()
    _retry(policy, GroupConfig("g", retry_max_times=times))
    assert policy.max_attempts == min(times + 1, INT - 1)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("readQueueNums", -1, "0 to 65536"),
        ("writeQueueNums", 65_537, "0 to 65536"),
        ("perm", 8, "0 to 7"),
        ("topicSysFlag", INT, "-2147483648 to 2147483647"),
    ],
)
async def test_a_topic_with_an_impossible_number_is_refused(
    broker: Broker, peer: Peer, field: str, value: Any, words: str
) -> None:
    row = {"topicName": "New", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, field: value}
    body = json.dumps({"topicConfigList": [row]}).encode()
    answer = await peer.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in (answer.remark or "")
    assert words in (answer.remark or "")
    if isinstance(value, int):
        ext = {"topic": "New", "defaultTopic": "T", "topicFilterType": "SINGLE_TAG", **row}
        alone = await peer.ask(CODE.UPDATE_AND_CREATE_TOPIC, {**ext, "order": False})
        assert alone.code == ResponseCode.SYSTEM_ERROR
        assert field in (alone.remark or "")
    assert "New" not in broker.parts.tables.topics.topics


async def test_a_share_of_queues_is_an_int(broker: Broker, peer: Peer) -> None:
    broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
    row = {"topic": "T", "consumerGroup": "g", "mode": "POP"}
    for number in (-1, INT, "x"):
        body = json.dumps({**row, "popShareQueueNum": number}).encode()
        answer = await peer.ask(CODE.SET_MESSAGE_REQUEST_MODE, {}, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR, number
        assert "popShareQueueNum" in (answer.remark or "")
        assert "0 to 2147483647" in (answer.remark or "")
