"""The steps of the image in a clean environment: what it holds, and that it serves, also without rights."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.image_files import (
    DOCKER,
    IMAGE_FOLDER,
    Image,
    clean_environment,
    compose,
    of,
    stages,
)
from tests.interop.processes import Process
from tests.kit.ports import free_ports


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Image:
    """The Dockerfile's builder stage, step by step; compiled as in the image with --compiled-image."""
    compiled = request.config.getoption("--compiled-image")
    return Image(tmp_path_factory.mktemp("image"), compiled=compiled)


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
