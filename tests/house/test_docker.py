"""The image without an engine: what its files name exists, and its steps work in a clean environment.

The Dockerfile's installation is run as it stands, with the folder of the image replaced by
a temporary one; then the entry point, the health check and the sample client of the compose file run there.
"""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.servers.server_config import take_variables, unknown_variables
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.console.config import ConsoleConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.store import StoreConfig
from tests.interop.processes import Process, free_ports

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
IMAGE_FOLDER = "/opt/pocketmq"
OFFICIAL_PORTS = {"9876", "10909", "10911", "10912"}
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


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path of the repository out of the build."""
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    return not any(path == each or path.startswith(f"{each}/") for each in kept)


def test_everything_that_is_copied_exists_and_reaches_the_build() -> None:
    copied = [
        source
        for stage in stages()
        for rest in of(stage, "COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert {"pocketmq", "pyspark_pocketmq", "tools"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), f"{source} is left out by .dockerignore"
    builder, final = stages()
    for rest in of(final, "COPY"):
        if rest.startswith("--from"):
            assert rest.split()[1:] == [IMAGE_FOLDER, IMAGE_FOLDER]
    assert any(IMAGE_FOLDER in rest for rest in of(builder, "RUN"))


def test_both_stages_use_official_python_and_a_compiled_wheel() -> None:
    """The base is an argument, which docker/release gives by digest; a scanner knows its packages."""
    [base] = [rest for keyword, rest in instructions() if keyword == "ARG"]
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-\w+", base)
    builder, final = stages()
    assert of(builder, "FROM") == ["${BASE} AS builder"]
    assert of(final, "FROM") == ["${BASE}"]
    [install] = [step for step in of(builder, "RUN") if "pip install" in step]
    assert install.startswith("POCKETMQ_COMPILED=1 ")
    assert not [step for step in of(final, "RUN") if "pip" in step or "gcc" in step]


def test_the_image_has_the_official_ports_user_and_folders() -> None:
    """Ports, uid 3000, store and log paths, a health check, an init process."""
    _, final = stages()
    assert set(of(final, "EXPOSE")[0].split()) == OFFICIAL_PORTS
    assert of(final, "USER") == ["3000:3000"]
    [setup] = of(final, "RUN")
    for words in (
        "groupadd --gid 3000 rocketmq",
        "useradd --uid 3000 --gid 3000",
        "-o 3000 -g 3000 /home/rocketmq/store /home/rocketmq/logs",
        " tini ",
        "rm -rf /var/lib/apt/lists/*",
    ):
        assert words in setup
    assert json.loads(of(final, "ENTRYPOINT")[0])[0] == "tini"
    assert of(final, "VOLUME") == ["/home/rocketmq/store"]


def test_the_image_says_what_it_is() -> None:
    """OCI's annotations, as the package has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [labels] = of(stages()[1], "LABEL")
    said = dict(pair.split("=", 1) for pair in shlex.split(labels))
    named = {name: said[f"org.opencontainers.image.{name}"] for name in ("version", "licenses")}
    assert named == {"version": project["version"], "licenses": project["license"]}
    assert said.keys() >= {
        f"org.opencontainers.image.{name}" for name in ("title", "description", "source")
    }


# Docker without an engine, as docker/release asks it: each call noted, and the digests that a registry gives.
_NOTING = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case "$*" in
    *image\\ inspect*python*) echo python@sha256:aaaa ;;
    *image\\ inspect*) printf 'elsewhere/mq@sha256:cccc\\nreg.test/mq@sha256:bbbb\\n' ;;
esac
"""


def test_a_release_prints_how_its_image_is_pinned(tmp_path: Path) -> None:
    """Labelled, pushed, named by the digest that the repository gave; uncommitted work is refused."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    checkout = tmp_path / "checkout"
    (checkout / "docker").mkdir(parents=True)
    for name in ("pyproject.toml", "docker/release", "docker/Dockerfile"):
        shutil.copy(ROOT / name, checkout / name)
    subprocess.run([*git, "init", "-q"], cwd=checkout, check=True)
    (tmp_path / "docker").write_text(_NOTING, "utf-8")
    (tmp_path / "docker").chmod(0o755)
    found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}

    def release() -> "subprocess.CompletedProcess[str]":
        command = ["docker/release", "reg.test/mq"]
        return subprocess.run(
            command, cwd=checkout, env={**os.environ, **found}, capture_output=True, text=True
        )

    refused = release()
    assert (refused.returncode, "commit first" in refused.stderr) == (1, True)
    subprocess.run([*git, "add", "."], cwd=checkout, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], cwd=checkout, check=True)
    released = release()
    assert released.returncode == 0, released.stderr
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert "image:   reg.test/mq@sha256:bbbb\n" in released.stdout
    assert f"image.tag={version}@sha256:bbbb\n" in released.stdout
    _, _, build, push, _ = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert push == f"push reg.test/mq:{version}"
    base = re.findall(r"^ARG BASE=(.+)$", (DOCKER / "Dockerfile").read_text("utf-8"), re.M)[0]
    labels = f"base.name=docker.io/library/{base} ", "base.digest=sha256:aaaa", "image.revision="
    for words in ("BASE=python@sha256:aaaa", *labels):
        assert words in build


def test_entry_point_and_health_check_are_files_of_the_image() -> None:
    _, final = stages()
    placed = {
        rest.split()[-1] + Path(source).name
        for rest in of(final, "COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    check = json.loads(of(final, "HEALTHCHECK")[0].partition("CMD ")[2])
    entry = json.loads(of(final, "ENTRYPOINT")[0])
    assert check[-1] in placed
    assert entry[-1] in placed


@pytest.mark.parametrize("script", ["entrypoint.sh", "healthcheck.sh"])
def test_the_scripts_are_plain_shell(script: str) -> None:
    subprocess.run(["sh", "-n", str(DOCKER / script)], check=True)
    assert (DOCKER / script).read_text().startswith("#!/bin/sh\n")


def test_each_run_step_is_plain_shell() -> None:
    for stage in stages():
        for step in of(stage, "RUN"):
            subprocess.run(["sh", "-n", "-c", step], check=True)


def test_the_compose_file_names_what_exists() -> None:
    """Its build, mounted files, ports, conditions and the client's entry point."""
    services = compose()["services"]
    broker, client = services["pocketmq"], services["client"]
    context = (DOCKER / broker["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / broker["build"]["dockerfile"]).is_file()
    assert client["image"] == broker["image"] == "${IMAGE:-pocketmq}"
    assert client["depends_on"]["pocketmq"]["condition"] == "service_healthy"
    assert of(stages()[1], "HEALTHCHECK")
    exposed = {port.split(":")[-1] for port in broker["ports"]}
    assert exposed <= OFFICIAL_PORTS
    # The address that clients get is one of the host: the client shares the broker's network to use it, too.
    assert broker["environment"]["POCKETMQ_BROKER_IP1"] == "${ADVERTISE:-127.0.0.1}"
    assert client["network_mode"] == "service:pocketmq"
    assert client["environment"]["NAMESRV_ADDR"] == "127.0.0.1:9876"
    for service in (broker, client):
        assert service["read_only"] == "true"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    (mount,) = client["volumes"]
    source, target, _ = mount.split(":")
    assert (DOCKER / source).is_file()
    assert client["entrypoint"] == [f"{IMAGE_FOLDER}/bin/python", target]
    volume, _, folder = broker["volumes"][0].partition(":")
    assert volume in compose()["volumes"]
    assert [folder] == of(stages()[1], "VOLUME")


def test_every_variable_is_one_that_the_servers_know() -> None:
    """POCKETMQ_* of the Dockerfile, the scripts and the compose file."""
    texts = [path.read_text(encoding="utf-8") for path in DOCKER.iterdir() if path.is_file()]
    named = set(re.findall(r"POCKETMQ_[A-Z0-9]+(?:_[A-Z0-9]+)*", " ".join(texts)))
    assert {"POCKETMQ_HOST", "POCKETMQ_DATA"} <= named
    of_others = {"POCKETMQ_NAMESRV_ADDR", "POCKETMQ_CONTEXT", "POCKETMQ_COMPILED"}
    values = dict.fromkeys(named - {"POCKETMQ_ROLE", "POCKETMQ_ROLE_FILE"} - of_others, "1")
    known = {*BrokerConfig.keys(), *StoreConfig.keys(), *ConsoleConfig.keys(), *GrpcConfig.keys()}
    assert unknown_variables(values, known) == []
    take_variables(ServerOptions("up"), values)


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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Image:
    """The Dockerfile's builder stage, step by step; compiled as in the image with --compiled-image."""
    compiled = request.config.getoption("--compiled-image")
    return Image(tmp_path_factory.mktemp("image"), compiled=compiled)


def test_the_image_holds_what_a_server_needs_and_no_more(image: Image) -> None:
    """No installer, no symbols; docs/how-to.md says what the layers weigh."""
    packages = {path.name for path in image.venv.glob("lib/*/site-packages/*")}
    assert {"pocketmq", "uvloop", "numpy"} <= packages
    assert not packages & {"pip", "pygments", "pydantic", "pyspark", "pyarrow", "mypy"}
    form = subprocess.run(
        [str(image.venv / "bin" / "pocketmq"), "--version"],
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert ("compiled" in form.stdout) == image.compiled, form
    sizes = [path.stat().st_size for path in image.venv.rglob("*") if path.is_file()]
    assert sum(sizes) < 100_000_000


# `docker run --read-only --cap-drop ALL --security-opt no-new-privileges`: only the store, which is $0, and
# /dev/shm can be written to.
_LOCK = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -t tmpfs tmpfs /dev/shm || exit 90
for each in /tmp /; do mountpoint -q "$each" && { mount -o remount,ro,bind "$each" || exit 91; }; done
touch /tmp/unwanted 2>/dev/null && exit 92
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
"""
_LOCKED = ["unshare", "--mount", "sh", "-c", _LOCK]


class Container:
    """The image's entry point running with these words; locked: as in a container without any rights."""

    def __init__(
        self,
        image: Image,
        folder: Path,
        words: list[str],
        *,
        locked: bool = False,
        **environment: str,
    ) -> None:
        namesrv, broker = free_ports(2)
        self.namesrv = f"127.0.0.1:{namesrv}"
        # The image listens on every address; a test stays on loopback.
        ports = {"POCKETMQ_NAMESRV_PORT": str(namesrv), "POCKETMQ_BROKER_PORT": str(broker)}
        self.environment = image.environment(
            **{**ports, "POCKETMQ_HOST": "127.0.0.1", **environment}
        )
        self.environment["POCKETMQ_DATA"] = str(folder / "store")
        self.environment["POCKETMQ_ROLE_FILE"] = str(folder / "role")
        command = ["env", "-i", *(f"{name}={value}" for name, value in self.environment.items())]
        if locked:
            (folder / "store").mkdir(parents=True)
            del self.environment["POCKETMQ_ROLE_FILE"]
            command = [*_LOCKED, str(folder / "store"), "env", "-i"]
            command += [f"{name}={value}" for name, value in self.environment.items()]
        self.process = Process(
            [*command, "sh", str(DOCKER / "entrypoint.sh"), *words], folder / "log"
        )

    def healthy(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(DOCKER / "healthcheck.sh")],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def run(image: Image, tmp_path: Path) -> Iterator[Callable[..., Container]]:
    started: list[Container] = []

    def start(*words: str, locked: bool = False, **environment: str) -> Container:
        folder = tmp_path / f"container{len(started)}"
        started.append(Container(image, folder, list(words), locked=locked, **environment))
        return started[-1]

    yield start
    for container in started:
        container.process.kill()


@pytest.mark.slow
def test_the_image_serves_is_healthy_and_stops(image: Image, run: Callable[..., Container]) -> None:
    """The same commands work in a clean virtual environment; SIGTERM ends with 0."""
    words = json.loads(of(stages()[1], "CMD")[0])
    container = run(*words)
    container.process.wait_for_line("ready")
    checked = container.healthy()
    assert checked.returncode == 0, checked
    assert container.namesrv in checked.stdout
    client = compose()["services"]["client"]
    python = client["entrypoint"][0].replace(IMAGE_FOLDER, str(image.venv))
    sample = DOCKER / client["volumes"][0].split(":")[0]
    done = subprocess.run(
        [python, str(sample)],
        env={**container.environment, "NAMESRV_ADDR": container.namesrv},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("received") == 10
    assert container.process.stop() == 0
    assert container.healthy().returncode != 0


@pytest.mark.slow
def test_it_serves_with_a_read_only_root_and_no_capabilities(
    image: Image, run: Callable[..., Container], tmp_path: Path
) -> None:
    """TLS included, whose certificate is loaded from a temporary file."""
    possible = subprocess.run([*_LOCKED, str(tmp_path), "true"], capture_output=True, text=True)
    if os.geteuid() != 0 or possible.returncode != 0:
        pytest.skip(f"mounts need root and mount namespaces: {possible.stderr.strip()}")
    container = run("up", locked=True)
    container.process.wait_for_line("ready")
    asked = subprocess.run(
        [str(image.venv / "bin" / "pocketmq"), "message", "send", "T", "x"],
        env={
            **clean_environment(),
            "NAMESRV_ADDR": container.namesrv,
            "POCKETMQ_TLS_ENABLE": "true",
        },
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    assert list((tmp_path / "container0" / "store").iterdir())
    assert container.process.stop() == 0


@pytest.mark.slow
def test_the_commands_of_the_official_images_start_their_roles(
    run: Callable[..., Container], tmp_path: Path
) -> None:
    """`sh mqnamesrv`, and `sh mqbroker -n ... -c broker.conf` as their compose files write it."""
    namesrv = run("sh", "mqnamesrv")
    namesrv.process.wait_for_line("ready")
    assert namesrv.healthy().returncode == 0
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName = from-the-file\nbrokerRole = ASYNC_MASTER\n", encoding="utf-8")
    broker = run("sh", "mqbroker", "-n", namesrv.namesrv, "-c", str(conf))
    assert "from-the-file" in broker.process.wait_for_line("ready")
    checked = broker.healthy()
    assert checked.returncode == 0, checked


@pytest.mark.slow
def test_a_role_by_variable_and_a_role_that_there_is_not(run: Callable[..., Container]) -> None:
    container = run(NODE_ROLE="nameserver")
    container.process.wait_for_line("ready")
    refused = run("proxy")
    while refused.process.returncode is None:
        time.sleep(0.01)
    assert refused.process.returncode == 2
    assert "no proxy" in refused.process.printed()
    # Not two signals: a process that gets a second one before it has ended is ended by it.
    assert container.process.stop() == 0
