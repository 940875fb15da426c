"""Send ten messages, receive them, say so: python docker/sample_client.py

NAMESRV_ADDR names the name server (default 127.0.0.1:9876). Ends with 0 when all ten have come.
"""

import asyncio
import os
import sys
import uuid

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

TOPIC = "SampleTopic"
COUNT = 10
PATIENCE_S = 60


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


async def main() -> None:
    name_server = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    run = uuid.uuid4().hex[:8]
    wanted = {f"message {number} of run {run}".encode() for number in range(COUNT)}
    received: set[bytes] = set()
    all_here = asyncio.Event()

    async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        for message in messages:
            if message.body in wanted and message.body not in received:
                received.add(message.body)
                say(f"received {message.body.decode()!r} from queue {message.queue_id}")
        if received == wanted:
            all_here.set()
        return ConsumeResult.SUCCESS

    async with Producer("sample_producers", name_server=name_server) as producer:
        for body in sorted(wanted):
            result = await producer.send(Message(TOPIC, body, tags="sample"))
            say(f"sent to queue {result.message_queue.queue_id} at offset {result.queue_offset}")
    consumer = PushConsumer(
        "sample_consumers",
        listener=on_messages,
        name_server=name_server,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC, "sample")
    async with consumer, asyncio.timeout(PATIENCE_S):
        await all_here.wait()
    say(f"all {COUNT} messages of run {run} have come")


if __name__ == "__main__":
    asyncio.run(main())
