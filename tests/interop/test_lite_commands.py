"""mqadmin 5.5.0's six commands for lite topics, and its proxy's requests, at PocketMQ as at RocketMQ 5.5.0.

What RocketMQ's broker answered was recorded (`python -m tests.interop.test_lite_commands` records it again).
"""

import json
import re
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from pocketmq.model.message_codec import properties_to_dict, properties_to_text
from pocketmq.model.record import Record, read_records
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, response_name
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.frames import FrameDecoder
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.interop.conftest import Shared
from tests.interop.mqadmin import Mqadmin, mqadmin

RECORDED = Path(__file__).with_name("lite_550.txt")
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
TOPIC, PLAIN = "Chats", "Plain"
PREPARE = (
    f"updateTopic -b BROKER -t {TOPIC} -r 4 -w 4 -a +message.type=LITE,+lite.topic.expiration=60",
    f"updateTopic -b BROKER -t {PLAIN} -r 4 -w 4",
    f"updateSubGroup -b BROKER -g agents -r 1 --attributes +lite.bind.topic={TOPIC}",
    f"updateSubGroup -b BROKER -g all --attributes +lite.bind.topic={TOPIC},+lite.sub.wildcard=true",
    "updateSubGroup -b BROKER -g plain",
)
STEPS = (
    "getBrokerLiteInfo -b BROKER",
    "getBrokerLiteInfo -c DefaultCluster -d",
    f"getParentTopicInfo -p {TOPIC}",
    f"getParentTopicInfo -p {PLAIN}",
    "getParentTopicInfo -p Unknown",
    f"getLiteTopicInfo -p {TOPIC} -l a",
    f"getLiteTopicInfo -p {TOPIC} -l a -s",
    f"getLiteTopicInfo -p {TOPIC} -l none",
    f"getLiteTopicInfo -p {PLAIN} -l a",
    f"getLiteClientInfo -p {TOPIC} -g agents -c client1",
    f"getLiteClientInfo -p {TOPIC} -g agents -c client1 -s",
    f"getLiteClientInfo -p {TOPIC} -g agents -c stranger",
    f"getLiteClientInfo -p {TOPIC} -g unknown -c client1",
    f"getLiteClientInfo -p {PLAIN} -g agents -c client1",
    f"getLiteGroupInfo -p {TOPIC} -g agents",
    f"getLiteGroupInfo -p {TOPIC} -g agents -k 1",
    f"getLiteGroupInfo -p {TOPIC} -g agents -l a",
    f"getLiteGroupInfo -p {TOPIC} -g agents -l b",
    f"getLiteGroupInfo -p {TOPIC} -g agents -l none",
    f"getLiteGroupInfo -p {TOPIC} -g plain",
    f"getLiteGroupInfo -p {TOPIC} -g unknown",
    f"triggerLiteDispatch -p {TOPIC} -g agents",
    f"triggerLiteDispatch -p {TOPIC} -g agents -c client1",
    f"triggerLiteDispatch -p {TOPIC} -g plain",
    f"triggerLiteDispatch -p {TOPIC} -g unknown",
)


class Asked(NamedTuple):
    """A request and what is kept of its answer."""

    code: RequestCode
    fields: dict[str, Any]


REQUESTS = (
    Asked(RequestCode.GET_BROKER_LITE_INFO, {}),
    Asked(RequestCode.GET_PARENT_TOPIC_INFO, {"topic": TOPIC}),
    Asked(RequestCode.GET_PARENT_TOPIC_INFO, {"topic": PLAIN}),
    Asked(RequestCode.GET_PARENT_TOPIC_INFO, {"topic": "Unknown"}),
    Asked(RequestCode.GET_PARENT_TOPIC_INFO, {}),
    Asked(RequestCode.GET_LITE_TOPIC_INFO, {"parentTopic": TOPIC, "liteTopic": "a"}),
    Asked(RequestCode.GET_LITE_TOPIC_INFO, {"parentTopic": TOPIC, "liteTopic": "none"}),
    Asked(RequestCode.GET_LITE_TOPIC_INFO, {"parentTopic": PLAIN, "liteTopic": "a"}),
    Asked(
        RequestCode.GET_LITE_CLIENT_INFO,
        {"parentTopic": TOPIC, "group": "agents", "clientId": "client1"},
    ),
    Asked(
        RequestCode.GET_LITE_CLIENT_INFO,
        {"parentTopic": TOPIC, "group": "agents", "clientId": "client1", "maxCount": 1},
    ),
    Asked(
        RequestCode.GET_LITE_CLIENT_INFO,
        {"parentTopic": TOPIC, "group": "agents", "clientId": "stranger", "maxCount": 10},
    ),
    Asked(
        RequestCode.GET_LITE_CLIENT_INFO,
        {"parentTopic": TOPIC, "group": "plain", "clientId": "client1", "maxCount": 10},
    ),
    Asked(
        RequestCode.GET_LITE_CLIENT_INFO,
        {"parentTopic": TOPIC, "group": "unknown", "clientId": "client1", "maxCount": 10},
    ),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "topK": 10}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "topK": 1}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "liteTopic": "a", "topK": 1}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "liteTopic": "b", "topK": 1}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "liteTopic": "c", "topK": 1}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "agents", "liteTopic": "none", "topK": 1}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "all", "topK": 10}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "plain", "topK": 10}),
    Asked(RequestCode.GET_LITE_GROUP_INFO, {"group": "unknown", "topK": 10}),
    Asked(RequestCode.TRIGGER_LITE_DISPATCH, {"group": "agents"}),
    Asked(RequestCode.TRIGGER_LITE_DISPATCH, {"group": "plain"}),
    Asked(RequestCode.ACK_LITE_MESSAGE, {}),
)


class Client:
    """One connection, on which lite topics are subscribed; it must stay open for that."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._frames = FrameDecoder()
        self._number = 0
        self.told: list[RemotingCommand] = []

    def __call__(self, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        self._number += 1
        ext = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext, body, opaque=self._number, language="JAVA")
        self._socket.sendall(encode(request))
        while True:
            for frame in self._frames.feed(self._socket.recv(65_536)):
                command = decode(frame)
                if command.is_response and command.opaque == self._number:
                    return command
                self.told.append(command)

    def close(self) -> None:
        self._socket.close()

    # ------------------------------------------------------------ as RocketMQ's proxy asks

    def send(self, lite: str, body: str) -> RemotingCommand:
        fields: dict[str, Any] = {
            "a": "producers",
            "b": TOPIC,
            "c": "TBW102",
            "d": 4,
            "e": 0,
            "f": 0,
            "g": 1,
        }
        text = properties_to_text({"UNIQ_KEY": f"KEY-{lite}-{body}", "__LITE_TOPIC": lite})
        fields |= {"h": 0, "i": text, "j": 0, "k": "false", "m": "false"}
        return self(RequestCode.SEND_MESSAGE_V2, fields, body.encode())

    def sync(
        self,
        client: str,
        action: str,
        *names: str,
        group: str = "agents",
        topic: str = TOPIC,
        **more: Any,
    ) -> RemotingCommand:
        one: dict[str, Any] = {"action": action, "clientId": client, "group": group, "topic": topic}
        one |= {"liteTopicSet": list(names), "version": 0, **more}
        body = json.dumps({"subscriptionSet": [one]}).encode()
        return self(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)

    def pop(
        self,
        client: str,
        group: str = "agents",
        topic: str = TOPIC,
        count: int = 16,
        poll_ms: int = 0,
    ) -> RemotingCommand:
        fields = {"clientId": client, "consumerGroup": group, "topic": topic, "maxMsgNum": count}
        fields |= {
            "invisibleTime": 60_000,
            "pollTime": poll_ms,
            "bornTime": int(time.time() * 1000),
        }
        return self(RequestCode.POP_LITE_MESSAGE, fields)

    def receipt(
        self, code: int, lite: str, offset: int, pop_ms: str, group: str = "agents", **more: Any
    ) -> RemotingCommand:
        words = f"0 {pop_ms} 60000 999 0 broker-a 0 {offset}"
        fields = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "extraInfo": words}
        fields |= {"offset": offset, "liteTopic": lite, **more}
        return self(code, fields)


# Of the inside of a broker.
_INSIDE = re.compile(r'"(cqTableSize|eventMapSize|offsetTableSize|orderInfoCount)": \d+')
_FRESH = re.compile(r"\b1\d{12}\b")
_HUMAN = re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")


def steady(text: str) -> str:
    """Without what differs from one run to the next."""
    text = re.sub(r"\(\d+ s ago\)", "(AGO)", text)
    text = re.sub(r'"invisibleTime": "3\d{4}"', '"invisibleTime": "SOON"', text)
    text = _INSIDE.sub(r'"\1": INSIDE', text)
    return _HUMAN.sub("TIME", _FRESH.sub("TIME", text))


def said(answer: RemotingCommand) -> list[str]:
    """What is kept of an answer: code, fields and body."""
    lines = [response_name(answer.code)]
    if answer.ext:
        lines.append(json.dumps(dict(sorted(answer.ext.items()))))
    body = bytes(answer.body)
    if body[:1] == b"{":
        lines.append(json.dumps(in_order(fastjson.loads(body)), sort_keys=True))
    elif body:
        lines += [f"message {described(each)}" for each in read_records(body)]
    return [steady(each) for each in lines]


def described(record: Record) -> str:
    kept = ("__LITE_TOPIC", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
    properties = properties_to_dict(record.properties)
    words = [f"{name}={properties.get(name)}" for name in kept]
    return f"{record.topic} {bytes(record.body).decode()} {' '.join(words)}"


def in_order(value: Any) -> Any:
    """The same without the order of Java's sets."""
    if isinstance(value, dict):
        return {str(name): in_order(each) for name, each in value.items()}
    if isinstance(value, list):
        rows = [in_order(each) for each in value]
        return sorted(rows, key=lambda each: steady(json.dumps(each, sort_keys=True)))
    return value


def asked(client: Client, lines: list[str]) -> None:
    """What RocketMQ's proxy asks: subscriptions, pops and what follows them."""

    def do(what: str, answer: RemotingCommand) -> RemotingCommand:
        lines.extend([f"> {what}", *said(answer)])
        return answer

    for lite, body in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1")):
        answer = client.send(lite, body)
        assert answer.code == 0, answer.remark
    do("subscribe in a wildcard group", client.sync("client8", "PARTIAL_ADD", "a", group="all"))
    do("subscribe all", client.sync("client7", "COMPLETE_ADD", group="all"))
    do("subscribe nothing", client(RequestCode.LITE_SUBSCRIPTION_CTL, {}))
    do("subscribe an empty set", client(RequestCode.LITE_SUBSCRIPTION_CTL, {}, b"{}"))
    do("subscribe a b", client.sync("client1", "PARTIAL_ADD", "a", "b"))
    do(
        "subscribe c, from 0",
        client.sync("client1", "PARTIAL_ADD", "c", offsetOption={"type": "OFFSET", "value": 0}),
    )
    do("unsubscribe d", client.sync("client1", "PARTIAL_REMOVE", "d"))
    for fields in (
        {"topic": "Nope"},
        {"topic": PLAIN},
        {"group": "unknown"},
        {"group": "plain"},
        {"count": 33},
    ):
        do(f"pop {fields}", client.pop("client1", **fields))
    popped = do("pop", client.pop("client1"))
    time_of = (popped.ext or {})["popTime"]
    do("pop again", client.pop("client1"))
    do("ack a 0", client.receipt(RequestCode.ACK_MESSAGE, "a", 0, time_of))
    do("ack a 0 again", client.receipt(RequestCode.ACK_MESSAGE, "a", 0, time_of))
    do("ack a 9", client.receipt(RequestCode.ACK_MESSAGE, "a", 9, time_of))
    do("ack none 0", client.receipt(RequestCode.ACK_MESSAGE, "none", 0, time_of))
    do(
        "ack unknown group",
        client.receipt(RequestCode.ACK_MESSAGE, "a", 1, time_of, group="unknown"),
    )
    change = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    do("change b", client.receipt(change, "b", 0, time_of, invisibleTime=30_000))
    do("change b again", client.receipt(change, "b", 0, time_of, invisibleTime=30_000))
    do("change none", client.receipt(change, "none", 0, time_of, invisibleTime=30_000))
    for asked_ in REQUESTS:
        do(f"{asked_.code.name} {asked_.fields}", client(asked_.code, asked_.fields))


def played(tool: Mqadmin, broker: RunningBroker) -> str:
    """What a proxy asks and what mqadmin prints, on the way; the code of each refusal."""
    for step in PREPARE:
        printed = tool(*step.replace("BROKER", broker.address).split())
        assert "success" in printed.out, printed
    lines: list[str] = []
    client = Client(broker.address)
    try:
        asked(client, lines)
        for step in STEPS:
            printed = tool(*step.replace("BROKER", broker.address).split())
            lines += [
                f"$ {step}",
                *steady(printed.out.replace(broker.address, "BROKER")).splitlines(),
            ]
            if step.startswith("getBrokerLiteInfo"):
                # The rest is of the inside of a broker.
                lines = [
                    " ".join(each.split()[:5]) if each.startswith("BROKER ") else each
                    for each in lines
                ]
            _, refused, words = printed.err.partition("CODE: ")
            lines += [f"refused with {words.split()[0]}"] if refused else []
    finally:
        client.close()
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def test_requests_and_commands_of_5_5_0(tmp_path: Path, shared: Shared) -> None:
    with PocketBroker(tmp_path / "broker", config=SETTINGS) as broker:
        tool = shared.mqadmin("5.5.0").at(broker.namesrv)
        assert played(tool, broker) == RECORDED.read_text(encoding="utf-8")
        client = Client(broker.address)
        # RocketMQ takes these: the proxy checks names, and what does not fit gets nothing.
        refused = (
            client.send("a.b", "x"),
            client.sync("client9", "PARTIAL_ADD", "a.b"),
            client.sync("client9", "PARTIAL_ADD", "a", group="plain"),
            client.sync("client9", "PARTIAL_ADD", "a", topic=PLAIN),
            client.sync("client9", "OTHER", "a"),
        )
        assert all(each.code and each.remark for each in refused)
        client.close()


def record() -> None:
    with tempfile.TemporaryDirectory() as folder, mqadmin("5.5.0", Path(folder)) as started:
        with JavaBroker(Path(folder, "broker"), version="5.5.0", config=SETTINGS) as broker:
            text = played(started.at(broker.namesrv), broker)
    RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record()
