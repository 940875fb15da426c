"""Producer and consumers of one group, as a process on a host of its own.

    python -m tests.faults.client_program NAMESRV TOPIC GROUP CONSUMERS

It prints a line for each event: `sends N`, `acked N`, `got N`, `failed`; at the beginning and, after two
lines on its standard input, at the end `tasks N` and `threads N`.
"""

import asyncio
import sys
import threading
from contextlib import AsyncExitStack

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.remoting.errors import PocketMQError

_PAUSE_S = 0.02


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
    for message in messages:
        say(f"got {message.body.decode()}")
    return ConsumeResult.SUCCESS


async def produce(producer: Producer, topic: str) -> None:
    number = 0
    while True:
        say(f"sends {number}")
        try:
            await producer.send(Message(topic, b"%d" % number))
        except PocketMQError as error:
            say(f"failed {type(error).__name__}")
        else:
            say(f"acked {number}")
        number += 1
        await asyncio.sleep(_PAUSE_S)


async def main(name_server: str, topic: str, group: str, consumers: int) -> None:
    def say_tasks() -> None:
        say(f"tasks {len(asyncio.all_tasks())}")
        say(f"threads {threading.active_count()}")

    say_tasks()
    async with (
        Producer(f"{group}_p", name_server=name_server) as producer,
        AsyncExitStack() as stack,
    ):
        await producer.send(Message(topic, b"first"))
        for number in range(consumers):
            member = PushConsumer(
                group,
                listener=on_messages,
                name_server=name_server,
                instance_name=f"member{number}",
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            )
            member.subscribe(topic)
            await stack.enter_async_context(member)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(produce(producer, topic))
            say("started")
            await asyncio.to_thread(sys.stdin.readline)
            sending.cancel()
        say("stopped sending")
        await asyncio.to_thread(sys.stdin.readline)
    say_tasks()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
