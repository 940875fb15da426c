"""GrpcClient: an SDK's client as a peer of the broker; and the table of all of them by account and id.

1. Account and id identify the client, whichever connections it uses: a peer that only knows the id of another
   account's client cannot act for it. A client is removed when it says goodbye, is silent for SILENT_MS, or
   has had no connection for PARTED_MS.
2. The broker's requests to clients go over their Telemetry calls. SDK clients do not share queues themselves,
   so notices to rebalance are not passed on.
3. A client that has sent no settings is registered by its requests: after a restart of the broker most are.
4. If there are too many, the owner with the most (an account; without accounts, an address) loses its client
   with the oldest request. If all settings together are too large, the client with the largest is removed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.http2.call import GrpcCall, framed
from pocketmq.grpc.schema import Code
from pocketmq.grpc.services.questions import Questions
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import LanguageCode
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.transport.peer import PeerAnswer
from pocketmq.remoting.transport.turns import CallSoon, Turns

if TYPE_CHECKING:
    from pocketmq.grpc.http2.call import Carrier

log = logging.getLogger(__name__)

SILENT_MS = 120_000
# Longer than the pause between two heartbeats: a living client reconnects with the next one.
PARTED_MS = 15_000
_ID_SIZE_MAX = 255
_COUNT_MAX = 20_000
_KEPT_MAX = 128 << 20
_OTHERS = {"GOLANG": LanguageCode.GO, "DOT_NET": LanguageCode.DOTNET}

# Makes a command of a request that the broker sends: code, fields, body; None: it is not for such clients.
Translate = Callable[["GrpcClient", int, Mapping[str, str], bytes], Any]


class GrpcClient:
    """A Peer. account: its access key, empty without access control; settings: as the client last sent
    them, None before; told: the answer it got; seen_ms: monotonic; owner: see invariant 4; kept: bytes of its
    settings.
    """

    __slots__ = (
        "__weakref__",
        "_ask",
        "_translate",
        "account",
        "client_id",
        "closed",
        "connection",
        "kept",
        "language",
        "memberships",
        "owner",
        "questions",
        "seen_ms",
        "settings",
        "telemetry",
        "told",
        "topics",
    )

    def __init__(
        self,
        account: str,
        client_id: str,
        language: str,
        connection: "Carrier",
        translate: Translate,
    ) -> None:
        self.account = account
        self.client_id = client_id
        self.language = language
        self.connection = connection
        self._translate = translate
        self.questions = Questions(client_id, language)
        self.telemetry: GrpcCall | None = None
        self.settings: Any = None
        self.told: Any = None
        # Consumer groups that it is in, with what it asks for; topics that it produces to.
        self.memberships: dict[str, Any] = {}
        self.topics: set[str] = set()
        self.closed = False
        self.seen_ms = self.kept = 0
        self.owner = account or connection.ip

    def __repr__(self) -> str:
        return f"<GrpcClient {self.client_id}>"

    @property
    def protocol(self) -> str:
        return "grpc"

    @property
    def address(self) -> str:
        return self.connection.peer

    @property
    def host(self) -> bytes:
        return self.connection.host

    @property
    def writable(self) -> bool:
        """Return True if it can be sent something."""
        return self.telemetry is not None and not self.telemetry.gone and not self.closed

    def command(self, command: Any) -> None:
        """Send a TelemetryCommand. Raises: ConnectionLost."""
        if self.telemetry is None or self.telemetry.gone:
            raise ConnectionLost(
                f"cannot reach the client {self.client_id}: it has no open telemetry stream"
            )
        if self.connection.is_backed_up:
            raise ConnectionLost(f"the client {self.client_id} does not read what it is sent")
        self.telemetry.write(framed(command.SerializeToString()))

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        command = self._translate(self, code, fields, body)
        if command is not None:
            self.command(command)

    async def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> PeerAnswer:
        return await self.questions.ask(self.command, code, fields, body, timeout_ms)

    def when_read(self, run: Callable[[], None]) -> None:
        self.connection.when_read(run)

    def abort(self) -> None:
        """Drop it: the broker has given it up. Its Telemetry call ends, its connections may serve others."""
        if self.telemetry is not None and not self.telemetry.gone:
            self.telemetry.finish()


class Clients:
    """Owner of the clients by account and id; `gone` is called with each that leaves."""

    def __init__(
        self,
        clock: Clock,
        call_soon: CallSoon | None,
        translate: Translate,
        gone: Callable[[GrpcClient], None],
        account_of: Callable[[GrpcCall], str],
    ) -> None:
        """call_soon: see Turns."""
        self._monotonic_ms = clock.monotonic_ms
        self._lost = Turns[tuple[GrpcClient, str]](clock, call_soon, self._part)
        self._kept = 0
        self._count_of: Counter[str] = Counter()
        self._account_of = account_of
        self._translate = translate
        self._gone = gone
        # In the order in which they were seen last.
        self.by_id: dict[tuple[str, str], GrpcClient] = {}

    def of(self, call: GrpcCall) -> GrpcClient:
        """Return the client of a call whose signature was checked. Raises: StatusFailure."""
        client_id = call.text(b"x-mq-client-id")
        if not client_id or len(client_id) > _ID_SIZE_MAX:
            raise StatusFailure(
                Code.CLIENT_ID_REQUIRED,
                f"the header x-mq-client-id must name the client, in 1 to {_ID_SIZE_MAX} "
                "characters",
            )
        account = self._account_of(call)
        client = self.by_id.pop((account, client_id), None)
        if client is None:
            if len(self.by_id) >= _COUNT_MAX:
                self._make_room()
            client = GrpcClient(
                account, client_id, _language(call), call.connection, self._translate
            )
            self._count_of[client.owner] += 1
        self.by_id[account, client_id] = client
        client.connection = call.connection
        client.seen_ms = self._monotonic_ms()
        return client

    def remove(self, client: GrpcClient, why: str) -> None:
        """Remove a client. Its Telemetry call stays: one that says goodbye ends it itself.

        Node's SDK takes an end that it did not ask for as a fault, and is back a second later.
        """
        name = client.account, client.client_id
        if self.by_id.get(name) is client:
            self._take_out(client)
            self._announce(client, why)

    def _take_out(self, client: GrpcClient) -> None:
        del self.by_id[client.account, client.client_id]
        client.closed = True
        client.questions.close()
        self.keep(client, 0)
        self._count_of[client.owner] -= 1
        if not self._count_of[client.owner]:
            del self._count_of[client.owner]

    def _announce(self, client: GrpcClient, why: str) -> None:
        log.info("client removed id=%s peer=%s why=%r", client.client_id, client.address, why)
        self._gone(client)

    def _part(self, lost: tuple[GrpcClient, str]) -> None:
        client, why = lost
        self._announce(client, why)
        client.abort()

    def _make_room(self) -> None:
        """Apply invariant 4 to their number."""
        count_of = self._count_of
        most = max(count_of, key=count_of.__getitem__)
        oldest = next(client for client in self.by_id.values() if client.owner == most)
        self.remove(oldest, f"too many clients ({count_of[most]} of them from {most})")

    def keep(self, client: GrpcClient, size: int) -> None:
        """Set the bytes of a client's settings, and apply invariant 4 to them."""
        if client.closed:
            size = 0
        self._kept += size - client.kept
        client.kept = size
        while self._kept > _KEPT_MAX:
            largest = max(self.by_id.values(), key=lambda each: each.kept)
            log.warning(
                "client removed: id=%s peer=%s has settings of %d bytes, all clients together %d, "
                "which is too many",
                largest.client_id,
                largest.address,
                largest.kept,
                self._kept,
            )
            self.remove(largest, "too many settings")
            largest.abort()

    def scan(self) -> None:
        """Remove silent clients (invariant 1)."""
        now_ms = self._monotonic_ms()
        lost: list[tuple[GrpcClient, str]] = []
        for client in list(self.by_id.values()):
            silent_ms = now_ms - client.seen_ms
            if silent_ms < PARTED_MS:
                break
            if silent_ms >= SILENT_MS:
                why = "it is silent"
            elif client.connection.closed:
                why = "its connection ended, and no other came"
            else:
                continue
            self._take_out(client)
            lost.append((client, why))
        self._lost.add(lost)


def _language(call: GrpcCall) -> str:
    """Map a client's language: any word is accepted, and RocketMQ's own is used if there is one."""
    word = call.text(b"x-mq-language").upper()
    if word in LanguageCode.__members__:
        return word
    return _OTHERS.get(word, LanguageCode.OTHER).name
