"""The options of the clients: each stands here once, with type, default, range and one sentence.

A client's constructor takes the fields of its options class as keyword arguments (`takes`), and so does its
blocking twin; docs/client.md shows them as tables. Times are in ms. Type checkers see a constructor's
arguments through the ParamSpec of `takes`.
"""

import functools
import inspect
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from pocketmq.client.argument_types import check_types
from pocketmq.client.consume.allocate import AllocateStrategy, averagely
from pocketmq.client.consume.listener import Listener, check_takes
from pocketmq.client.network.config import find_name_servers, local_ip
from pocketmq.client.network.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.client.network.namespace import check_group, with_namespace
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.settings import nearest

P = ParamSpec("P")
Made = TypeVar("Made")
Owner = TypeVar("Owner")

Transport = Callable[[AsyncExitStack, Mapping[int, Any]], Awaitable[Any]]
"""transport(stack, handlers): enter into the stack what carries requests, and return it (`asking.Remoting`);
handlers answer what comes from the other side, by request code."""
FilterHook = Callable[[list[MessageExt], MessageQueue, bool], list[MessageExt]]
"""filter_hook(messages, queue, unit_mode): the messages that pass (S50)."""
QueuesChanged = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""on_queues_changed(topic, all queues, our queues)."""


class OptionRange(NamedTuple):
    """The smallest and the largest value of an option; None: no upper limit."""

    low: int
    high: int | None = None


_Interval = Annotated[int, OptionRange(1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientOptions:
    """Options of every client. Raises: IllegalArgument, NameServersNotFound.

    Attributes: name_servers (never empty), name_server_url (where they are looked up, if they are).
    """

    name_server: Annotated[
        str | None,
        "addresses `host:9876` joined by `;`, or an http URL with a path that answers with such a "
        "line (the constructor asks and waits, then asks again every two minutes); by default `NAMESRV_ADDR`",
    ] = None
    instance_name: Annotated[
        str | None,
        "clients of one process that name the same instance share connections, timers and the client id; by "
        "default each has its own",
    ] = None
    client_ip: Annotated[
        str, "the address in the client id; by default the one used towards the name server"
    ] = ""
    unit_name: Annotated[str | None, "added to the client id"] = None
    namespace: Annotated[str | None, "prefix of all topics and groups on the wire"] = None
    credentials: Annotated[Credentials | None, "requests are signed with them"] = None
    tls: Annotated[
        ssl.SSLContext | bool,
        "`True` encrypts without verifying, as RocketMQ's clients do; a context verifies",
    ] = False
    header_encoding: Annotated[str, '`"JSON"` or `"ROCKETMQ"`'] = "JSON"
    request_timeout_ms: Annotated[_Interval, "for calls without their own timeout"] = 3_000
    connect_timeout_ms: Annotated[_Interval, "for a connection"] = 3_000
    poll_name_server_interval_ms: Annotated[_Interval, "between updates of the routes"] = 30_000
    heartbeat_interval_ms: Annotated[_Interval, "between heartbeats"] = 30_000
    persist_offset_interval_ms: Annotated[_Interval, "between commits of offsets"] = 5_000
    rebalance_interval_ms: Annotated[_Interval, "between rebalances"] = 20_000
    clock: Annotated[Clock, "the source of time, for tests"] = SystemClock()  # noqa: RUF009 - it has no state
    transport: Annotated[Transport | None, "the network, for tests"] = None

    name_servers: tuple[str, ...] = field(init=False)
    name_server_url: str | None = field(init=False)

    def __post_init__(self) -> None:
        check_types(self, declared(type(self)))
        url, servers = find_name_servers(self.name_server)
        _check_ranges(self)
        if self.header_encoding not in ("JSON", "ROCKETMQ"):
            raise IllegalArgument(
                f'header_encoding must be "JSON" or "ROCKETMQ", not {self.header_encoding!r}'
            )
        found = {"name_servers": servers, "name_server_url": url}
        if not self.client_ip:
            found["client_ip"] = local_ip(servers[0])
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def client_id(self, default_instance: str) -> str:
        """Return `ip@instance[@unit]`, the client's id at the broker."""
        parts = [self.client_ip, self.instance_name or default_instance]
        if self.unit_name:
            parts.append(self.unit_name)
        return "@".join(parts)

    @property
    def connection_key(self) -> tuple[object, ...]:
        """Return what clients that share an instance must agree on."""
        where = self.name_server_url or self.name_servers
        return (where, self.credentials, self.tls, self.header_encoding)


def _check_ranges(options: Any) -> None:
    for name, kind in declared(type(options)).items():
        for limit in getattr(kind, "__metadata__", ()):
            value = getattr(options, name)
            if not isinstance(limit, OptionRange) or value is None:
                continue
            low, high = limit
            if high is None and value < low:
                raise IllegalArgument(f"{name} must be at least {low}, not {value}")
            if high is not None and not low <= value <= high:
                raise IllegalArgument(f"{name} must be from {low} to {high}, not {value}")


def declared(options: Any) -> dict[str, Any]:
    """Return the options of a class with their annotations, in the order of declaration."""
    assert is_dataclass(options)
    return {each.name: each.type for each in fields(options) if each.init}


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupOptions(ClientOptions):
    """Options of a client that belongs to a group. Raises: IllegalGroup, too."""

    group: Annotated[str, "names the clients that do the same work"] = field(kw_only=False)
    otel: Annotated[
        bool | None,
        "spans and trace context by OpenTelemetry (extra `otel`); `None`: while an instrumentor is on, as "
        "under `opentelemetry-instrument`",
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group(self.group)

    @property
    def inner_group(self) -> str:
        """The group's name as it travels."""
        return with_namespace(self.namespace, self.group)


# ------------------------------------------------------------ producers


@dataclass(frozen=True, kw_only=True, eq=False)
class SendOptions:
    """How messages are sent; sizes in bytes."""

    send_timeout_ms: Annotated[_Interval, "for all attempts of a send"] = 3_000
    retry_times: Annotated[int, OptionRange(0), "further attempts after the first"] = 2
    max_message_size: Annotated[int, OptionRange(1), "bytes of a body"] = 4 * 1024 * 1024
    compress_over: Annotated[
        int, OptionRange(0), "bodies of at least this many bytes are compressed"
    ] = 4096
    compression: Annotated[Compression, "how they are compressed"] = Compression.ZLIB
    latency_fault_tolerance: Annotated[bool, "avoid slow brokers for a while"] = False
    retry_when_not_stored_ok: Annotated[
        bool, "try another broker when the first stored the message less safely than asked"
    ] = False
    wait_for_broker: Annotated[
        bool,
        "while no broker can be reached (during a restart, for example), try again until the timeout",
    ] = True
    in_flight_max: Annotated[int, OptionRange(1), "messages in flight; further sends wait"] = 1_000
    in_flight_size_max: Annotated[int, OptionRange(1), "their bytes"] = 64 * 1024 * 1024
    create_topic_key: Annotated[
        str, "the topic whose route is used for one that does not exist yet"
    ] = AUTO_CREATE_TOPIC
    default_topic_queue_nums: Annotated[
        int, OptionRange(1), "queues of a topic that the first send creates"
    ] = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class ProducerOptions(GroupOptions, SendOptions):
    """Options of a Producer."""

    trace: Annotated[bool, "write each message's trace to the trace topic"] = False
    trace_topic: Annotated[str | None, "another topic for traces"] = None


# ------------------------------------------------------------ consumers


@dataclass(frozen=True, kw_only=True, eq=False)
class MemberOptions(GroupOptions):
    """What heartbeats report of a member; constant for a PullConsumer, which has no queues of its own."""

    consume_type: ConsumeType = field(init=False, default=ConsumeType.PULL)
    message_model: MessageModel = field(init=False, default=MessageModel.CLUSTERING)
    consume_from_where: ConsumeFromWhere = field(init=False, default=ConsumeFromWhere.LAST_OFFSET)
    consume_timestamp_ms: int | None = field(init=False, default=None)
    strategy: AllocateStrategy = field(init=False, default_factory=lambda: averagely)
    on_queues_changed: QueuesChanged | None = field(init=False, default=None)
    orderly: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        # RocketMQ's own words for them are welcome, too.
        for name, kind in (
            ("message_model", MessageModel),
            ("consume_from_where", ConsumeFromWhere),
        ):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(value))
            except ValueError:
                raise IllegalArgument(
                    f"{name} must be one of {', '.join(kind)}, not {value!r}"
                ) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsumerOptions(MemberOptions):
    """Options common to push and lite pull consumers."""

    message_model: Annotated[
        MessageModel,
        "`CLUSTERING` shares the messages among the group, `BROADCASTING` gives all to each member",
    ] = MessageModel.CLUSTERING
    consume_from_where: Annotated[ConsumeFromWhere, "where a new group starts"] = (
        ConsumeFromWhere.LAST_OFFSET
    )
    consume_timestamp_ms: Annotated[
        int | None, "the time for `TIMESTAMP`, ms since 1970; by default half an hour ago"
    ] = None
    pull_batch_size: Annotated[int, OptionRange(1), "messages a pull"] = 32
    pull_threshold_count: Annotated[int, OptionRange(1), "messages of a queue that are cached"] = (
        1_000
    )
    pull_threshold_mib: Annotated[int, OptionRange(1), "MiB of a queue that are cached"] = 100
    max_span: Annotated[
        int, OptionRange(1), "how far the offsets of one queue's cached messages may lie apart"
    ] = 2_000
    strategy: Annotated[
        AllocateStrategy, "how queues are allocated; must be the same in all members"
    ] = averagely
    on_queues_changed: Annotated[
        QueuesChanged | None, "called with the topic, all its queues, and those of this member"
    ] = None
    offset_folder: Annotated[
        Path | str | None,
        "where `BROADCASTING` keeps its offsets, by default `~/.rocketmq_offsets`",
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PushConsumerOptions(ConsumerOptions):
    """Options of a PushConsumer."""

    listener: Annotated[
        Listener | None,
        "a plain function, called in threads, or a coroutine function; without it the functions of "
        "`on` are called",
    ] = None
    consume_type: ConsumeType = field(init=False, default=ConsumeType.PUSH)
    orderly: Annotated[bool, "the messages of a queue one after the other"] = False
    concurrency: Annotated[int, OptionRange(1, 1_000), "concurrent listener calls"] = 20
    consume_batch_size: Annotated[int, OptionRange(1, 1_024), "messages per call at most"] = 1
    pull_interval_ms: Annotated[int, OptionRange(0, 65_535), "pause between pulls"] = 0
    pull_threshold_count_for_topic: Annotated[
        int | None, "cached messages of a topic, divided among its queues"
    ] = None
    pull_threshold_mib_for_topic: Annotated[int | None, "the same, in MiB"] = None
    max_reconsume_times: Annotated[
        int,
        OptionRange(-1),
        "failures before a message becomes a dead letter; -1: the broker's 16 (orderly: no limit)",
    ] = -1
    consume_timeout_ms: Annotated[
        _Interval, "after that a message is sent back even if its listener is still running"
    ] = 15 * 60_000
    suspend_ms: Annotated[
        int, OptionRange(0), "orderly: pause before a failed message is redelivered"
    ] = 1_000
    post_subscription_when_pull: Annotated[
        bool,
        "send the expression with each pull, so that the broker filters by this member's, not the group's",
    ] = False
    filter_hook: Annotated[
        FilterHook | None, "called with what was pulled; returns what passes"
    ] = None
    trace: Annotated[bool, "write each message's trace to the trace topic"] = False
    trace_topic: Annotated[str | None, "another topic for traces"] = None
    drain_timeout_ms: Annotated[int, OptionRange(0), "how long shutdown() waits for listeners"] = (
        30_000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.listener is not None:
            check_takes(self.listener, "messages", "context")


@dataclass(frozen=True, kw_only=True, eq=False)
class LitePullConsumerOptions(ConsumerOptions):
    """Options of a LitePullConsumer."""

    auto_commit: Annotated[
        bool,
        "messages that poll() returned count as consumed at the next poll() after the interval, "
        "and when the `with` block ends without an exception",
    ] = True
    auto_commit_interval_ms: Annotated[int, OptionRange(0), "that interval"] = 5_000
    pull_threshold_count_for_all: Annotated[
        int, "messages of all queues that are fetched ahead"
    ] = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class SimpleConsumerOptions(MemberOptions):
    """Options of a SimpleConsumer."""

    consume_type: ConsumeType = field(init=False, default=ConsumeType.POP)
    consume_from_where: Annotated[
        ConsumeFromWhere, "where a new group starts: `FIRST_OFFSET` or `LAST_OFFSET`"
    ] = ConsumeFromWhere.LAST_OFFSET
    invisible_ms: Annotated[
        int, OptionRange(1), "a message that is not acknowledged within this time is redelivered"
    ] = 60_000
    renews: Annotated[
        bool,
        "renew the invisible time of each received message until it is acknowledged or given up: it is "
        "redelivered only when this process ends or loses the broker",
    ] = False


# ------------------------------------------------------------ how a constructor takes them


def takes(
    make: Callable[P, Made],
) -> Callable[[Callable[[Owner, Made], None]], Callable[Concatenate[Owner, P], None]]:
    """Turn a constructor that takes an options object into one that takes the object's fields as arguments.

    make: a class of options, or of clients. Raises: TypeError for an unknown option, naming the nearest.
    """

    kind: Any = make
    # A client is given what its own class of options then looks at.
    known = declared(kind) if is_dataclass(kind) else {}

    def decorate(init: Callable[[Owner, Made], None]) -> Callable[Concatenate[Owner, P], None]:
        @functools.wraps(init)
        def constructor(self: Owner, /, *args: P.args, **given: P.kwargs) -> None:
            for name in given.keys() - known.keys() if known else ():
                raise TypeError(f"there is no option {name!r}{nearest(name, known)}")
            init(self, make(*args, **given))

        # For help() and editors that look at the running program.
        shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        for each in inspect.signature(make).parameters.values():
            said = each.annotation
            plain = said.__origin__ if hasattr(said, "__metadata__") else said
            shown.append(each.replace(annotation=plain))
        constructor.__dict__["__signature__"] = inspect.Signature(shown)
        return constructor

    return decorate
