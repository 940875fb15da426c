"""Where the SDKs of RocketMQ 5 go: our broker in this process, or the real proxy 5.5.0 with its broker."""

import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop import toolchain
from tests.interop.brokers import JavaBroker
from tests.interop.mqadmin import Mqadmin
from tests.interop.processes import QUICK_JVM, free_ports
from tests.kit.waiting import until

from pocketmq.remoting.tables import GroupConfig, TopicConfig
from pocketmq.testing.in_process import InProcess

_NUMBERS = itertools.count(1)


class Place(ABC):
    """grpc: `ip:port`."""

    grpc: str

    @abstractmethod
    def topic(self, kind: str) -> str:
        """A new topic of a message type."""

    @abstractmethod
    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        """A new consumer group."""

    def group(self, *, retry_max_times: int = 16, **extra: Any) -> str:
        name = f"group{next(_NUMBERS)}"
        return self.group_named(name, retry_max_times=retry_max_times, **extra)

    @abstractmethod
    def dead_letters(self, group: str) -> str:
        """The topic of a group's dead letters, which exists then."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """So much time goes by."""

    @abstractmethod
    def restart(self) -> None:
        """Stop and start it, with the same address and store."""


class Ours(Place):
    """PocketMQ in this process, whose clock can be advanced."""

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.server = InProcess(
            {
                "transactionTimeOut": 1_000,
                "transactionCheckInterval": 1_000,
                "grpcClientConsumerMaxLongPollingTimeoutMillis": 5_000,
                **(config or {}),
            }
        )

    def __enter__(self) -> Self:
        self.server.start()
        self.grpc = self.server.grpc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.stop()

    # Not by an administrator's client, who would need an account of his own.
    def topic(self, kind: str) -> str:
        return self.topic_named(f"Topic{next(_NUMBERS)}", kind)

    def topic_named(self, name: str, kind: str) -> str:
        made = TopicConfig(name, 4, 4, attributes={"message.type": kind})

        async def make() -> None:
            self.server.running.parts.tables.topics.update(made)

        self.server.call(make())
        return made.topic

    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        made = GroupConfig(name, retry_max_times=retry_max_times, extra=extra)

        async def make() -> None:
            self.server.running.parts.tables.groups.update(made)

        self.server.call(make())
        return name

    def dead_letters(self, group: str) -> str:
        topic = f"%DLQ%{group}"
        tables = self.server.running.parts.tables
        until(lambda: tables.topics.get(topic), f"the topic {topic}")
        return topic

    def advance(self, seconds: float) -> None:
        self.server.clock.advance(seconds)

    def restart(self) -> None:
        self.server.restart()

    def count(self, topic: str) -> int:
        """Messages that were ever stored in a topic."""
        store = self.server.running.parts.messages.store
        return sum(store.max_offset(topic, queue) for queue in range(4))


class ProxyProcess(JavaBroker):
    """Apache's ProxyStartup 5.5.0 in local mode: proxy and broker in one JVM."""

    def __init__(self, folder: Path, heap: str = "512m", jvm: tuple[str, ...] = QUICK_JVM) -> None:
        settings = {"recallMessageEnable": "true", "enableMixedMessageType": "true"}
        super().__init__(folder, version="5.5.0", heap=heap, jvm=jvm, config=settings)
        self._class_path = toolchain.class_path("proxy-5.5.0")
        self.grpc_port, self._remoting_port = free_ports(2)

    def launch(self) -> None:
        if self._namesrv is None:
            self.start_namesrv()
        conf = self._write_config(self._places())
        proxy = self.folder / "proxy.json"
        settings = {
            "grpcServerPort": self.grpc_port,
            "remotingListenPort": self._remoting_port,
            "localServeAddr": "127.0.0.1",
            "namesrvAddr": self.namesrv,
        }
        proxy.write_text(json.dumps(settings))
        words = ("-pm", "local", "-n", self.namesrv, "-bc", str(conf), "-pc", str(proxy))
        self._broker = self._start("proxy.ProxyStartup", "proxy", *words)

    def wait_until_ready(self) -> None:
        until(lambda: "startup successfully" in self.log(), "the proxy")


class Proxy(Place):
    """The real one; topics and groups are made by mqadmin."""

    def __init__(self, folder: Path, tool: Mqadmin) -> None:
        self._process = ProxyProcess(folder)
        self._process.start()
        self.grpc = f"127.0.0.1:{self._process.grpc_port}"
        self._tool = tool.at(self._process.namesrv)

    def close(self) -> None:
        self._process.kill()

    def topic(self, kind: str) -> str:
        name = f"Topic{next(_NUMBERS)}"
        words = ["-b", self._process.address, "-t", name, "-r", 4, "-w", 4]
        done = self._tool("updateTopic", *words, "-a", f"+message.type={kind}")
        assert "create topic to" in done.out, done
        self._until_known(name)
        return name

    def _until_known(self, topic: str) -> None:
        until(lambda: topic in self._tool("topicList").lines, f"the route of {topic}")

    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        words: list[object] = ["-b", self._process.address, "-g", name, "-r", retry_max_times]
        if extra.get("consumeMessageOrderly"):
            words += ["-o", "true"]
        if "groupRetryPolicy" in extra:
            words += ["-p", json.dumps(extra["groupRetryPolicy"])]
        done = self._tool("updateSubGroup", *words)
        assert "create subscription group to" in done.out, done
        return name

    def dead_letters(self, group: str) -> str:
        self._until_known(f"%DLQ%{group}")
        return f"%DLQ%{group}"

    def advance(self, seconds: float) -> None:
        # It has a clock of its own, and nothing to wait for: that nothing happens is what is asked.
        time.sleep(seconds)

    def restart(self) -> None:
        self._process.stop()
        self._process.start()
