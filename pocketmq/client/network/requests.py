"""ApiRequests: one request and its answer, from a broker or from whichever name server answers.

Nothing is remembered except which name server answers. Every failure is one of pocketmq.client.errors and
says what was asked of whom.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from pocketmq.client.errors import Unreachable, from_remoting, refusal
from pocketmq.client.send.limits import OpenConnection
from pocketmq.remoting.codes import RequestCode, ResponseCode, request_name
from pocketmq.remoting.command import RemotingCommand, SerializeType
from pocketmq.remoting.errors import PocketMQError, RemotingError, not_a_name_server
from pocketmq.remoting.header import Header
from pocketmq.remoting.requests import PocketRequestCode

# Requests whose names begin so change nothing.
_ASKING = ("GET_", "QUERY_", "SEARCH_", "VIEW_", "CHECK_")
# Every name server since 4.0 answers them, and no broker does.
_OF_NAME_SERVERS = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)


class Remoting(Protocol):
    """What the api needs of RemotingClient."""

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = 3_000
    ) -> RemotingCommand: ...

    async def oneway(self, address: str, command: RemotingCommand) -> None: ...

    def open_connection(self, address: str) -> OpenConnection | None:
        """Return the connection if it is already open and may be written to directly."""
        ...

    @property
    def signs(self) -> bool:
        """True if requests are signed before they are sent."""
        ...

    def encoded(self, command: RemotingCommand) -> bytes:
        """Return the frame that `invoke` would send, signed where requests are signed."""
        ...


class ApiRequests:
    """Sends requests of any code. Times in ms."""

    def __init__(
        self,
        remoting: Remoting,
        name_servers: Sequence[str],
        *,
        timeout_ms: int = 3_000,
        encoding: SerializeType = SerializeType.JSON,
        what_listens: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """what_listens: describes the peer at an address that does not answer; None: do not look."""
        self._what_listens = what_listens
        self.remoting = remoting
        self.name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self.encoding = int(encoding)
        self._name_server = 0
        # Whether a frame may be put together by hand: JSON headers without a signature.
        self.plain_frames = encoding == SerializeType.JSON and not remoting.signs
        # The connection to a broker if it is open already and may be written to directly.
        self.open_connection = remoting.open_connection

    # ------------------------------------------------------------ asking

    def command(
        self,
        code: RequestCode | PocketRequestCode,
        header: Header | Mapping[str, str] | None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return a request, encoded as all of this client's are."""
        ext = header.ext() if isinstance(header, Header) else dict(header) if header else None
        return RemotingCommand(int(code), ext, body, encoding=self.encoding)

    async def ask(
        self,
        address: str,
        code: RequestCode | PocketRequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        about: str = "",
        also: ResponseCode = ResponseCode.SUCCESS,
    ) -> RemotingCommand:
        """Send a request; return the answer, whose code is SUCCESS or one of `also`.

        Raises: BrokerRefused, Unreachable; NoAnswer for a read-only request, else AnswerTimeout,
        ConnectionBroken.
        """
        what = code.in_words(about)
        found = await self.answer(address, self.command(code, header, body), timeout_ms, what)
        if found.code not in (ResponseCode.SUCCESS, also):
            raise refusal(found.code, found.remark, address, what)
        return found

    async def answer(
        self, address: str, command: RemotingCommand, timeout_ms: int | None, what: str
    ) -> RemotingCommand:
        """Return the answer whatever its code."""
        try:
            return await self.remoting.invoke(address, command, timeout_ms or self._timeout_ms)
        except RemotingError as error:
            asks = request_name(command.code).startswith(_ASKING)
            raise from_remoting(error, address, what, only_asks=asks) from error

    async def tell(
        self,
        address: str,
        code: RequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        about: str = "",
    ) -> None:
        """Send one-way. Raises: Unreachable, ConnectionBroken."""
        try:
            await self.remoting.oneway(address, self.command(code, header, body))
        except RemotingError as error:
            raise from_remoting(error, address, code.in_words(about)) from error

    async def ask_name_server(
        self,
        code: RequestCode,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        about: str = "",
        also: ResponseCode = ResponseCode.SUCCESS,
    ) -> RemotingCommand:
        """Like `ask`, at the first name server that answers; it is asked first next time, too."""
        what = code.in_words(about)
        last: PocketMQError | None = None
        address = ""
        for _ in self.name_servers:
            address = self.name_servers[self._name_server % len(self.name_servers)]
            try:
                found = await self.answer(
                    address, self.command(code, header, body), timeout_ms, what
                )
            except RemotingError as error:
                self._name_server += 1
                last = error
                continue
            if found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in _OF_NAME_SERVERS:
                wrong = not_a_name_server(address, "broker")
                assert wrong is not None
                raise wrong
            if found.code not in (ResponseCode.SUCCESS, also):
                raise refusal(found.code, found.remark, address, what)
            return found
        assert last is not None
        if self._what_listens is not None and not isinstance(last, Unreachable):
            wrong = not_a_name_server(address, await self._what_listens(address))
            raise wrong or last
        raise last
