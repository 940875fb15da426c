"""The front page: one screen, figures of the measured table, and an installation that works today."""

import re
from pathlib import Path

import pytest

from benchmarks.compare import write
from tests.house.doc_blocks import ROOT, blocks
from tests.house.test_house_rules import text_files

README = (ROOT / "README.md").read_text("utf-8")
UNIT = (ROOT / "docker" / "pocketmq.service").read_text("utf-8")
# A name alone would be looked up at an index, where PocketMQ is not.
_BY_NAME = re.compile(
    r"""pip3? install [^`\n]*?(?<![\w/.-])pocketmq(?:\[[\w,.-]*\])?(?![\w/-]|\.\w)"""
)


def test_the_readme_fits_two_screens() -> None:
    assert len(README.splitlines()) <= 80


def test_a_first_message_takes_five_commands_or_eleven_lines() -> None:
    """A clone, its folder, and the commands of the page; and below its imports the program."""
    page = ROOT / "README.md"
    commands = [each for block in blocks(page, "sh") for each in block.text.splitlines() if each]
    assert len(["git clone", "cd", *commands]) <= 5
    [program] = blocks(page, "python")
    written = [each for each in program.text.splitlines() if each.strip()]
    assert len([each for each in written if not re.match("import |from ", each)]) <= 11


def test_each_figure_of_the_readme_is_in_the_measured_table() -> None:
    """README names five rows; benchmarks/results.md has them all."""
    table = README.partition("## How fast it is")[2]
    rows = re.findall(r"^\| [^|]+ \| ([\d.]+ (?:k/s|MB)) \| ([\d.]+ (?:k/s|MB)) \|$", table, re.M)
    assert len(rows) == 5
    measured = (ROOT / "benchmarks" / "results.md").read_text("utf-8").splitlines()
    for java, ours in rows:
        assert any(f"| {java} " in row and f"| {ours} " in row for row in measured), (java, ours)


def test_a_new_measurement_keeps_the_notes_around_the_tables(tmp_path: Path) -> None:
    results = tmp_path / "results.md"
    results.write_text((ROOT / "benchmarks" / "results.md").read_text("utf-8"), "utf-8")
    write(results, "| new |\n")
    text = results.read_text("utf-8")
    assert text.startswith("# Speed\n")
    assert "| new |" in text
    assert "raw frames, 512 in flight" not in text
    assert "## Why rows are short" in text


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pip install pocketmq", True),
        ("pip install 'pocketmq[broker]'", True),
        ("/opt/pocketmq/bin/pip install 'pocketmq[broker,console]'", True),
        ("pip install -q pocketmq fastapi", True),
        ("pip install /path/to/pocketmq", False),
        ("pip install '/path/to/pocketmq[spark]'", False),
        ("pip install 'dist/pocketmq-0.1.0-py3-none-any.whl[broker]'", False),
        ('pip install ".[broker]"', False),
    ],
)
def test_an_installation_by_name_is_recognised(line: str, found: bool) -> None:
    assert (_BY_NAME.search(line) is not None) == found


def test_nothing_is_installed_by_name_alone() -> None:
    """PocketMQ is registered at no index: pages and messages name a folder or a wheel."""
    by_name = [
        f"{path}: {line.strip()}"
        for path, text in text_files()
        if path.name != "test_front_page.py"
        for line in text.splitlines()
        if _BY_NAME.search(line)
    ]
    assert by_name == []


def test_the_unit_is_installed_without_running_pip_as_root() -> None:
    """The head of the unit: pip runs as an ordinary user, and only commands with sudo are root's."""
    commands = [line[4:] for line in UNIT.splitlines() if line.startswith("#   ")]
    assert [each for each in commands if "pip install" in each]
    for line in commands:
        assert not ("pip" in line and "sudo" in line), line
        for command in line.split(" && "):
            if command.startswith(("cp", "install", "chown", "systemctl")):
                pytest.fail(f"needs root and does not say so: {command}")
