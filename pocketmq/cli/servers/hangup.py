"""hangup: SIGHUP never ends a server: closed terminals, `systemctl reload` and logrotate send it.

Files of accounts and alarm rules are read again without a signal; on SIGHUP a server reads its TLS
certificates again, and opens the file of `--log-file` again. Other settings hold until the next start, or are
changed at run time (`cluster config`).
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable

from pocketmq.remoting.transport.tls import ServerTls

log = logging.getLogger(__name__)


def ignore_hangup() -> None:
    """Ignore SIGHUP from now on, until `on_hangup` has it handled."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def on_hangup(reload: Callable[[], None]) -> None:
    """Call `reload` in this loop at each SIGHUP."""

    def came() -> None:
        try:
            _reopen_log()
        except OSError as error:
            log.error(
                "cannot open the log's file again, continuing in the old one reason=%s", error
            )
        log.info("received SIGHUP: reading certificates again, and serving on")
        reload()

    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, came)


def _reopen_log() -> None:
    if log_file := sys.modules.get("pocketmq.cli.servers.log_file"):
        log_file.reopen_files()


def reload_certificates(contexts: Iterable[ServerTls]) -> None:
    """Use the certificates that are in the files now; the old ones stay if those cannot be read."""
    for tls in contexts:
        tls.reload()
