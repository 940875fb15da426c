"""Sets of three brokers under a controller: how long a failover takes, and what a set costs.

    python -m benchmarks.bench_failover             about eight minutes
    python -m benchmarks.bench_failover --quick     fewer rounds, without Apache's brokers: about a minute

killed      kill -9 of the master under four senders: until the controller has elected another, until that one
            stands in the topic's route, and the longest time between two acknowledged sends of our client
stopped     SIGTERM of the master: the longest time between two acknowledged sends
return      from the moment at which the restarted broker listens until it is in sync, and until all are
clients     kill -9 of the master under the unmodified Java producer of 5.5.0, and under ours, both with their
            default route poll of 30 s
sends       a master with two brokers in sync, 64 sends in flight; CPU of all three brokers for one send
idle        three brokers and a controller without clients
"""

import argparse
import itertools
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import raw_load
from benchmarks.meter import anonymous_mb, cpu_seconds, machine
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from tests.cli.servers import Server
from tests.interop.brokers import JavaBroker, RunningBroker
from tests.interop.driver import Driver, PeerError, java_client, message
from tests.interop.failover.load import TOPIC, Load
from tests.interop.failover.scenarios import Judged, cut_off, frozen, two_elections
from tests.interop.failover.sets import BrokerSet, Controller
from tests.kit.waiting import until

OURS, APACHE, MIXED = "pocket pocket pocket", "java java java", "pocket java pocket"
IN_FLIGHT, BODY = 64, 128
SETTLE_S, IDLE_S = 5.0, 15.0
# The tests' sets look more often.
DEFAULTS = {
    "syncBrokerMetadataPeriod": 2_000,
    "haSendHeartbeatInterval": 5_000,
    "slaveSyncInterval": 3_000,
    "checkSyncStateSetPeriod": 5_000,
}

Row = tuple[str, str]


@contextmanager
def running(controller: str, kinds: str, **settings: Any) -> Iterator[BrokerSet]:
    """A set that is in sync, and its name server."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        names = Server(folder, "namesrv", "--port", "0")
        stack.callback(names.kill)
        decides = Controller(controller, folder / "controller", jvm=())
        stack.callback(decides.kill)
        decides.start()
        namesrv = names.ready()["namesrv"]
        brokers = BrokerSet(folder, kinds.split(), decides, namesrv, jvm=(), **settings)
        stack.callback(brokers.kill)
        brokers.start()
        yield brokers


def ms(values: list[float]) -> str:
    """The median, and the range."""
    low, high = min(values) * 1000, max(values) * 1000
    return f"{statistics.median(values) * 1000:.0f} ms ({low:.0f} to {high:.0f})"


def quickly(state: Callable[[], object], what: str) -> float:
    """Wait, and look each millisecond. Returns: the moment."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        try:
            if state():
                return time.monotonic()
        except (PocketMQError, OSError):
            pass
        time.sleep(0.001)
    raise TimeoutError(what)


def listens(broker: RunningBroker) -> bool:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=1):
        return True


class Deaths:
    """Seconds of each round."""

    def __init__(self) -> None:
        self.elected: list[float] = []
        self.routed: list[float] = []
        self.longest: list[float] = []
        # By kind of broker.
        self.returned: dict[str, list[float]] = {}
        self.level: list[float] = []
        self.acknowledged = 0
        self.wrong = 0

    def of(self, brokers: BrokerSet, rounds: int, *, clean: bool) -> "Deaths":
        """The master dies, and comes back."""
        load = Load(brokers.namesrv)
        with load.running():
            for _ in range(rounds):
                master = brokers.in_sync()
                load.more(100)
                self._one(brokers, master, load, clean=clean)
        brokers.in_sync()
        until(brokers.logs_are_equal, "the logs are equal")
        self.acknowledged, self.wrong = len(load.acknowledged), len(load.wrong())
        return self

    def _one(self, brokers: BrokerSet, master: RunningBroker, load: Load, *, clean: bool) -> None:
        began_s = time.monotonic()
        if clean:
            master.process.stop()
        else:
            master.process.kill()
            another = quickly(lambda: brokers.master() not in (None, master), "another is elected")
            self.elected.append(another - began_s)
            routed = quickly(lambda: leads_in_route(brokers, master), "it is in the route")
            self.routed.append(routed - began_s)
        load.more(100)
        self.longest.append(load.longest_wait_s(began_s - 0.5))
        master.launch()
        there_s = quickly(lambda: listens(master), "the broker listens")
        back_s = quickly(lambda: master.address in in_sync(brokers), "it is in sync")
        kind = "Apache" if isinstance(master, JavaBroker) else "PocketMQ"
        self.returned.setdefault(kind, []).append(back_s - there_s)
        brokers.in_sync()
        self.level.append(time.monotonic() - there_s)


def in_sync(brokers: BrokerSet) -> set[str]:
    """The addresses of the brokers in sync, by the controller."""
    return {each["brokerAddress"] for each in brokers.controller.row().get("inSyncReplicas", ())}


def leads_in_route(brokers: BrokerSet, dead: RunningBroker) -> bool:
    """Whether the topic's route names another broker as master."""
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, opaque=1)
    code, _, body = raw_load.call(brokers.namesrv, request)
    if code != ResponseCode.SUCCESS:
        return False
    [row] = fastjson.loads(body)["brokerDatas"]
    return {str(n): each for n, each in row["brokerAddrs"].items()}.get("0") not in (
        None,
        dead.address,
    )


def deaths(rounds: int, *, with_apache: bool) -> Iterator[Row]:
    sets = [("pocket", OURS, "PocketMQ")]
    if with_apache:
        sets += [
            ("java", MIXED, "PocketMQ, Apache, PocketMQ at Apache's controller"),
            ("java", APACHE, "Apache"),
        ]
    for controller, kinds, name in sets:
        few = rounds if kinds == OURS else max(2, rounds // 2)
        with running(controller, kinds, **DEFAULTS) as brokers:
            found = Deaths().of(brokers, few, clean=False)
            yield f"{name}: `kill -9`, elected", ms(found.elected)
            yield f"{name}: in the route", ms(found.routed)
            yield f"{name}: longest wait between acknowledged sends", ms(found.longest)
            for kind, returned in found.returned.items():
                yield f"{name}: a broker of {kind} back in sync, once it listens", ms(returned)
            yield f"{name}: all three in sync, once it listens", ms(found.level)
            yield f"{name}: acknowledged, lost", f"{found.acknowledged:,}, {found.wrong}"
            if kinds == APACHE:
                return
            stopped = Deaths().of(brokers, few, clean=True)
            yield f"{name}: `SIGTERM`, longest wait between acknowledged sends", ms(stopped.longest)


class JavaLoad:
    """One official producer of 5.5.0 as it comes, in a thread. times_s: of acknowledgements, monotonic."""

    def __init__(self, namesrv: str, client: Driver) -> None:
        self._client = client
        # The driver's own time-out is longer.
        settings = {"sendMsgTimeout": 3_000}
        client.call("producer", name="load", namesrv=namesrv, group="load", set=settings)
        self._over = threading.Event()
        self.times_s: list[float] = []
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._over.wait(0.005):
            try:
                self._client.call("send", producer="load", messages=[message(TOPIC, b"x")])
            except PeerError:
                continue
            self.times_s.append(time.monotonic())

    def longest_wait_s(self, since_s: float) -> float:
        """Wait for another acknowledgement first."""
        count = len(self.times_s)
        until(lambda: len(self.times_s) > count + 5, "its sends succeed")
        times = [each for each in self.times_s if each >= since_s]
        return max(b - a for a, b in itertools.pairwise(times))

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def default_clients(rounds: int) -> Iterator[Row]:
    """Both clients at once, so that they see the same deaths."""
    ours: list[float] = []
    java: list[float] = []
    with running("pocket", OURS, **DEFAULTS) as brokers, tempfile.TemporaryDirectory() as place:
        load = Load(brokers.namesrv, poll_ms=30_000)
        with java_client("5.5.0", Path(place)) as client, load.running():
            load.more(10)
            theirs = JavaLoad(brokers.namesrv, client)
            try:
                for _ in range(rounds):
                    master = brokers.in_sync()
                    theirs.longest_wait_s(0)
                    load.more(50)
                    began_s = time.monotonic() - 0.5
                    master.process.kill()
                    load.more(50)
                    ours.append(load.longest_wait_s(began_s))
                    java.append(theirs.longest_wait_s(began_s))
                    master.launch()
            finally:
                theirs.end()
    yield "unmodified Java producer 5.5.0, route poll of 30 s: longest wait", ms(java)
    yield "PocketMQ's client, route poll of 30 s: longest wait", ms(ours)


def judged(name: str, found: Judged) -> Row:
    return name, f"{len(found.wrong)} of {found.acknowledged:,} acknowledged lost"


def lost_masters() -> Iterator[Row]:
    for name, scenario in (
        ("frozen master, thawed", frozen),
        ("master cut from the controller, not from clients", cut_off),
        ("two elections at one log end", lambda folder: two_elections(folder, "pocket pocket")),
    ):
        with tempfile.TemporaryDirectory() as folder:
            yield judged(name, scenario(Path(folder)))


def sends(rounds: int, count: int, *, with_apache: bool) -> Iterator[Row]:
    """Sets of both kinds take turns."""
    kinds = {"PocketMQ": ("pocket", OURS)} | ({"Apache": ("java", APACHE)} if with_apache else {})
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    with ExitStack() as stack:
        sets = {name: stack.enter_context(running(*each)) for name, each in kinds.items()}
        frames = raw_load.Frames("Sends", 4, BODY).frames
        for brokers in sets.values():
            raw_load.create_topic(brokers.members[0].address, "Sends", 4)
            raw_load.send_count(
                brokers.members[0].address, frames, requests=2_000, in_flight=IN_FLIGHT
            )
        for _ in range(rounds):
            for name, brokers in sets.items():
                before = cpu_of(brokers)
                took = raw_load.send_count(
                    brokers.members[0].address, frames, requests=count, in_flight=IN_FLIGHT
                )
                found[name].append((count / took, (cpu_of(brokers) - before) / count * 1e6))
    for name, each in found.items():
        rate, price = (statistics.median(values) for values in zip(*each, strict=True))
        yield (
            f"{name}: sends, three in sync, 64 in flight",
            f"{rate:,.0f} msg/s, {price:.0f} us of CPU each",
        )
    if with_apache:
        pairs = list(zip(found["PocketMQ"], found["Apache"], strict=True))
        rates = statistics.median(a[0] / b[0] for a, b in pairs)
        prices = statistics.median(a[1] / b[1] for a, b in pairs)
        yield "PocketMQ / Apache", f"{rates:.2f} x msg/s at {prices:.2f} x CPU"


def cpu_of(brokers: BrokerSet) -> float:
    return sum(cpu_seconds(each.process.pid) for each in brokers.members)


def idle() -> Iterator[Row]:
    with running("pocket", OURS, **DEFAULTS) as brokers:
        assert brokers.controller.process is not None
        pids = [each.process.pid for each in brokers.members]
        all_of_them = [*pids, brokers.controller.process.pid]
        time.sleep(SETTLE_S)
        before, began_s = sum(map(cpu_seconds, all_of_them)), time.perf_counter()
        time.sleep(IDLE_S)
        share = (sum(map(cpu_seconds, all_of_them)) - before) / (time.perf_counter() - began_s)
        memory = [anonymous_mb(pid) for pid in all_of_them]
    yield "idle, three brokers and a controller", f"{share:.1%} of a core in all"
    yield (
        "idle, memory of a broker; of the controller",
        f"{max(memory[:3]):.0f} MB; {memory[3]:.0f} MB",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    full = not options.quick
    print(f"{date.today():%-d %B %Y}, {machine()}, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| what | figure |\n| --- | --- |")
    began_s = time.monotonic()
    for rows in (
        idle(),
        deaths(6 if full else 3, with_apache=full),
        default_clients(3) if full else (),
        lost_masters(),
        sends(3, 20_000 if full else 10_000, with_apache=full),
    ):
        for what, figure in rows:
            print(f"| {what} | {figure} |", flush=True)
    print(f"\n{time.monotonic() - began_s:.0f} s, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
