"""The image without an engine: what its files name exists, and its steps work in a clean environment.

The Dockerfile's installation is run as it stands, with the folder of the image replaced by
a temporary one; then the entry point, the health check and the sample client of the compose file run there.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.servers.server_config import take_variables, unknown_variables
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.console.config import ConsoleConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.store import StoreConfig
from tests.house.image_files import (
    DOCKER,
    IMAGE_FOLDER,
    ROOT,
    Image,
    compose,
    instructions,
    of,
    stages,
)

OFFICIAL_PORTS = {"9876", "10909", "10911", "10912"}


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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Image:
    """The Dockerfile's builder stage, step by step; compiled as in the image with --compiled-image."""
    compiled = request.config.getoption("--compiled-image")
    return Image(tmp_path_factory.mktemp("image"), compiled=compiled)
