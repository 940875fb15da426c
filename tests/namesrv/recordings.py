"""The recorded conversations with real name servers (tests/golden/data/wire), as pairs."""

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pocketmq.remoting.command import RemotingCommand, decode

WIRE = Path(__file__).parents[1] / "golden" / "data" / "wire"


@dataclass(frozen=True)
class Exchange:
    """A request to the name server with the answer of the real one; None when it was one-way."""

    name: str
    request: RemotingCommand
    answer: RemotingCommand | None


def recordings(prefix: str) -> list[str]:
    """Names of the recordings that begin so."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in WIRE.glob(f"{prefix}*.jsonl.gz"))


@cache
def exchanges(name: str, server: str = "namesrv") -> list[Exchange]:
    """All requests of one recording to the server of that kind, in the order in which they came."""
    asked: list[tuple[tuple[str, int], RemotingCommand]] = []
    answers: dict[int, RemotingCommand] = {}
    open_requests: dict[tuple[str, int], int] = {}
    with gzip.open(WIRE / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if "frame" not in entry or not entry["conn"].startswith(f"{server}#"):
                continue
            command = decode(base64.b64decode(entry["frame"])[4:])
            key = (entry["conn"], entry["opaque"])
            if entry["dir"] == "c2s" and entry["kind"] != "response":
                open_requests[key] = len(asked)
                asked.append((key, command))
            elif entry["dir"] == "s2c" and entry["kind"] == "response" and key in open_requests:
                answers[open_requests.pop(key)] = command
    return [
        Exchange(f"{name} {key[0]} {key[1]}", command, answers.get(place))
        for place, (key, command) in enumerate(asked)
    ]
