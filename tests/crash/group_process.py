"""A producer, or a member of a consumer group, as a process that a test kills.

    python -m tests.crash.group_process producer NAMESRV TOPIC GROUP
    python -m tests.crash.group_process concurrent|orderly NAMESRV TOPIC GROUP INSTANCE

A producer prints `acked BODY` behind each acknowledged send. A member prints, when it is done with a message
and before it says so to anybody,

    done QUEUE OFFSET TIMES BODY NS
    failed QUEUE OFFSET TIMES BODY NS    a message that it wants again (each 17th, the first time)

TIMES: how often it was consumed before; NS: monotonic time, the same for all processes.

Each line is one write, so kill -9 leaves no half of one.
"""

import asyncio
import os
import random
import sys
import time

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

_FAILS_EACH = 17
# Messages of a queue are in work side by side, and end in any order; or they come one after the other.
_WORK_S_MAX = {"concurrent": 0.4, "orderly": 0.02}
_SEND_PAUSE_S = 0.01


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


async def consume(messages: list[MessageExt], work_s_max: float) -> bool:
    """Work on messages. Returns: whether they are done."""
    [message] = messages
    await asyncio.sleep(random.random() * work_s_max)
    fails = int(message.body) % _FAILS_EACH == 0 and message.reconsume_times == 0
    say(
        f"{'failed' if fails else 'done'} {message.queue_id} {message.queue_offset} "
        f"{message.reconsume_times} {message.body.decode()} {time.monotonic_ns()}"
    )
    return not fails


async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
    """An orderly consumer takes RECONSUME_LATER for: again, and before any other of the queue."""
    done = await consume(messages, _WORK_S_MAX[sys.argv[1]])
    return ConsumeResult.SUCCESS if done else ConsumeResult.RECONSUME_LATER


async def produce(name_server: str, topic: str, group: str) -> None:
    async with Producer(f"{group}_p", name_server=name_server) as producer:
        number = 0
        while True:
            number += 1
            await producer.send(Message(topic, b"%d" % number))
            say(f"acked {number}")
            await asyncio.sleep(_SEND_PAUSE_S)


async def join(kind: str, name_server: str, topic: str, group: str, instance: str) -> None:
    member = PushConsumer(
        group,
        listener=on_messages,
        orderly=kind == "orderly",
        name_server=name_server,
        instance_name=instance,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        suspend_ms=50,
        # Many commits, so that many of them are under way when a member is killed.
        persist_offset_interval_ms=200,
    )
    member.subscribe(topic)
    async with member:
        say("started")
        await asyncio.Event().wait()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    asyncio.run(produce(*words) if what == "producer" else join(what, *words))
