"""A store with timers, a clock, and what was delivered."""

import subprocess
from pathlib import Path

from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record, read_records
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.timer.log import UNIT_SIZE
from pocketmq.store.timer.properties import (
    due_ms,
)
from pocketmq.store.timer.service import TimerService

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


DAY_MS = 86_400_000


DELAY_MS_MAX = 41 * DAY_MS


START_MS = 1_795_251_000_250


class Timers:
    """A store, its timer service and a clock that a test turns; `crash` keeps what the kernel has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(START_MS)
        self.open()

    def open(self) -> None:
        config = StoreConfig(
            store_path_root_dir=str(self.folder),
            mapped_file_size_commit_log=1 << 22,
        )
        self.store = MessageStore(config, clock=self.clock, store_host=HOST)
        self.store.open()
        self.timer = TimerService(self.store, self.clock, log_file_size=UNIT_SIZE * 11)
        self.timer.load()

    def close(self) -> None:
        self.timer.close()
        self.store.close()

    def crash(self) -> None:
        """What kill -9 leaves: the files as they are, nothing said goodbye."""
        copy = self.folder.with_name(self.folder.name + "x")
        # Unlike shutil it leaves the holes of the timer wheel out.
        subprocess.run(["cp", "-r", str(self.folder), str(copy)], check=True)
        self.close()
        self.folder = copy
        self.open()

    def send(self, topic: str, body: str, **properties: object) -> None:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        out_ms = due_ms(text, self.clock.now_ms(), DELAY_MS_MAX)
        assert out_ms is not None
        text = self.timer.schedule(topic, 0, text, out_ms)
        self.store.append(TIMER_TOPIC, 0, body.encode(), text, 0, 0, self.clock.now_ms(), HOST)

    def work(self) -> None:
        """Until there is nothing to do at this moment."""
        while self.timer.step() == 0:
            pass

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.work()

    def count_all(self) -> None:
        while self.timer.pending.count_some(0):
            pass

    def delivered(self, topic: str) -> list[str]:
        return [bytes(record.body).decode() for record in self.records(topic)]

    def records(self, topic: str) -> list[Record]:
        found: list[Record] = []
        offset = 0
        while True:
            result = self.store.read(topic, 0, offset, 1000)
            if not result.count:
                return found
            found += [record for each in result.buffers for record in read_records(each)]
            offset = result.next_offset
