"""The notebooks of examples/notebooks, executed with a store of our broker, and stored with their pictures.

    python -m tests.spark.jobs.notebooks      writes them anew: after each change of a cell

The broker of the store has a clock that a loop moves, so its two hours take seconds, and the pictures stay
what they are.
"""

import asyncio
import hashlib
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, records, serving

NOTEBOOKS = Path(__file__).parents[3] / "examples" / "notebooks"
STORE = "POCKETMQ_STORE"
#: In a notebook's metadata: of what cells its pictures are.
EXECUTED = "pocketmq_executed"
MINUTES = 120
_START_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
# Its functions have no types.
_formats: Any = nbformat
TOPICS = ("Orders", "Payments")


def notebook_at(path: Path) -> Any:
    """The notebook of a file, once it is a valid one."""
    notebook = _formats.read(path, as_version=4)
    _formats.validate(notebook)
    return notebook


def executed(notebook: Any) -> str:
    """The digest of a notebook's cells."""
    text = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def write_store(folder: Path) -> None:
    """Two hours of two topics with a wave, and three groups: one is behind, one has members that subscribe
    differently, one has sent messages back.
    """
    clock = ManualClock(_START_MS)
    chance = random.Random(2)
    async with (
        serving(folder, clock=clock, broker_name="broker-a") as broker,
        await Peer.at(broker) as producer,
    ):
        for minute in range(MINUTES):
            for topic, most in zip(TOPICS, (16, 8), strict=True):
                wave = 1 + math.sin(minute / 15 + len(topic))
                for number in range(1 + int(most * wave / 2 + chance.random() * 3)):
                    # How long the way to the broker took; now and then the sender waited.
                    took = int(chance.lognormvariate(1.2, 0.6)) + 40 * (chance.random() < 0.02)
                    born = clock.now_ms() - took
                    answer = await producer.produce(
                        topic,
                        b"{}",
                        queue_id=number % 2,
                        more={"g": born},
                        TAGS="AB"[number % 3 > 1],
                    )
                    assert answer.code == 0
            clock.advance_ms(60_000)
        await _consume(broker, producer)


async def _consume(broker: Any, asker: Peer) -> None:
    await _pull(broker, "shipping", "Orders", {"c1": "*"}, parts=0.7)
    await _pull(broker, "invoices", "Payments", {"c1": "*"}, parts=1.0, sent_back=6)
    await _pull(broker, "billing", "Orders", {"c1": "A", "c2": "B"}, parts=0.9)


async def _pull(
    broker: Any,
    group: str,
    topic: str,
    members: dict[str, str],
    *,
    parts: float,
    sent_back: int = 0,
) -> None:
    """Members read a part of each queue. sent_back: to the dead letters, and as many again to retry."""
    peers = {name: await Peer.at(broker) for name in members}
    for number, (name, peer) in enumerate(peers.items(), 1):
        wanted = {topic: members[name], f"%RETRY%{group}": "*"}
        await peer.heartbeat(group, wanted, client_id=name, sub_version=number)
    for queue_id, peer in zip(range(2), [*peers.values()] * 2, strict=False):
        at, end = 0, 1 << 62
        while at < int(end * parts):
            answer = await peer.pull(group, topic, at, queue_id=queue_id)
            assert answer.ext is not None
            at, end = int(answer.ext["nextBeginOffset"]), int(answer.ext["maxOffset"])
            for place, record in enumerate(records(answer) if answer.code == 0 else []):
                if sent_back:
                    sent_back -= 1
                    ext = {
                        "offset": record.position,
                        "group": group,
                        "delayLevel": (-1, 3)[place % 2],
                    }
                    assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0
        ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": at}
        assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0
    for peer in peers.values():
        await peer.close()


def stored(folder: Path) -> Path:
    """A store in a folder that is named as its broker."""
    root = folder / "broker-a" / "store"
    root.mkdir(parents=True)
    asyncio.run(write_store(root))
    return root


def main() -> None:
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as scratch:
        os.environ[STORE] = str(stored(Path(scratch)))
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            notebook = notebook_at(path)
            NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
            for cell in notebook.cells:
                cell.metadata.pop("execution", None)
                if cell.cell_type == "code":
                    # What Spark's Java says on standard error.
                    cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
            notebook.metadata = _formats.from_dict(
                {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                 "language_info": {"name": "python"}, EXECUTED: executed(notebook)}
            )  # fmt: skip
            _formats.write(notebook, path)
            sys.stdout.write(f"{path.name}: {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
