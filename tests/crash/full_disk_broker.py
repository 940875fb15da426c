"""A broker on the file system it is given, until that is full; then room is made. Prints what it did as JSON.

    python -m tests.crash.full_disk_broker FOLDER

Delays and timers become due all the while.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.broker.serving import Peer, serving
from tests.faults.test_disk_faults import Work, settings
from tests.kit.waiting import until_async

# Nothing is deleted to make room.
KEPT = {
    "delete_when": "",
    "disk_max_used_space_ratio": 99,
    "disk_space_clean_forcibly_ratio": 1.0,
    "disk_space_warning_level_ratio": 1.0,
}


async def main(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    how = settings()
    how["store"].update(KEPT)
    async with serving(folder / "store", **how) as broker, await Peer.at(broker) as peer:
        broker.parts.messages.store.side_tasks.retry_ms = 20
        work = Work(peer)
        await work.send("Topic", DELAY="1")
        refused = 0
        while refused < 40:
            await work.send("Topic", TIMER_DELAY_MS="1")
            await work.send("Topic", DELAY="1")
            refused += not await work.send("Topic", size=20_000)
            work.number += 1
        first = len(work.sure)
        served = first - len(
            {body for topic, body in await work.missing(peer) if len(body) > 1_000}
        )
        ballast.unlink()
        await until_async(lambda: work.send("Topic"), what="messages are taken again")

        async def all_there() -> bool:
            return not await work.missing(peer)

        await until_async(all_there, what="delays and timers come, too")
        second = len(work.sure)
    async with serving(folder / "store", **how) as broker, await Peer.at(broker) as peer:
        lost = len(await work.missing(peer))
    sys.stdout.write(json.dumps([first, served, second, lost]))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
