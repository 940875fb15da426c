"""Where a process stands, as its running info tells: threads, and the tasks in listeners."""

import asyncio

from pocketmq.client.consume.stacks import process_stacks


async def test_tasks_in_a_listener_are_named_with_their_line() -> None:
    """A listener that hangs is no thread: of it the threads' stacks showed the event loop alone."""
    hangs = asyncio.Event()

    async def database() -> None:
        await hangs.wait()

    async def listener() -> None:
        await database()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(listener())
        await asyncio.sleep(0)
        said = process_stacks()
        hangs.set()
    assert "MainThread TID: " in said
    _, told = said.split("3 tasks at\n")
    assert told.index("in listener\n    await database()") < told.index("in database\n")
