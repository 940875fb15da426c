"""Celery's result backend: results for any process, expiry, forgetting, groups, chords that count."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.app.task import Context
from celery.exceptions import ChordError
from celery.exceptions import TimeoutError as CeleryTimeout
from celery.result import ResultSet

import pocketmq.integrations.celery
from pocketmq.testing import InProcess
from tests.integrations.conftest import StartWorker
from tests.kit.waiting import until

PATIENCE = 60


@pytest.fixture
def app(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> Celery:
    url = f"pocketmq://{server.namesrv}"
    monkeypatch.setenv("CELERY_BACKEND", url)
    return Celery("celery_app", broker=url, backend=url, set_as_current=False)


def task(app: Celery, name: str, *args: Any) -> Any:
    return app.signature(f"celery_app.{name}", args)


def test_results_reach_any_process_and_chords_count(
    server: InProcess, app: Celery, start_worker: StartWorker, tmp_path: Path
) -> None:
    """One worker of one process, in which a task that waits for another waits for ever.

    A program that did not send the task waits for its result.
    """
    start_worker(f"pocketmq://{server.namesrv}", "-c", "1")
    first = task(app, "add", 1, 2).delay()
    asks = "import sys; from celery_app import app; print(app.AsyncResult(sys.argv[1]).get(timeout=60))"
    done = subprocess.run(
        [sys.executable, "-c", asks, first.id],
        env={
            **os.environ,
            "CELERY_BROKER": f"pocketmq://{server.namesrv}",
            "PYTHONPATH": str(Path(__file__).parent),
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3\n", done.stderr
    assert first.get(timeout=PATIENCE) == 3
    parts = [task(app, "add", number, 1) for number in range(40)]
    assert group(parts, app=app).delay().get(timeout=PATIENCE) == list(range(1, 41))
    assert chord(parts, app=app)(task(app, "total")).get(timeout=PATIENCE) == sum(range(1, 41))
    # One part ends in a group, whose tasks count one by one.
    one = task(app, "add", 1, 1).set(immutable=True)
    assert chain(one, group(one, chain(one, group(one, one))), one)().get(timeout=PATIENCE) == 2
    failing = chord([*parts[:3], task(app, "fails")], app=app)(task(app, "total"))
    error = failing.get(timeout=PATIENCE, propagate=False)
    assert isinstance(error, ChordError)
    assert "no luck" in str(error)
    parts_of = failing.parent.results
    assert f"Dependency {parts_of[-1].id} raised" in str(error)
    grows = chord([task(app, "adds", [1, 2])], app=app)(task(app, "total"))
    assert grows.get(timeout=PATIENCE) == 1 + 2 + 20
    topics = server.call(server.aio.admin.topics.names())
    assert not [each for each in topics if "chord" in each], "chords need no topics"


def test_a_result_is_forgotten_expires_and_is_not_overwritten(app: Celery) -> None:
    backend = app.backend
    backend.store_result("one", {"a": 1}, "SUCCESS")
    assert backend.get_result("one") == {"a": 1}
    backend.store_result("one", "late", "FAILURE")
    assert app.AsyncResult("one").state == "SUCCESS"
    app.AsyncResult("one").forget()
    assert app.AsyncResult("one").state == "PENDING"
    backend.store_result("two", 2, "SUCCESS")
    backend.expires = 0.001
    until(lambda: backend.get_task_meta("two", cache=False)["status"] == "PENDING", "it expires")
    backend.expires = 60
    assert backend.mget(["celery-task-meta-nothing", "celery-task-meta-two"])[0] is None
    assert backend.get_task_meta("two", cache=False)["result"] == 2


def test_a_wait_of_no_time_looks_once(app: Celery) -> None:
    """Its interval is so long that one pause of it would be seen."""
    began = time.monotonic()
    with pytest.raises(CeleryTimeout):
        ResultSet([app.AsyncResult("never")], app=app).join_native(timeout=0, interval=600)
    assert time.monotonic() - began < 600


def test_the_url_is_known_once_the_module_is_imported() -> None:
    assert isinstance(
        Celery(backend="pocketmq://localhost", set_as_current=False).backend,
        pocketmq.integrations.celery.ResultBackend,
    )


def test_a_part_of_a_chord_that_runs_again_counts_once(
    server: InProcess, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three parts are done, one of them twice: the chord waits for the third, and ends then."""
    backend = app.backend
    parts = [app.AsyncResult(f"part-{number}") for number in range(3)]
    header = app.GroupResult("again", parts)
    header.save()
    body = task(app, "total").set(queue="after_again")
    backend.apply_chord((header.id, header.results), body)
    backend.set_chord_size(header.id, 3)
    counted: list[int] = []
    incr = backend.incr

    def noted(key: str) -> int:
        counted.append(incr(key))
        return counted[-1]

    monkeypatch.setattr(backend, "incr", noted)
    for part in ("part-0", "part-1", "part-0", "part-2", "part-1"):
        backend.store_result(part, 7, "SUCCESS")
        request = Context(id=part, group=header.id, chord={**body})
        backend.on_chord_part_return(request, "SUCCESS", 7)
        assert counted == ([3] if "part-2" in request.id or counted else [])
    assert len(server.messages("after_again")) == 1
