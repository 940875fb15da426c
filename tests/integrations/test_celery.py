"""Celery's workers on the transport: pools, ETAs, late acknowledgements, remote control, restarts."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from pocketmq.testing import InProcess, ServerProcess
from tests.integrations.conftest import StartWorker
from tests.kit.waiting import until

PATIENCE = 60


@pytest.fixture
def app(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> Any:
    return client(f"pocketmq://{server.namesrv}", monkeypatch)


def client(broker: str, monkeypatch: pytest.MonkeyPatch) -> Celery:
    """Return the app as another program has it that only knows the tasks' names."""
    made = Celery("celery_app", broker=broker, backend="rpc://", set_as_current=False)
    monkeypatch.setenv("CELERY_BROKER", broker)
    return made


def send(app: Celery, name: str, *args: Any, **options: Any) -> Any:
    return app.send_task(f"celery_app.{name}", args, **options)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_runs_tasks_retries_and_remote_control(
    server: InProcess, app: Celery, start_worker: StartWorker, pool: str
) -> None:
    """The first task waits in the broker from before there is a worker."""
    first = send(app, "add", 1, 2)
    worker = start_worker(f"pocketmq://{server.namesrv}", "-P", pool, "-c", "2")
    assert first.get(timeout=PATIENCE) == 3
    many = [send(app, "add", number, number) for number in range(40)]
    assert [each.get(timeout=PATIENCE) for each in many] == [2 * each for each in range(40)]
    assert send(app, "third_time").get(timeout=PATIENCE) == 2
    assert send(app, "refused_once").get(timeout=PATIENCE) is True
    if pool == "prefork":
        own, parent = send(app, "process").get(timeout=PATIENCE)
        assert parent == worker.pid != own
        assert app.AsyncResult(send(app, "child_of_child").get(timeout=PATIENCE)).id
    control = app.control
    assert control.ping(timeout=PATIENCE, limit=1) == [{"w1@host.test": {"ok": "pong"}}]
    [stats] = control.broadcast("stats", reply=True, limit=1, timeout=PATIENCE)
    assert stats["w1@host.test"]["broker"]["transport"] == "pocketmq"
    control.shutdown()
    assert worker.wait(PATIENCE) == 0


def test_an_eta_waits_in_the_broker_and_no_worker_holds_it(
    server: InProcess, app: Celery, start_worker: StartWorker
) -> None:
    """A task of tomorrow is in the broker's timers, until it is revoked; the worker has no reservation."""
    start_worker(f"pocketmq://{server.namesrv}", "-P", "threads", "-c", "1")
    asked = time.time()
    soon, far = send(app, "now", countdown=2), send(app, "now", countdown=86_400)
    assert soon.get(timeout=PATIENCE) - asked >= 2
    kept = send(app, "now", countdown=90_000)

    def waiting() -> list[str]:
        found = server.call(server.aio.admin.delays.list("celery"))
        return [each.keys for broker in found for each in broker.messages or ()]

    assert waiting() == [far.id, kept.id]
    [held] = app.control.broadcast("scheduled", reply=True, limit=1, timeout=PATIENCE)
    assert held == {"w1@host.test": []}
    far.revoke()
    until(lambda: waiting() == [kept.id], "the revoked task waits no more")


def test_only_tasks_of_a_killed_worker_run_again(
    server: InProcess,
    app: Celery,
    start_worker: StartWorker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Receipts are renewed while a task runs, here for three times as long as the invisible time."""
    monkeypatch.setenv("INVISIBLE_TIME", "1")
    broker = f"pocketmq://{server.namesrv}"
    dying = start_worker(broker, "-P", "threads", "-c", "1")
    lost = send(app, "once_killed", str(tmp_path))
    until((tmp_path / "begun").exists, "the task has begun")
    os.killpg(dying.pid, signal.SIGKILL)
    dying.wait()
    start_worker(broker, "-P", "threads", "-c", "1")
    assert lost.get(timeout=PATIENCE) is True
    long = send(app, "held", str(tmp_path))
    until((tmp_path / "calls").exists, "the long task has begun")
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 3, "three times the invisible time has passed")
    (tmp_path / "go").touch()
    assert long.get(timeout=PATIENCE) == 1


def test_a_broker_that_restarts_loses_no_task(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with ServerProcess(store=str(tmp_path / "store")) as server:
        broker = f"pocketmq://{server.namesrv}"
        app = client(broker, monkeypatch)
        worker = start_worker(broker, "-P", "threads", "-c", "1")
        assert send(app, "add", 1, 1).get(timeout=PATIENCE) == 2
        server.kill()
        server.start()
        results = [send(app, "add", number, 1, retry=True) for number in range(10)]
        assert [each.get(timeout=PATIENCE) for each in results] == list(range(1, 11))
        assert worker.poll() is None


def test_a_task_comes_from_any_client_of_rocketmq(
    server: InProcess, app: Celery, start_worker: StartWorker, tmp_path: Path
) -> None:
    """Its properties are the headers; it runs, and is acknowledged."""
    broker = f"pocketmq://{server.namesrv}"
    start_worker(broker, "-P", "threads", "-c", "1")
    assert send(app, "add", 1, 1).get(timeout=PATIENCE) == 2
    (tmp_path / "go").touch()
    server.send(
        "celery",
        json.dumps([[str(tmp_path)], {}, {}]),
        properties={"task": "celery_app.held", "id": "java-1", "content-type": "application/json"},
    )
    until(lambda: (tmp_path / "calls").read_text() == "x", "it ran", ignoring=OSError)
