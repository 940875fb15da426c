"""The SDK of RocketMQ 5 for Python; the commands are those of tests/interop/sdks.py.

A line in is {"id", "do", ...}; a line out is {"id", "ok"}, {"id", "error"} or, unasked, {"event", ...}.
"""

import base64
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

Json = dict[str, Any]

out, sys.stdout = sys.stdout, sys.stderr
lock = threading.Lock()
clients: dict[str, Any] = {}
received: dict[int, Message] = {}
numbers = itertools.count(1)
released = threading.Event()


def say(line: Json) -> None:
    with lock:
        out.write(json.dumps(line, default=str) + "\n")
        out.flush()


def described(view: Message) -> Json:
    properties = dict(view.properties or {})
    if view.tag:
        properties["TAGS"] = view.tag
    if view.message_group:
        properties["__SHARDINGKEY"] = view.message_group
    if view.keys:
        properties["KEYS"] = " ".join(sorted(view.keys))
    if view.lite_topic:
        properties["__LITE_TOPIC"] = view.lite_topic
    if view.corrupted:
        properties["corrupted"] = "true"
    return {
        "topic": view.topic,
        "body64": base64.b64encode(view.body).decode(),
        "msg_id": view.message_id,
        "reconsume_times": (view.delivery_attempt or 1) - 1,
        "properties": properties,
    }


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self._name = name

    def consume(self, view: Message) -> ConsumeResult:
        properties = view.properties or {}
        success = view.delivery_attempt > int(properties.get("fail_times", "0"))
        message = described(view)
        say({"event": "message", "consumer": self._name, "success": success, "message": message})
        if "hold" in properties:
            released.wait()
        return ConsumeResult.SUCCESS if success else ConsumeResult.FAILURE


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, view: Message) -> TransactionResolution:
        say({"event": "check", "producer": self._name, "message": described(view)})
        return TransactionResolution.Value((view.properties or {}).get("check", "COMMIT"))


def configuration(given: Json) -> ClientConfiguration:
    keys = Credentials(given.get("key", ""), given.get("secret", ""))
    return ClientConfiguration(given["endpoint"], keys)


def subscriptions(given: Json) -> dict[str, FilterExpression]:
    return {
        each["topic"]: FilterExpression(
            each["expression"], FilterType.SQL if each.get("sql") else FilterType.TAG
        )
        for each in given["subscriptions"]
    }


def started(name: str, client: Any) -> None:
    clients[name] = client
    client.startup()


def producer(given: Json) -> None:
    checker = Checker(given["name"])
    topics = tuple(given["topics"])
    made = Producer(configuration(given), topics, checker, tls_enable="tls" in given)
    started(given["name"], made)


def message(given: Json) -> Message:
    made = Message()
    made.topic, made.body = given["topic"], given["body"].encode()
    for name, value in (
        ("tag", given.get("tag")),
        ("keys", given.get("key")),
        ("message_group", given.get("shard")),
        ("lite_topic", given.get("lite")),
    ):
        if value is not None:
            setattr(made, name, value)
    if "delay_ms" in given:
        # The SDK counts in whole seconds.
        made.delivery_timestamp = int(time.time() + given["delay_ms"] / 1000 + 0.999)
    for name, value in given.get("properties", {}).items():
        made.add_property(name, value)
    return made


def send(given: Json) -> list[Json]:
    client = clients[given["producer"]]
    results = []
    for each in given["messages"]:
        transaction: Any = client.begin_transaction() if "end" in each else None
        receipt = client.send(message(each), transaction)
        if each.get("end") == "COMMIT":
            transaction.commit()
        elif each.get("end") == "ROLLBACK":
            transaction.rollback()
        results.append({"msg_id": receipt.message_id, "recall_handle": receipt.recall_handle})
    return results


def recall(given: Json) -> str:
    found: str = clients[given["producer"]].recall_message(given["topic"], given["handle"])
    return found


def simple(given: Json) -> None:
    started(
        given["name"],
        SimpleConsumer(
            configuration(given),
            given["group"],
            subscriptions(given),
            given["await_ms"] // 1000,
            tls_enable="tls" in given,
        ),
    )


def receive(given: Json) -> list[Json]:
    views = clients[given["consumer"]].receive(given["count"], given["invisible_ms"] // 1000)
    found = []
    for view in views or ():
        number = next(numbers)
        received[number] = view
        found.append({**described(view), "position": number})
    return found


def ack(given: Json) -> None:
    clients[given["consumer"]].ack(received[given["position"]])


def change(given: Json) -> None:
    clients[given["consumer"]].change_invisible_duration(
        received[given["position"]], given["invisible_ms"] // 1000
    )


def push(given: Json) -> None:
    listener = Listener(given["name"])
    found = subscriptions(given)
    started(
        given["name"],
        PushConsumer(
            configuration(given), given["group"], listener, found, tls_enable="tls" in given
        ),
    )


def lite(given: Json) -> None:
    listener = Listener(given["name"])
    made = LitePushConsumer(configuration(given), given["group"], given["topic"], listener)
    started(given["name"], made)
    for name in given["names"]:
        made.subscribe_lite(name)
    if not given["names"]:
        made.subscribe_lite_all()


def unsubscribe(given: Json) -> None:
    clients[given["consumer"]].unsubscribe_lite(given["lite"])


def release(given: Json) -> None:
    released.set()


def shutdown(given: Json) -> None:
    clients.pop(given["name"]).shutdown()


COMMANDS: dict[str, Callable[[Json], Any]] = {
    each.__name__: each
    for each in (
        producer,
        send,
        recall,
        simple,
        receive,
        ack,
        change,
        push,
        release,
        shutdown,
        lite,
        unsubscribe,
    )
}


def answer(request: Json) -> None:
    try:
        say({"id": request["id"], "ok": COMMANDS[request["do"]](request)})
    except Exception as error:  # noqa: BLE001
        code = getattr(error, "code", None)
        failure = {"class": type(error).__name__, "message": str(error), "code": code}
        say({"id": request["id"], "error": failure})


if __name__ == "__main__":
    say({"event": "ready"})
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
    os._exit(0)
