"""Descriptors: lets the store open its files when sockets have taken all others.

    descriptor = open_file(path, os.O_RDWR)      instead of os.open
    close_file(descriptor)                       instead of os.close

1. SPARES descriptors are kept open on /dev/null. If the process has no other left, an open takes one of
   them; close_file returns it with dup2, so that no other thread takes it in between.
2. One set per process, like the limit. Used on the loop and in the pools: each step is one list call.
"""

import contextlib
import errno
import os
import resource

SPARES = 32
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)

_spares: list[int] = []


def open_file(path: str, flags: int, mode: int = 0o777) -> int:
    """Like os.open, with a spare descriptor if no other is left. Raises: OSError."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno not in _NONE_LEFT or not _spares:
            raise
        os.close(_spares.pop())
        return os.open(path, flags | os.O_CLOEXEC, mode)
    if len(_spares) < SPARES:
        with contextlib.suppress(OSError):
            _spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return descriptor


def open_sized(path: str, size: int) -> int:
    """Open a file to read and write, creating it if absent, at its full length. Raises: OSError."""
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
    except OSError:
        close_file(descriptor)
        raise
    return descriptor


def close_file(descriptor: int) -> None:
    """Like os.close, or return the descriptor to the spares."""
    if _spares and len(_spares) < SPARES:
        with contextlib.suppress(OSError, IndexError):
            os.dup2(_spares[-1], descriptor, inheritable=False)
            _spares.append(descriptor)
            return
    os.close(descriptor)


def fill_spares() -> None:
    """Take all spares now, while there are descriptors. Raises: OSError."""
    while len(_spares) < SPARES:
        _spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one. Returns: the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft
