"""Messages of one order in their order: the same sharding key leads to the same queue, read one by one.

python examples/order.py
"""

import asyncio
import os

from pocketmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

STEPS = ("created", "paid", "shipped")
consumer = PushConsumer(
    "order_steps", orderly=True, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
)
seen: asyncio.Queue[str] = asyncio.Queue()


@consumer.on("OrderSteps")
async def follow(message: MessageExt) -> None:
    """If it raises, the same message comes again before any other of its queue."""
    await seen.put(f"{message.keys} {message.body.decode()}")


async def main() -> None:
    async with Producer("shop") as producer:
        for step in STEPS:
            for order in ("order-7", "order-8"):
                message = Message("OrderSteps", step.encode(), keys=order)
                await producer.send(message, sharding_key=order)
    async with consumer:
        for _ in range(2 * len(STEPS)):
            print(await seen.get())


if __name__ == "__main__":
    asyncio.run(main())
