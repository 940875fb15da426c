"""Send three messages and print where the broker stored them.

python examples/first_producer.py
"""

import asyncio
import os

from pocketmq import Message, Producer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    async with Producer("greeters") as producer:
        for name in ("Ann", "Bob", "Cleo"):
            sent = await producer.send(Message("Greetings", f"hello {name}".encode(), tags="hello"))
            print("stored in queue", sent.message_queue.queue_id, "at offset", sent.queue_offset)


if __name__ == "__main__":
    asyncio.run(main())
