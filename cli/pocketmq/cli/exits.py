"""How the command ends: the exit codes, and the error that is one line on standard error."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees.

    OK: done, or a server stopped by SIGTERM or Ctrl-C. FAILED: the work was refused or went wrong.
    USAGE: it could not begin: a bad option, a port in use, a store that cannot be opened.
    """

    OK = 0
    FAILED = 1
    USAGE = 2


class CannotBegin(Exception):
    """A mistake of whoever called; the text is one line that says what to do."""


def without_extras(missing: ModuleNotFoundError) -> CannotBegin:
    """What to say where the client alone is installed, which brings the commands but not what they need.

    Raises: the error itself when it is a module of ours, which is a bug and shows its trace.
    """
    if missing.name is None or missing.name.partition(".")[0] == "pocketmq":
        raise missing
    return CannotBegin(
        f"this command needs {missing.name}, which is not installed: "
        'pip install "pocketmq[broker,console]"'
    )
