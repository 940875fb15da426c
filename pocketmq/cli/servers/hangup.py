"""hangup: SIGHUP never ends a server: closed terminals, `systemctl reload` and logrotate send it.

On SIGHUP a server opens the file of `--log-file` again, and reads its TLS certificates; a broker also reads
its settings: those that may change at run time change, the others are named in the log. Files of accounts,
alarm rules and certificates are read again without a signal, soon after they change.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from pocketmq.remoting.transport.tls import ServerTls

log = logging.getLogger(__name__)

# Certificate and key are two files: they are read once neither has changed between two looks.
_LOOK_S = 0.3


def ignore_hangup() -> None:
    """Ignore SIGHUP from now on, until `on_hangup` has it handled."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def on_hangup(reload: Callable[[], object]) -> None:
    """Call `reload` in this loop at each SIGHUP."""

    def came() -> None:
        try:
            _reopen_log()
        except OSError as error:
            log.error(
                "cannot open the log's file again, continuing in the old one reason=%s", error
            )
        log.info("received SIGHUP: reading certificates and settings again, and serving on")
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


async def watch_certificates(stack: AsyncExitStack, contexts: Iterable[ServerTls]) -> None:
    """Use certificates soon after their files change, until `stack` ends."""
    watched = [tls for tls in contexts if tls.files]
    if not watched:
        return
    tasks = await asyncio.TaskGroup().__aenter__()
    # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
    stack.push_async_callback(tasks.__aexit__, None, None, None)
    watch = tasks.create_task(_watch(watched), name="certificates")
    stack.callback(watch.cancel)


async def _watch(contexts: Iterable[ServerTls]) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        for tls in contexts:
            tls.look()
