"""Ask a question by a message and wait for the reply.

pocketmq topic create Sums
python examples/request_reply.py
"""

import asyncio
import os

from pocketmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, reply_to

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

producer = Producer("calculators")
consumer = PushConsumer("adders", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)


@consumer.on("Sums")
async def add(message: MessageExt) -> None:
    total = sum(int(number) for number in message.body.split(b"+"))
    await producer.send(reply_to(message, str(total).encode()))


async def main() -> None:
    async with producer, consumer:
        reply = await producer.request(Message("Sums", b"1+2+3"), timeout_ms=30_000)
        print("1+2+3 =", reply.body.decode())


if __name__ == "__main__":
    asyncio.run(main())
