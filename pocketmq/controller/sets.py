"""ReplicaSets: what a controller must never forget of each set of brokers; no I/O.

    name -> cluster, next id, {id: address, check code}, master, its epoch, the set in sync, epoch of that

1. Two numbers fence: the master's epoch grows with each election, also with one that elects no broker; the
   epoch of the in-sync set with each of its changes. An old master's change
   names an old epoch, and is refused.
2. Only a broker in sync is elected: all of these have every acknowledged message (RocketMQ's
   enableElectUncleanMaster does not exist here).
3. The first broker of a new name that asks becomes its master. A name that was registered by a broker with an
   id of its own is an older one, whose controller has lost its file: nothing says who was in sync, so only an
   operator's choice (a designated election) begins it again.
4. Epochs never go back: the next one is larger than any that a living broker reports.
5. Every change is kept before it is answered, and before it is seen here: `keep` is awaited with all sets as
   they will be. If it raises, nothing has changed. Changes are made one after the other.
Source: ReplicasInfoManager, RocketMQ 5.5.0; recorded: tests/controller/data.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pocketmq.remoting.admin_headers import NO_BROKER
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.java_number import INT_MAX

_R = ResponseCode
_SETS_MAX, _BROKERS_MAX, _TEXT_MAX = 10_000, 1_000, 255


class ControllerRefused(PocketMQError):
    """An answer with another code than SUCCESS."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def not_leading() -> ControllerRefused:
    return ControllerRefused(_R.NOT_LEADER, "this controller does not lead")


class Candidate(Protocol):
    """A living broker, by its last heartbeat."""

    @property
    def epoch(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def priority(self) -> int: ...


@dataclass(slots=True)
class Replica:
    """One broker: `ip:port`, and the check code by which it got its id; empty: it brought its id."""

    address: str
    check_code: str = ""


@dataclass(slots=True)
class ReplicaSet:
    """The brokers of one name. Ids are from 1 on. master: None while no broker leads."""

    name: str
    cluster: str
    next_id: int = 1
    replicas: dict[int, Replica] = field(default_factory=dict)
    master: int | None = None
    master_epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    in_sync_epoch: int = 0

    @property
    def master_address(self) -> str | None:
        return None if self.master is None else self.replicas[self.master].address

    @property
    def is_new(self) -> bool:
        """Return True if the first broker that asks may lead (invariant 3)."""
        brought = any(not each.check_code for each in self.replicas.values())
        return not self.master_epoch and not brought

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "nextId": self.next_id,
            "brokers": {n: [each.address, each.check_code] for n, each in self.replicas.items()},
            "master": self.master,
            "masterEpoch": self.master_epoch,
            "inSync": sorted(self.in_sync),
            "inSyncEpoch": self.in_sync_epoch,
        }

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> "ReplicaSet":
        """Parse a saved set. Raises: KeyError, TypeError, ValueError."""
        # A file leaves out what is None.
        master = data.get("master")
        return cls(
            name,
            str(data["cluster"]),
            int(data["nextId"]),
            {int(n): Replica(str(row[0]), str(row[1])) for n, row in data["brokers"].items()},
            None if master is None else int(master),
            int(data["masterEpoch"]),
            frozenset(map(int, data["inSync"])),
            int(data["inSyncEpoch"]),
        )


# All sets as they will be, and the name of the one that changes.
Keep = Callable[[Mapping[str, ReplicaSet], str], Awaitable[None]]


P = ParamSpec("P")
R = TypeVar("R")


def _one_at_a_time(
    act: Callable[Concatenate["ReplicaSets", P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["ReplicaSets", P], Coroutine[Any, Any, R]]:
    """Return a method that waits until no other changes the sets."""

    @wraps(act)
    async def in_turn(self: "ReplicaSets", /, *args: P.args, **named: P.kwargs) -> R:
        async with self.changing:
            return await act(self, *args, **named)

    return in_turn


class ReplicaSets:
    """Every set of one controller. Owner: its event loop."""

    def __init__(self, keep: Keep) -> None:
        """keep: keeps a change, durably. Raises: OSError, ControllerRefused."""
        self._keep = keep
        self.changing = asyncio.Lock()
        self.sets: dict[str, ReplicaSet] = {}

    async def begin(self, load: Callable[[], Awaitable[dict[str, ReplicaSet]]]) -> None:
        """Take the sets that were kept, between two changes. Raises: what `load` raises."""
        async with self.changing:
            self.sets = await load()

    def get(self, name: str) -> ReplicaSet:
        """Return a set. Raises: ControllerRefused (2008)."""
        found = self.sets.get(name)
        if found is None:
            raise ControllerRefused(_R.BROKER_METADATA_NOT_EXIST, f"no broker is called {name!r}")
        return found

    async def _change(self, changed: ReplicaSet) -> ReplicaSet:
        """Replace a set by its changed copy (invariant 5); one without brokers is forgotten.

        Raises: OSError, ControllerRefused.
        """
        after = {**self.sets, changed.name: changed}
        if not changed.replicas:
            del after[changed.name]
        await self._keep(after, changed.name)
        self.sets = after
        return changed

    # ------------------------------------------------------------ ids

    def next_id(self, name: str) -> int:
        """Return the id that the next new broker may apply for; nothing is reserved."""
        found = self.sets.get(name)
        return 1 if found is None else found.next_id

    @_one_at_a_time
    async def apply_id(self, cluster: str, name: str, broker_id: int, check_code: str) -> None:
        """Give a broker its id; again for the same check code. Raises: ControllerRefused (2014), OSError."""
        known = self.sets.get(name)
        mine = None if known is None else known.replicas.get(broker_id)
        if mine is not None and mine.check_code == check_code:
            return
        if mine is not None or broker_id != self.next_id(name):
            raise ControllerRefused(
                _R.BROKER_ID_INVALID, f"broker id {broker_id} of {name!r} is taken or not the next"
            )
        self._check_new(_R.BROKER_ID_INVALID, known, (cluster, name, check_code), broker_id)
        changed = ReplicaSet(name, cluster) if known is None else deepcopy(known)
        changed.replicas[broker_id] = Replica(check_code.partition(";")[0], check_code)
        changed.next_id = broker_id + 1
        await self._change(changed)

    @_one_at_a_time
    async def register(self, cluster: str, name: str, broker_id: int, address: str) -> ReplicaSet:
        """Note a broker's address. One that brought its id is added (invariant 3).

        Raises: ControllerRefused (2010) without an id, OSError.
        """
        known = self.sets.get(name)
        if known is not None and broker_id in known.replicas:
            if known.replicas[broker_id].address == address:
                return known
            _check_texts(_R.BROKER_NEED_TO_BE_REGISTERED, (address,))
            changed = deepcopy(known)
            changed.replicas[broker_id].address = address
            return await self._change(changed)
        if broker_id < 1:
            raise ControllerRefused(
                _R.BROKER_NEED_TO_BE_REGISTERED, f"broker id {broker_id} of {name!r} is unknown"
            )
        texts = (cluster, name, address)
        self._check_new(_R.BROKER_NEED_TO_BE_REGISTERED, known, texts, broker_id)
        changed = ReplicaSet(name, cluster) if known is None else deepcopy(known)
        changed.replicas[broker_id] = Replica(address)
        changed.next_id = max(changed.next_id, broker_id + 1)
        return await self._change(changed)

    def _check_new(
        self, code: ResponseCode, known: ReplicaSet | None, texts: Iterable[str], broker_id: int
    ) -> None:
        """Check what a new broker says of itself. Raises: ControllerRefused with this code."""
        _check_texts(code, texts)
        if broker_id >= INT_MAX:
            raise ControllerRefused(code, f"broker id {broker_id} is too large")
        if len(self.sets) >= _SETS_MAX if known is None else len(known.replicas) >= _BROKERS_MAX:
            raise ControllerRefused(
                code,
                f"a controller keeps {_SETS_MAX} sets of {_BROKERS_MAX} brokers: clean those that are "
                "no more (mqadmin cleanBrokerMetadata)",
            )

    # ------------------------------------------------------------ elections

    @_one_at_a_time
    async def elect(
        self,
        name: str,
        broker_id: int,
        alive: Mapping[int, Candidate],
        *,
        designated: bool = False,
        may_replace: bool = True,
    ) -> ReplicaSet:
        """Elect a master (invariants 1 to 4). broker_id: the broker that asks, or the designated one;
        NO_BROKER: the controller asks. may_replace: False while a silent master may be alive.

        Raises: ControllerRefused: 2010 unknown, 2011 the old master lives, 2012 and 2004 no broker may lead;
        OSError.
        """
        known = self.sets.get(name)
        if known is None or broker_id not in (NO_BROKER, *known.replicas):
            is_choice = designated and known is not None
            code = _R.ELECT_MASTER_FAILED if is_choice else _R.BROKER_NEED_TO_BE_REGISTERED
            raise ControllerRefused(code, f"broker id {broker_id} of {name!r} is unknown")
        chosen = self.choose(known, broker_id, alive, designated=designated)
        if chosen is not None and chosen == known.master:
            raise ControllerRefused(_R.MASTER_STILL_EXIST, f"broker {chosen} leads {name!r}")
        if chosen is not None and known.master is not None and not may_replace:
            raise ControllerRefused(
                _R.ELECT_MASTER_FAILED, f"the master of {name!r} may still be alive: ask again"
            )
        changed = deepcopy(known)
        reported = [each.epoch for each in alive.values()]
        if chosen is None:
            if broker_id != NO_BROKER:
                raise ControllerRefused(
                    _R.ELECT_MASTER_FAILED,
                    f"no broker of {name!r} that is alive may lead: in sync are {sorted(known.in_sync)}",
                )
            if known.master is not None:
                changed.master = None
                changed.master_epoch = max(known.master_epoch, *reported, 0) + 1
                await self._change(changed)
            raise ControllerRefused(_R.MASTER_NOT_AVAILABLE, f"no broker may lead {name!r}")
        changed.master = chosen
        changed.master_epoch = max(known.master_epoch, *reported, 0) + 1
        changed.in_sync = frozenset((chosen,))
        changed.in_sync_epoch += 1
        return await self._change(changed)

    @staticmethod
    def choose(
        known: ReplicaSet, broker_id: int, alive: Mapping[int, Candidate], *, designated: bool
    ) -> int | None:
        """Return which broker is to lead; the present master if it lives."""
        if not known.master_epoch:
            begins = broker_id != NO_BROKER and (designated or known.is_new)
            return broker_id if begins else None
        candidates = {n: alive[n] for n in known.in_sync if n in alive}
        if designated:
            return broker_id if broker_id in candidates else None
        if known.master in candidates:
            return known.master
        return max(
            candidates,
            key=lambda n: (candidates[n].epoch, candidates[n].max_offset, -candidates[n].priority),
            default=None,
        )

    # ------------------------------------------------------------ who is in sync

    @_one_at_a_time
    async def alter(
        self,
        name: str,
        master: int,
        master_epoch: int,
        in_sync: Iterable[int],
        in_sync_epoch: int,
        is_alive: Callable[[int], bool],
    ) -> ReplicaSet:
        """Take the master's change of the in-sync set. Raises: ControllerRefused, OSError.

        The order of the checks is RocketMQ's: 2013, 2002, 2000, 2001, 2003, 2006, 2013.
        """
        known, wanted = self.sets.get(name), frozenset(in_sync)
        if known is None:
            raise ControllerRefused(_R.ALTER_SYNC_STATE_SET_FAILED, f"{name!r} is unknown")
        unknown = wanted - known.replicas.keys()
        dead = [n for n in wanted if n not in unknown and not is_alive(n)]
        checks = (
            (known.in_sync == wanted, _R.ALTER_SYNC_STATE_SET_FAILED, "it is the same set"),
            (known.master != master, _R.INVALID_MASTER, f"{known.master} leads, not {master}"),
            (known.master_epoch != master_epoch, _R.FENCED_MASTER_EPOCH, str(known.master_epoch)),
            (
                known.in_sync_epoch != in_sync_epoch,
                _R.FENCED_SYNC_STATE_SET_EPOCH,
                f"the epoch of the set is {known.in_sync_epoch}, not {in_sync_epoch}",
            ),
            (bool(unknown), _R.INVALID_REPLICAS, f"unknown: {sorted(unknown)}"),
            (bool(dead), _R.BROKER_NOT_ALIVE, f"without a heartbeat: {dead}"),
            (master not in wanted, _R.ALTER_SYNC_STATE_SET_FAILED, "its master is not in it"),
        )
        for fails, code, remark in checks:
            if fails:
                raise ControllerRefused(code, f"the in-sync set of {name!r} stays: {remark}")
        changed = deepcopy(known)
        changed.in_sync = wanted
        changed.in_sync_epoch += 1
        return await self._change(changed)

    @_one_at_a_time
    async def clean(
        self, name: str, broker_ids: Iterable[int], is_alive: Callable[[int], bool], *, living: bool
    ) -> None:
        """Forget brokers of a set; all if none is named. Raises: ControllerRefused (2009), OSError."""
        known = self.sets.get(name)
        if known is None:
            raise ControllerRefused(_R.INVALID_CLEAN_BROKER_METADATA, f"{name!r} is unknown")
        wanted = set(broker_ids) or set(known.replicas)
        alive = sorted(n for n in wanted if is_alive(n))
        if alive and not living:
            raise ControllerRefused(
                _R.INVALID_CLEAN_BROKER_METADATA, f"these brokers of {name!r} are alive: {alive}"
            )
        changed = deepcopy(known)
        for n in wanted:
            changed.replicas.pop(n, None)
        changed.in_sync -= wanted
        if changed.master in wanted:
            changed.master = None
            changed.master_epoch += 1
        await self._change(changed)


def _check_texts(code: ResponseCode, texts: Iterable[str]) -> None:
    for text in texts:
        if not text or len(text) > _TEXT_MAX or not text.isprintable():
            raise ControllerRefused(
                code, f"not a name or address of a broker: {text[:_TEXT_MAX]!r}"
            )
