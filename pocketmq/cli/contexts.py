"""Contexts: named clusters; what a command needs to reach one, kept in a file of the user's.

    {"selected": "prod", "contexts": {"prod": {"NAMESRV_ADDR": "mq1:9876;mq2:9876", ...}}}

1. A context is a set of values for the environment variables that commands read (VARIABLES). The environment
   itself takes precedence over the selected context; a named one (--context, POCKETMQ_CONTEXT) over both.
2. The file may hold secrets: only its owner can read it. It is replaced whole, by one command at a time.
The file: pocketmq/contexts.json below $XDG_CONFIG_HOME, else below ~/.config.
"""

import json
import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pocketmq.cli.exits import CannotBegin

VARIABLES = (
    "NAMESRV_ADDR",
    "POCKETMQ_ACCESS_KEY",
    "POCKETMQ_SECRET_KEY",
    "POCKETMQ_TLS_ENABLE",
    "POCKETMQ_TLS_CA",
)
Context = Mapping[str, str]


def path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pocketmq" / "contexts.json"


def load() -> tuple[str | None, dict[str, Context]]:
    """Return the selected name, and all contexts by name. Raises: CannotBegin if the file is damaged."""
    try:
        data = json.loads(path().read_text("utf-8"))
        return data.get("selected"), dict(data["contexts"])
    except FileNotFoundError:
        return None, {}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CannotBegin(f"cannot read the contexts in {path()}: {error}") from error


@contextmanager
def alone() -> Iterator[None]:
    """Hold off other commands that change the file, from `load` to `save`. Raises: CannotBegin."""
    from pocketmq.store.one_writer import one_writer

    with ExitStack() as stack:
        try:
            path().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(one_writer(path()))
        except OSError as error:
            raise CannotBegin(f"cannot change the contexts in {path()}: {error}") from error
        yield


def save(selected: str | None, contexts: Mapping[str, Context]) -> None:
    """Replace the file (invariant 2). Raises: CannotBegin."""
    file, fresh = path(), path().with_suffix(".new")
    text = json.dumps({"selected": selected, "contexts": contexts}, indent=2)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text + "\n")
        fresh.replace(file)
    except OSError as error:
        raise CannotBegin(f"cannot write the contexts to {file}: {error}") from error


def named(name: str, contexts: Mapping[str, Context]) -> Context:
    """Return the context of that name. Raises: CannotBegin."""
    if name not in contexts:
        raise CannotBegin(f"no context {name!r}; see: pocketmq context list")
    return contexts[name]


def environment() -> Mapping[str, str]:
    """Return the environment merged with this command's context: POCKETMQ_CONTEXT, else the selected one."""
    selected, contexts = load()
    # As servers read theirs: an empty one is not set, blanks around a value are not part of it.
    own = {name: value.strip() for name, value in os.environ.items() if value.strip()}
    chosen = own.get("POCKETMQ_CONTEXT")
    if chosen:
        return ChainMap(dict(named(chosen, contexts)), own)
    below = {} if selected is None else named(selected, contexts)
    return ChainMap(own, dict(below))
