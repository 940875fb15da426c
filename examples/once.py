"""Each order is entered once, though messages may be delivered again: order and mark are one transaction.

python examples/once.py
"""

import asyncio
import os
import sqlite3

from pocketmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE orders (number TEXT)")
entered = asyncio.Event()

consumer = PushConsumer("entry_readers", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
inbox = consumer.once(database)


@consumer.on("once_orders")
async def enter(message: MessageExt) -> None:
    with inbox.once(message) as is_new:
        if is_new:
            database.execute("INSERT INTO orders VALUES (?)", (message.body.decode(),))
    print("entered" if is_new else "it was there:", message.body.decode())
    entered.set()


async def main() -> None:
    async with Producer("entry_writers") as producer:
        await producer.send(Message("once_orders", b"order 1"))
    async with consumer:
        await entered.wait()


if __name__ == "__main__":
    asyncio.run(main())
