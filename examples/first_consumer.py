"""Print each message of a topic, from the first one on; Ctrl-C ends it.

python examples/first_consumer.py

Start it twice: the two share the queues of the topic, as members of one group.
"""

import asyncio
import os

from pocketmq import ConsumeFromWhere, MessageExt, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

consumer = PushConsumer("greeted", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)


@consumer.on("Greetings", "hello")
async def show(message: MessageExt) -> None:
    """An exception here makes the message come again later."""
    print("got", message.body.decode(), "from queue", message.queue_id)


async def main() -> None:
    async with consumer:
        await consumer.run_until_signal()


if __name__ == "__main__":
    asyncio.run(main())
