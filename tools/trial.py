"""How long a newcomer waits: `make trial` clones what is committed, runs `make run` there until it is ready,
and sends and reads the tutorial's first message. It prints what pip does, and the seconds after each step.

Nothing is built but PocketMQ's own wheel. Ports are free ones, and all that it makes is removed. Exit code 1
if it is not ready within 60 s, which two quiet cores need not.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 60
_PORTS = "--namesrv-port 0 --broker-port 0 --grpc-port -1 --console-port 0"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="pocketmq-trial-"))
    try:
        return _try_in(folder / "pocketmq")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try_in(clone: Path) -> int:
    began = time.monotonic()
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True
    )
    _show("cloned", began)
    # Of its own session: make and the server end together.
    server = subprocess.Popen(
        ["make", "run", f"ARGS={_PORTS}"],
        cwd=clone,
        env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        namesrv = _until_ready(server)
        took_s = _show("ready", began)
        for words in (
            ["message", "send", "TopicTest", "hello", "--tag", "tagA"],
            ["message", "tail", "TopicTest", "--count", "1"],
        ):
            subprocess.run([clone / ".venv/bin/pocketmq", *words, "-n", namesrv], check=True)
        _show("read", began)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    return 0 if took_s <= LIMIT_S else 1


def _until_ready(server: "subprocess.Popen[str]") -> str:
    """Show what it prints, and return the name server of its `ready` line."""
    assert server.stdout is not None
    for line in server.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        if found := re.match(r"ready .*?namesrv=(\S+)", line):
            return found[1]
    raise SystemExit(f"make run ended with {server.wait()}")


def _show(what: str, began: float) -> float:
    took_s = time.monotonic() - began
    sys.stdout.write(f"{what:8}{took_s:6.1f} s\n")
    sys.stdout.flush()
    return took_s


if __name__ == "__main__":
    sys.exit(main())
