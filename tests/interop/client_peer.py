"""A member of a consumer group as a process of its own: our push consumer, told by its arguments.

    python -m tests.interop.client_peer NAME_SERVER GROUP TOPIC [--orderly] [--stuck BODY]

Prints a line of JSON for each message: {"body", "queue", "offset"}; `started` when it has joined. SIGTERM
ends it as a service is ended: it drains, commits and unregisters. --stuck: for tests that kill it.
"""

import argparse
import asyncio
import json
import sys

from pocketmq.client import ConsumeContext, ConsumeFromWhere, MessageExt, PushConsumer


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name_server")
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--stuck", help="the listener never ends with this message")
    given = parser.parse_args()

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        for message in messages:
            if message.body.decode() == given.stuck:
                await asyncio.Event().wait()
            said = {
                "body": message.body.decode(),
                "queue": message.queue_id,
                "offset": message.queue_offset,
            }
            sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()

    made = PushConsumer(
        given.group,
        listener=listener,
        orderly=given.orderly,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        name_server=given.name_server,
        persist_offset_interval_ms=200,
    )
    made.subscribe(given.topic)
    async with made:
        sys.stdout.write("started\n")
        sys.stdout.flush()
        await made.run_until_signal()


if __name__ == "__main__":
    asyncio.run(main())
