"""Callers: connections, and the accounts that requests over them were accepted with."""

import logging
from collections.abc import Callable

from pocketmq.broker.access.fronts import Caller
from pocketmq.remoting.transport.peer import Peer

log = logging.getLogger("pocketmq.broker.access.acl")

# Entries of closed ones are dropped at times, not by weak references: those to objects of compiled classes
# are left behind.
_CLEAN_EVERY = 256


class Callers:
    """key_of: the access key of each client's latest accepted request."""

    def __init__(self) -> None:
        self.key_of: dict[Peer, str] = {}
        # Connections with each access key that a request over them was accepted with.
        self._admitted: set[tuple[Caller, str]] = set()

    def note(self, peer: Peer, access_key: str) -> None:
        """Remember the access key that a client authenticated with, until it disconnects."""
        if len(self.key_of) % _CLEAN_EVERY == _CLEAN_EVERY - 1 and peer not in self.key_of:
            self.key_of = {peer: key for peer, key in self.key_of.items() if not peer.closed}
        self.key_of[peer] = access_key

    def admit(self, caller: Caller, access_key: str) -> None:
        """Remember that a request was accepted; access_key: "" if its address was enough."""
        name = caller, access_key
        if name not in self._admitted:
            if len(self._admitted) % _CLEAN_EVERY == _CLEAN_EVERY - 1:
                self._admitted = {each for each in self._admitted if not each[0].closed}
            self._admitted.add(name)

    def key(self, peer: Peer) -> str:
        """Return the access key of a client's latest accepted request; "" without one."""
        return self.key_of.get(peer, "")

    def same(self, one: Peer, other: Peer) -> bool:
        """Return True if the latest signatures of two clients are of the same account."""
        return self.key(one) == self.key(other)

    def close_others(self, keeps: Callable[[str, str], bool]) -> bool:
        """Close connections by access key and IP; return whether there were any."""
        lost = {
            caller
            for caller, key in self._admitted
            if not caller.closed and not keeps(key, ip_of(caller.peer))
        }
        left = {caller.peer for caller in lost}
        self._admitted = {each for each in self._admitted if each[0] not in lost}
        self.key_of = {peer: key for peer, key in self.key_of.items() if peer.address not in left}
        for caller in lost:
            log.warning("connection closed: its account has lost rights peer=%s", caller.peer)
            caller.abort()
        return bool(lost)


def ip_of(peer: str) -> str:
    """Return the IP of `ip:port`."""
    return peer.rpartition(":")[0]
