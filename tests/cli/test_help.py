"""Help: an example of each command, man pages, completion by the shells themselves."""

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli import examples
from pocketmq.cli.app import tree
from pocketmq.cli.servers.server_options import EXAMPLES_OF_SERVERS, HELP, parse
from tests.kit.missing import needed
from tests.kit.waiting import until
from tools import man_pages

# Each shell at a terminal, without its owner's files; and how it reads a script.
SHELLS = {
    "bash": (["bash", "--norc", "-i"], "source {}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source {}"),
    "fish": (["fish", "--no-config", "-i"], "source {}"),
}

EXAMPLES = examples.EXAMPLES | EXAMPLES_OF_SERVERS


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from leaves(child, f"{path} {name}".strip())


TREE = dict(leaves(tree()))


def test_each_command_has_an_example() -> None:
    assert set(EXAMPLES) == set(TREE)


@pytest.mark.parametrize("path", sorted(TREE))
def test_an_example_is_parsed_as_it_stands(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The program is called by its words; what they name does not have to be there.
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    program, *words = shlex.split(EXAMPLES[path])
    assert [program, *words[: len(path.split())]] == ["pocketmq", *path.split()]
    rest = words[len(path.split()) :]
    if path in HELP:
        parse(path, rest)
    elif path != "health":
        TREE[path].make_context(path, rest)


def test_help_ends_with_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("up", ["--help"])
    assert f"Example: {EXAMPLES['up']}" in " ".join(capsys.readouterr().out.split())
    shown = TREE["ha promote"].make_context("ha promote", ["x"]).get_help()
    assert shown.rstrip().endswith(f"Example: {EXAMPLES['ha promote']}")


def test_the_man_pages_are_those_of_the_commands() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in man_pages.FOLDER.glob("*.1")}
    assert kept == man_pages.pages(), "run: python -m tools.man_pages"


def test_man_shows_a_page_without_a_warning() -> None:
    words = [
        needed("man", "man-db"),
        "--warnings=w",
        "-E",
        "UTF-8",
        "-l",
        str(man_pages.FOLDER / "pocketmq-ha.1"),
    ]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "pocketmq ha promote 10.0.0.2:10911" in shown.stdout


class Terminal:
    """A program at a terminal of its own; printed: what it has written since the last call of `write`."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._own, other = os.openpty()
        self._process = subprocess.Popen(
            # Shells want to own their terminal.
            [needed("setsid", "util-linux"), "-c", *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment,
        )
        os.close(other)
        self.printed = ""

    def write(self, text: str) -> None:
        self.printed = ""
        os.write(self._own, text.encode())

    def shows(self, text: str) -> bool:
        """Take what has been printed; True once it has the text."""
        while select.select([self._own], [], [], 0)[0]:
            self.printed += os.read(self._own, 1 << 16).decode(errors="replace")
        return text in self.printed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._own)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes_in_a_shell(shell: str, tmp_path: Path) -> None:
    """At a terminal, by the shell's own machinery and the script that the command prints for it."""
    words, reads = SHELLS[shell]
    program = needed(shell, shell)
    command = Path(sys.executable).with_name("pocketmq")
    path = f"{command.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb"}
    asked = {**environment, "_POCKETMQ_COMPLETE": f"source_{shell}"}
    script = subprocess.run([command], capture_output=True, check=True, env=asked).stdout
    (tmp_path / "script").write_bytes(script)
    terminal = Terminal([program, *words[1:]], environment)
    try:
        # What is typed is printed, too: the answer has no quotes in it.
        terminal.write(f"{reads.format(tmp_path / 'script')}; echo it is 'r'eady\n")
        until(lambda: terminal.shows("it is ready"), f"{shell} has read the script")
        terminal.write("pocketmq topic cr\t")
        until(lambda: terminal.shows("topic create "), f"{shell} completes {terminal.printed!r}")
    finally:
        terminal.close()
