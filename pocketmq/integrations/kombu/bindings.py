"""Bindings: which queues an exchange gives its messages to, for all processes of a cluster.

They are in the name servers' key-value table, which outlives every process: namespace `kombu.exchanges`
has the type of each exchange, and `kombu.bindings.EXCHANGE` a row a binding.

1. A queue of one process only (auto_delete or exclusive) has a lease, which that process renews: after a
   crash its rows expire.
2. A name server that was away lacks rows: the process that declared one writes it again, in each round.
3. A look-up may be FRESH_MS old; where it finds no queue, and for fanout, the name server is asked again.
Owner: Link; runs in the link's loop.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pocketmq.admin import Admin
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import RemotingError

log = logging.getLogger(__name__)

FRESH_MS = 1_000
LEASE_MS = 300_000
ROUND_MS = 30_000

_EXCHANGES = "kombu.exchanges"
_BINDINGS = "kombu.bindings."


class Binding(NamedTuple):
    """A row: the queue, its routing key, and for topic exchanges the pattern."""

    queue: str
    routing_key: str
    pattern: str | None

    @property
    def key(self) -> str:
        return json.dumps([self.queue, self.routing_key])


class Bindings:
    """prefix: goes before exchanges, to keep applications apart."""

    def __init__(self, admin: Admin, clock: Clock, prefix: str = "") -> None:
        self._admin = admin
        self._clock = clock
        self._prefix = prefix
        self._types: dict[str, str] = {}
        self._tables: dict[str, tuple[int, list[Binding]]] = {}
        # What this process has declared, and whether with a lease.
        self._own: dict[str, dict[Binding, bool]] = {}

    def _namespace(self, exchange: str) -> str:
        return f"{_BINDINGS}{self._prefix}{exchange}"

    # ------------------------------------------------------------ exchanges

    async def declare(self, exchange: str, kind: str) -> None:
        """Note the type of an exchange."""
        if self._types.get(exchange) != kind:
            known = await self.type_of(exchange)
            if known != kind:
                await self._put(_EXCHANGES, self._prefix + exchange, kind)
            self._types[exchange] = kind

    async def type_of(self, exchange: str) -> str | None:
        """Return the type of an exchange, None if no process has declared it."""
        if exchange not in self._types:
            found = await self._admin.settings.get_kv(_EXCHANGES, self._prefix + exchange)
            if found is None:
                return None
            self._types[exchange] = found
        return self._types[exchange]

    async def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange with its bindings."""
        for binding in await self.table(exchange, fresh=True):
            await self.unbind(exchange, binding)
        self._types.pop(exchange, None)
        await self._delete(_EXCHANGES, self._prefix + exchange)

    async def exchanges(self) -> list[str]:
        """Return the names of all exchanges."""
        found = await self._admin.settings.list_kv(_EXCHANGES)
        size = len(self._prefix)
        return sorted(name[size:] for name in found if name.startswith(self._prefix))

    # ------------------------------------------------------------ bindings

    async def bind(self, exchange: str, binding: Binding, *, leased: bool) -> None:
        """Add a binding. leased: see invariant 1."""
        if leased or binding not in await self.table(exchange):
            await self._put(self._namespace(exchange), binding.key, self._row(binding, leased))
        self._own.setdefault(exchange, {})[binding] = leased
        self._tables.pop(exchange, None)

    async def unbind(self, exchange: str, binding: Binding) -> None:
        """Remove a binding; an unknown one is no error."""
        self._own.get(exchange, {}).pop(binding, None)
        self._tables.pop(exchange, None)
        await self._delete(self._namespace(exchange), binding.key)

    async def forget(self, queue: str) -> None:
        """Remove all bindings of a queue."""
        for exchange in {*self._own, *await self.exchanges()}:
            for binding in await self.table(exchange, fresh=True):
                if binding.queue == queue:
                    await self.unbind(exchange, binding)

    async def table(self, exchange: str, *, fresh: bool = False) -> list[Binding]:
        """Return the bindings of an exchange."""
        now_ms = self._clock.monotonic_ms()
        read_ms, known = self._tables.get(exchange, (None, []))
        if not fresh and read_ms is not None and now_ms - read_ms < FRESH_MS:
            return known
        rows = await self._admin.settings.list_kv(self._namespace(exchange))
        table = self._live(rows)
        self._tables[exchange] = now_ms, table
        return table

    def _row(self, binding: Binding, leased: bool) -> str:
        until_ms = self._clock.now_ms() + LEASE_MS if leased else None
        return json.dumps({"pattern": binding.pattern, "untilMs": until_ms})

    def _live(self, rows: dict[str, str]) -> list[Binding]:
        found, now_ms = [], self._clock.now_ms()
        for key, text in rows.items():
            try:
                (queue, routing_key), row = json.loads(key), json.loads(text)
                until_ms, pattern = row["untilMs"], row["pattern"]
            except (ValueError, TypeError, KeyError):
                log.warning("a binding is malformed and ignored key=%s value=%s", key, text)
                continue
            if until_ms is None or until_ms > now_ms:
                found.append(Binding(queue, routing_key, pattern))
        return found

    # ------------------------------------------------------------ rounds

    async def round(self) -> None:
        """Renew the leases, write what a name server lacks, delete what has expired (invariants 1, 2)."""
        for exchange, own in list(self._own.items()):
            namespace = self._namespace(exchange)
            for address in self._admin.name_servers:
                try:
                    rows = await self._admin.settings.list_kv(namespace, at=address)
                    for binding, leased in list(own.items()):
                        if leased or binding.key not in rows:
                            row = self._row(binding, leased)
                            await self._admin.settings.put_kv(
                                namespace, binding.key, row, at=(address,)
                            )
                    for key in _long_expired(rows, self._clock.now_ms()):
                        await self._admin.settings.delete_kv(namespace, key, at=(address,))
                except RemotingError as error:
                    log.warning("name server unreachable address=%s reason=%r", address, str(error))

    async def leave(self) -> None:
        """Remove the bindings of queues of this process only."""
        for exchange, own in list(self._own.items()):
            for binding in [each for each, leased in own.items() if leased]:
                await self.unbind(exchange, binding)

    # ------------------------------------------------------------ the table

    async def _put(self, namespace: str, key: str, value: str) -> None:
        settings = self._admin.settings
        await self._everywhere(lambda at: settings.put_kv(namespace, key, value, at=(at,)))

    async def _delete(self, namespace: str, key: str) -> None:
        settings = self._admin.settings
        await self._everywhere(lambda at: settings.delete_kv(namespace, key, at=(at,)))

    async def _everywhere(self, call: Callable[[str], Awaitable[None]]) -> None:
        """Call with each name server; some may be away (invariant 2). Raises: the last failure if all are."""
        done, last = False, None
        for address in self._admin.name_servers:
            try:
                await call(address)
                done = True
            except RemotingError as error:
                last = error
        if not done and last is not None:
            raise last


def _long_expired(rows: dict[str, str], now_ms: int) -> list[str]:
    found = []
    for key, text in rows.items():
        try:
            until_ms = json.loads(text)["untilMs"]
        except (ValueError, TypeError, KeyError):
            continue
        if until_ms is not None and until_ms + LEASE_MS < now_ms:
            found.append(key)
    return found
