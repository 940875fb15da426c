"""A small blocking client for planners and tasks: one socket per broker, several requests in flight.

Connections are opened on demand and again after a failure. Read-only requests are retried; a send is not (the
sink decides). Routes come from the first name server that answers.
"""

import re
import select
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from pocketmq.model.names import AUTO_CREATE_TOPIC, is_system_topic
from pocketmq.model.tables import countable
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import GetRouteInfoHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import (
    ConnectFailed,
    FrameError,
    IllegalArgument,
    PocketMQError,
    RemotingError,
    RequestRefused,
    RequestTimeout,
    did_you_mean,
    not_a_name_server,
)
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.header import Header
from pocketmq.remoting.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
)
from pocketmq.remoting.transport.blocking import BlockingConnection
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.retry import BUSY, RetryPause

# Each wait costs the way there and back. Answers of so many wait in a broker's memory, some 100 bytes each.
_TOGETHER = 2048
# As many as RocketMQ's producers ask for.
AUTO_CREATED_QUEUES = 4


class NeverAnswered(ConnectFailed):
    """No name server has answered since the client was made: the option may be wrong."""

    def __init__(self, name_server: str, failure: RemotingError) -> None:
        fact = failure.fact if isinstance(failure, ConnectFailed) else str(failure)
        RemotingError.__init__(
            self,
            f"{fact}. No name server of nameServer={name_server!r} has answered yet: check that option. To "
            "start one on this machine: pocketmq up. To wait for one that is only away, give option "
            "retryTimeoutMs",
        )
        self.address = name_server


@dataclass(frozen=True)
class BrokerQueue:
    """A queue as named by a route. address: the master's, or that of the replica with the lowest id."""

    topic: str
    broker_name: str
    address: str
    queue_id: int


class BrokerClient:
    """Calls by address. Use as a context manager, or close()."""

    def __init__(self, access: BrokerAccess) -> None:
        self.access = access
        self._connections: dict[str, BlockingConnection] = {}
        # The name server that answered last.
        self._answering = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: str) -> BlockingConnection:
        """Return the connection to an address, opening it if needed."""
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self.access.connect(address)
        return found

    def connected(self, address: str) -> BlockingConnection | None:
        """Return the connection to an address, if there is one."""
        return self._connections.get(address)

    def forget(self, address: str) -> None:
        """Drop a failed connection; the next call opens a new one."""
        found = self._connections.pop(address, None)
        if found is not None:
            found.close()

    def call(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send one request that may be retried. Raises: RequestRefused unless SUCCESS, RemotingError."""
        patience = self.patience()
        while True:
            try:
                return self._ask(address, code, header, body)
            except (RemotingError, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.code not in BUSY:
                    raise
                patience.pause(error)

    def many(self, requests: Sequence[tuple[str, RequestCode, Header]]) -> list[RemotingCommand]:
        """Return the answers to requests that may be retried, in order, whatever their codes.

        Up to _TOGETHER are in flight per address. Raises: RemotingError or RequestRefused when retries end.
        """
        answers: dict[int, RemotingCommand] = {}
        patience = self.patience()
        while len(answers) < len(requests):
            of_address: dict[str, list[int]] = defaultdict(list)
            for number, (address, _, _) in enumerate(requests):
                if number not in answers and len(of_address[address]) < _TOGETHER:
                    of_address[address].append(number)
            failure = self._exchange(requests, of_address, answers)
            if failure is None:
                patience.succeeded()
            else:
                patience.pause(failure)
        return [answers[n] for n in range(len(requests))]

    def _exchange(
        self,
        requests: Sequence[tuple[str, RequestCode, Header]],
        of_address: Mapping[str, Sequence[int]],
        answers: dict[int, RemotingCommand],
    ) -> Exception | None:
        """Ask all addresses side by side and add to `answers`; return what prevented some."""
        failure: Exception | None = None
        waiting: dict[str, dict[int, int]] = {}
        for address, numbers in of_address.items():
            try:
                opaques = self.connection(address).begin([requests[n][1:] for n in numbers])
                waiting[address] = dict(zip(opaques, numbers, strict=True))
            except RemotingError as error:
                failure = error
        quiet_s = self.access.timeout_ms / 1000
        ends = dict.fromkeys(waiting, time.monotonic() + quiet_s)
        while waiting:
            for address, numbers_of in list(waiting.items()):
                connection = self._connections[address]
                try:
                    connection.step()
                except RemotingError as error:
                    failure = error
                    self.forget(address)
                arrived = connection.arrived()
                if arrived:
                    # Not with all that comes: it may never become an answer.
                    ends[address] = time.monotonic() + quiet_s
                elif time.monotonic() > ends[address]:
                    failure = RequestTimeout(address, "a request", self.access.timeout_ms)
                    self.forget(address)
                for opaque, answer in arrived.items():
                    number = numbers_of.pop(opaque, None)
                    if number is not None and answer.code not in BUSY:
                        answers[number] = answer
                    elif number is not None:
                        failure = RequestRefused(answer.code, answer.remark, address)
                if not numbers_of or address not in self._connections:
                    del waiting[address]
            if waiting:
                self._wait(waiting, min(ends[a] for a in waiting))
        return failure

    def _wait(self, addresses: Iterable[str], until: float) -> None:
        """Return when a connection is ready, or at a time of the monotonic clock."""
        poll = select.poll()
        for address in addresses:
            self._connections[address].watch(poll)
        poll.poll(max(0.0, until - time.monotonic()) * 1000 + 1)

    def patience(self) -> RetryPause:
        """Return how long one call, or one group of calls, tolerates a fault."""
        return RetryPause(self.access.retry_timeout_ms)

    def _ask(
        self, address: str, code: RequestCode, header: Header | None, body: bytes = b""
    ) -> RemotingCommand:
        """Try once. Raises: as call() does."""
        what = code.in_words()
        try:
            connection = self.connection(address)
            answer = connection.answer(connection.request(code, header, body), what)
        except RemotingError:
            self.forget(address)
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, address, what)
        return answer

    def name_server(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        """Call the first name server that answers. Raises: RemotingError of the last one, Refused."""
        addresses = _addresses(self.access.name_server)
        wait_ms = None if self._answering else self.access.first_contact_ms
        patience = self.patience() if wait_ms is None else RetryPause(wait_ms)
        while True:
            for address in addresses:
                try:
                    answer = self._ask(address, code, header)
                    self._answering = address
                    return answer
                except RequestRefused as error:
                    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        raise not_a_name_server(address, "broker") or error from None
                    self._answering = address
                    raise
                except (RemotingError, FrameError) as error:
                    if not self._answering and not isinstance(error, ConnectFailed):
                        _raise_if_other(address)
                    if not isinstance(error, RemotingError):
                        raise
                    failure = error
            patience.pause(
                NeverAnswered(self.access.name_server, failure) if wait_ms is not None else failure
            )

    # ---- routes

    def topics(self) -> list[str]:
        """Return all topics that the name server knows."""
        answer = self.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(fastjson.loads(answer.body).get("topicList") or [])

    def near(self, topic: str) -> str:
        """Return ` (did you mean 'x'?)` for the nearest topic that exists; an empty text for none.

        Also for an account that may not list topics: it is a help, beside an error.
        """
        try:
            return did_you_mean(topic, filter(is_users, self.topics()))
        except PocketMQError:
            return ""

    def brokers(self) -> set[str]:
        """Return the names of the registered brokers."""
        answer = self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return set(fastjson.loads(answer.body).get("brokerAddrTable") or {})

    def queues(self, topic: str, perm: Perm) -> list[BrokerQueue]:
        """Return the topic's queues that may be read or written; none if the topic does not exist.

        A stopped broker's topics disappear with it: while no broker is registered, this waits for them.
        """
        patience = self.patience()
        while True:
            try:
                header = GetRouteInfoHeader(topic=topic)
                answer = self.name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                break
            except RequestRefused as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                if self.brokers():
                    return []
                patience.pause(error)
        return _queues_of(topic, answer, perm)

    def queues_of(self, topics: Sequence[str], perm: Perm) -> dict[str, list[BrokerQueue]]:
        """Return queues() of many topics, queried together."""
        if not topics:
            return {}
        # Waits for the cluster if need be, and finds a name server that answers.
        found = {topics[0]: self.queues(topics[0], perm)}
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        rest = topics[1:]
        answers = self.many([(self._answering, code, GetRouteInfoHeader(topic=t)) for t in rest])
        for topic, answer in zip(rest, answers, strict=True):
            good = answer.code == ResponseCode.SUCCESS
            found[topic] = _queues_of(topic, answer, perm) if good else self.queues(topic, perm)
        return found

    def writable(self, topic: str, *, create: bool = True) -> list[BrokerQueue]:
        """Return the topic's queues that may be written. Of a topic that does not exist, those that the first
        message makes where brokers have autoCreateTopicEnable, unless not `create`.

        Raises: IllegalArgument if no queue can be written.
        """
        found = self.queues(topic, Perm.WRITE)
        if found:
            return found
        closed = bool(self.queues(topic, Perm.READ))
        if create and not closed:
            # Brokers that create topics say so by a topic whose permission can be inherited.
            found = [
                replace(q, topic=topic)
                for q in self.queues(AUTO_CREATE_TOPIC, Perm.INHERIT)
                if q.queue_id < AUTO_CREATED_QUEUES
            ]
        if found:
            return found
        where = self.access.name_server
        if closed:
            raise IllegalArgument(
                f"topic {topic!r} accepts no messages on {where}: its brokers have no queue that can be "
                f"written. If it was paused: pocketmq topic create {topic} --perm rw"
            )
        raise IllegalArgument(
            f"topic {topic!r}{self.near(topic)} does not exist on {where}, and "
            + (
                "no broker there creates topics by sends"
                if create
                else "delivery=ledger creates none"
            )
            + f". Create it with: pocketmq topic create {topic}"
        )

    # ---- offsets

    def min_offset(self, queue: BrokerQueue) -> int:
        header = GetMinOffsetHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self.call(queue.address, RequestCode.GET_MIN_OFFSET, header)
        return GetMinOffsetResponseHeader.parse(answer.ext).offset

    def max_offset(self, queue: BrokerQueue) -> int:
        header = GetMaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self.call(queue.address, RequestCode.GET_MAX_OFFSET, header)
        return GetMaxOffsetResponseHeader.parse(answer.ext).offset

    def group_offsets(self, queues: Sequence[BrokerQueue], group: str) -> list[int | None]:
        """Return the group's next offsets, asked together; None where it has none."""
        code = RequestCode.QUERY_CONSUMER_OFFSET
        headers = [
            QueryConsumerOffsetHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
                set_zero_if_not_found=False,
            )
            for queue in queues
        ]  # fmt: skip
        requests = [(q.address, code, h) for q, h in zip(queues, headers, strict=True)]
        found: list[int | None] = []
        for queue, answer in zip(queues, self.many(requests), strict=True):
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                raise RequestRefused(answer.code, answer.remark, queue.address, code.in_words())
            good = answer.code == ResponseCode.SUCCESS
            found.append(
                QueryConsumerOffsetResponseHeader.parse(answer.ext).offset if good else None
            )
        return found

    def group_offset(self, queue: BrokerQueue, group: str) -> int | None:
        """Return the group's next offset; None if it has none."""
        return self.group_offsets([queue], group)[0]

    def commit_offset(self, queue: BrokerQueue, group: str, offset: int) -> None:
        """Set the group's next offset of one queue."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        self.call(queue.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def is_users(topic: str) -> bool:
    """Return False for the topics of the system, and those that brokers register for themselves: one for
    each broker and cluster, and groups' inner ones.
    """
    return not (is_system_topic(topic) or re.fullmatch(r".*_REPLY_TOPIC|DefaultCluster", topic))


def _queues_of(topic: str, answer: RemotingCommand, perm: Perm) -> list[BrokerQueue]:
    """Return the queues of a route that may be read or written."""
    route: dict[str, Any] = fastjson.loads(answer.body)
    addresses = {
        b["brokerName"]: _master(b.get("brokerAddrs") or {}) for b in route.get("brokerDatas") or []
    }
    count = "readQueueNums" if perm is Perm.READ else "writeQueueNums"
    return [
        BrokerQueue(topic, q["brokerName"], addresses[q["brokerName"]], queue_id)
        for q in sorted(countable(route.get("queueDatas")), key=lambda q: str(q["brokerName"]))
        if int(q["perm"]) & perm and addresses.get(q["brokerName"])
        for queue_id in range(int(q[count]))
    ]


def _addresses(name_server: str) -> list[str]:
    """Return the addresses of option nameServer. Raises: IllegalArgument."""
    found = [a.strip() for a in name_server.split(";") if a.strip()]
    for address in found or [""]:
        host, colon, port = address.rpartition(":")
        if "/" in host or not colon or not port.isdecimal():
            hint = ""
            if "://" in address:
                hint = ", without a scheme"
            elif "/" in address:
                hint = ". A store's folder is what load() takes"
            raise IllegalArgument(
                f'nameServer must be "host:port;host:port", not {name_server!r}{hint}'
            )
    return found


def _raise_if_other(address: str) -> None:
    """Look once what listens at an address that does not answer. Raises: NotANameServer."""
    # For a mistake only: a plan is free of them.
    import asyncio

    from pocketmq.remoting.transport.probe import what_listens

    wrong = not_a_name_server(address, asyncio.run(what_listens(address)))
    if wrong is not None:
        raise wrong from None


def _master(addresses: dict[Any, str]) -> str:
    by_id = {int(broker_id): address for broker_id, address in addresses.items()}
    return by_id[min(by_id)] if by_id else ""
