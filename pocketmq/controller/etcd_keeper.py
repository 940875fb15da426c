"""EtcdKeeper: the sets of any number of controllers, kept in etcd; one of these controllers leads.

    PREFIX/GROUP/leader              {"id", "address"}, under the leader's lease
    PREFIX/GROUP/members/ID          address, under that controller's lease
    PREFIX/GROUP/sets/BROKER_NAME    ReplicaSet.to_json()

1. Who makes the key `leader` leads. Its create revision is the token: every change is one transaction that
   demands the token, and the revision of the set that it replaces. So a controller that was replaced can
   change nothing, however late its request arrives.
2. A controller answers only while its lease is certainly alive: until the time at which it sent the last
   renewal that succeeded, plus the lease's time, less _MARGIN_MS. Its own clock alone measures that.
3. A change whose answer is lost may have been made. The controller stops leading, and reads the sets again
   before it continues.
4. etcd without a majority: no controller leads. Masters and slaves keep their roles.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

from pocketmq.controller.etcd_gateway import (
    EtcdError,
    EtcdGateway,
    created_at,
    delete,
    modified_at,
    put,
)
from pocketmq.controller.keeping import Begin
from pocketmq.controller.sets import ReplicaSet, not_leading

log = logging.getLogger(__name__)

PREFIX = "/pocketmq/controller"
_TTL_S = 5
_MARGIN_MS = 1_000
_LOOK_S = 0.5


class EtcdKeeper:
    """See the head of the file. own_id: this controller's, unique among those of the group."""

    def __init__(
        self,
        etcd: EtcdGateway,
        group: str,
        own_id: str,
        monotonic_ms: Callable[[], int],
        ttl_s: int = _TTL_S,
    ) -> None:
        """ttl_s: time of the lease; 2 at least."""
        self._etcd = etcd
        self._root = f"{PREFIX}/{group}"
        self._own_id = own_id
        self._monotonic_ms = monotonic_ms
        self._address = ""
        self.leader = ""
        self.members: Mapping[str, str] = {}
        self.trouble = ""
        self._lease = 0
        self._ttl_s = ttl_s
        self._renewed_ms = self._ttl_ms = 0
        # Invariants 1 and 2; 0 while this controller does not lead.
        self._token = 0
        self._until_ms = 0
        # Broker name -> revision of its set.
        self._revisions: dict[str, int] = {}

    @property
    def leads(self) -> bool:
        return self._monotonic_ms() < self._until_ms

    def _stop_leading(self) -> None:
        self._token = self._until_ms = 0

    # ------------------------------------------------------------ changes

    async def keep(self, sets: Mapping[str, ReplicaSet], name: str) -> None:
        if not self.leads:
            raise not_leading()
        changed, key = sets.get(name), self._key_of(name)
        act = delete(key) if changed is None else put(key, json.dumps(changed.to_json()))
        conditions = [
            created_at(self._key_of_leader, self._token),
            modified_at(key, self._revisions.get(name, 0)),
        ]
        try:
            revision, leader = await self._etcd.change(conditions, act, self._key_of_leader)
        except EtcdError:
            # Invariant 3.
            self._stop_leading()
            raise
        if revision:
            self._revisions[name] = 0 if changed is None else revision
            return
        self._stop_leading()
        if leader is not None and leader.lease == self._lease:
            raise EtcdError(f"{key} was changed by another program: it is read again")
        raise not_leading()

    async def _load(self) -> dict[str, ReplicaSet]:
        prefix = f"{self._root}/sets/"
        found = {each.key.removeprefix(prefix): each for each in await self._etcd.under(prefix)}
        self._revisions = {name: each.mod for name, each in found.items()}
        return {
            name: ReplicaSet.from_json(name, json.loads(each.value)) for name, each in found.items()
        }

    @property
    def _key_of_leader(self) -> str:
        return f"{self._root}/leader"

    def _key_of(self, name: str) -> str:
        return f"{self._root}/sets/{name}"

    # ------------------------------------------------------------ leading

    async def start(self, address: str, begin: Begin) -> None:
        self._address, self._begin = address, begin

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._look()
                    self.trouble = ""
                except EtcdError as error:
                    self._failed(str(error))
                except (KeyError, TypeError, ValueError) as error:
                    self._failed(f"what etcd has cannot be read: {error!r}")
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._leave()

    def _failed(self, trouble: str) -> None:
        if not self.leads:
            self._stop_leading()
            self.leader = ""
        if trouble != self.trouble:
            log.warning("etcd: %s; leads=%s", trouble, self.leads)
        self.trouble = trouble

    async def _look(self) -> None:
        """Renew the lease, and look who leads; lead if no controller does."""
        now_ms = self._monotonic_ms()
        is_due = not self._lease or now_ms - self._renewed_ms >= self._ttl_s * 300
        if is_due and not await self._renew(now_ms):
            return
        if self._token and not is_due:
            return
        key = self._key_of_leader
        value = json.dumps({"id": self._own_id, "address": self._address})
        made, found = await self._etcd.change(
            [created_at(key, 0)], put(key, value, self._lease), key
        )
        if made:
            await self._lead(made)
        elif found is not None and found.lease == self._lease:
            await self._lead(found.create)
        elif found is not None:
            self._stop_leading()
            leader = str(json.loads(found.value)["address"])
            if leader != self.leader:
                log.warning("another controller leads address=%s", leader)
            self.leader = leader
        if is_due:
            await self._find_members()

    async def _renew(self, now_ms: int) -> bool:
        """Return False if the lease has ended: the next look begins another."""
        if not self._lease:
            self._lease, ttl_s = await self._etcd.grant(self._ttl_s), self._ttl_s
            key = f"{self._root}/members/{self._own_id}"
            await self._etcd.change([], put(key, self._address, self._lease), key)
        else:
            ttl_s = await self._etcd.keep_alive(self._lease)
        self._ttl_ms = ttl_s * 1000
        if not ttl_s:
            self._lease = 0
            self._stop_leading()
            return False
        self._renewed_ms = now_ms
        return True

    async def _lead(self, token: int) -> None:
        """Lead, or continue to."""
        if self._token != token:
            self._token = token
            try:
                await self._begin(self._load)
            except BaseException:
                self._stop_leading()
                raise
            log.warning("this controller leads address=%s", self._address)
        self._until_ms = self._renewed_ms + self._ttl_ms - _MARGIN_MS
        self.leader = self._address

    async def _find_members(self) -> None:
        prefix = f"{self._root}/members/"
        entries = await self._etcd.under(prefix)
        self.members = {each.key.removeprefix(prefix): each.value for each in entries}

    async def _leave(self) -> None:
        """Have another controller lead at once, if etcd answers."""
        self._stop_leading()
        try:
            if self._lease:
                await self._etcd.revoke(self._lease)
        except EtcdError as error:
            log.info("the lease ends by itself: %s", error)
        finally:
            await self._etcd.close()
