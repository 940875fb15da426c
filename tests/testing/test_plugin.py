"""The pytest plug-in, used as a user uses it: in a test file of its own, run by a pytest of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator

# Loaded before pytester's first test: it forgets the modules that a test has loaded, and numpy, which the
# broker loads with its first message, cannot be loaded twice in one process.
import numpy as np  # noqa: F401
import pytest

from pocketmq.testing import InProcess

pytest_plugins = ["pytester"]


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of a user that has installed PocketMQ."""
    for name in [name for name in os.environ if name.startswith("POCKETMQ_")]:
        monkeypatch.delenv(name)
    return pytester


def run(user: pytest.Pytester, *words: str, without: str = "asyncio") -> pytest.RunResult:
    """pytest as a user runs it; `without` is a plug-in of ours that most users do not have.

    In a process of its own: inside this one pytester would forget what the user's tests import, and
    the tests after it would meet two of each module.
    """
    words = ("-p", "no:cacheprovider", "-p", f"no:{without}", "-W", "error", *words)
    return user.runpytest_subprocess(*words)


def test_the_fixture_is_there_without_any_set_up(user: pytest.Pytester) -> None:
    """In tests in one line."""
    user.makepyfile(
        """
        from pocketmq.client import Message, sync

        def test_sends(pocketmq):
            with sync.Producer("p", name_server=pocketmq.namesrv) as producer:
                producer.send(Message("T", b"hello", tags="a"))
            [message] = pocketmq.messages("T")
            assert message.body == b"hello"

        def test_has_a_broker_of_its_own(pocketmq):
            assert "T" not in pocketmq.admin.topics.names()

        def test_two_hours_take_no_time(pocketmq):
            pocketmq.send("T", "later", delay_level=18)
            assert pocketmq.messages("T") == []
            pocketmq.clock.advance(hours=2)
            assert len(pocketmq.messages("T")) == 1

        def test_session_1(pocketmq_session):
            pocketmq_session.send("S", "x")

        def test_session_2(pocketmq_session):
            assert len(pocketmq_session.messages("S")) == 1
        """
    )
    run(user).assert_outcomes(passed=5)


def test_it_works_with_pytest_asyncio(user: pytest.Pytester) -> None:
    user.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    user.makepyfile(
        """
        from pocketmq.client import Message, Producer, PushConsumer, ConsumeFromWhere

        async def test_consumes(pocketmq):
            got = []
            async def listen(messages, context):
                got.extend(each.body for each in messages)
            await pocketmq.aio.create_topic("T")
            consumer = PushConsumer("g", listener=listen, name_server=pocketmq.namesrv,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
            consumer.subscribe("T")
            async with consumer, Producer("p", name_server=pocketmq.namesrv) as producer:
                await producer.send(Message("T", b"hello"))
                await pocketmq.aio.wait_until_consumed("g", "T")
            assert got == [b"hello"]
        """
    )
    run(user, without="xdist").assert_outcomes(passed=1)


def test_settings_come_from_the_marker_and_the_ini_file(user: pytest.Pytester) -> None:
    user.makeini(
        "[pytest]\npocketmq_store = temporary\n"
        "pocketmq_config =\n    brokerName=mine\n    regionId=north\n"
    )
    user.makepyfile(
        """
        import tempfile
        import pytest

        pytestmark = pytest.mark.pocketmq(regionId="south", brokerPermission=4)

        def test_ini_and_module(pocketmq):
            running = pocketmq.running.config
            assert (running.broker_name, running.region_id) == ("mine", "south")
            assert running.broker_permission == 4
            assert pocketmq.store.startswith(tempfile.gettempdir())

        @pytest.mark.pocketmq(brokerPermission=6)
        def test_the_nearest_marker_wins(pocketmq):
            assert pocketmq.running.config.broker_permission == 6
            assert pocketmq.running.config.region_id == "south"
        """
    )
    run(user, "--strict-markers").assert_outcomes(passed=2)


@pytest.fixture(scope="module")
def running() -> Iterator[InProcess]:
    """A server that runs already, as far as the user's tests can see."""
    with InProcess() as server:
        yield server


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_server_that_runs_already_can_be_used(
    user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, running: InProcess, way: str
) -> None:
    """By option, environment or ini file, the first of them wins; and its time is its own."""
    words = []
    user.makeini("[pytest]\npocketmq_nameserver = 127.0.0.1:1\n")
    monkeypatch.setenv("POCKETMQ_NAMESERVER", running.namesrv if way == "environment" else "x:1")
    if way == "option":
        words = [f"--pocketmq-nameserver={running.namesrv}"]
    user.makepyfile(
        f"""
        import pytest

        def test_outside(pocketmq, pocketmq_session):
            assert pocketmq.broker == {running.broker!r}
            pocketmq.send({way!r}, "from outside")
            assert len(pocketmq_session.messages({way!r})) == 1
            with pytest.raises(TypeError, match="cannot be advanced"):
                pocketmq.clock

        @pytest.mark.pocketmq(brokerName="x")
        def test_with_settings_is_skipped(pocketmq):
            assert False
        """
    )
    run(user, *words).assert_outcomes(passed=1, skipped=1)
    assert [each.body for each in running.messages(way)] == [b"from outside"]


def test_a_process_is_started_killed_and_gone(user: pytest.Pytester) -> None:
    """pocketmq_proc: for programs in any language, which read NAMESRV_ADDR."""
    user.makepyfile(
        """
        import os
        import subprocess
        import sys

        import pytest

        pids = []

        def test_process(pocketmq_proc):
            server = pocketmq_proc(brokerName="other")
            pids.append(server.pid)
            program = ('import os; from pocketmq.client import sync, Message\\n'
                       'with sync.Producer("p") as p: p.send(Message("T", b"x"))')
            subprocess.run([sys.executable, "-c", program], check=True,
                env={**os.environ, **server.environment})
            before = server.namesrv, server.broker
            server.kill()
            server.start()
            pids.append(server.pid)
            assert (server.namesrv, server.broker) == before
            [message] = server.messages("T")
            assert message.broker_name == "other"

        def test_is_gone():
            assert len(set(pids)) == 2
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

        def test_a_bad_setting_is_told(pocketmq_proc):
            with pytest.raises(RuntimeError, match="brokerPermission"):
                pocketmq_proc(brokerPermission=9)
        """
    )
    run(user).assert_outcomes(passed=3)


def test_a_run_that_does_not_use_it_imports_nothing_of_it(user: pytest.Pytester) -> None:
    """The plug-in costs other test runs nothing: two modules of ours, none of anybody else."""
    user.makepyfile(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.partition(".")[0] == "pocketmq"}
            names = {"pocketmq.remoting", "pocketmq.remoting.lazy_names"}
            assert ours - names == {"pocketmq", "pocketmq.testing", "pocketmq.testing.plugin"}
            assert not {"numpy", "mmh3", "msgpack", "orjson", "uvloop"} & set(sys.modules)
            # From here on as with the client alone.
            sys.modules["numpy"] = sys.modules["mmh3"] = None

        def test_without_the_broker(pocketmq):
            pass
        """
    )
    result = run(user)
    result.assert_outcomes(passed=1, errors=1)
    assert 'pip install "FOLDER_OR_WHEEL[test]"' in result.stdout.str()


def test_the_plug_in_imports_nothing_heavy_but_pytest() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import pocketmq.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {
        "pocketmq",
        "pocketmq.remoting",
        "pocketmq.remoting.lazy_names",
        "pocketmq.testing",
        "pocketmq.testing.plugin",
    }


def test_an_unknown_setting_fails_with_the_nearest(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest

        @pytest.mark.pocketmq(autoCreateTopicEnabel=False)
        def test_marker(pocketmq):
            pass

        def test_process(pocketmq_proc):
            with pytest.raises(ValueError, match="did you mean 'flushDiskType'"):
                pocketmq_proc(flushDisktype="SYNC_FLUSH")

        @pytest.mark.pocketmq(sendMessageThreadPoolNums=4)
        def test_a_setting_of_rocketmqs_that_changes_nothing(pocketmq):
            pass
        """
    )
    result = run(user)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*no setting 'autoCreateTopicEnabel' (did you mean 'autoCreateTopicEnable'?)"]
    )


def test_what_fails_in_a_wait_is_told_in_one_trace(user: pytest.Pytester) -> None:
    """A time-out, and a listener that raised: no frame of ours, and the listener's own exception."""
    user.makepyfile(
        """
        from pocketmq.client import sync

        def test_waits(pocketmq):
            assert pocketmq.messages("never-sent") == []
            pocketmq.wait_for_messages("orders", 1, within_s=0.1)

        def listen(messages, context):
            raise ValueError("no stock")

        def consumed(pocketmq, **how):
            pocketmq.create_topic("T")
            consumer = sync.PushConsumer("g", listener=listen, name_server=pocketmq.namesrv)
            consumer.subscribe("T")
            with consumer:
                pocketmq.send("T", "x")
                pocketmq.wait_until_consumed("g", "T", **how)

        def test_raises(pocketmq):
            consumed(pocketmq)

        def test_accepts(pocketmq):
            consumed(pocketmq, accept_failures=True)
        """
    )
    result = run(user)
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str().partition("Captured log call")[0]
    assert "During handling" not in text
    assert "loop_thread" not in text
    assert "TimeoutError: waited 0.1 s for 1 messages of 'orders': 0 came" in text
    assert "ValueError: no stock" in text
    assert (
        "1 message of 'T' failed in group 'g': its listener raised ValueError('no stock')" in text
    )


def test_clients_that_a_test_leaves_running_are_named(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        from pocketmq.client import Message, sync

        def test_leaves_one(pocketmq):
            producer = sync.Producer("shop", name_server=pocketmq.namesrv)
            producer.start()
            producer.send(Message("T", b"x"))

        def test_closes_its_own(pocketmq):
            with sync.Producer("tidy", name_server=pocketmq.namesrv) as producer:
                producer.send(Message("T", b"x"))
        """
    )
    # As most users run it: Python hides a ResourceWarning then.
    result = user.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*PytestWarning: producer 'shop' of this test still runs: *"])
