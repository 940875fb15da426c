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
