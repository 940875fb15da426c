"""The rules of the house that a linter does not know."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.config import ConsoleConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.namesrv import NamesrvConfig
from pocketmq.remoting.transport.tls import TlsConfig
from pocketmq.store import StoreConfig

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pocketmq"
# The words of the design card, at the top.
LINKS = ("broker", "client", "store")


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout
    if listed:
        return [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def text_files() -> list[tuple[Path, str]]:
    found = []
    for path in tracked_files():
        if path.suffix in (".gz", ".png", ".ico") or "data" in path.relative_to(ROOT).parts:
            continue
        try:
            found.append((path, path.read_text(encoding="utf-8")))
        except (UnicodeDecodeError, OSError):
            continue
    return found


def test_the_links_at_the_top_lead_into_the_package() -> None:
    for name in LINKS:
        assert (ROOT / name).is_symlink()
        assert (ROOT / name).resolve() == PACKAGE / name


def test_every_package_tells_type_checkers_that_it_is_typed() -> None:
    """Without py.typed a user's mypy says `missing library stubs`, of pocketmq.testing for one."""
    packages = [each for each in (PACKAGE, *PACKAGE.iterdir()) if (each / "__init__.py").exists()]
    assert packages
    assert [each.name for each in packages if not (each / "py.typed").exists()] == []


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    """What is committed works on any machine."""
    words = [
        "/wo" + "rk/",
        "/ro" + "ot/",
        "registry.npm" + "js",
        "repo.maven.apa" + "che",
        "proxy.gol" + "ang",
    ]
    pattern = re.compile("|".join(re.escape(word) for word in words))
    offenders = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in text_files()
        if (match := pattern.search(text))
    ]
    assert offenders == []


def test_no_module_is_named_after_nothing() -> None:
    """architecture.md: a module is one of RocketMQ's nouns; no utils, common, misc."""
    bad = {"utils", "util", "common", "misc", "helpers", "manager_impl"}
    assert not {path.stem for path in PACKAGE.rglob("*.py")} & bad


def test_each_setting_is_read_somewhere() -> None:
    """One that nothing reads would stand in the documentation, be taken, and do nothing."""
    words: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    groups = (BrokerConfig, StoreConfig, NamesrvConfig, ConsoleConfig, MetricsConfig, GrpcConfig)
    for group in (*groups, TlsConfig):
        for name, known in group.keys().items():
            assert words[known.attribute] > 1, name


# What `import` may pull in beyond the standard library, by part. Everything else is imported where it
# is used: the client stays small, a command starts fast (its imports take under 150 ms).
ALLOWED = {
    "pocketmq.client": {"orjson", "sortedcontainers"},
    "pocketmq.remoting.transport.server": {"orjson"},
    "pocketmq.store": {"orjson", "numpy"},
    "pocketmq.broker.broker": {"msgpack", "orjson", "numpy", "mmh3"},
}


@pytest.mark.parametrize("module", sorted(ALLOWED))
def test_an_import_pulls_in_nothing_heavy(module: str) -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        f"import {module}\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "ours = (t for t in tops if t not in sys.stdlib_module_names)\n"
        "print(*sorted(t for t in ours if not t.startswith(('_', 'cython', 'pocketmq'))))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= ALLOWED[module]


@pytest.mark.slow
def test_pyright_finds_nothing_in_client_and_remoting() -> None:
    """Who writes an application with pyright sees no error of ours."""
    if shutil.which("node") is None:
        reason = "pyright runs on Node.js: install it, `make setup` does where apt is"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "pocketmq/client", "pocketmq/remoting"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
