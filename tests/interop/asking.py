"""One request, one answer, straight to a server: what no official client shows as it came.

Every request is a connection of its own, so what is asked here never looks like a member of a group.
"""

import socket
from typing import Any

from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode, response_name
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.frames import FrameDecoder


def ask(
    address: str,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    within_s: float = 30,
) -> RemotingCommand:
    """The answer of the server at `address` (host:port) to one request."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=within_s) as connection:
        connection.sendall(encode(RemotingCommand(code, ext, body, opaque=1, language="JAVA")))
        while True:
            data = connection.recv(65_536)
            if not data:
                raise ConnectionError(f"{address} closed the connection instead of answering")
            for frame in decoder.feed(data):
                answer = decode(frame)
                if answer.is_response:
                    return answer


def ask_json(address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Any:
    """The body of a successful answer. Raises: LookupError with code and remark of any other."""
    answer = ask(address, code, ext, body)
    if answer.code != ResponseCode.SUCCESS:
        raise LookupError(f"{response_name(answer.code)}: {answer.remark}")
    return fastjson.loads(bytes(answer.body))


def connection_of(address: str, group: str) -> dict[str, Any]:
    """What GET_CONSUMER_CONNECTION_LIST says of a group. Raises: LookupError when it is not online."""
    found: dict[str, Any] = ask_json(
        address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
    )
    return found


def subscriptions_of(address: str, group: str) -> dict[str, SubscriptionData]:
    """The group's subscription as the broker holds it, without the retry topic."""
    table = connection_of(address, group)["subscriptionTable"]
    return {
        topic: SubscriptionData.from_json(data)
        for topic, data in table.items()
        if not topic.startswith("%RETRY%")
    }


def offsets_of(address: str, group: str, topic: str) -> dict[int, tuple[int, int]]:
    """Queue id -> (end of the queue, the group's offset), from GET_CONSUME_STATS."""
    stats = ask_json(
        address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic}
    )
    return {
        queue.get("queueId"): (each["brokerOffset"], each["consumerOffset"])
        for queue, each in stats["offsetTable"].items()
        if queue.get("topic") == topic
    }


def make_topic_at(address: str, topic: str, queues: int = 4) -> None:
    """Create a topic at one broker."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
