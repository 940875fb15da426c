"""The servers' log: lines on standard error, control characters made visible."""

import logging
import sys

from pocketmq.cli.exits import CannotBegin

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# What a peer sends can end up in a line; it must not begin another one or move the cursor.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code not in (9, 10)}


class _Formatter(logging.Formatter):
    """`2026-11-21 12:00:00,123 INFO pocketmq.broker: text`; further lines are indented by two blanks."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(_ESCAPES).replace("\n", "\n  ")


def start_logging(level: str | None, process: str = "") -> None:
    """Send the log of this process to standard error. Raises: CannotBegin for an unknown level.

    process: stands in each line, where several processes write into one log.
    """
    name = (level or "INFO").upper()
    if name not in _LEVELS:
        raise CannotBegin(f"--log-level is one of {', '.join(_LEVELS)}, not {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    which = f"[{process.replace('%', '%%')}] " if process else ""
    handler.setFormatter(_Formatter(f"%(asctime)s %(levelname)s {which}%(name)s: %(message)s"))
    # A forked process had its parent's handler until now.
    logging.basicConfig(level=name, handlers=[handler], force=True)
