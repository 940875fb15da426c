"""RequestContext: what every gRPC service needs: the broker's acts and tables, clients, deferred answers.

A service is a function: request, client, call -> answer, a message or its bytes. It raises StatusFailure or
Refused, which become the answer's status; None means that it answers later; a coroutine is awaited for the
answer. A generator does what takes long in steps, between which others are served, and returns the answer.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from types import CoroutineType, GeneratorType
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from pocketmq.broker.acts.clients import ClientActs
from pocketmq.broker.acts.lite import LiteActs
from pocketmq.broker.acts.offsets import OffsetActs
from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.acts.pull import PullActs
from pocketmq.broker.acts.recall import RecallActs
from pocketmq.broker.acts.receipts import ReceiptActs
from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.acts.send_back import SendBackActs
from pocketmq.broker.acts.transactions import TransactionActs
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.clients import Clients, GrpcClient
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.http2.call import GrpcCall, GrpcError, GrpcStatus, Method
from pocketmq.grpc.messages import classes
from pocketmq.grpc.remote_routes import RemoteRoutes
from pocketmq.grpc.schema import SERVICE, Code
from pocketmq.grpc.services.access import GrpcAccess, Needs
from pocketmq.model.names import (
    SYSTEM_GROUP_PREFIX,
    group_is_legal,
    is_broker_only,
    topic_fault,
)
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode

log = logging.getLogger(__name__)

Service = Callable[[Any, GrpcClient, GrpcCall], Any]
Saved = asyncio.Future[None]

MESSAGE_TYPE = "message.type"
# Of a request without messages, which is read in one go: a message of many empty fields takes 25 ms a MiB.
REQUEST_SIZE_MAX = 1 << 20
_TOPIC_SIZE_MAX = 127
_GROUP_SIZE_MAX = 120
_NOT_KEPT = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "the message is stored, but not yet flushed to disk",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: (
        "the message is stored, but not yet replicated to the slaves"
    ),
    ResponseCode.SLAVE_NOT_AVAILABLE: "the message is stored, but too few slaves are in sync",
}


class Acts(NamedTuple):
    """The broker's acts that the front calls."""

    clients: ClientActs
    lite: LiteActs
    offsets: OffsetActs
    pop: PopActs
    pull: PullActs
    recall: RecallActs
    receipts: ReceiptActs
    send: SendActs
    send_back: SendBackActs
    transactions: TransactionActs

    @classmethod
    def of(cls, parts: Parts) -> "Acts":
        node, tables, members = parts.node, parts.tables, parts.members
        messages, services = parts.messages, parts.services
        return cls(
            clients=ClientActs(node, tables, members),
            lite=LiteActs(node, tables, messages, services.lite.service),
            offsets=OffsetActs(tables, members, messages),
            pop=PopActs(node, tables, members, messages, services.pop),
            pull=PullActs(node, tables, members, messages, services.long_polling),
            recall=RecallActs(node, tables, messages),
            receipts=ReceiptActs(node, tables, messages, services.pop),
            send=SendActs(node, tables, messages),
            send_back=SendBackActs(node, tables, messages),
            transactions=TransactionActs(messages, services.half),
        )


class FrontAddress(NamedTuple):
    """The address of this front. host, port: advertised to clients that do not say how they connected;
    spawn: runs what waits for others, for as long as the port serves.
    """

    host: str
    port: int
    remote_routes: RemoteRoutes
    spawn: Callable[[Coroutine[Any, Any, None]], object]


class RequestContext:
    """Attributes: parts, acts, clients, access, config, place."""

    def __init__(
        self,
        parts: Parts,
        config: GrpcConfig,
        place: FrontAddress,
        clients: Clients,
        access: GrpcAccess,
    ) -> None:
        self.parts = parts
        self._store = parts.messages.store
        self.acts = Acts.of(parts)
        self.config = config
        self.place = place
        self.clients = clients
        self.access = access
        self.broker_name = parts.node.config.broker_name

    # ------------------------------------------------------------ services

    def method(
        self,
        name: str,
        service: Service,
        needs: Needs,
        large: Callable[[Any, bytes], Any] | None = None,
    ) -> dict[bytes, Method]:
        """Return a row of the table of methods; needs: the rights that a request needs; large: parses one of
        more than REQUEST_SIZE_MAX, which is refused otherwise.
        """
        asked, answer_of = classes[f"{name}Request"], classes[f"{name}Response"]

        def handle(call: GrpcCall, data: bytes | None) -> Iterator[None] | None:
            data = data or b""
            if large is not None and len(data) > REQUEST_SIZE_MAX:
                request = large(asked, data)
            else:
                request = parsed(asked, data)
            try:
                self.check_role()
                if not self.access.is_open:
                    self.access.check(call, needs(request))
                answer = service(request, self.clients.of(call), call)
            except Exception as error:  # noqa: BLE001
                answer = answer_of(status=failure(call, error))
            if isinstance(answer, bytes):
                call.reply(answer)
            elif isinstance(answer, CoroutineType):
                self.place.spawn(later(call, answer))
            elif isinstance(answer, GeneratorType):
                return stepped(call, answer)
            elif answer is not None:
                call.reply(answer.SerializeToString())
            return None

        def stepped(call: GrpcCall, answering: Generator[None, None, Any]) -> Iterator[None]:
            try:
                answer = yield from answering
            except Exception as error:  # noqa: BLE001
                answer = answer_of(status=failure(call, error))
            if answer is not None:
                call.reply(answer.SerializeToString())

        async def later(call: GrpcCall, answering: Coroutine[Any, Any, Any]) -> None:
            try:
                answer = await answering
            except Exception as error:  # noqa: BLE001
                answer = answer_of(status=failure(call, error))
            call.reply(answer.SerializeToString())

        def failure(call: GrpcCall, error: Exception) -> Any:
            if isinstance(error, Refused):
                error = StatusFailure.by(error)
            elif not isinstance(error, StatusFailure):
                log.error("%s failed peer=%s", name, call.connection.peer, exc_info=error)
                text = f"{type(error).__name__}: {error}"
                error = StatusFailure(Code.INTERNAL_SERVER_ERROR, text)
            return error.status

        return {f"/{SERVICE}/{name}".encode(): Method(handle)}

    def check_role(self) -> None:
        """Refuse what a slave cannot serve: every gRPC call of clients writes. Raises: StatusFailure."""
        if self._store.following is not None:
            follower = self.parts.services.replication.follower
            master = follower.state.master if follower is not None else ""
            where = f"its master, whose port for slaves is {master}" if master else "its master"
            raise StatusFailure(
                Code.HA_NOT_AVAILABLE,
                f"this broker is a slave, which serves no clients over gRPC: connect to {where} "
                "(an Apache broker's clients to its proxy)",
            )

    def topic_of(self, resource: Any) -> str:
        """Return the name of a topic that may be used. Raises: StatusFailure."""
        name: str = resource.name
        if len(name) > _TOPIC_SIZE_MAX:
            raise StatusFailure(
                Code.ILLEGAL_TOPIC,
                f"a topic's name has at most {_TOPIC_SIZE_MAX} characters: choose a shorter one",
            )
        fault = topic_fault(name)
        if fault is not None:
            raise StatusFailure(Code.ILLEGAL_TOPIC, fault)
        if self.parts.tables.topics.is_system(name) or is_broker_only(name):
            raise StatusFailure(Code.ILLEGAL_TOPIC, f"cannot access system topic {name}")
        return name

    def group_of(self, resource: Any) -> str:
        """Return the name of a consumer group that may be used. Raises: StatusFailure."""
        name: str = resource.name
        if not name or len(name) > _GROUP_SIZE_MAX or not group_is_legal(name):
            raise StatusFailure(
                Code.ILLEGAL_CONSUMER_GROUP,
                f"{name[:200]!r} is not a name for a group: use 1 to {_GROUP_SIZE_MAX} of "
                "%|a-zA-Z0-9_-",
            )
        if name.startswith(SYSTEM_GROUP_PREFIX):
            raise StatusFailure(Code.ILLEGAL_CONSUMER_GROUP, f"cannot use system group {name}")
        return name

    def known_topic(self, name: str) -> TopicConfig:
        """Return an existing topic. Raises: StatusFailure."""
        found = self.parts.tables.topics.get(name)
        if found is None:
            raise StatusFailure(
                Code.TOPIC_NOT_FOUND,
                f"topic {name} does not exist; create it with: pocketmq topic create {name}",
            )
        return found

    # ------------------------------------------------------------ late answers

    def when_kept(self, call: GrpcCall, end: int | None, answer: Any, failed_answer: Any) -> Any:
        """Return the answer if the log is safe up to `end`; else None, and answer later.

        failed_answer: gets the status if that fails. Source of the rule: pocketmq.broker.durability.
        """
        durability = self.parts.messages.durability
        if end is None or not durability.waits:
            return answer

        def kept(code: ResponseCode) -> Any:
            return answer if code is ResponseCode.SUCCESS else _not_kept(failed_answer, code)

        code = durability.when_kept(end, lambda code: call.reply(kept(code).SerializeToString()))
        return None if code is None else kept(code)


def _not_kept(answer: Any, code: ResponseCode) -> Any:
    """Return the answer for what is stored, but less safely than promised."""
    status = StatusFailure.by(Refused(code, _NOT_KEPT.get(code))).status
    answer.status.CopyFrom(status)
    for entry in getattr(answer, "entries", ()):
        if entry.status.code == Code.OK:
            entry.status.CopyFrom(status)
    return answer


def parsed(asked: Any, data: bytes, size_max: int = REQUEST_SIZE_MAX) -> Any:
    """Parse a request. Raises: GrpcError."""
    if len(data) > size_max:
        raise GrpcError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"a {asked.DESCRIPTOR.name} has at most {size_max} bytes, not {len(data)}: split it",
        )
    try:
        return asked.FromString(data)
    except DecodeError:
        raise GrpcError(
            GrpcStatus.INTERNAL, f"the message is not a {asked.DESCRIPTOR.name}"
        ) from None


def ms_of(duration: Any) -> int:
    """Convert a Duration to ms."""
    ms: int = duration.seconds * 1000 + duration.nanos // 1_000_000
    return ms


def when_all(saves: Iterable[Saved], then: Callable[[], None]) -> None:
    """Call `then` when all are done, failed or not."""
    waiting = set(saves)

    def done(saved: Saved) -> None:
        waiting.discard(saved)
        if not saved.cancelled():
            saved.exception()
        if not waiting:
            then()

    for each in list(waiting):
        each.add_done_callback(done)
