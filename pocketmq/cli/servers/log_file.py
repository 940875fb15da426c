"""The servers' log in a file and as JSON: what `--log-file`, `--log-rotate` and `--log-format` bring."""

import json
import logging
import logging.handlers
import time

FILES_KEPT = 5
"""Rotated files beside the one that is written: FILE.1 is the newest."""


class LogFile(logging.handlers.RotatingFileHandler):
    """A file that is opened again at SIGHUP, for logrotate, and rotated by itself if a size is given."""

    def __init__(self, path: str, rotate_mib: int = 0) -> None:
        """rotate_mib: 0 for never. Raises: OSError."""
        super().__init__(path, maxBytes=rotate_mib << 20, backupCount=FILES_KEPT, encoding="utf-8")

    def reopen(self) -> None:
        """Continue in the file of this name, which may be another one now. Raises: OSError; the old one is
        kept.
        """
        self.acquire()
        try:
            fresh = self._open()
            before, self.stream = self.stream, fresh
            if before is not None:
                before.close()
        finally:
            self.release()


class JsonFormatter(logging.Formatter):
    """One object a line: time (ISO 8601, UTC), level, module, process, message, and a failure's trace."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "module": record.name,
            "message": record.getMessage(),
        }
        if self._process:
            line["process"] = self._process
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def reopen_files() -> None:
    """Open the log's file again, if there is one. Raises: OSError."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile):
            handler.reopen()
