"""The quick starts of docs/grpc.md, each run with its official SDK."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import or_missing
from tests.interop.grpc_places import Ours
from tests.interop.toolchain import (
    REPOSITORY,
    SOURCES,
    cargo_command,
    class_path,
    node_driver,
    python_driver,
)
from tests.kit.waiting import PATIENCE_S

PAGE, LITE_PAGE = REPOSITORY / "docs" / "grpc.md", REPOSITORY / "docs" / "lite.md"
Command = Callable[[Path, str], list[str]]


def _python(folder: Path, program: str) -> list[str]:
    (folder / "quick.py").write_text(program)
    return [python_driver()[0], "quick.py"]


def _java(folder: Path, program: str) -> list[str]:
    (folder / "Quick.java").write_text(program)
    return ["java", f"-Duser.home={folder}", "-cp", class_path("sdk-5.2.0"), "Quick.java"]


def _node(folder: Path, program: str) -> list[str]:
    node, main = node_driver("sdk")
    (folder / "node_modules").symlink_to(main.parent / "node_modules")
    (folder / "quick.js").write_text(program)
    return [node, "quick.js"]


def _go(folder: Path, program: str) -> list[str]:
    for name in ("go.mod", "go.sum"):
        shutil.copy(SOURCES / "go" / name, folder)
    (folder / "quick.go").write_text(program)
    return ["go", "run", "quick.go"]


def _rust(folder: Path, program: str) -> list[str]:
    (folder / "src").mkdir()
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(SOURCES / "rust" / name, folder)
    (folder / "src" / "main.rs").write_text(program)
    return [*cargo_command(), "run", "--quiet"]


@pytest.mark.parametrize(
    ("language", "command"),
    [
        ("python", _python),
        ("javascript", _node),
        pytest.param("java", _java, marks=pytest.mark.grpc_all),
        pytest.param("go", _go, marks=pytest.mark.grpc_all),
        pytest.param("rust", _rust, marks=pytest.mark.grpc_all),
    ],
)
def test_a_quick_start_of_the_page_runs(language: str, command: Command, tmp_path: Path) -> None:
    _run(PAGE, language, command, tmp_path)


def test_the_program_of_the_page_of_lite_topics_runs(tmp_path: Path) -> None:
    _run(LITE_PAGE, "python", _python, tmp_path)


def _run(page: Path, language: str, command: Command, tmp_path: Path) -> None:
    [program] = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    with Ours() as place:
        place.topic_named("orders", "NORMAL")
        place.group_named("packers")
        place.topic_named("Chats", "LITE")
        place.group_named("agents", attributes={"lite.bind.topic": "Chats"})
        assert "127.0.0.1:8081" in program
        there = program.replace("127.0.0.1:8081", place.grpc)
        words = or_missing(lambda: command(tmp_path, there))
        home = {} if language in ("go", "rust") else {"HOME": str(tmp_path)}
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "hello" in done.stdout, done.stderr[-3_000:]
