"""Messages for later: by one of the 18 delay levels, at any time, and one that is taken back.

python examples/delays.py
"""

import asyncio
import os
import time

from pocketmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

consumer = PushConsumer("reminded", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
reminders: asyncio.Queue[str] = asyncio.Queue()


@consumer.on("Reminders")
async def remind(message: MessageExt) -> None:
    await reminders.put(message.body.decode())


async def main() -> None:
    async with Producer("calendar") as producer:
        await producer.send(Message("Reminders", b"after a second"), delay_level=1)
        now_ms = int(time.time() * 1000)
        await producer.send(Message("Reminders", b"after two"), deliver_at_ms=now_ms + 2_000)
        meeting = Message("Reminders", b"tomorrow")
        sent = await producer.send(meeting, deliver_at_ms=now_ms + 24 * 3_600_000)
        if sent.recall_handle:
            await producer.recall("Reminders", sent.recall_handle)
            print("recalled: tomorrow")
    async with consumer:
        for _ in range(2):
            print("reminder", await reminders.get())


if __name__ == "__main__":
    asyncio.run(main())
