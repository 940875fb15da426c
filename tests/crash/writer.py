"""A process that appends until it is killed; every line it prints is an acknowledged message.

    python -m tests.crash.writer STORE SEED FIRST_NUMBER

Line: topic queue_id queue_offset number. The body says the number and is as long as the number tells.
"""

import asyncio
import random
import sys
from pathlib import Path

from pocketmq.model.record import encode_batch
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore
from tests.crash.recorded_store import HOST, config

# Small enough that every round fills several files of each kind.
SIZES = {
    "mapped_file_size_commit_log": 512 << 10,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 256,
    "max_index_num": 1024,
}


def body_of(number: int) -> bytes:
    """Up to some KiB, different for every number."""
    return random.Random(number).randbytes(number * 7919 % 3001) + b"%d" % number


async def write(root: str, seed: int, number: int) -> None:
    chance = random.Random(seed)
    settings = config(
        Path(root),
        **SIZES,
        flush_interval_commit_log=3,
        flush_interval_consume_queue=20,
        flush_consume_queue_thorough_interval=20,
    )
    async with MessageStore(settings, clock=SystemClock(), store_host=HOST) as store:
        while True:
            lines = []
            for _ in range(chance.randrange(1, 8)):
                topic, queue_id = chance.choice([("A", 0), ("A", 1), ("B", 0)])
                properties = b"KEYS\x01key%d\x02" % number
                if number % 11 == 3:
                    bodies = [body_of(number + at) for at in range(5)]
                    batch = encode_batch([(0, body, properties) for body in bodies])
                    stored = store.append_batch(topic, queue_id, batch, b"", 0, 1, HOST)
                    first, count = stored.queue_offset, 5
                else:
                    appended = store.append(
                        topic, queue_id, body_of(number), properties, 0, 0, 1, HOST
                    )
                    first, count = appended.queue_offset, 1
                lines += [f"{topic} {queue_id} {first + at} {number + at}\n" for at in range(count)]
                number += count
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
