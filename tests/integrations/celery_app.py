"""The tasks that test workers run. CELERY_BROKER names the broker."""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

import pocketmq.integrations.celery  # noqa: F401 - makes `pocketmq://` known

app = Celery(
    "celery_app",
    broker=os.environ.get("CELERY_BROKER"),
    backend=os.environ.get("CELERY_BACKEND", "rpc://"),
)
app.conf.broker_transport_options = {
    "invisible_time": float(os.environ.get("INVISIBLE_TIME", "60"))
}
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True)
def adds(self: Any, numbers: list[int]) -> int:
    """Add a part to its chord for each number, whose result is 10 more than that is."""
    for number in numbers:
        self.add_to_chord(add.s(number, 10))
    return 0


@app.task
def fails() -> None:
    raise ValueError("no luck")


@app.task
def now() -> float:
    return time.time()


@app.task
def process() -> tuple[int, int]:
    return os.getpid(), os.getppid()


@app.task(bind=True, max_retries=3)
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task(bind=True, acks_late=True)
def once_killed(self: Any, folder: str) -> bool:
    """Wait for ever in the first process, until that is killed."""
    begun = Path(folder) / "begun"
    if not begun.exists():
        begun.write_text(str(os.getpid()))
        time.sleep(3600)
    return bool(self.request.delivery_info["redelivered"])


@app.task(bind=True, acks_late=True)
def refused_once(self: Any) -> bool:
    """Refuse the task the first time; say that it came again."""
    if not self.request.delivery_info["redelivered"]:
        raise Reject("not now", requeue=True)
    return True


@app.task(acks_late=True)
def held(folder: str) -> int:
    """Note the call, and wait until the file `go` exists."""
    with (Path(folder) / "calls").open("a") as calls:
        calls.write("x")
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return len((Path(folder) / "calls").read_text())


@app.task
def child_of_child() -> Any:
    """Publish from the forked child."""
    return add.delay(20, 22).id
