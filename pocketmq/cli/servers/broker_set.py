"""The brokers of `up --brokers N` and `up --replicas N`: their names, folders and ports.

    number  name    folder           port
         0  NAME    DATA             PORT           as a single broker has them
         1  NAME-1  DATA/broker-1    PORT + 10
         2  NAME-2  DATA/broker-2    PORT + 20

Replicas all have the name NAME, and DATA/replica-1 and so on: the first is the master.

1. The first broker is what a single broker would be, so one that ran alone keeps its messages, its name and
   its clients when others are added.
2. Folders are numbered, not named: a container's host name, which names its broker, changes at each start.
3. Every broker with a folder runs: consumers would miss the messages of a store that no broker opens. Those
   beyond the number requested are read-only, until they are empty and their folders are moved away.
4. Ports are ten apart, since a RocketMQ broker also has PORT - 2 and PORT + 1. Port 0: any free one for each.
"""

import os
import re
from collections.abc import Mapping

from pocketmq.cli.exits import CannotBegin

COUNT_MAX = 64
PORT_STEP = 10
_FOLDER = re.compile(r"broker-([1-9][0-9]*)")


def folder_of(data: str, number: int, kind: str = "broker") -> str:
    return data if number == 0 else os.path.join(data, f"{kind}-{number}")


def name_of(base: str, number: int) -> str:
    return base if number == 0 else f"{base}-{number}"


def port_of(base: int, number: int) -> int:
    return base + number * PORT_STEP if base else 0


def count_in(data: str) -> int:
    """Return how many brokers have stores in `data`; the first one always counts."""
    try:
        names = os.listdir(data)
    except OSError:
        return 1
    found = [_FOLDER.fullmatch(name) for name in names]
    return 1 + max((int(each[1]) for each in found if each), default=0)


def chosen_count(asked: int | None, data: str) -> int:
    """Return how many to run: as requested, or as `data` has if these are more. Raises: CannotBegin."""
    if asked is not None and not 1 <= asked <= COUNT_MAX:
        raise CannotBegin(f"--brokers takes a number from 1 to {COUNT_MAX}, not {asked}")
    return max(asked or 1, count_in(data))


def replica_count(replicas: int | None, brokers: int | None, *, controller: bool = False) -> int:
    """Return how many replicas to run, 1: a single broker. Raises: CannotBegin."""
    if replicas is None and controller:
        raise CannotBegin("--controller elects among replicas: add --replicas 3, or 2")
    if replicas is None:
        return 1
    if not 2 <= replicas <= COUNT_MAX:
        raise CannotBegin(f"--replicas takes a number from 2 to {COUNT_MAX}, not {replicas}")
    if brokers is not None:
        raise CannotBegin(
            "--brokers and --replicas cannot be combined: start two sites with --replicas instead"
        )
    return replicas


def check_settings(settings: Mapping[str, str], port: int, count: int) -> None:
    """Refuse settings that several brokers cannot share. Raises: CannotBegin."""
    if settings.get("storePathCommitLog"):
        raise CannotBegin(
            f"storePathCommitLog is set, and {count} brokers cannot share that folder: leave it "
            f"out, and name one folder for all of them with --data"
        )
    if settings.get("tls.server.mode") == "enforcing":
        raise CannotBegin(
            "tls.server.mode=enforcing refuses the plain connections over which several brokers register:"
            " set it to permissive, or run one broker"
        )
    if port_of(port, count - 1) > 65_535:
        raise CannotBegin(
            f"the ports of {count} brokers are {port}, {port + PORT_STEP}, ... and exceed 65535: "
            f"choose a smaller one"
            " with --broker-port (0 takes any free ones)"
        )
