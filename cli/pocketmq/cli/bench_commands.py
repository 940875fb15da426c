"""`pocketmq bench`: how fast this site takes messages and gives them, with PocketMQ's own client.

For a comparison with Apache RocketMQ under its own load generator see benchmarks/ in the repository.
"""

import asyncio
import time
from typing import Annotated, Any

import typer

from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_fields
from pocketmq.cli.site import answered, client_options
from pocketmq.remoting.names import BENCHMARK_TOPIC

app = typer.Typer(help="Measure this site with PocketMQ's own client.", no_args_is_help=True)

Topic = Annotated[str, typer.Option(help="Topic to use; it is created when missing.")]


@app.command()
def produce(
    namesrv: NameServer,
    topic: Topic = BENCHMARK_TOPIC,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Messages.")] = 10_000,
    size: Annotated[int, typer.Option(min=1, help="Bytes of each body.")] = 128,
    in_flight: Annotated[int, typer.Option(min=1, help="Sends at the same time.")] = 64,
    as_json: Json = False,
) -> None:
    """Send messages, each acknowledged, and say how long it took."""

    async def work() -> dict[str, Any]:
        from pocketmq.client import Message, Producer

        body = b"x" * size
        took: list[float] = []
        left = count
        async with Producer("pocketmq-bench", **client_options(namesrv)) as producer:
            await producer.send(Message(topic, body))

            async def sender() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    begin = time.perf_counter()
                    await producer.send(Message(topic, body))
                    took.append(time.perf_counter() - begin)

            begin = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(in_flight, count)):
                    tasks.create_task(sender())
            seconds = time.perf_counter() - begin
        took.sort()
        return {
            "messages": count,
            "seconds": round(seconds, 3),
            "messages_per_s": round(count / seconds),
            "p50_ms": round(took[len(took) // 2] * 1000, 3),
            "p99_ms": round(took[len(took) * 99 // 100] * 1000, 3),
        }

    print_fields(answered(lambda: asyncio.run(work())), as_json=as_json)


@app.command()
def consume(
    namesrv: NameServer,
    topic: Topic = BENCHMARK_TOPIC,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Messages at most.")] = 10_000,
    as_json: Json = False,
) -> None:
    """Read what a topic holds, from its beginning, and say how long it took; nothing is committed."""

    async def work() -> dict[str, Any]:
        from pocketmq.admin import Admin

        got = 0
        async with Admin(**client_options(namesrv)) as admin:
            begin = time.perf_counter()
            async for _ in admin.messages.between(topic):
                got += 1
                if got == count:
                    break
            seconds = time.perf_counter() - begin
        return {
            "messages": got,
            "seconds": round(seconds, 3),
            "messages_per_s": round(got / seconds) if seconds else 0,
        }

    print_fields(answered(lambda: asyncio.run(work())), as_json=as_json)
