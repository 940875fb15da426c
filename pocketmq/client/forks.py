"""Forks: what becomes of this process's clients in a child process that fork() makes of it.

gunicorn --preload, Celery's prefork pool and multiprocessing's start method `fork` copy a process without its
threads: the loop that a client lives in does not run in the child, and its sockets are the parent's.

    not started yet       is the child's own: it gets another client id, since two members cannot share one
    started               refuses each call at once (ForkedClient): the child makes a client of its own
    shutdown in the child does nothing: the client is the parent's, and lives
"""

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

_watched: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
_afterwards: list[Callable[[], None]] = []


def watch(client: object, after_fork: Callable[[Any], None]) -> None:
    """Call `after_fork(client)` in each child, as long as the client exists."""
    _watched[client] = after_fork


def always(function: Callable[[], None]) -> None:
    """Call a function in each child."""
    _afterwards.append(function)


def _in_child() -> None:
    for client, after_fork in list(_watched.items()):
        after_fork(client)
    for function in _afterwards:
        function()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def sentence(what: str, pid: int) -> str:
    """Return the text of a ForkedClient."""
    return (
        f"{what} was started by process {pid}, which has forked this one: its thread and its connections "
        "are there. Create and start a client here, after the fork"
    )
