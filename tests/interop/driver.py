"""Drivers: an official client in its own process, told what to do by JSON lines.

One process serves many tests. A request is {"id", "do", ...}, its answer {"id", "ok" | "error"};
events such as consumed messages come unasked. The Java, Go and Node drivers speak the same lines,
so one set of classes serves them all; a command that a library does not have answers with an error.

One noun: the lines that a driver speaks, and what each of them gives.

Times: `within_s` is how long to wait for a state before the test fails; it never is a measured limit.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pocketmq.admin import Admin
from tests.interop import toolchain
from tests.interop.processes import QUICK_JVM, quiet_jvm
from tests.kit.waiting import until

Json = dict[str, Any]


class PeerError(Exception):
    """The official client raised; `kind` is its class, `code` the broker's response code or None."""

    def __init__(self, error: Json) -> None:
        self.kind: str = error["class"]
        self.code: int | None = error.get("code")
        self.text: str = error.get("message") or ""
        super().__init__(f"{self.kind} code={self.code}: {self.text}")


@dataclass(frozen=True)
class Queue:
    topic: str
    broker: str
    queue: int

    def json(self) -> Json:
        return {"topic": self.topic, "broker": self.broker, "queue": self.queue}


@dataclass(frozen=True)
class Sent:
    """A send result; `error` instead when an asynchronous send failed."""

    status: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    broker: str = ""
    queue: int = -1
    offset: int = -1
    transaction_id: str | None = None
    region: str | None = None
    trace_on: bool | None = None
    state: str | None = None
    recall_handle: str | None = None
    error: PeerError | None = None

    @classmethod
    def of(cls, json_: Json) -> Self:
        if "error" in json_:
            return cls(error=PeerError(json_["error"]))
        return cls(**{key: value for key, value in json_.items() if key in cls.__annotations__})


@dataclass(frozen=True)
class Received:
    """A message as the official client decoded it."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    flag: int = 0
    broker: str = ""
    queue: int = -1
    offset: int = -1
    position: int = -1
    msg_id: str = ""
    offset_msg_id: str = ""
    store_size: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    born_ms: int = 0
    store_ms: int = 0
    born_host: str = ""
    store_host: str = ""
    reconsume_times: int = 0
    prepared_offset: int = 0
    transaction_id: str | None = None

    @classmethod
    def of(cls, json_: Json) -> Self:
        values = {key: value for key, value in json_.items() if key in cls.__annotations__}
        values["body"] = base64.b64decode(json_["body64"])
        return cls(**values)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        return self.properties.get("KEYS")

    @property
    def at(self) -> Queue:
        return Queue(self.topic, self.broker, self.queue)


@dataclass(frozen=True)
class Consumed:
    """One call of a listener for one message: what it answered, and when in the life of this driver."""

    message: Received
    success: bool


@dataclass(frozen=True)
class Pulled:
    status: str
    next: int
    min: int
    max: int
    messages: list[Received]


def message(
    topic: str,
    body: str | bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    flag: int = 0,
    delay: int | None = None,
    wait: bool | None = None,
    properties: Mapping[str, str] | None = None,
    system: Mapping[str, str] | None = None,
) -> Json:
    """A message to send.

    `system` sets RocketMQ's own properties, which its public API refuses (Java only).
    """
    raw = body.encode() if isinstance(body, str) else body
    made: Json = {"topic": topic, "body64": base64.b64encode(raw).decode(), "flag": flag}
    optional = {"tags": tags, "keys": keys, "delay": delay, "wait": wait}
    made.update({key: value for key, value in optional.items() if value is not None})
    if properties:
        made["properties"] = dict(properties)
    if system:
        made["system"] = dict(system)
    return made


class Driver:
    """A driver process. Thread-safe; `call` blocks, so use a thread when the test runs an event loop."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
    ):
        self.name = name
        self._again = (name, list(command), folder, env)
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(env or {})},
                text=True,
                encoding="utf-8",
            )
        self._ids = itertools.count(1)
        self._names = itertools.count(1)
        self._answers: dict[int, Json] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._ready = False
        self.consumed: dict[str, list[Consumed]] = {}
        self.checks: dict[str, list[Received]] = {}
        self.acks: dict[str, list[tuple[str, Sent]]] = {}
        self._reader = threading.Thread(target=self._read, name=f"{name}-reader", daemon=True)
        self._reader.start()
        self.wait(lambda: self._ready, "the driver to start", within_s=60)

    # ---- lines

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            said = json.loads(line)
            with self._changed:
                self._take(said)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, said: Json) -> None:
        match said.get("event"):
            case None:
                self._answers[said["id"]] = said
            case "ready":
                self._ready = True
            case "message":
                seen = Consumed(Received.of(said["message"]), said["success"])
                self.consumed.setdefault(said["consumer"], []).append(seen)
            case "check":
                self.checks.setdefault(said["producer"], []).append(Received.of(said["message"]))
            case "ack":
                sent = (said["body"], Sent.of(said["result"]))
                self.acks.setdefault(said["producer"], []).append(sent)

    def call(self, do: str, *, within_s: float = 60, **arguments: Any) -> Any:
        """Do one command and return its value. Raises PeerError with what the official client raised."""
        return self.finish(self.begin(do, **arguments), within_s)

    def begin(self, do: str, **arguments: Any) -> int:
        """Start a command without waiting; `finish` takes the number that is returned."""
        number = next(self._ids)
        given = {key: value for key, value in arguments.items() if value is not None}
        line = json.dumps({"id": number, "do": do, **given})
        assert self._popen.stdin is not None
        with self._changed:
            if self._ended:
                raise RuntimeError(f"{self.name} has ended:\n{self.log_tail()}")
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
        return number

    def finish(self, number: int, within_s: float = 60) -> Any:
        self.wait(lambda: number in self._answers, f"the answer to command {number}", within_s)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer.get("ok")

    def wait(self, state: Callable[[], bool], what: str, within_s: float = 90) -> None:
        """Wait until `state()`; it is asked again after each line from the driver and twice a second."""
        end = time.monotonic() + within_s
        with self._changed:
            while not state():
                left = end - time.monotonic()
                if self._ended or left <= 0:
                    how = "the driver ended" if self._ended else f"not within {within_s} s"
                    raise TimeoutError(f"{self.name}: waited for {what}: {how}\n{self.log_tail()}")
                self._changed.wait(min(left, 0.5))

    def log_tail(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-2000:]

    def client_log(self) -> str:
        """What the official Java client has written into its own log files."""
        logs = sorted((self.log_path.parent / f"{self.name}-home").rglob("*.log"))
        return "\n".join(each.read_text(encoding="utf-8", errors="replace") for each in logs)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """SIGKILL: nothing is unregistered, no offset is committed."""
        self._popen.kill()
        self.close()

    def close(self) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        if self._popen.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._reader.join(10)
        self._popen.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def session(self) -> "Session":
        return Session(self)

    def twin(self) -> "Driver":
        """Another process of the same kind, for a test that kills it."""
        name, command, folder, env = self._again
        return Driver(name, command, folder, env=env)

    def unique(self, kind: str) -> str:
        return f"{kind}{next(self._names)}"


# Three seconds, as they come, are too few for a test on a crowded machine.
_PATIENT_PRODUCER: Json = {"sendMsgTimeout": 20_000}
# A consumer asks for the route of its retry topic before the broker has made it, and then again after
# this time, 30 s as they come; until then nothing that failed comes again.
_QUICK_CONSUMER: Json = {"pollNameServerInterval": 1_000}


class Session:
    """The producers and consumers of one test; leaving shuts all of them down."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._open: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in reversed(self._open):
            self.driver.call("shutdown", name=name)

    def _start(self, do: str, kind: str, namesrv: str, group: str, arguments: Json) -> str:
        name = arguments.pop("name", None) or self.driver.unique(kind)
        self.driver.call(do, name=name, namesrv=namesrv, group=group, **arguments)
        self._open.append(name)
        return str(name)

    def producer(
        self,
        namesrv: str,
        group: str,
        *,
        settings: Mapping[str, object] | None = None,
        **arguments: object,
    ) -> "Producer":
        """Start a producer. `settings` are properties of the client's class, e.g. {"sendMsgTimeout": 3000};
        arguments: transactional, trace, access_key and secret_key, instance."""
        words: Json = {"set": self._with(_PATIENT_PRODUCER, settings), **arguments}
        return Producer(self, self._start("producer", "p", namesrv, group, words))

    def push_consumer(
        self,
        namesrv: str,
        group: str,
        subscriptions: str | Mapping[str, str] | Iterable[Json],
        *,
        settings: Mapping[str, object] | None = None,
        **arguments: object,
    ) -> "PushConsumer":
        """Start a push consumer.

        Args: subscriptions is a topic, {topic: tags} or [{"topic", "expression", "type": "SQL92"}];
        settings as {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "messageModel": "BROADCASTING"};
        arguments: orderly, result ("success", "later", "throw"), delay_ms, reply_by, instance.
        A message with the user property fail_times=n fails n times.
        """
        words: Json = {"subscriptions": _subscriptions(subscriptions), **arguments}
        words["set"] = self._with(_QUICK_CONSUMER, settings)
        return PushConsumer(self, self._start("push_consumer", "c", namesrv, group, words))

    def lite_consumer(
        self,
        namesrv: str,
        group: str,
        subscriptions: str | Mapping[str, str] | Iterable[Json] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        **arguments: object,
    ) -> "LiteConsumer":
        """Start a lite pull consumer; without subscriptions it waits for assign()."""
        words: Json = {"set": settings or {}, **arguments}
        if subscriptions is not None:
            words["subscriptions"] = _subscriptions(subscriptions)
        return LiteConsumer(self, self._start("lite_consumer", "l", namesrv, group, words))

    def pull_consumer(
        self,
        namesrv: str,
        group: str,
        *,
        settings: Mapping[str, object] | None = None,
        **arguments: object,
    ) -> "PullConsumer":
        words: Json = {"set": settings or {}, **arguments}
        return PullConsumer(self, self._start("pull_consumer", "q", namesrv, group, words))

    def closed(self, name: str) -> None:
        self._open.remove(name)

    def _with(self, usual: Json, settings: Mapping[str, object] | None) -> Json:
        """A test's settings over the usual ones, which are properties of the Java classes."""
        return {**(usual if self.driver.name.startswith("java") else {}), **(settings or {})}


def _subscriptions(given: str | Mapping[str, str] | Iterable[Json]) -> list[Json]:
    if isinstance(given, str):
        return [{"topic": given}]
    if isinstance(given, Mapping):
        return [{"topic": topic, "expression": tags} for topic, tags in given.items()]
    return list(given)


@dataclass
class _Peer:
    session: Session
    name: str
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self.session.driver

    def close(self) -> None:
        """Shut down as the official client does: it unregisters and commits offsets."""
        self.driver.call("shutdown", name=self.name)
        self.session.closed(self.name)


class Producer(_Peer):
    def _do(self, do: str, **arguments: Any) -> Any:
        return self.driver.call(do, producer=self.name, **arguments)

    def send(
        self, *messages: Json, queue: int | None = None, shard: str | None = None
    ) -> list[Sent]:
        """Synchronous sends, one after the other; `queue` chooses a queue id, `shard` hashes to a queue."""
        return [
            Sent.of(each) for each in self._do("send", messages=messages, queue=queue, shard=shard)
        ]

    def send_async(self, *messages: Json) -> list[Sent]:
        """All at once; waits for every callback."""
        return [Sent.of(each) for each in self._do("send", mode="async", messages=messages)]

    def send_oneway(self, *messages: Json) -> None:
        self._do("send", mode="oneway", messages=messages)

    def send_batch(self, *messages: Json) -> Sent:
        return Sent.of(self._do("send", mode="batch", messages=messages)[0])

    def transaction(self, *messages: Json) -> list[Sent]:
        """User property "local" is the first answer (COMMIT, ROLLBACK, UNKNOW), "check" that to a check."""
        return [Sent.of(each) for each in self._do("transaction", messages=messages)]

    @property
    def checks(self) -> list[Received]:
        """The half messages that the broker has asked about."""
        return self.driver.checks.get(self.name, [])

    def request(self, message_: Json, timeout_ms: int = 10_000) -> Received:
        return Received.of(self._do("request", message=message_, timeout_ms=timeout_ms))

    def begin_flood(self, topic: str, **arguments: object) -> int:
        """Start sending until stop_flood(); arguments: count, size, prefix, tags, quiet. See `acks`."""
        return self.driver.begin("flood", producer=self.name, topic=topic, **arguments)

    def end_flood(self, number: int, *, stop: bool = True, within_s: float = 120) -> Json:
        """{"acknowledged": n, "failed": n}; stops all floods of this driver unless stop=False."""
        if stop:
            self.driver.call("stop_floods")
        result: Json = self.driver.finish(number, within_s)
        return result

    @property
    def acks(self) -> list[tuple[str, Sent]]:
        """(body text, result) of each acknowledged message of a flood that was not quiet."""
        return self.driver.acks.get(self.name, [])

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**each) for each in self._do("publish_queues", topic=topic)]

    def view(self, topic: str, msg_id: str) -> Received:
        return Received.of(self._do("view", topic=topic, msg_id=msg_id))

    def query_key(self, topic: str, key: str, count: int = 32) -> list[Received]:
        return [
            Received.of(each) for each in self._do("query_key", topic=topic, key=key, count=count)
        ]

    def queue_numbers(self, queue: Queue) -> Json:
        """{"min", "max", "earliest_ms"} of a queue."""
        result: Json = self._do("queue_numbers", **queue.json())
        return result

    def search_offset(self, queue: Queue, ms: int) -> int:
        return int(self._do("search_offset", ms=ms, **queue.json()))

    def create_topic(self, topic: str, queues: int = 4) -> None:
        self._do("create_topic", topic=topic, queues=queues)

    def recall(self, topic: str, handle: str) -> str:
        """Cancel a message that is not delivered yet (5.x); returns its message id."""
        return str(self._do("recall", topic=topic, handle=handle))


class PushConsumer(_Peer):
    def _do(self, do: str, **arguments: Any) -> Any:
        return self.driver.call(do, consumer=self.name, **arguments)

    @property
    def consumed(self) -> list[Consumed]:
        """Every call of the listener, in order of arrival."""
        return list(self.driver.consumed.get(self.name, []))

    @property
    def received(self) -> list[Received]:
        return [each.message for each in self.consumed]

    def wait(self, count: int, within_s: float = 90) -> list[Received]:
        """Wait until at least `count` messages came; returns all that came."""
        self.driver.wait(
            lambda: len(self.driver.consumed.get(self.name, [])) >= count,
            f"{count} messages at {self.name}, {len(self.consumed)} came at the start",
            within_s,
        )
        return self.received

    def assigned(self) -> list[Queue]:
        return [Queue(**each) for each in self._do("assigned")]

    def behave(self, **arguments: object) -> None:
        """Change result= ("success", "later", "throw") or delay_ms= of the listener."""
        self._do("behave", **arguments)

    def suspend(self) -> None:
        self._do("suspend")

    def resume(self) -> None:
        self._do("resume")

    def subscribe(self, topic: str, expression: str = "*") -> None:
        self._do("subscribe", topic=topic, expression=expression)

    def unsubscribe(self, topic: str) -> None:
        self._do("unsubscribe", topic=topic)

    def persist_offsets(self) -> None:
        self._do("persist_offsets")

    def close_when_done(self, namesrv: str, group: str, topic: str, count: int) -> None:
        """Close once the offsets of so many messages are at the broker.

        A message is reported before its listener returns, and counts as consumed only then: a member that is
        closed in between leaves it to the next one.
        """

        async def committed() -> int:
            async with Admin(name_server=namesrv) as admin:
                rows = await admin.groups.progress(group, topic)
            return sum(max(0, row.consumer_offset) for row in rows)

        def is_done() -> bool:
            self.persist_offsets()
            return asyncio.run(committed()) >= count

        until(is_done, f"the offsets of {count} messages of {group}")
        self.close()

    def heartbeat(self) -> None:
        """Send a heartbeat now; the client's own come every 30 s."""
        self._do("heartbeat")


class LiteConsumer(_Peer):
    def _do(self, do: str, **arguments: Any) -> Any:
        return self.driver.call(do, consumer=self.name, **arguments)

    def poll(self, timeout_ms: int = 5_000) -> list[Received]:
        return [Received.of(each) for each in self._do("poll", timeout_ms=timeout_ms)]

    def poll_until(self, count: int, within_s: float = 90) -> list[Received]:
        """Poll until `count` messages came."""
        end = time.monotonic() + within_s
        found: list[Received] = []
        while len(found) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(found)} of {count} messages polled in {within_s} s")
            found += self.poll(1_000)
        return found

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**each) for each in self._do("lite_queues", topic=topic)]

    def assign(self, queues: Iterable[Queue]) -> None:
        self._do("assign", queues=[each.json() for each in queues])

    def seek(self, queue: Queue, offset: int) -> None:
        self._do("seek", offset=offset, **queue.json())

    def commit(self) -> None:
        self._do("commit")

    def committed(self, queue: Queue) -> int:
        return int(self._do("committed", **queue.json()))

    def offset_for(self, queue: Queue, ms: int) -> int:
        return int(self._do("offset_for", ms=ms, **queue.json()))


class PullConsumer(_Peer):
    def _do(self, do: str, **arguments: Any) -> Any:
        return self.driver.call(do, consumer=self.name, **arguments)

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**each) for each in self._do("subscribe_queues", topic=topic)]

    def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        count: int = 32,
        expression: str = "*",
        sql: bool = False,
        block: bool = False,
    ) -> Pulled:
        """One pull; block=True is a long poll."""
        answer = self._do(
            "pull",
            offset=offset,
            count=count,
            expression=expression,
            type="SQL92" if sql else "TAG",
            block=block,
            **queue.json(),
        )
        found = [Received.of(each) for each in answer.pop("messages")]
        return Pulled(messages=found, **answer)

    def offset(self, queue: Queue) -> int:
        """The committed offset; -1 without one."""
        return int(self._do("fetch_offset", **queue.json()))

    def commit(self, queue: Queue, offset: int) -> None:
        self._do("update_offset", offset=offset, **queue.json())

    def send_back(self, queue: Queue, offset: int, delay: int = 1) -> None:
        self._do("send_back", offset=offset, delay=delay, **queue.json())


def java_client(
    version: str, folder: Path, *, header: str = "JSON", jvm: Sequence[str] = QUICK_JVM
) -> Driver:
    """The official Java client of CLIENT_VERSIONS; header is "JSON" or "ROCKETMQ"."""
    name = f"java-{version}-{header.lower()}"
    command = [
        toolchain.java(),
        *jvm,
        *quiet_jvm(folder / f"{name}-home"),
        # 5.x spreads queues at most once in this time, a second as it comes: the second in which it also
        # sends its first heartbeat by the clock. Where the two meet, the broker hears of the new
        # subscription with the next heartbeat, 30 s later, and the consumer gets nothing until then.
        "-Drocketmq.client.rebalance.minInterval=100",
        f"-Drocketmq.serialize.type={header}",
        "-cp",
        toolchain.class_path(f"client-{version}"),
        "io.pocketmq.interop.Driver",
    ]
    return Driver(name, command, folder)


def go_client(folder: Path) -> Driver:
    """client-go v2.1.2."""
    home = folder / "go-home"
    home.mkdir(parents=True, exist_ok=True)
    return Driver("go", [str(toolchain.go_driver())], folder, env={"HOME": str(home)})


def node_client(folder: Path) -> Driver:
    """ali-ons 3.12."""
    home = folder / "node-home"
    home.mkdir(parents=True, exist_ok=True)
    node, main = toolchain.node_driver()
    return Driver("node", [node, str(main)], folder, env={"HOME": str(home)})
