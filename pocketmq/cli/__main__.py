"""The `pocketmq` command. The servers start directly from here; all other commands use typer."""

import os
import sys

from pocketmq.cli.encoding import not_text, texts, write_any_text
from pocketmq.cli.exits import CannotBegin, ExitCode, complain, without_extras

# RocketMQ's own words for the same, so that its compose files and habits keep working.
_SERVERS = {
    "up": "up",
    "namesrv": "namesrv",
    "mqnamesrv": "namesrv",
    "nameserver": "namesrv",
    "broker": "broker",
    "mqbroker": "broker",
    "controller": "controller",
}


def mqbroker() -> int:
    """The console script `mqbroker`: RocketMQ's word for `pocketmq broker`."""
    return main(["broker", *sys.argv[1:]])


def mqnamesrv() -> int:
    """The console script `mqnamesrv`: RocketMQ's word for `pocketmq namesrv`."""
    return main(["namesrv", *sys.argv[1:]])


def main(arguments: list[str] | None = None) -> int:
    """Run a command, by default that of sys.argv; return the exit code (see ExitCode)."""
    # numpy starts a thread for each core otherwise, which takes 0.07 CPU-s; no matrix is multiplied here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    write_any_text()
    try:
        try:
            return _run(texts(sys.argv[1:] if arguments is None else arguments))
        except ModuleNotFoundError as missing:
            raise without_extras(missing) from missing
        except UnicodeEncodeError as error:
            raise not_text(error.object) from error
    except CannotBegin as error:
        complain(error)
        return int(ExitCode.USAGE)


def _run(arguments: list[str]) -> int:
    """Run the command. Raises: CannotBegin, ModuleNotFoundError."""
    role = _SERVERS.get(arguments[0]) if arguments else None
    if role is not None:
        from pocketmq.cli.servers.server import serve

        return int(serve(role, arguments[1:]))
    if arguments in (["--version"], ["-V"]):
        print(version())
        return int(ExitCode.OK)
    if arguments[:1] == ["broker-process"]:
        from pocketmq.cli.servers.broker_process import wait_and_serve
        from pocketmq.cli.servers.server import serve

        return int(wait_and_serve(serve))
    if arguments[:1] == ["health"]:
        from pocketmq.cli.commands.health import health

        return int(health(arguments[1:]))
    from pocketmq.cli.app import run

    return run(arguments)


def version() -> str:
    """Return `pocketmq 0.1.0 (pure Python)`, or `(compiled)` if the hot paths are libraries."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.metadata import version as installed
    from importlib.util import find_spec

    spec = find_spec("pocketmq.remoting.frames")
    origin = "" if spec is None else spec.origin or ""
    form = "compiled" if origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"
    return f"pocketmq {installed('pocketmq')} ({form})"


if __name__ == "__main__":
    sys.exit(main())
