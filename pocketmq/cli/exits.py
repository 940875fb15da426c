"""How the command ends: exit codes, and the error that prints one line on standard error."""

import sys
from enum import IntEnum

# What a peer sends can end up in a line; it must not begin another one, move the cursor or turn the text:
# Unicode's ends of lines, and all that it calls Bidi_Control.
_LINES = (0x2028, 0x2029)
_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
STEERING = (*range(32), *range(127, 160), *_LINES, *_DIRECTIONS)
"""The characters that no peer's text may bring to a terminal."""
_ESCAPES = {code: repr(chr(code))[1:-1] for code in STEERING if code not in (9, 10)}


def visible(text: str) -> str:
    r"""Return a text whose control characters are written as escapes, except tabs and ends of lines.

    >>> visible("no \x1b[2J\x9b1m")
    'no \\x1b[2J\\x9b1m'
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def one_line(text: str) -> str:
    r"""Return a text as one line: as `visible`, with its ends of lines as escapes, too.

    >>> one_line("fine\npocketmq: all is well")
    'fine\\npocketmq: all is well'
    """
    return visible(text).replace("\n", "\\n")


def in_line(text: str) -> str:
    r"""Return a part of a line, in which each character that is not printable is an escape.

    >>> in_line("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def complain(text: object, command: str = "pocketmq") -> None:
    """Print a line on standard error; further lines of a peer's words are indented."""
    words = visible(str(text)).replace("\n", "\n  ")
    sys.stderr.write(f"{command}: {words}\n")


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
    from pocketmq.remoting.lazy_names import without_extra

    return CannotBegin(str(without_extra("this command", missing, "broker,console")))
