"""Periodic tasks of Celery that the broker sends: the page's example, with a worker and without a beat."""

import os
import subprocess
import sys
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab, schedule

import pocketmq.integrations.celery  # noqa: F401 - makes `pocketmq://` known
from pocketmq.integrations.celery_beat import Scheduler, cron_of
from pocketmq.testing import InProcess
from tests.house.doc_blocks import NAME_SERVER, ROOT, blocks
from tests.kit.waiting import until

PAGE = ROOT / "docs" / "celery.md"


class AtSunset(schedule):
    """A schedule that the broker does not know."""


def kept(server: InProcess) -> dict[str, Any]:
    found = server.call(server.aio.admin.schedules.list(owner="celery tasks"))
    return {each.name: each for each in found}


def test_a_worker_has_the_broker_send_what_beat_would(server: InProcess, tmp_path: Path) -> None:
    """A beat beside it changes nothing; what is no more in the table is deleted."""
    first, *_ = blocks(PAGE, "python")
    [table] = [
        each for each in blocks(PAGE, "python") if "celery_schedules" in each.words["run by"]
    ]
    for name, block in (("tasks", first), ("schedules", table)):
        (tmp_path / f"{name}.py").write_text(block.text.replace(NAME_SERVER, server.namesrv))
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                "schedules",
                "worker",
                "-P",
                "threads",
                "-c",
                "1",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: len(kept(server)) == 2 or worker.poll() is not None, "they are written")
            assert worker.poll() is None, (tmp_path / "log").read_text()
            before = kept(server)
            assert (before["celery.tasks.nightly"].schedule.time_zone) == "Europe/Berlin"
            url = f"pocketmq://{server.namesrv}"
            app = Celery("tasks", broker=url, backend=url, set_as_current=False)
            app.conf.update(
                timezone="Europe/Berlin",
                beat_schedule={
                    "nightly": {
                        "task": "tasks.add",
                        "schedule": crontab(hour=3, minute=0),
                        "args": (1, 2),
                    },
                    "sunset": {"task": "tasks.add", "schedule": AtSunset(60)},
                    "eta": {"task": "tasks.add", "schedule": 60, "options": {"eta": 1}},
                },
            )
            assert Scheduler(app).tick() == 300
            after = kept(server)
            assert after == {"celery.tasks.nightly": before["celery.tasks.nightly"]}
            server.clock.advance(days=1)
            [sent] = server.messages("celery")
            task_id = str(uuid.uuid5(uuid.NAMESPACE_OID, sent.msg_id))
            assert app.AsyncResult(task_id).get(timeout=60) == 3
        finally:
            worker.terminate()
            worker.wait()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "* * * * *"),
        ({"minute": 0, "hour": "*/3"}, "0 */3 * * *"),
        ({"minute": "0,30", "day_of_week": "sat,sun"}, "0,30 * * * 0,6"),
        (
            {"minute": 5, "hour": 3, "day_of_month": "2-8/3", "month_of_year": "jan-mar"},
            "5 3 2,5,8 1,2,3 *",
        ),
    ],
)
def test_a_crontab_becomes_an_expression(given: dict[str, Any], expected: str) -> None:
    assert cron_of(crontab(**given)) == expected


def test_the_task_of_an_entry_that_expires_says_when(server: InProcess) -> None:
    url = f"pocketmq://{server.namesrv}"
    app = Celery("expiring", broker=url, backend="rpc://", set_as_current=False)
    entry = {"task": "t", "schedule": timedelta(hours=1), "options": {"queue": "e", "expires": 60}}
    app.conf.beat_schedule = {"one": entry}
    Scheduler(app)
    server.clock.advance(hours=1)
    [sent] = server.messages("e")
    with app.connection_for_read() as connection:
        [received] = [connection.SimpleQueue("e").get(timeout=60)]
        received.ack()
    expires = received.headers["expires"]
    assert received.headers["id"] == received.properties["correlation_id"]
    assert received.headers["celery_beat_task"] is True
    at_ms = int(datetime.fromisoformat(expires).timestamp() * 1000)
    assert at_ms == int(sent.properties["SCHEDULE_TIME"]) + 60_000
