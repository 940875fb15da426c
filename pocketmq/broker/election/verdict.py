"""Elected, a verdict: what a controller says of a set of brokers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import MasterHeader
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import number


@dataclass(frozen=True, slots=True)
class Elected:
    """master_id: None while no broker leads. in_sync_epoch: that of the set."""

    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: frozenset[int]
    in_sync_epoch: int


def verdict_of(answer: RemotingCommand) -> Elected:
    """Read an answer to 1002, 1003 or 1004. Raises: HeaderError."""
    header = MasterHeader.parse(answer.ext)
    in_sync, epoch = set_of(answer.body)
    if header.sync_state_set_epoch is not None:
        epoch = header.sync_state_set_epoch
    master = header.master_broker_id if header.master_address else None
    return Elected(master, header.master_address or "", header.master_epoch or 0, in_sync, epoch)


def set_of(body: bytes | bytearray | memoryview) -> tuple[frozenset[int], int]:
    """Read who is in sync, and the epoch of that, 0 if absent. Raises: HeaderError."""
    data: Any = fastjson.loads(body) if body else {}
    if not isinstance(data, Mapping):
        raise HeaderError("the controller's answer is no object")
    try:
        members = data.get("syncStateSet") or ()
        return frozenset(map(number, members)), number(data.get("syncStateSetEpoch") or 0)
    except (TypeError, ValueError) as error:
        raise HeaderError(
            f"the controller's answer is no SyncStateSet: {str(data)[:200]}"
        ) from error
