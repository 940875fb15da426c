"""Front: all services for one broker. Imported when the first client connects."""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.services import Parts
from pocketmq.grpc.clients import Clients, GrpcClient
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.http2.call import Method
from pocketmq.grpc.services.access import GrpcAccess
from pocketmq.grpc.services.context import FrontAddress, RequestContext
from pocketmq.grpc.services.keda import KedaScaler
from pocketmq.grpc.services.lite import LiteServices
from pocketmq.grpc.services.offsets import Offsets
from pocketmq.grpc.services.pulls import Pulls
from pocketmq.grpc.services.receives import Receives
from pocketmq.grpc.services.routes import Routes
from pocketmq.grpc.services.sends import Sends
from pocketmq.grpc.services.sessions import Sessions, translate
from pocketmq.grpc.services.standard import HealthService, Reflection
from pocketmq.grpc.services.transactions import Transactions

log = logging.getLogger(__name__)


class Front:
    """Attributes: methods (by path), clients."""

    def __init__(self, parts: Parts, config: GrpcConfig, place: FrontAddress) -> None:
        self._clock = parts.node.clock
        events = parts.node.events

        access = GrpcAccess(parts.node.accounts, self._clock.monotonic_ms)
        gone = events.connection_closed
        self.clients = Clients(
            self._clock, parts.node.call_soon, self._translate, gone, access.account_of
        )
        context = RequestContext(parts, config, place, self.clients, access)
        self._sessions = sessions = Sessions(context)
        self._transactions = transactions = Transactions(context)
        self._keda = KedaScaler(context)
        lite = LiteServices(context)
        self.methods: dict[bytes, Method] = {}
        for service in (
            sessions,
            Routes(context),
            Sends(context, sessions, transactions),
            Receives(context, sessions, lite),
            lite,
            transactions,
            Offsets(context),
            Pulls(context),
            self._keda,
            HealthService(),
            Reflection(),
        ):
            self.methods.update(service.methods())

    def _translate(
        self, client: GrpcClient, code: int, fields: Mapping[str, str], body: bytes
    ) -> Any:
        """See `translate`; a producer that is asked about a transaction answers with its id alone."""
        command = translate(client, code, fields, body)
        if command is not None and command.HasField("recover_orphaned_transaction_command"):
            asked = command.recover_orphaned_transaction_command
            self._transactions.asked(asked.transaction_id, fields, asked.message.topic.name)
        return command

    def scan(self) -> None:
        """Remove silently lost clients and pick up changed groups; called periodically."""
        self.clients.scan()
        self._sessions.refresh()
        self._keda.look()
