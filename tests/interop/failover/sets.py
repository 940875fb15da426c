"""Sets of brokers of both kinds under a controller of either kind, a process each.

java     Apache's controller or broker 5.5.0
pocket   PocketMQ's
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import ElectMasterHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.header import Header
from pocketmq.remoting.transport.blocking import BlockingConnection
from tests.cli.servers import COMMAND
from tests.interop import toolchain
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker, java_server
from tests.interop.processes import QUICK_JVM, Process
from tests.kit.nursery import Nursery
from tests.kit.ports import free_ports
from tests.kit.waiting import until

FILE = 1 << 20
NAME = "set"
SETTINGS: dict[str, object] = {
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": FILE,
    "allAckInSyncStateSet": "true",
    # A slave of 5.5.0 reports itself so long after its handshake: 5 s by default.
    "haSendHeartbeatInterval": 500,
    "checkSyncStateSetPeriod": 1_000,
    "syncBrokerMetadataPeriod": 1_000,
    "slaveSyncInterval": 500,
    # The tests' own topics have four queues.
    "defaultTopicQueueNums": 4,
}


class Controller:
    """One controller, over its lives. kind: java or pocket."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        port: int = 0,
        jvm: tuple[str, ...] = QUICK_JVM,
        **settings: object,
    ) -> None:
        self.kind = kind
        self._jvm = jvm
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        self._settings = settings
        self.process: Process | None = None

    def start(self) -> None:
        if self.kind == "java":
            self._start_java()
            return
        settings = [
            word for each in self._settings.items() for word in ("--set", "=".join(map(str, each)))
        ]
        port = self.address.rpartition(":")[2]
        words = ["controller", "--port", port, "--data", str(self.folder), *settings]
        self.process = Process([*COMMAND, *words], self.folder / "controller.out", cwd=self.folder)
        self.process.wait_for_line("ready")

    def _start_java(self) -> None:
        settings = {
            "controllerDLegerGroup": "g1",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self.folder / "store",
            **self._settings,
        }
        conf = self.folder / "controller.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        path = toolchain.class_path("broker-5.5.0")
        words = (path, "controller.ControllerStartup", "-c", str(conf))
        self.process = java_server(
            words, self.folder, "controller", (*self._jvm, "-Dtls.server.mode=disabled")
        )
        self.process.wait_for_line("The Controller Server boot success")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def ask(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Raises: PocketMQError."""
        with BlockingConnection(self.address, timeout_ms=3_000) as connection:
            return connection.answer(connection.request(code, header, body), code.name)

    def row(self) -> dict[str, Any]:
        """What it says of the set; empty while it knows nothing of it."""
        answer = self.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=fastjson.dumps([NAME]))
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return {}
        found: dict[str, Any] = fastjson.loads(answer.body)["replicasInfoTable"].get(NAME, {})
        return found


class BrokerSet:
    """Brokers of one name, by the ids that the controller gives them: in the order of their first starts."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[str],
        controller: Controller,
        namesrv: str,
        nursery: Nursery | None = None,
        jvm: tuple[str, ...] = QUICK_JVM,
        **settings: object,
    ) -> None:
        """jvm: the flags of Apache's brokers; those of the tests start sooner, and run slower later."""
        self.controller = controller
        self.namesrv = namesrv
        config = {**SETTINGS, "controllerAddr": controller.address, **settings}
        self.members: list[RunningBroker] = []
        for number, kind in enumerate(kinds, 1):
            place = folder / f"{kind}-{number}"
            if kind == "java":
                self.members.append(
                    JavaBroker(
                        place,
                        version="5.5.0",
                        heap="512m" if jvm is QUICK_JVM else "1g",
                        jvm=jvm,
                        config=config,
                        namesrv=namesrv,
                        broker_name=NAME,
                    )
                )
            else:
                self.members.append(
                    PocketBroker(
                        place, config=config, namesrv=namesrv, broker_name=NAME, nursery=nursery
                    )
                )

    def start(self) -> None:
        """Start all; the first one leads."""
        self.members[0].launch()
        until(
            lambda: self.master() is self.members[0], "the first one leads", ignoring=PocketMQError
        )
        for each in self.members[1:]:
            each.launch()
        self.in_sync()

    def master(self) -> RunningBroker | None:
        """Raises: PocketMQError."""
        address = self.controller.row().get("masterAddress")
        return next((each for each in self.members if each.address == address), None)

    def elect(self, chosen: RunningBroker) -> None:
        """Have it elected, which must be in sync."""
        number = self.members.index(chosen) + 1
        header = ElectMasterHeader(chosen.cluster, NAME, number, True, 0)
        answer = self.controller.ask(RequestCode.CONTROLLER_ELECT_MASTER, header)
        assert answer.code == ResponseCode.SUCCESS, answer

    def in_sync(self) -> RunningBroker:
        """Wait until one leads and all are in sync; return the one that leads."""

        def all_are() -> RunningBroker | None:
            row = self.controller.row()
            there = {
                each["brokerAddress"] for each in row.get("inSyncReplicas", ()) if each["alive"]
            }
            return self.master() if there == {each.address for each in self.members} else None

        return until(all_are, "all are in sync", ignoring=PocketMQError) or self.members[0]

    def kill(self) -> None:
        for each in self.members:
            each.kill()

    def logs_are_equal(self) -> bool:
        first, *others = map(log_of, self.members)
        return bool(first) and all(each == first for each in others)

    def difference(self) -> str:
        """Where the logs part."""
        logs = [log_of(each) for each in self.members]
        short = min(map(len, logs))
        parts = next(
            (
                at
                for at in range(0, short, 4096)
                if len({each[at : at + 4096] for each in logs}) > 1
            ),
            short,
        )
        return f"ends {[len(each) for each in logs]}, alike up to about {parts}"


def log_of(broker: RunningBroker) -> bytes:
    """The whole log, without the zeros behind its end."""
    files = sorted((broker.store / "commitlog").glob("0*"))
    return b"".join(path.read_bytes() for path in files if path.stat().st_size == FILE).rstrip(
        b"\0"
    )
