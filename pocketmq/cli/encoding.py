"""What a command writes to a terminal or a pipe whose encoding lacks a character: an escape of JSON.

So a table says what it can, and `--json` stays JSON with the same value.
"""

import codecs
import os
import sys
from collections.abc import Sequence

from pocketmq.cli.exits import CannotBegin

_ESCAPE = "pocketmq.escape"
# They fail, or write bytes that are no text.
_REPLACED = ("strict", "surrogateescape")


def escape(error: UnicodeError) -> tuple[str, int]:
    r"""Return escapes for what cannot be encoded, as codecs.register_error wants it.

    >>> codecs.register_error("test.escape", escape)
    >>> "né 订 🎉".encode("ascii", "test.escape")
    b'n\\u00e9 \\u8ba2 \\ud83c\\udf89'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def write_any_text() -> None:
    """Make standard output and standard error take every text."""
    codecs.register_error(_ESCAPE, escape)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors in _REPLACED:
            reconfigure(errors=_ESCAPE)


def can_write(text: str) -> bool:
    """Return True if standard output has each character of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def texts(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command as text. Raises: CannotBegin for neither text nor a file's name.

    In a locale without UTF-8 (LC_ALL=C, with Python's UTF-8 mode off) what was typed as UTF-8 comes as bytes.
    """
    return [_text(each) for each in arguments]


def _text(argument: str) -> str:
    if argument.isascii() or not any("\udc80" <= each <= "\udcff" for each in argument):
        return argument
    if os.sep in argument or os.path.lexists(argument):
        return argument
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        raise not_text(argument) from None


def not_text(argument: str) -> CannotBegin:
    """Return the error for an argument with bytes that are invalid in this encoding."""
    return CannotBegin(
        f"{argument[:80]!r} is not text in this terminal's encoding ({sys.getfilesystemencoding()}): set "
        "PYTHONUTF8=1, or a locale such as LANG=C.UTF-8"
    )
