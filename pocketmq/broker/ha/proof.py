"""Proof: a master and its slave show each other that both know an administrator's secret; no I/O.

    slave -> master    INTRODUCE    account, nonce, address            the address that the slave has dialled
    master -> slave    challenge, haAddress, HMAC("master", all of these)
    slave -> master    FOLLOW       account, nonce, challenge, HMAC("slave", all of these)
    master -> slave    ticket: the first 8 bytes on a connection to haAddress, once, within TICKET_MS

A request's signature covers neither its code nor the time, so a program that a slave has asked can use what
it was sent at the real master. That must give it nothing:

1. The master proves itself first, and only for an address that is its own; so a slave signs nothing for a
   program that has merely registered as its master.
2. The slave's proof holds for a challenge that belongs to one connection and CHALLENGE_MS, and only the slave
   that proves itself gets a ticket. The address of the port for slaves is part of both proofs.
3. A stranger may collect proofs to guess a secret at home: each guess costs _ROUNDS of PBKDF2.
PocketMQ only; Apache masters do not know the two requests, Apache slaves follow from listed addresses.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable
from functools import lru_cache

from pocketmq.broker.ha.wire import COMPARED

CHALLENGE_MS, TICKET_MS = 30_000, 10_000
_ROUNDS = 50_000
_TICKETS_MAX = 256
RandomBytes = Callable[[int], bytes]


@lru_cache(maxsize=16)
def derived_key(account: str, secret: str) -> bytes:
    """Return the key of all proofs of an account (invariant 3)."""
    salt = b"pocketmq follow " + account.encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac("sha256", secret.encode("utf-8", "surrogatepass"), salt, _ROUNDS)


def proof(key: bytes, role: str, words: Iterable[str]) -> str:
    """Return the proof of `role` (master, slave) over `words`, in hexadecimal digits.

    >>> proof(b"k", "master", ["ab", "c"]) == proof(b"k", "master", ["a", "bc"])
    False
    """
    made = hmac.new(key, role.encode(), hashlib.sha256)
    for word in words:
        raw = word.encode("utf-8", "surrogatepass")
        made.update(len(raw).to_bytes(4, "big") + raw)
    return made.hexdigest()


def proves(key: bytes, role: str, words: Iterable[str], given: str) -> bool:
    """Return True if `given` is that proof."""
    return hmac.compare_digest(proof(key, role, words).encode(), given.encode("utf-8", "replace"))


class Challenges:
    """A master's challenges (invariant 2), which it recognises without keeping them."""

    def __init__(
        self, monotonic_ms: Callable[[], int], random_bytes: RandomBytes = os.urandom
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._key = random_bytes(32)
        self._random_bytes = random_bytes

    def new(self, connection: str) -> str:
        """Return a challenge for a connection, `ip:port` of the peer."""
        begin = f"{self._monotonic_ms()}.{self._random_bytes(16).hex()}"
        return f"{begin}.{self._mark(begin, connection)}"

    def holds(self, challenge: str, connection: str) -> bool:
        """Return True if this is a recent challenge for that connection."""
        begin, _, mark = challenge.rpartition(".")
        if not hmac.compare_digest(self._mark(begin, connection).encode(), mark.encode()):
            return False
        return self._monotonic_ms() - int(begin.partition(".")[0]) <= CHALLENGE_MS

    def _mark(self, begin: str, connection: str) -> str:
        return proof(self._key, "challenge", (begin, connection))


class Tickets:
    """A master's tickets: each admits one connection of an account to the port for slaves."""

    def __init__(
        self, monotonic_ms: Callable[[], int], random_bytes: RandomBytes = os.urandom
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._random_bytes = random_bytes
        # Ticket -> (account, its key, until when).
        self._open: dict[int, tuple[str, bytes, int]] = {}

    def issue(self, account: str, key: bytes) -> int:
        """Return a new ticket: below COMPARED (wire.py), so that it is no position of a log."""
        now_ms = self._monotonic_ms()
        self._open = {each: row for each, row in self._open.items() if row[2] > now_ms}
        if len(self._open) >= _TICKETS_MAX:
            del self._open[next(iter(self._open))]
        ticket = COMPARED - 1 - (int.from_bytes(self._random_bytes(8), "big") >> 2)
        self._open[ticket] = account, key, now_ms + TICKET_MS
        return ticket

    def take(self, ticket: int) -> tuple[str, bytes] | None:
        """Use a ticket up; return the account and the key that it was issued for, None if it is not valid."""
        row = self._open.pop(ticket, None)
        if row is None or row[2] <= self._monotonic_ms():
            return None
        return row[:2]
