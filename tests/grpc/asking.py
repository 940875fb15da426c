"""A gRPC client for tests: `h2` speaks HTTP/2, the messages are the product's own.

What the official SDKs make of the port is judged in tests/interop.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes

from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import SERVICE

WITHIN_S = 20


class Answer:
    """What comes for one call. messages: raw; status: grpc-status, None before its end."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.status: int | None = None
        self.text = ""
        self.http_status = ""
        self.reset: int | None = None
        self._data = b""

    @property
    def ended(self) -> bool:
        return self.status is not None or self.reset is not None

    def headers(self, headers: dict[str, str]) -> None:
        self.http_status = headers.get(":status", self.http_status)
        if "grpc-status" in headers:
            self.status = int(headers["grpc-status"])
            self.text = headers.get("grpc-message", "")

    def data(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 5:
            end = 5 + int.from_bytes(self._data[1:5], "big")
            if len(self._data) < end:
                return
            self.messages.append(self._data[5:end])
            self._data = self._data[end:]


class Asking:
    """One connection of one client."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.http2 = h2.connection.H2Connection(config)
        self.http2.initiate_connection()
        self._reader, self._writer = reader, writer
        self.answers: dict[int, Answer] = {}
        self.metadata = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON"}
        self.reads = True
        self.goodbye = self.closed = self._holds = False
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        self.flush()
        while data := await self._reader.read(65_536):
            for event in self.http2.receive_data(data):
                self._note(event)
            self.flush()
            async with self._changed:
                self._changed.notify_all()
        self.closed = True
        async with self._changed:
            self._changed.notify_all()

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goodbye = True
        stream_id = getattr(event, "stream_id", None)
        answer = self.answers.get(stream_id or 0)
        if answer is None:
            return
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            answer.headers({str(name): str(value) for name, value in event.headers})
        elif isinstance(event, h2.events.DataReceived):
            answer.data(event.data)
            if self.reads:
                self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code)

    def flush(self) -> None:
        if not self._holds:
            self._writer.write(self.http2.data_to_send())

    def begin(
        self,
        name: str,
        message: Any = None,
        headers: dict[str, str] | None = None,
        *,
        ended: bool = True,
    ) -> int:
        """Begin a call; headers: more of them. Returns: its stream."""
        stream_id = self.http2.get_next_available_stream_id()
        path = name if name.startswith("/") else f"/{SERVICE}/{name}"
        sent = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
            "x-mq-request-id": str(uuid.UUID(int=stream_id)),
            **self.metadata,
            **(headers or {}),
        }
        self.answers[stream_id] = Answer()
        self.http2.send_headers(stream_id, list(sent.items()))
        if message is not None:
            self.send(stream_id, message, ended=ended)
        self.flush()
        return stream_id

    def send(self, stream_id: int, message: Any, *, ended: bool = False) -> None:
        data = message if isinstance(message, bytes) else message.SerializeToString()
        data = b"\0" + len(data).to_bytes(4, "big") + data
        for begin in range(0, len(data), 16_384):
            last = begin + 16_384 >= len(data)
            self.http2.send_data(stream_id, data[begin : begin + 16_384], end_stream=ended and last)
        self.flush()

    @contextmanager
    def in_one_write(self) -> Iterator[None]:
        """Write what is asked within it at once, so that the server reads it at once."""
        self._holds = True
        yield
        self._holds = False
        self.flush()

    def narrow(self, size: int) -> None:
        """Say how many bytes an answer may have before more are asked for."""
        self.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
        self.flush()

    def cancel(self, stream_id: int) -> None:
        self.http2.reset_stream(stream_id, 8)
        self.flush()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a state of what has come. Raises: TimeoutError."""
        async with asyncio.timeout(WITHIN_S), self._changed:
            await self._changed.wait_for(condition)

    async def end_of(self, stream_id: int) -> Answer:
        """A call's answer, when it is whole."""
        answer = self.answers[stream_id]
        await self.until(lambda: answer.ended)
        return answer

    async def ask(self, name: str, message: Any, headers: dict[str, str] | None = None) -> Any:
        """A call with one answer."""
        answers = await self.ask_stream(name, message, headers)
        assert len(answers) == 1
        return answers[0]

    async def ask_stream(
        self, name: str, message: Any, headers: dict[str, str] | None = None
    ) -> list[Any]:
        """A call with any number of answers."""
        answer = await self.end_of(self.begin(name, message, headers))
        assert (answer.status, answer.reset) == (0, None), answer.text
        return [classes[f"{name}Response"].FromString(each) for each in answer.messages]

    async def talk(self, settings: Any) -> tuple[int, Any]:
        """Open the lasting call with settings. Returns: its stream, and the settings of the answer."""
        command_of = classes["TelemetryCommand"]
        stream_id = self.begin("Telemetry", command_of(settings=settings), ended=False)
        answer = self.answers[stream_id]
        await self.until(lambda: answer.messages or answer.ended)
        assert answer.messages, answer.text
        return stream_id, command_of.FromString(answer.messages[0])


@asynccontextmanager
async def asking(address: str, client_id: str = "client@1") -> AsyncIterator[Asking]:
    """A client at `ip:port`."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Asking(reader, writer, client_id)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(client.run())
        try:
            yield client
        finally:
            running.cancel()
            writer.close()
