"""What is published: the wheel's page, the source distribution, and the Pythons it says it runs on."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.house.test_house_rules import LINKS, tracked_files

ROOT = Path(__file__).parents[2]
# They need recorded data and modules of other folders.
OWN_TESTS = ["tests/remoting/test_golden_frames.py", "tests/broker/test_tables.py"]
VERSIONS = ["3.12", "3.13", "3.14"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True
    )
    return folder


def metadata(built: Path) -> Any:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith("/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_page_of_the_package_leads_somewhere(built: Path) -> None:
    """No link that is true in the repository only; addresses, authors, keywords and Pythons are named."""
    page = metadata(built)
    text = page.get_payload()
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert len(links) > 5
    assert [each for each in links if not each.startswith(("https://", "#"))] == []
    assert {each.partition(",")[0] for each in page.get_all("Project-URL")} >= {"Source", "Issues"}
    assert page["Author"]
    assert "rocketmq" in page["Keywords"]
    assert {"tls", "test", "broker"} <= set(page.get_all("Provides-Extra"))
    for version in ["3.11", *VERSIONS]:
        assert f"Programming Language :: Python :: {version}" in page.get_all("Classifier")


def test_the_project_has_one_address() -> None:
    """pyproject.toml says it; what cannot read that file says the same."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    urls = tomllib.loads(text)["project"]["urls"]
    said = text + "".join(
        (ROOT / "docker" / name).read_text("utf-8") for name in ("Dockerfile", "pocketmq.service")
    )
    assert set(re.findall(r"https://github\.com/[\w-]+/[\w-]+", said)) == {urls["Source"]}


def test_the_source_distribution_runs_its_own_tests(built: Path, tmp_path: Path) -> None:
    """It holds what the repository holds, and tests pass in it, with its own sources."""
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    names = {path.relative_to(ROOT).as_posix() for path in tracked_files()} - {*LINKS}
    missing = {name for name in names if not (folder / name).is_file()}
    assert missing <= {".gitignore"}, missing
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OWN_TESTS]
    own = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_a_wheel_of_the_source_distribution_is_that_of_the_tree(
    built: Path, tmp_path: Path
) -> None:
    """Links and folders that meet made hatchling lose files in silence."""
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True)
    [of_tree], [of_archive] = built.glob("*.whl"), tmp_path.glob("*.whl")
    names = [sorted(zipfile.ZipFile(wheel).namelist()) for wheel in (of_tree, of_archive)]
    assert names[0] == names[1]
    # Man pages go to where the environment has its own.
    packaged = {
        re.sub(r".*[.]data/data/share/man/man1/", "docs/man/", name)
        for name in names[0]
        if ".dist-info/" not in name
    }
    assert packaged == {
        name
        for name in (path.relative_to(ROOT).as_posix() for path in tracked_files())
        if name.startswith(("pocketmq/", "pyspark_pocketmq/", "docs/man/"))
    }


def python_of(version: str) -> str | None:
    """A Python of that version: of the path, else one of pyenv's, whose shims on the path may not run."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    for each in (shutil.which(f"python{version}"), *map(str, kept)):
        if each and subprocess.run([each, "--version"], capture_output=True).returncode == 0:
            return each
    return None


# On a busy machine its packages take minutes.
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_other_pythons(
    version: str, built: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The wheel in an environment of its own: a broker serves, a client sends and reads."""
    if not request.config.getoption("--every-python"):
        pytest.skip("installs packages for each Python: --every-python")
    python = python_of(version)
    if python is None:
        missing = f"no python{version} here; for 3.14 see .ci/python3.14"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    environment = tmp_path / "env"
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    own = str(environment / "bin" / "python")
    [wheel] = built.glob("*.whl")
    install = [own, "-m", "pip", "install", "-q", f"{wheel}[broker,console,compress]"]
    subprocess.run(install, check=True)
    program = (
        "from pocketmq.testing import InProcess\n"
        "with InProcess() as server:\n"
        "    server.send('T', 'x')\n"
        "    assert [each.body for each in server.wait_for_messages('T', 1)] == [b'x']\n"
    )
    subprocess.run([own, "-W", "error", "-c", program], check=True, cwd=tmp_path)
    listed = subprocess.run(
        [str(environment / "bin" / "pocketmq"), "--help"], capture_output=True, check=True
    )
    assert b"topic" in listed.stdout
