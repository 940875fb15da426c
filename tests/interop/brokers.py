"""Running brokers: PocketMQ and, as the reference, the real Java broker, behind one face.

Both take the same keys of broker.conf. A broker keeps its ports, its store and its configuration
over stop(), kill() and start(), so that a test can play a restart.
"""

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.blocking import ask
from tests.interop import toolchain
from tests.interop.processes import QUICK_JVM, Process, quiet_jvm
from tests.kit.nursery import Nursery
from tests.kit.ports import free_ports
from tests.kit.waiting import until

SMALL: Mapping[str, object] = {
    # Small files, so that a broker starts quickly and rolls within a test.
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    # The tests must not depend on how full or how busy the machine is.
    "diskMaxUsedSpaceRatio": 95,
    "brokerFastFailureEnable": "false",
    "enablePropertyFilter": "true",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    # Retries come at level 3 and up: 10 s with RocketMQ's own table.
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
}
"""broker.conf keys of every test broker; `config` of a broker is laid over them."""

LESS_WORK: Mapping[str, object] = {
    # For so long after its start a thread of 5.x turns without a pause: 10 s by default, of a whole core.
    "transactionMetricFlushInterval": 100,
    # How often 5.x copies its wheel of 38 MB, even if it is empty: each second by default, a fifth of a core.
    "timerFlushIntervalMs": 5_000,
}
"""Keys of a real broker where no speed is measured."""


class RunningBroker(ABC):
    """A name server and a broker; `kind` is "pocketmq" or "rocketmq"."""

    kind: str
    broker_name = "broker-a"
    cluster = "DefaultCluster"

    def __init__(
        self,
        folder: Path,
        *,
        config: Mapping[str, object] | None = None,
        store: Path | None = None,
        namesrv: str | None = None,
        broker_name: str | None = None,
        broker_id: int = 0,
    ) -> None:
        """Args: folder holds logs and configuration; store is the store's root (default folder/store);
        namesrv is "host:port" of a name server to register at (default: an own one)."""
        self.folder = folder
        self.store = store or folder / "store"
        self.broker_name = broker_name or self.broker_name
        self.broker_id = broker_id
        self.own_namesrv = namesrv is None
        namesrv_port, self.port = free_ports(2)
        self.namesrv = namesrv or f"127.0.0.1:{namesrv_port}"
        self.address = f"127.0.0.1:{self.port}"
        self.config: dict[str, object] = {
            **SMALL,
            "brokerClusterName": self.cluster,
            "brokerName": self.broker_name,
            "brokerId": broker_id,
            "brokerIP1": "127.0.0.1",
            **(config or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)

    def take_the_place_of(self, other: "RunningBroker") -> Self:
        """Use the store, the ports and the name server address of a broker that has stopped."""
        self.store, self.port, self.address = other.store, other.port, other.address
        self.namesrv = other.namesrv
        return self

    @property
    def namesrv_port(self) -> int:
        return int(self.namesrv.rpartition(":")[2])

    @property
    @abstractmethod
    def process(self) -> Process:
        """The broker's process. Raises RuntimeError when it was never started."""

    def start(self) -> Self:
        """Start and wait until a client can send."""
        self.launch()
        self.wait_until_ready()
        return self

    @abstractmethod
    def launch(self) -> None:
        """Start the broker's process and do not wait; a name server of its own is up before."""

    @abstractmethod
    def wait_until_ready(self) -> None:
        """Wait until the launched broker says that a client can send."""

    @abstractmethod
    def stop(self) -> int:
        """A clean stop; returns the broker's exit code."""

    @abstractmethod
    def kill(self) -> None:
        """kill -9 of broker and name server."""

    def log(self) -> str:
        """What the broker has printed."""
        return self.process.printed()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _write_config(self, more: Mapping[str, object]) -> Path:
        path = self.folder / "broker.conf"
        lines = [f"{key}={value}" for key, value in {**self.config, **more}.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


class JavaBroker(RunningBroker):
    """Apache's NamesrvStartup and BrokerStartup of one version, a JVM each."""

    kind = "rocketmq"
    tls = False

    def __init__(
        self,
        folder: Path,
        *,
        version: str = "4.9.7",
        heap: str = "512m",
        jvm: tuple[str, ...] = QUICK_JVM,
        config: Mapping[str, object] | None = None,
        store: Path | None = None,
        namesrv: str | None = None,
        broker_name: str | None = None,
        broker_id: int = 0,
    ) -> None:
        super().__init__(
            folder,
            config=config,
            store=store,
            namesrv=namesrv,
            broker_name=broker_name,
            broker_id=broker_id,
        )
        self.version = version
        self._less_work = LESS_WORK if jvm is QUICK_JVM else {}
        self._jvm = [flag for flag in jvm if not flag.startswith("-Xmx")] + [f"-Xmx{heap}"]
        self._class_path = toolchain.class_path(f"broker-{version}")
        self.home = folder / "home"
        self._broker: Process | None = None
        self._namesrv: Process | None = None

    @property
    def process(self) -> Process:
        if self._broker is None:
            raise RuntimeError("the broker was not started")
        return self._broker

    def launch(self) -> None:
        if self.own_namesrv and (self._namesrv is None or self._namesrv.returncode is not None):
            self.start_namesrv()
        self._broker = self._start_broker(self._write_config(self._places()))

    def _start_broker(self, conf: Path) -> Process:
        return self._start("broker.BrokerStartup", "broker", "-c", str(conf))

    def _places(self) -> dict[str, object]:
        return {
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": self.namesrv,
            **self._less_work,
        }

    def wait_until_ready(self) -> None:
        self.process.wait_for_line("The broker[")
        # One of 5.x says so before the name server knows it.
        until(self._is_registered, "the name server knows the broker", ignoring=PocketMQError)

    def _is_registered(self) -> bool:
        answer = ask(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        known = fastjson.loads(answer.body).get("brokerAddrTable", {}).get(self.broker_name, {})
        return self.address in known.get("brokerAddrs", {}).values()

    def start_namesrv(self) -> None:
        conf = self.folder / "namesrv.conf"
        conf.write_text(
            f"listenPort={self.namesrv_port}\nkvConfigPath={self.folder}/kvConfig.json\n",
            encoding="utf-8",
        )
        self._namesrv = self._start("namesrv.NamesrvStartup", "namesrv", "-c", str(conf))
        self._namesrv.wait_for_line("The Name Server boot success")

    def stop(self) -> int:
        code = 0 if self._broker is None else self._broker.stop()
        if self._namesrv is not None:
            # It writes what it keeps at once, and takes three seconds to stop cleanly.
            self._namesrv.kill()
        return code

    def kill(self) -> None:
        for process in (self._broker, self._namesrv):
            if process is not None:
                process.kill()

    def broker_log(self) -> str:
        """Apache's broker.log, store.log and so on, one after the other."""
        logs = sorted((self.home / "logs" / "rocketmqlogs").rglob("*.log"))
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)

    def _start(self, main: str, name: str, *arguments: str) -> Process:
        # Otherwise each server signs a certificate as it starts: seconds, on a busy machine twenty.
        plain = () if self.tls else ("-Dtls.server.mode=disabled",)
        return java_server(
            (self._class_path, main, *arguments), self.folder, name, (*self._jvm, *plain)
        )


def java_server(
    words: Sequence[str], folder: Path, name: str, jvm: Sequence[str] = QUICK_JVM
) -> Process:
    """One of Apache's servers. words: class path, main class after `org.apache.rocketmq.`, arguments."""
    home = folder / "home"
    shutil.copytree(toolchain.SOURCES / "home", home, dirs_exist_ok=True)
    opens = [
        # RocketMQ 4 unmaps its files through classes that newer JDKs hide.
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        "--add-exports=java.base/sun.security.action=ALL-UNNAMED",
    ]
    class_path, main, *arguments = words
    command = [toolchain.java(), *jvm, *opens, *quiet_jvm(home), f"-Dpeer.name={name}"]
    command += ["-cp", class_path, f"org.apache.rocketmq.{main}", *arguments]
    return Process(command, folder / f"{name}.out", cwd=folder)


class PocketBroker(RunningBroker):
    """`pocketmq up`: name server and broker in one process."""

    kind = "pocketmq"

    def __init__(
        self,
        folder: Path,
        *,
        config: Mapping[str, object] | None = None,
        store: Path | None = None,
        namesrv: str | None = None,
        broker_name: str | None = None,
        broker_id: int = 0,
        sources: Path | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        """sources: another checkout, whose code it runs. nursery: forks its processes, to start sooner."""
        super().__init__(
            folder,
            config=config,
            store=store,
            namesrv=namesrv,
            broker_name=broker_name,
            broker_id=broker_id,
        )
        self._process: Process | None = None
        self._nursery = nursery
        self._environment = {"PYTHONPATH": str(sources)} if sources else {}

    @property
    def process(self) -> Process:
        if self._process is None:
            raise RuntimeError("the broker was not started")
        return self._process

    def launch(self) -> None:
        conf = self._write_config({})
        program = str(Path(sys.executable).parent / "pocketmq")
        if self.own_namesrv:
            words = [
                "up",
                "--namesrv-port",
                str(self.namesrv_port),
                "--broker-port",
                str(self.port),
            ]
        else:
            words = ["broker", "--namesrv", self.namesrv, "--port", str(self.port)]
        command = [
            program,
            *words,
            "--data",
            str(self.store),
            "--host",
            "127.0.0.1",
            "-c",
            str(conf),
        ]
        self._process = Process(
            command,
            self.folder / "pocketmq.out",
            cwd=self.folder,
            environment=self._environment,
            nursery=self._nursery,
        )

    def wait_until_ready(self) -> None:
        self.process.wait_for_line("ready")

    def stop(self) -> int:
        return 0 if self._process is None else self._process.stop()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def make_broker(
    kind: str,
    folder: Path,
    *,
    config: Mapping[str, object] | None = None,
    namesrv: str | None = None,
    broker_name: str | None = None,
    tls: bool = False,
) -> RunningBroker:
    """A broker by its test id: "pocketmq", "rocketmq-4.9.7" or "rocketmq-5.5.0"; not started yet.

    tls: a real one, too, lets clients speak it.
    """
    name, _, version = kind.partition("-")
    if name == "pocketmq":
        return PocketBroker(folder, config=config, namesrv=namesrv, broker_name=broker_name)
    made = JavaBroker(
        folder, version=version, config=config, namesrv=namesrv, broker_name=broker_name
    )
    made.tls = tls
    return made
