"""The pytest plug-in (entry point pytest11): a message broker as a fixture.

    pocketmq          a fresh broker in the test process, removed after the test
    pocketmq_session  one for the whole session, for tests that use separate topics
    pocketmq_proc     pocketmq_proc(key=value, ...) starts one as a process, for Java and Go programs

    @pytest.mark.pocketmq(autoCreateTopicEnable=False)      keys of broker.conf for this test's broker
    --pocketmq-nameserver=IP:PORT                           a server that runs already, instead of ours
    --pocketmq-store=temporary                              the store on the disk instead of in memory

The options may also be in pytest.ini (pocketmq_nameserver, pocketmq_store, pocketmq_config) and in the
environment (POCKETMQ_NAMESERVER, POCKETMQ_STORE); the command line takes precedence, then the environment.
This module imports the broker only when a fixture is first used.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pocketmq.testing.process import ServerProcess
    from pocketmq.testing.server import PocketMQ


class StartProcess(Protocol):
    """The type of the fixture `pocketmq_proc`."""

    def __call__(self, *, store: str | None = None, **config: object) -> "ServerProcess":
        """Start `pocketmq up` with these keys of broker.conf; it ends with the test."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pocketmq", "PocketMQ, a message broker for tests")
    group.addoption(
        "--pocketmq-nameserver",
        metavar="IP:PORT",
        help="let `pocketmq` and `pocketmq_session` be a server that is running already",
    )
    group.addoption(
        "--pocketmq-store",
        choices=("memory", "temporary"),
        help="where the brokers of the tests keep their files (default memory)",
    )
    parser.addini("pocketmq_nameserver", "see --pocketmq-nameserver", default="")
    parser.addini("pocketmq_store", "see --pocketmq-store", default="memory")
    parser.addini(
        "pocketmq_config", "keys of broker.conf for every broker, `key=value` a line", "linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "pocketmq(**config): keys of broker.conf for the broker of this test"
    )


@pytest.fixture
def pocketmq(request: pytest.FixtureRequest) -> "Iterator[PocketMQ]":
    """A name server and a broker of the test's own; see pocketmq.testing.PocketMQ."""
    config: dict[str, object] = {}
    # The test's own marker is iterated first, so the outer ones go below it.
    for marker in request.node.iter_markers("pocketmq"):
        config = {**marker.kwargs, **config}
    with _server(request.config, config) as server:
        yield server
        _name_clients_left(server)


@pytest.fixture(scope="session")
def pocketmq_session(request: pytest.FixtureRequest) -> "Iterator[PocketMQ]":
    """A name server and a broker for the whole session."""
    with _server(request.config, {}) as server:
        yield server
        _name_clients_left(server)


@pytest.fixture
def pocketmq_proc(request: pytest.FixtureRequest) -> Iterator[StartProcess]:
    """Starts brokers as processes; all end with the test."""
    from pocketmq.testing.process import ServerProcess

    with ExitStack() as stack:

        def start(*, store: str | None = None, **config: object) -> ServerProcess:
            server = ServerProcess(
                {**_settings(request.config), **config}, store=store or _store(request.config)
            )
            # Each is stopped, whatever becomes of the others.
            stack.callback(server.stop)
            return server.start()

        yield start


def _server(config: pytest.Config, settings: dict[str, object]) -> "PocketMQ":
    namesrv = _option(config, "nameserver")
    if namesrv:
        from pocketmq.testing.external import External

        if settings:
            pytest.skip(
                "a server that is running already takes no settings: leave out "
                "--pocketmq-nameserver"
            )
        return External(namesrv)
    from pocketmq.remoting.errors import IllegalArgument
    from pocketmq.remoting.lazy_names import without_extra

    try:
        from pocketmq.testing.in_process import InProcess
    except ModuleNotFoundError as missing:
        what = "the broker of the fixture"
        raise pytest.UsageError(str(without_extra(what, missing, "test"))) from missing
    try:
        return InProcess({**_settings(config), **settings}, store=_store(config))
    except IllegalArgument as error:
        why = str(error)
    # Not inside: pytest would print the same words a second time, as the cause.
    pytest.fail(f"the broker of the fixture cannot be made: {why}", pytrace=False)


def _name_clients_left(server: "PocketMQ") -> None:
    """Warn of clients that the test has not closed: their threads and connections outlive it."""
    from pocketmq.testing.failures import clients_left

    if left := clients_left(server.namesrv):
        warnings.warn(
            f"{', '.join(left)} of this test still run{'s' if len(left) == 1 else ''}: use `with`, or call "
            "shutdown(), before the test ends",
            pytest.PytestWarning,
            stacklevel=1,
        )


def _settings(config: pytest.Config) -> dict[str, object]:
    """Return pocketmq_config of pytest.ini."""
    found: dict[str, object] = {}
    for line in config.getini("pocketmq_config"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"pocketmq_config: {line!r} is not in the form key=value")
        found[name.strip()] = value.strip()
    return found


def _store(config: pytest.Config) -> str:
    return _option(config, "store")


def _option(config: pytest.Config, name: str) -> str:
    """Look up an option: command line, environment, pytest.ini, in this order."""
    found = (
        config.getoption(f"--pocketmq-{name}")
        or os.environ.get(f"POCKETMQ_{name.upper()}")
        or config.getini(f"pocketmq_{name}")
    )
    return str(found)
