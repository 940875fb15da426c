"""How the command ends: exit codes, and the error that prints one line on standard error."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes.

    OK: done, or a server stopped by SIGTERM or Ctrl-C. FAILED: the work was refused or failed. USAGE: it
    could not begin: a bad option, a port in use, a store that cannot be opened.
    """

    OK = 0
    FAILED = 1
    USAGE = 2


class CannotBegin(Exception):
    """The caller's mistake; the text is one line that says what to do."""


def without_extras(missing: ModuleNotFoundError) -> CannotBegin:
    """Return the error if only the client is installed, which includes commands without their dependencies.

    Raises: the given error if the missing module is ours, which is a bug and shows its trace.
    """
    if missing.name is None or missing.name.partition(".")[0] == "pocketmq":
        raise missing
    return CannotBegin(
        f"this command needs {missing.name}, which is not installed: "
        'pip install "pocketmq[broker,console]"'
    )
