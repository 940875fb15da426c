"""Compiles the modules of the hot paths with mypyc, from the same sources.

A wheel is compiled when POCKETMQ_COMPILED=1 is set at its build, and pure otherwise. In a checkout
`python tools/compiled.py --in-place` (`make fast`) lays the libraries beside their sources, where Python
prefers them; `--remove` (`make pure`) takes them away. The list of modules is in pyproject.toml.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
# The library that all compiled modules share, at the top of the path.
SHARED = "pocketmq_compiled"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
NEEDS = ["mypy[mypyc]>=1.15", "setuptools>=75"]

_SETUP = """
import os, sys
from mypyc.build import mypycify
from setuptools import setup

root, out, shared, wanted, *modules = sys.argv[1:]
os.chdir(root)
extensions = mypycify(
    [
        "--config-file=",
        "--explicit-package-bases",
        "--ignore-missing-imports",
        *modules,
    ],
    group_name=shared,
    opt_level="2",
    debug_level="0",
    target_dir=out + "/c",
)
if wanted == "C":
    sys.exit()
# Elsewhere: setuptools would read the project's own settings, which are for another tool.
os.chdir(out)
arguments = ["-q", "build_ext", "--build-lib", out + "/lib", "--build-temp", out + "/o"]
setup(name="pocketmq", packages=[], ext_modules=extensions, script_args=arguments)
"""


def settings() -> dict[str, Any]:
    """`[tool.pocketmq.compiled]` of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        whole: dict[str, Any] = tomllib.load(file)
    return whole["tool"]["pocketmq"]["compiled"]  # type: ignore[no-any-return]


def sources() -> list[Path]:
    """What is compiled, relative to the repository."""
    return [Path(name) for name in settings()["modules"]]


def compile_to(out: Path, wanted: str = "libraries") -> dict[Path, Path]:
    """Libraries by the place beside their sources; wanted="C" ends before the C compiler.

    Raises: CalledProcessError (mypyc says why).
    """
    out = out.resolve()
    command = [
        sys.executable,
        "-c",
        _SETUP,
        str(ROOT),
        str(out),
        SHARED,
        wanted,
        *map(str, sources()),
    ]
    subprocess.run(command, check=True, env={**os.environ, "MYPYPATH": str(ROOT)})
    made: dict[Path, Path] = {}
    for source in sources():
        place = source.with_suffix(SUFFIX)
        made[place] = out / "lib" / place
    library = f"{SHARED}__mypyc{SUFFIX}"
    made[Path(library)] = out / "lib" / library
    return made


def remove() -> int:
    """Take compiled libraries away, of every version of Python. Returns: how many."""
    names = [source.with_suffix(".*.so") for source in sources()]
    names += [source.with_suffix(".*.pyd") for source in sources()]
    names.append(Path(f"{SHARED}__mypyc.*"))
    found = [file for name in names for file in (ROOT / name.parent).glob(name.name)]
    for file in found:
        file.unlink()
    return len(found)


class CompiledHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled libraries to a wheel."""

    def dependencies(self) -> list[str]:
        return NEEDS if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _is_wanted() or self.target_name != "wheel" or version == "editable":
            return
        self._folder = tempfile.mkdtemp()
        for place, library in compile_to(Path(self._folder)).items():
            build_data["force_include"][str(library)] = str(place)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def _is_wanted() -> bool:
    return os.environ.get("POCKETMQ_COMPILED") == "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--in-place", action="store_true", help="lay libraries beside their sources")
    what.add_argument("--remove", action="store_true", help="take them away")
    what.add_argument("--check", action="store_true", help="see whether mypyc takes the sources")
    given = parser.parse_args()
    if given.remove:
        sys.stdout.write(f"{remove()} libraries removed; what runs now is pure Python\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        if given.check:
            compile_to(Path(folder), "C")
            return
        made = compile_to(Path(folder))
        remove()
        for place, library in made.items():
            shutil.copy2(library, ROOT / place)
    sys.stdout.write(f"{len(made) - 1} modules compiled; `make pure` takes the libraries away\n")


if __name__ == "__main__":
    main()
