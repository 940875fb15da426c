"""The instructions of the Dockerfile, and the compose file."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


DOCKER = ROOT / "docker"


IMAGE_FOLDER = "/opt/pocketmq"


Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """(keyword, rest) of each instruction of the Dockerfile, continued lines joined."""
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    found = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return [(keyword, rest.strip()) for keyword, rest in found]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, FROM first; an ARG before them is of no stage."""
    found: list[list[Instruction]] = []
    for keyword, rest in instructions():
        if keyword == "ARG":
            continue
        if keyword == "FROM":
            found.append([])
        found[-1].append((keyword, rest))
    return found


def of(stage: list[Instruction], keyword: str) -> list[str]:
    return [rest for each, rest in stage if each == keyword]


def compose() -> dict[str, Any]:
    """compose.yaml, by a reader for the part of YAML that it uses."""
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    lines = [
        line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")
    ]
    value, rest = _block(lines, 0)
    assert not rest, f"compose.yaml uses more of YAML than this test reads: {rest[0]!r}"
    assert isinstance(value, dict)
    return value


def _block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    items: list[Any] = []
    mapping: dict[str, Any] = {}
    while lines and _indent(lines[0]) == indent:
        line, lines = lines[0].strip(), lines[1:]
        if line.startswith("- "):
            items.append(_scalar(line[2:]))
            continue
        key, colon, value = line.partition(":")
        assert colon, line
        if value.strip():
            mapping[key] = _scalar(value.strip())
        elif lines and _indent(lines[0]) > indent:
            mapping[key], lines = _block(lines, _indent(lines[0]))
        else:
            mapping[key] = None
    return items or mapping, lines


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _scalar(text: str) -> Any:
    return json.loads(text) if text[0] in '["' else text


def installation(builder: list[Instruction]) -> list[str]:
    """The steps that make the installation; the others bring Debian's packages."""
    return [rest for keyword, rest in builder if keyword == "RUN" and IMAGE_FOLDER in rest]


class Image:
    """The image's files in a folder: what the builder's steps make, and the scripts."""

    def __init__(self, folder: Path, *, compiled: bool) -> None:
        self.folder = folder
        self.compiled = compiled
        self.venv = folder / "opt"
        build = folder / "build"
        builder = stages()[0]
        for rest in of(builder, "COPY"):
            *sources, target = rest.split()
            for source in sources:
                place = build / target / ("" if (ROOT / source).is_dir() else source)
                place.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / source).is_dir():
                    shutil.copytree(
                        ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(ROOT / source, place)
        for step in installation(builder):
            step = step.replace(IMAGE_FOLDER, shlex.quote(str(self.venv)))
            # A test may take from pip's cache what it has taken before, and compiles what it imports.
            step = step.replace("--no-cache-dir ", "--no-compile ")
            if not compiled:
                step = step.replace("POCKETMQ_COMPILED=1 ", "")
            # The image's python is the one of its base; here it is the one that runs the tests, and its
            # installer is that one's: to unpack another takes as long as to install half of the packages.
            step, made = re.subn(
                r"^python3 -m venv ", f"{shlex.quote(sys.executable)} -m venv --without-pip ", step
            )
            done = subprocess.run(
                ["sh", "-c", step],
                cwd=build,
                env=clean_environment(),
                capture_output=True,
                text=True,
            )
            if "No matching distribution" in done.stderr and os.environ.get("CI") != "true":
                pytest.skip("pip cannot reach a package index: connect to the network once")
            assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
            if made:
                self._take_pip()

    def _take_pip(self) -> None:
        pip = importlib.metadata.distribution("pip")
        [site] = self.venv.glob("lib/python3*/site-packages")
        for part in {Path(each).parts[0] for each in pip.files or () if ".." not in each.parts}:
            shutil.copytree(Path(str(pip.locate_file(part))), site / part)

    def environment(self, **more: str) -> dict[str, str]:
        """As ENV of the Dockerfile sets it, with the folders of this copy."""
        set_ = dict(
            pair.split("=", 1) for rest in of(stages()[1], "ENV") for pair in shlex.split(rest)
        )
        set_["PATH"] = (
            set_["PATH"].replace(IMAGE_FOLDER, str(self.venv)).replace("$PATH", os.environ["PATH"])
        )
        set_["POCKETMQ_DATA"] = str(self.folder / "store")
        set_["POCKETMQ_ROLE_FILE"] = str(self.folder / "role")
        return {**clean_environment(), **set_, **more}


def clean_environment() -> dict[str, str]:
    """This process's without what leads Python to the repository or to another environment."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "POCKETMQ", "NAMESRV"))
    }
