"""Keeper: where the sets of a controller are kept, and whether this controller leads.

FileKeeper                   one controller with a file; it always leads
etcd_keeper.EtcdKeeper       any number of controllers with one etcd
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from pocketmq.controller.sets import ReplicaSet

Load = Callable[[], Awaitable[dict[str, ReplicaSet]]]
Begin = Callable[[Load], Awaitable[None]]


class SetsFile(Protocol):
    """The file of the sets: store.config_file.LatestFile, since an earlier version would let a broker
    lead that is not in sync any more.
    """

    def load(self) -> Any | None: ...
    def save(self, value: Any) -> None: ...


class Keeper(Protocol):
    """What a controller needs of either."""

    @property
    def leads(self) -> bool:
        """Return True while this controller may answer and change."""
        ...

    @property
    def leader(self) -> str:
        """Return the address of the controller that leads; empty if none is known."""
        ...

    @property
    def members(self) -> Mapping[str, str]:
        """Return the addresses of all controllers, by id."""
        ...

    async def keep(self, sets: Mapping[str, ReplicaSet], name: str) -> None:
        """Keep all sets as they will be; only `name` changes. Raises: OSError, ControllerRefused (2007)."""
        ...

    async def start(self, address: str, begin: Begin) -> None:
        """Begin. address: this controller's. begin: takes the sets, each time this controller begins to lead.

        Raises: OSError, KeyError, TypeError, ValueError for sets that cannot be read.
        """
        ...

    async def run(self) -> None:
        """Take part until cancelled."""
        ...


class FileKeeper:
    """One controller with a file; None keeps nothing, for tests."""

    leads = True

    def __init__(self, file: SetsFile | None) -> None:
        self._file = file
        self.leader = ""

    @property
    def members(self) -> Mapping[str, str]:
        return {"n0": self.leader}

    async def keep(self, sets: Mapping[str, ReplicaSet], name: str) -> None:
        # On the loop's thread: nothing may be answered before it, and changes are rare.
        if self._file is not None:
            self._file.save({each: found.to_json() for each, found in sets.items()})

    async def start(self, address: str, begin: Begin) -> None:
        self.leader = address
        await begin(self._load)

    async def _load(self) -> dict[str, ReplicaSet]:
        data = (None if self._file is None else self._file.load()) or {}
        return {name: ReplicaSet.from_json(name, row) for name, row in data.items()}

    async def run(self) -> None:
        """A file has nothing to do."""
