"""What the broker executes for one message, counted: a figure that other work on the machine does not move.

    python -m benchmarks.instructions                      this checkout
    python -m benchmarks.instructions --against HEAD~1     beside a commit, or another checkout's folder
    python -m benchmarks.instructions --only send          rows whose name holds the word
    python -m benchmarks.instructions --keep FOLDER        and keep what callgrind_annotate reads
    python -m benchmarks.instructions --quick              six rows of a quarter of the work (.ci/speed)

The broker runs under `valgrind --tool=callgrind`, whole, with uvloop, and handles reads as a connection would
bring them (counted_broker.py); a client runs so, too, at a broker that is not counted. A row is instructions
of the process in user mode for one message (one pull, one commit), in thousands. The kernel's part is not in
it, and an instruction that waits for memory counts as any other, so look at `bench_send` and `bench_client`,
too. What the broker's timers do meanwhile is not counted.
"""

import argparse
import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import raw_load
from benchmarks.grpc_calls import BATCH, Calls, receive_request, send_request
from benchmarks.in_step import InStep
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from tests.interop.brokers import PocketBroker
from tests.kit.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
TOPIC, QUEUES = "BenchTopic", 4
# Of the same length; repeated sends are recognised there.
ONCE = "OnceTopics"
# Within counted_broker.py, and hardly ever elsewhere.
COUNTED_FUNCTION = "functools_reduce"
_CONF = "flushDiskType=ASYNC_FLUSH\nautoCreateTopicEnable=true\n"


@dataclass(frozen=True)
class Work:
    """Reads that are handled in turn, and how many; units: messages (or other units) of one read."""

    name: str
    reads: Sequence[bytes]
    count: int
    units: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row for each kind of work, as soon as it is counted; say what could not be counted."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--against", help="a commit, or the folder of another checkout")
    parser.add_argument("--only", default="", help="rows whose name holds this word")
    parser.add_argument("--keep", type=Path, help="where callgrind's files go")
    parser.add_argument("--quick", action="store_true", help="few rows, of a quarter of the work")
    given = parser.parse_args(arguments)
    share = _QUICK_SHARE if given.quick else 1
    works = [
        replace(work, count=work.count // share)
        for work in all_works()
        if given.only in work.name and (work.name in _QUICK or not given.quick)
    ]
    clients = [
        name for name in CLIENT_WORK if given.only in name and (name in _QUICK or not given.quick)
    ]
    if not works and not clients:
        names = "\n  ".join([*(work.name for work in all_works()), *CLIENT_WORK])
        parser.error(f"no row holds {given.only!r}; there are:\n  {names}")
    try:
        _count_all(given, works, clients, share)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"not counted: {error}", file=sys.stderr)
        output = getattr(error, "stderr", None) or b""
        # valgrind's own lines come last.
        lines = [line for line in output.splitlines() if not line.startswith(b"==")]
        print(b"\n".join(lines)[-3000:].decode("utf-8", "replace"), file=sys.stderr)
        return 1
    return 0


def _count_all(
    given: argparse.Namespace, works: Sequence[Work], clients: Sequence[str], share: int
) -> None:
    with contextlib.ExitStack() as leave:
        trees = {"here": ROOT}
        if given.against:
            trees[given.against] = leave.enter_context(_checkout(given.against))
        folders = list(trees.values())
        _print(f"{'thousand instructions for one':34}" + "".join(f"{name:>14}" for name in trees))
        for name, counts in itertools.chain(
            count(folders, works, given.keep), count_clients(folders, clients, share, given.keep)
        ):
            row = [each / 1_000 for each in counts]
            ratio = f"{row[0] / row[1]:>8.3f} x" if len(row) > 1 else ""
            _print(f"{name:34}" + "".join(f"{value:>14.2f}" for value in row) + ratio)


def _print(line: str) -> None:
    """A row takes seconds to minutes: its reader sees each."""
    print(line, flush=True)


def all_works() -> list[Work]:
    """The rows."""
    sends = raw_load.Frames(TOPIC, QUEUES, 128).frames
    binary = [_in_encoding(frame, SerializeType.ROCKETMQ) for frame in sends[:1024]]
    # Keys of 1 to 40 letters, as orders and persons have them.
    varying = [_keyed(frame, "k" * (1 + n % 40)) for n, frame in enumerate(sends[:1024])]
    varying_binary = [_in_encoding(frame, SerializeType.ROCKETMQ) for frame in varying]
    # Each once: what comes again is looked at.
    once = raw_load.Frames(ONCE, QUEUES, 128).frames
    batches = raw_load.Frames(TOPIC, QUEUES, 128, batch=16).frames[:256]
    pulls = [_pull(place * 32, "*") for place in range(8)]
    tagged = [_pull(place * 32, "rare") for place in range(8)]
    # Of one offset: one that goes back is logged.
    commits = [_commit(place % QUEUES, 64) for place in range(64)]
    return [
        Work("send, 64 in a read", _joined(sends, 64), 48, 64),
        Work("send, 1 in a read", sends[:1024], 1024, 1),
        Work("send, ROCKETMQ header, 64 in a read", _joined(binary, 64), 32, 64),
        Work("send, keys of any length", varying, 1024, 1),
        Work("send, ROCKETMQ header, keys of any length", varying_binary, 1024, 1),
        Work("send, batches of 16, 8 in a read", _joined(batches, 8), 32, 128),
        Work("send, sendOnce, 64 in a read", _joined(once[:4096], 64), 48, 64),
        Work("send, sendOnce, 1 in a read", once[4096:6144], 1024, 1),
        # As the threads of a producer send.
        Work("send, sendOnce, keys in no order", once[:6144:-1], 1024, 1),
        Work("waited for, 64 in a read", _joined(sends, 64), 48, 64),
        Work("copied, 64 in a slice", _joined(sends, 64), 48, 64),
        Work("pull of 32", pulls, 512, 1),
        Work("pull of 32, a tag of 1 %", tagged, 256, 1),
        Work("commit of an offset, by no member", _joined(commits, 8), 64, 8),
        Work("grpc send, 64 in a read", _grpc_sends(48, 64), 48, 64),
        Work("grpc send, 1 in a read", _grpc_sends(1024, 1), 1024, 1),
        Work("grpc receive and ack of 32", _grpc_receives(64), 64, BATCH),
    ]


# So many that the start and the first messages hardly count.
BACKLOG = 16_000
CLIENT_WORK = {
    # name: the row of bench_client, and messages
    "client, send, 64 under way": ("send 64 under way", 32 * 64),
    "client, send one by one": ("send one by one", 500),
    "client, consume by a coroutine": ("consume, coroutine listener", BACKLOG),
    "client, consume by threads": ("consume, thread listener", BACKLOG),
}
# What a look at a change needs most, in two to three minutes.
_QUICK = {
    "send, 64 in a read",
    "send, 1 in a read",
    "send, batches of 16, 8 in a read",
    "pull of 32",
    "client, send, 64 under way",
    "client, consume by a coroutine",
}
_QUICK_SHARE = 4

# Name of a work, and its instructions for one unit in each of the trees.
Counts = Iterator[tuple[str, list[float]]]


def count_clients(
    trees: Sequence[Path], names: Sequence[str], share: int = 1, keep: Path | None = None
) -> Counts:
    """Count a client's process for one message of each work, at a broker that is not counted.

    share: what the number of messages is divided by.
    """
    if not names:
        return
    with contextlib.ExitStack() as leave:
        place = Path(leave.enter_context(tempfile.TemporaryDirectory()))
        in_step = leave.enter_context(InStep(64))
        config = {"advertisedPort": in_step.port}
        behind = leave.enter_context(PocketBroker(place / "behind", config=config))
        in_step.open(("127.0.0.1", behind.port))
        broker = leave.enter_context(PocketBroker(place / "broker"))
        filling = _row("send in batches of 100", broker, "Backlog", BACKLOG)
        subprocess.run(filling, check=True, capture_output=True)
        for name in names:
            peer = behind if "64" in name else broker
            counts: list[float] = []
            for number, tree in enumerate(trees):
                # The same queue offsets for each: how many digits they have is part of the work.
                topic = "Backlog" if "consume" in name else f"Sent{names.index(name)}By{number}"
                if topic != "Backlog":
                    raw_load.create_topic(peer.address, topic, QUEUES)
                counts.append(_client(tree, name, peer, topic, share, keep or place))
            yield name, counts


def _client(
    tree: Path, name: str, broker: PocketBroker, topic: str, share: int, folder: Path
) -> float:
    row, messages = CLIENT_WORK[name]
    # A send learns from its first answers: fewer would count little else.
    messages //= share if "consume" in name else 1
    out = folder / f"{tree.name}-{name}.out".replace(",", "").replace(" ", "-")
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
            f"--callgrind-out-file={out}",
            *_row(row, broker, topic, messages),
            "--counted",
        ],
        check=True,
        capture_output=True,
        # The folder of a module that is run comes before all others.
        cwd=tree,
        env=_environment(tree),
    )
    return _total(out) / messages


def _row(name: str, broker: PocketBroker, topic: str, messages: int) -> list[str]:
    words = ["--row", name, broker.namesrv, topic, str(messages)]
    return [sys.executable, "-m", "benchmarks.bench_client", *words]


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}


def _total(dump: Path) -> int:
    with dump.open(encoding="utf-8", errors="replace") as lines:
        return next(int(each.split()[1]) for each in lines if each.startswith("totals:"))


def count(trees: Sequence[Path], works: Sequence[Work], keep: Path | None = None) -> Counts:
    """Count the broker for one unit of each work, by the sources in each of `trees`."""
    if not works:
        return
    with contextlib.ExitStack() as leave:
        brokers: list[_Counted] = []
        for tree in trees:
            folder = Path(leave.enter_context(tempfile.TemporaryDirectory()))
            brokers.append(leave.enter_context(_Counted(tree, folder, works)))
        for work in works:
            yield work.name, [broker.count(work, keep) for broker in brokers]


class _Counted:
    """The broker under callgrind."""

    def __init__(self, tree: Path, folder: Path, works: Sequence[Work]) -> None:
        self._tree, self._folder = tree, folder
        self._dumps = 0
        namesrv_port, port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        reads = folder / "reads"
        self._filling = all_works()[0]
        named = {work.name: list(work.reads) for work in (self._filling, *works)}
        reads.write_bytes(pickle.dumps(named))
        (folder / "broker.conf").write_text(_CONF, encoding="utf-8")
        command = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--toggle-collect={COUNTED_FUNCTION}",
            f"--callgrind-out-file={folder}/counts",
            sys.executable,
            str(Path(__file__).with_name("counted_broker.py")),
            str(reads),
            self.address,
            "up",
            *("--namesrv-port", str(namesrv_port), "--broker-port", str(port)),
            *("--data", str(folder / "store"), "--host", "127.0.0.1"),
            *("-c", str(folder / "broker.conf")),
        ]
        self._log = (folder / "valgrind.log").open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=folder,
            env=_environment(tree),
        )

    def __enter__(self) -> "_Counted":
        try:
            self._wait_for("following")
            raw_load.create_topic(self.address, TOPIC, QUEUES)
            raw_load.create_topic(self.address, ONCE, QUEUES, "+sendOnce=true")
            # Whatever rows are wanted, and whatever else was asked for, there is something to be read.
            self.run(self._filling, self._filling.count)
            self._control("-i", "on")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._log.close()

    def count(self, work: Work, keep: Path | None) -> float:
        """Return the instructions for one unit. keep: where callgrind's file goes."""
        self.run(work, work.count // 4 or 1)
        total = self.run(work, work.count)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            name = work.name.replace(",", "").replace(" ", "-")
            self._last_dump.rename(keep / f"{self._tree.name}-{name}.out")
        return total / (work.count * work.units)

    @property
    def _last_dump(self) -> Path:
        return self._folder / f"counts.{self._dumps}"

    def run(self, work: Work, reads: int) -> int:
        """Instructions of the process while it handles so many reads."""
        self._dump()
        assert self._process.stdin is not None
        line = f"{work.name}|{reads}\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        self._wait_for(line.rstrip())
        self._dump()
        return _total(self._last_dump)

    def _wait_for(self, wanted: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.rstrip() == wanted:
                return
        text = (self._folder / "valgrind.log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the broker ended before {wanted!r}:\n{text[-3000:]}")

    def _dump(self) -> None:
        self._control("-d")
        self._dumps += 1

    def _control(self, *words: str) -> None:
        command = ["callgrind_control", *words, str(self._process.pid)]
        subprocess.run(command, check=True, capture_output=True)


def _joined(frames: Sequence[bytes], count: int) -> list[bytes]:
    return [b"".join(frames[at : at + count]) for at in range(0, len(frames), count)]


def _in_encoding(frame: bytes, encoding: SerializeType) -> bytes:
    command = decode(frame[4:])
    command.encoding = encoding
    return encode(command)


def _keyed(frame: bytes, keys: str) -> bytes:
    command = decode(frame[4:])
    assert command.ext is not None
    command.ext["i"] += f"KEYS\x01{keys}\x02"
    return encode(command)


def _pull(offset: int, expression: str) -> bytes:
    return _request(
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": "RawConsumer",
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": expression,
            "expressionType": "TAG",
        },
    )


def _commit(queue_id: int, offset: int) -> bytes:
    return _request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {
            "consumerGroup": "RawConsumer",
            "topic": TOPIC,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        },
    )


def _grpc_sends(reads: int, calls: int) -> list[bytes]:
    """Behind what stands for no acknowledgements."""
    connection, request = Calls(), send_request()
    whole = [
        b"".join(connection.call(connection.headers("SendMessage"), request) for _ in range(calls))
        for _ in range(reads)
    ]
    return [b"", connection.opening() + whole[0], *whole[1:]]


def _grpc_receives(count: int) -> list[bytes]:
    """Behind the headers of their acknowledgements, whose stream is the one after each."""
    connection, request = Calls(), receive_request("").SerializeToString()
    whole: list[bytes] = []
    for _ in range(count):
        whole.append(connection.call(connection.headers("ReceiveMessage"), request))
        connection.skip()
    return [connection.headers("AckMessage"), connection.opening() + whole[0], *whole[1:]]


def _request(code: RequestCode, fields: Mapping[str, str]) -> bytes:
    return encode(RemotingCommand(code, dict(fields), opaque=1))


@contextlib.contextmanager
def _checkout(name: str) -> Iterator[Path]:
    """The folder itself, or a commit's files in one that goes away."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="pocketmq-count-") as folder:
        archive = Path(folder) / "tree.tar"
        with archive.open("wb") as out:
            subprocess.run(["git", "archive", name], cwd=ROOT, stdout=out, check=True)
        tree = Path(folder) / name.replace("/", "-")
        with tarfile.open(archive) as tar:
            tar.extractall(tree, filter="data")
        yield tree


if __name__ == "__main__":
    raise SystemExit(main())
