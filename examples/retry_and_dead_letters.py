"""A message fails, comes again, fails for good and becomes a dead letter; an operator's program reads it.

python examples/retry_and_dead_letters.py

By default the pauses are 10 s, 30 s, 1 min ... and the 16th retry is the last.
"""

import asyncio
import os

from pocketmq import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

given_up = asyncio.Event()
buried = asyncio.Event()


async def pack(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
    for message in messages:
        print("attempt", message.reconsume_times + 1, "to pack", message.body.decode())
        if message.reconsume_times == 2:
            given_up.set()
    context.delay_level = 1  # come again in a second
    return ConsumeResult.RECONSUME_LATER


async def bury(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
    for message in messages:
        print("dead letter:", message.body.decode())
    buried.set()
    return ConsumeResult.SUCCESS


async def main() -> None:
    first = ConsumeFromWhere.FIRST_OFFSET
    packers = PushConsumer(
        "packers", listener=pack, max_reconsume_times=2, consume_from_where=first
    )
    packers.subscribe("Parcels")
    operator = PushConsumer("operators", listener=bury, consume_from_where=first)
    operator.subscribe("%DLQ%packers")
    async with Producer("shop") as producer:
        await producer.send(Message("Parcels", b"a parcel without an address"))
    async with packers:
        await given_up.wait()
        async with operator:
            await buried.wait()


if __name__ == "__main__":
    asyncio.run(main())
