"""Options that every test folder shares."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from pocketmq.store import message_store
from pocketmq.store.log import retention
from tests import acceptance
from tests.kit.costs import SHOWN, Costs
from tests.kit.disk import ANY_DISK
from tests.kit.spread import ByRoom
from tests.kit.tidy import changes, state_of_process

# As a command sets it in its process: one that a test calls in this process would leave it behind.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Processes that tests start have it from here.
os.environ.update(ANY_DISK)

# A slow machine is no failure: no time limit for an example, nor for making one.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

_SHOWN_OF_UNSTEADY = 40
"""Lines of what failed and passed when it was run again: it may never be seen to fail a second time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs",
        default=0,
        type=int,
        help=f"name so many files with the CPU time that they took (default {SHOWN}, after a minute of it)",
    )

    parser.addoption(
        "--every-fault",
        action="store_true",
        help="fail each call that writes with each error, not only one of them (20 min)",
    )

    parser.addoption(
        "--celery-suite",
        action="store_true",
        help="run all integration cases of Celery, which need a Redis beside (15 min)",
    )

    parser.addoption(
        "--every-python",
        action="store_true",
        help="install the wheel under each Python of the machine and run it (1 min each)",
    )

    parser.addoption(
        "--tutorial",
        action="store_true",
        help="play the tutorial in a fresh clone on the default ports (2 min)",
    )

    parser.addoption(
        "--helm",
        action="store_true",
        help="build helm and kubeconform by Go, and let them judge the chart (15 min once)",
    )

    parser.addoption(
        "--reference",
        action="store_true",
        help="also run each interop test against the real RocketMQ broker (slower; judges the tests)",
    )

    parser.addoption(
        "--java-versions",
        action="store_true",
        help="also try ten more versions of the Java client, of 4.3 to 5.3 (5 min)",
    )

    parser.addoption(
        "--kill-rounds",
        default="30",
        help="how often the kill -9 loop kills the broker, in all (default 30)",
    )

    parser.addoption(
        "--replica-messages",
        default=300,
        type=int,
        help="messages between masters and slaves of both kinds (default 300; 200,000 for the figures)",
    )

    parser.addoption(
        "--replica-kills",
        default=12,
        type=int,
        help="how often a master or its slave is killed under load, in all (default 12; 60 for the figures)",
    )

    parser.addoption(
        "--set-kills",
        default=2,
        type=int,
        help="how often brokers of each set under a controller are killed (default 2; 300 for the figures)",
    )

    parser.addoption(
        "--replica-faults",
        default=20,
        type=int,
        help="how often the network between a master and its slave is bad (default 20; 100 for the figures)",
    )

    parser.addoption(
        "--migrate-messages",
        default=2_000,
        type=int,
        help="messages sent while a broker is migrated (default 2,000; 1,000,000 for the figures)",
    )

    parser.addoption(
        "--once-sends",
        default=5_000,
        type=int,
        help="sends over a network that loses answers, in all (default 5,000; 200,000 for the figures)",
    )

    parser.addoption(
        "--backup-kills",
        default=3,
        type=int,
        help="how often a backup is killed, and a restore (default 3 each; 25 for the figures)",
    )

    parser.addoption(
        "--consumer-kills",
        default=12,
        type=int,
        help="how often members of consumer groups are killed, in all (default 12; 200 for the figures)",
    )

    parser.addoption(
        "--every-cut",
        action="store_true",
        help="cut a store at every byte of its end and flip a bit of every byte of it (4 min of CPU)",
    )

    parser.addoption(
        "--connections",
        default=1_000,
        type=int,
        help="idle connections, with a twentieth as many active ones beside (default 1,000; whole 10,000)",
    )

    parser.addoption(
        "--crowd",
        default=1_000,
        type=int,
        help="members of a group that close at once (default 1,000; whole 8,000)",
    )

    parser.addoption(
        "--many-topics",
        default=100,
        type=int,
        help="topics of eight queues that one broker has (default 100; whole 50,000)",
    )

    parser.addoption(
        "--tls-peers",
        default=100,
        type=int,
        help="TLS peers that do not read while the broker is told to stop (default 100; whole 800)",
    )

    parser.addoption(
        "--fuzz-examples",
        default=200,
        type=int,
        help="examples of each fuzzing test (default 200; whole 100,000)",
    )

    parser.addoption(
        "--grpc-all",
        action="store_true",
        help="each SDK of RocketMQ 5 does everything, not only what is likely to differ (3 min)",
    )

    parser.addoption(
        "--rolling-count",
        default=2_000,
        type=int,
        help="messages sent during the rolling change of an isolated group (default 2,000)",
    )

    parser.addoption(
        "--partition-rounds",
        default=4,
        type=int,
        help="how often the network between broker and clients is cut (default 4)",
    )

    parser.addoption(
        "--partition-seconds",
        default=2.0,
        type=float,
        help="how long a cut lasts in the mean (default 2)",
    )

    parser.addoption(
        "--history-seconds",
        default=10.0,
        type=float,
        help="how long faults last under a checked history (default 10, each once; 600 for the figures)",
    )

    parser.addoption(
        "--soak-seconds",
        default=20.0,
        type=float,
        help="how long the soak lasts (default 20; 3600 for the figures of docs/reliability.md)",
    )

    parser.addoption(
        "--freeze-seconds",
        default=5.0,
        type=float,
        help="how long a broker or a consumer stands still (default 5; 60 for the reported figures)",
    )

    parser.addoption(
        "--backlog",
        default=60_000,
        type=int,
        help="messages that a group is behind (default 60,000; 20,000,000 for the reported figures)",
    )

    parser.addoption(
        "--power-subsets",
        default=400,
        type=int,
        help="power cuts by subsets of what was not flushed (default 400; 20,000 for the reported figures)",
    )

    parser.addoption(
        "--compiled-image",
        action="store_true",
        help="compile the wheel of tests/house/test_docker.py, as the image does (minutes)",
    )

    parser.addoption(
        "--simulations",
        default=80,
        type=int,
        help="how many seeds of the simulator are run (default 80; 10,000 for the reported figures)",
    )


@pytest.fixture(autouse=True, scope="session")
def any_disk() -> Iterator[None]:
    """A store of this process takes messages however full the disk is; tests of that say how full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "disk_use", lambda path: 0.5)
        patch.setattr(message_store, "disk_use", lambda path: 0.5)
        yield


@pytest.fixture(autouse=True)
def nothing_left_changed() -> Iterator[None]:
    """A test that changes its process for those after it fails itself, and not they."""
    before = state_of_process()
    yield
    left = changes(before, state_of_process())
    assert not left, "the test left changed: " + "; ".join(left)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script's shell has what it runs in the background ignore Ctrl-C. What the tests start would
        # inherit that, and a test that sends Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Costs())
    config.addinivalue_line("markers", "slow: takes seconds; left out by `make check`")
    config.addinivalue_line("markers", "reference: runs against the real RocketMQ broker")
    config.addinivalue_line("markers", "grpc_all: an SDK where another stands for it by default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: to look for garbage in it was a third of the collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByRoom | None:
    """Whole files, the long ones first."""
    return ByRoom(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        named = acceptance.lines_named(getattr(getattr(item, "obj", None), "__doc__", None) or "")
        if named:
            # It travels with the report, also from a worker process.
            item.user_properties.append(("acceptance", " ".join(named)))
    left_out = {
        name for name in ("reference", "grpc_all") if not config.getoption(name, default=False)
    }
    dropped = [item for item in items if left_out & item.keywords.keys()]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if not left_out & item.keywords.keys()]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """A run of all tests says how many lines of the acceptance list they have shown.

    It also names what passed only when it was run again: nothing of that is well, it only does not hold
    up what has nothing to do with it.
    """
    failed = {report.nodeid for report in terminalreporter.stats.get("failed", [])}
    for report in terminalreporter.stats.get("rerun", []):
        if report.nodeid in failed:
            continue
        terminalreporter.write_line(f"UNSTEADY {report.nodeid}: mend it, or the test", yellow=True)
        for line in report.longreprtext.splitlines()[-_SHOWN_OF_UNSTEADY:]:
            terminalreporter.write_line(f"    {line}")
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    covered = {
        line
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", ())
        if name == "acceptance"
        for line in str(value).split()
    }
    terminalreporter.write_line(acceptance.summary(covered))
