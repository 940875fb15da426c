"""`pocketmq --version`: which one it is, and in which form."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pocketmq.cli.__main__ import main
from pocketmq.cli.exits import ExitCode

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_the_distributions_and_says_the_form(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == ExitCode.OK
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.fullmatch(r"pocketmq (\S+) \((pure Python|compiled)\)\n", capsys.readouterr().out)
    assert found is not None
    assert found[1] == project["version"]


def test_the_version_needs_no_typer() -> None:
    """Asked by scripts: nothing but the standard library is loaded for it."""
    script = (
        "import sys; from pocketmq.cli.__main__ import main; main(['--version']); "
        "sys.exit('typer' in sys.modules or 'asyncio' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
