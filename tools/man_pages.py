"""Make the man pages of docs/man from the commands' own help: python -m tools.man_pages

    pocketmq.1           the commands, and the options of all of them
    pocketmq-GROUP.1     the commands of one group, or one command, with options and example

The wheel carries them to share/man/man1. A test of the house compares them with what is made here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pocketmq.cli.app import tree
from pocketmq.cli.examples import EXAMPLES
from pocketmq.cli.servers.server_options import EXAMPLES_OF_SERVERS, HELP, OPTIONS

FOLDER = Path(__file__).parents[1] / "docs" / "man"
_EXITS = (
    "0 success; 1 refused, not found, or a problem was found; 2 could not start: a bad option, an unknown "
    "setting, a port in use."
)


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    root = tree()
    found = {"pocketmq.1": _page("pocketmq", str(root.help), [*_list_of(root), *_options(root)])}
    for name, command in root.commands.items():
        found[f"pocketmq-{name}.1"] = _page(
            f"pocketmq-{name}", command.get_short_help_str(999), list(_of(name, command))
        )
    return found


def _of(name: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    for child, each in children.items():
        yield from _of(f"{name} {child}", each)
    if children:
        return
    yield f'.SH "pocketmq {name}"'
    if name in HELP:
        yield _text(HELP[name])
        for option in OPTIONS:
            if name in option.roles:
                yield from _option(", ".join(option.flags), option.metavar or "", option.help)
    else:
        yield _text(command.help or "")
        yield from _options(command)
    yield from (
        ".PP",
        "Example:",
        ".PP",
        ".nf",
        f"    {_text((EXAMPLES | EXAMPLES_OF_SERVERS)[name])}",
        ".fi",
    )


def _list_of(root: Any) -> Iterator[str]:
    yield ".SH COMMANDS"
    for name, command in root.commands.items():
        yield from (".TP", f".B {name}", _text(command.get_short_help_str(999)))


def _options(command: Any) -> Iterator[str]:
    for param in command.params:
        flags = ", ".join([*param.opts, *param.secondary_opts])
        is_argument = param.param_type_name == "argument"
        name = str(param.metavar or param.name).upper() if is_argument else flags
        takes_none = is_argument or getattr(param, "is_flag", False)
        metavar = "" if takes_none else param.metavar or param.type.name.upper()
        yield from _option(name, metavar, getattr(param, "help", None) or "")


def _option(name: str, metavar: str, text: str) -> Iterator[str]:
    yield from (".TP", f".B {_text(f'{name} {metavar}'.strip())}", _text(text))


def _page(name: str, summary: str, body: list[str]) -> str:
    head = [
        f'.TH "{name.upper()}" 1 "" "PocketMQ" "PocketMQ"',
        ".SH NAME",
        f"{name} \\- {_text(summary)}",
    ]
    return "\n".join([*head, *body, '.SH "EXIT STATUS"', _text(_EXITS), ""])


def _text(text: str) -> str:
    """Return text that troff takes as it stands."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.1"):
        old.unlink()
    for file_name, page in pages().items():
        (FOLDER / file_name).write_text(page, encoding="utf-8")
