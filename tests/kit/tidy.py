"""What a test must leave as it found it, because tests after it in the same process would meet it."""

import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping

# pytest itself changes this one with every step of a test.
_OF_PYTEST = "PYTEST_CURRENT_TEST"


def state_of_process() -> dict[str, object]:
    """Name of a setting -> its value, for the settings that tests have left changed or easily could."""
    found: dict[str, object] = {
        f"environment variable {name}": value
        for name, value in os.environ.items()
        if name != _OF_PYTEST
    }
    found["working folder"] = os.getcwd()
    found["signal handlers"] = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    found["limits"] = [
        resource.getrlimit(limit)
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
    ]
    found["garbage collection"] = gc.isenabled(), gc.get_threshold()
    found["exception hooks"] = sys.excepthook, threading.excepthook, sys.unraisablehook
    found["recursion limit"] = sys.getrecursionlimit()
    found["level of all logs"] = logging.root.level, logging.root.manager.disable
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.split(".")[0] == "pocketmq" and isinstance(logger, logging.Logger):
            now = logger.level, logger.disabled, logger.propagate, tuple(logger.handlers)
            if now != (logging.NOTSET, False, True, ()):
                found[f"logger {name}"] = now
    return found


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """One line for each setting that differs.

    >>> changes({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b: 2 -> 3', 'c: None -> 4']
    """
    return [
        f"{name}: {before.get(name)!r} -> {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
