"""Where a secret comes from: a file, the environment, a question; and a warning of one in a command line."""

import sys
from collections.abc import Iterable
from pathlib import Path

from pocketmq.cli.exits import CannotBegin

WORDS = ("secret", "password", "credential")
"""Parts of the names of settings whose values are secrets."""


def secret_of(
    file: str | None, given: str | None, *, question: str, otherwise: str, on_line: bool
) -> str:
    """Return a secret. file: its file, `-` for standard input. given: the option's or the variable's value.

    otherwise: where else it may stand, for the error. on_line: `given` stands in the command line, which gets
    a warning. Raises: CannotBegin.
    """
    if file is not None:
        return _read(file)
    if given is not None:
        if on_line:
            warn_of("--secret", otherwise)
        return given
    if not sys.stdin.isatty():
        raise CannotBegin(f"there is no secret: give it by {otherwise}")
    # Imported for the question alone: each start of a server comes by this module.
    import getpass

    return getpass.getpass(f"{question}: ")


def warn_of(option: str, otherwise: str) -> None:
    """Say that a secret of the command line is not one."""
    sys.stderr.write(
        f"pocketmq: warning: every user of this machine can read {option} in the list of processes; give the "
        f"secret by {otherwise}\n"
    )


def in_settings(settings: Iterable[str]) -> list[str]:
    """Return the names of NAME=VALUE texts that hold a secret."""
    pairs = (text.partition("=") for text in settings)
    return [
        name.strip()
        for name, _, value in pairs
        if value.strip() and any(word in name.lower() for word in WORDS)
    ]


def _read(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotBegin(f"cannot read the secret in {file}: {error}") from error
    if not text.strip():
        raise CannotBegin(f"there is no secret in {file}: it is empty")
    return text.strip()
