"""Help: an example of each command, man pages, completion by the shells themselves."""

import os
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
from tools import man_pages

# How each shell asks for completions of `pocketmq topic cr`, with its script in $1.
SHELLS = {
    "bash": 'source "$1"; COMP_WORDS=(pocketmq topic cr); COMP_CWORD=2\n'
    '_pocketmq_completion pocketmq; echo "${COMPREPLY[@]}"',
    "zsh": "compdef() { : }; _arguments() { print -r -- $@ }\n"
    'source "$1"; words=(pocketmq topic cr); CURRENT=3; _pocketmq_completion',
    "fish": 'source "$argv[1]"; complete -C "pocketmq topic cr"',
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


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_by_its_own_script(shell: str, tmp_path: Path) -> None:
    if shell != "bash":
        needed(shell, shell)
    command = Path(sys.executable).with_name("pocketmq")
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    script = subprocess.run(
        [command],
        capture_output=True,
        check=True,
        env={**environment, "_POCKETMQ_COMPLETE": f"source_{shell}"},
    ).stdout
    (tmp_path / "script").write_bytes(script)
    words = [shell, "-c", SHELLS[shell]]
    if shell != "fish":
        words.append(shell)
    shown = subprocess.run(
        [*words, str(tmp_path / "script")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "create" in shown.stdout, shown
