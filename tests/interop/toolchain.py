"""The official programs: where they come from, built once into a cache folder.

    $POCKETMQ_PEERS or .peers/ at the repository's root
        java-HASH/MODULE/classpath.txt   jars of one class path, joined by ':' (in Maven's own cache)
        java-HASH/MODULE/classes/        our driver compiled against them (client and tools modules)
        java-client-VERSION-HASH/        our program Daily and that Java client, by --java-versions
        go-HASH/interop, sdk             our drivers with client-go and with the SDK of RocketMQ 5
        node-HASH/                       our drivers with ali-ons and with the SDK of RocketMQ 5; axe-core
        python-HASH/                     a Python with the SDK of RocketMQ 5
        rust-HASH/bin/sdk                our driver with the SDK of RocketMQ 5; Cargo keeps rust-target/

HASH covers the sources and the lists of dependencies, so a change builds beside what is running.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SOURCES = HERE / "peers"

CLIENT_VERSIONS = ("4.9.8", "5.5.0")
TOOLS_VERSIONS = ("4.9.7", "5.5.0")
BROKER_VERSIONS = ("4.9.7", "5.5.0")
BENCHMARK_VERSION = "5.5.0"
H2SPEC_VERSION = "v2.2.1+incompatible"

_OFFLINE = (
    "Could not resolve",
    "Could not transfer",
    "UnknownHostException",
    "dial tcp",
    "ENOTFOUND",
    "EAI_AGAIN",
    "Network is unreachable",
    "No matching distribution",
    "failed to download",
)


class ToolchainMissing(Exception):
    """A peer cannot be run on this machine; the text says what to install."""


def folder() -> Path:
    """The cache folder, created."""
    path = Path(os.environ.get("POCKETMQ_PEERS") or REPOSITORY / ".peers")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def program(name: str, install: str) -> str:
    """The full path of a program. Raises: ToolchainMissing with the advice `install`."""
    found = shutil.which(name)
    if found is None:
        raise ToolchainMissing(f"{name} is not on the PATH. Install it: {install}")
    return found


def java() -> str:
    return program("java", "JDK 17 or newer (Debian: apt install openjdk-17-jdk-headless)")


def class_path(module: str) -> str:
    """Jars and our classes of a Maven module, such as "client-4.9.8" or "broker-4.9.7"."""
    built = java_peers() / module
    jars = (built / "classpath.txt").read_text(encoding="utf-8").strip()
    classes = built / "classes"
    return f"{classes}{os.pathsep}{jars}" if classes.is_dir() else jars


def java_peers() -> Path:
    java()
    maven = program("mvn", "Maven 3.8 or newer (Debian: apt install maven)")

    def build(target: Path) -> None:
        run = [maven, "-q", "-B", f"-Dpeers.output={target}", "compile"]
        _run(run, SOURCES / "java", "Maven")

    return _built("java", build, valid=_jars_exist)


def java_version(version: str) -> str:
    """The class path of the program Daily and of the Java client of this version, of 4.3 to 5.x."""
    java()
    maven = program("mvn", "Maven 3.8 or newer (Debian: apt install maven)")

    def build(target: Path) -> None:
        given = [f"-Drocketmq.version={version}", f"-Dpeers.output={target}"]
        _run([maven, "-q", "-B", *given, "compile"], SOURCES / "java-versions", "Maven")

    built = _built("java-versions", build, name=f"java-client-{version}")
    jars = (built / "classpath.txt").read_text(encoding="utf-8").strip()
    return f"{built / 'classes'}{os.pathsep}{jars}"


def go_driver(name: str = "interop") -> Path:
    """The executable of a Go driver: "interop" or "sdk"."""
    go = program("go", "Go 1.25 or newer (https://go.dev/dl or Debian: apt install golang)")

    def build(target: Path) -> None:
        _run([go, "build", "-o", f"{target}/", "./..."], SOURCES / "go", "Go")

    return _built("go", build) / name


def h2spec() -> Path:
    """The conformance test of HTTP/2: its executable."""
    go = program("go", "Go 1.25 or newer (https://go.dev/dl or Debian: apt install golang)")

    def build(target: Path) -> None:
        module = f"github.com/summerwind/h2spec/cmd/h2spec@{H2SPEC_VERSION}"
        _run(["env", f"GOBIN={target}", go, "install", module], target, "Go")

    return _built("h2spec", build) / "h2spec"


def node_driver(name: str = "driver") -> tuple[str, Path]:
    """The node executable and the main file of a Node driver: "driver" or "sdk"."""
    node = program("node", "Node.js 18 or newer (https://nodejs.org or Debian: apt install nodejs)")
    npm = program("npm", "npm, which comes with Node.js (Debian: apt install npm)")

    def build(target: Path) -> None:
        for each in (SOURCES / "node").glob("*.js*"):
            shutil.copy(each, target)
        _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], target, "npm")

    return node, _built("node", build) / f"{name}.js"


def axe_core() -> Path:
    """Deque's rules of accessibility: a script for a browser's page."""
    _, main = node_driver()
    return main.parent / "node_modules" / "axe-core" / "axe.min.js"


def rust_driver() -> Path:
    """The executable of the Rust driver; building it takes minutes."""
    cargo = cargo_command()

    def build(target: Path) -> None:
        _run(
            [*cargo, "install", "--locked", "--debug", "--path", ".", "--root", f"{target}"],
            SOURCES / "rust",
            "Cargo",
        )

    return _built("rust", build) / "bin" / "sdk"


def cargo_command() -> list[str]:
    """Cargo, with a place where it keeps what it has compiled."""
    cargo = program("cargo", "Rust (https://rustup.rs or Debian: apt install cargo)")
    return ["env", f"CARGO_TARGET_DIR={folder() / 'rust-target'}", cargo]


def python_driver() -> list[str]:
    """The command that runs the driver with RocketMQ's Python SDK, which has a Python of its own."""

    def build(target: Path) -> None:
        # Its scripts name this place, and are not used: only the interpreter is.
        _run([sys.executable, "-m", "venv", str(target)], target, "venv")
        install = [str(target / "bin" / "python"), "-m", "pip", "install", "-q"]
        requirements = SOURCES / "python" / "requirements.txt"
        _run([*install, "--disable-pip-version-check", "-r", str(requirements)], target, "pip")

    python = _built("python", build) / "bin" / "python"
    return [str(python), str(SOURCES / "sdk.py")]


def _built(
    kind: str,
    build: Callable[[Path], None],
    valid: Callable[[Path], bool] = Path.is_dir,
    name: str = "",
) -> Path:
    """The folder of one kind of peer; built under a lock when it is not there yet or not valid.

    name: of the folder, where one kind's sources make several.
    """
    name = name or kind
    target = folder() / f"{name}-{_fingerprint(SOURCES / kind)}"
    if target.is_dir() and valid(target):
        return target
    with _locked(folder() / f"{name}.lock"):
        if target.is_dir() and valid(target):
            return target
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder(), prefix=f"{name}-building-") as place:
            # Built elsewhere and renamed, so that a build that was broken off is never taken for whole.
            building = Path(place) / "built"
            building.mkdir()
            build(building)
            building.rename(target)
    return target


def _jars_exist(target: Path) -> bool:
    """Maven's cache may have been emptied since."""
    return all(
        Path(jar).is_file()
        for listing in target.glob("*/classpath.txt")
        for jar in listing.read_text(encoding="utf-8").strip().split(os.pathsep)
        if jar
    )


def _fingerprint(tree: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not {"node_modules", "target"} & set(path.relative_to(tree).parts):
            digest.update(path.relative_to(tree).as_posix().encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _run(command: list[str], folder_: Path, what: str) -> None:
    done = subprocess.run(command, cwd=folder_, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    printed = (done.stdout + done.stderr)[-3000:]
    if any(sign in printed for sign in _OFFLINE):
        raise ToolchainMissing(
            f"{what} could not download the peers. Connect to the network once, or point "
            f"POCKETMQ_PEERS at a folder where they were built.\n{printed}"
        )
    raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{printed}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
