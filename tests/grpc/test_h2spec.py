"""h2spec, the conformance test of HTTP/2, against the layer on which gRPC stands (--grpc-all)."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from pocketmq.grpc.http2.frames import Http2Error
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.http2.protocol import Http2Server, StreamData, StreamHeaders
from tests.interop.conftest import or_missing
from tests.interop.toolchain import h2spec

HEADERS = encode([(b":status", b"200"), (b"content-type", b"text/plain")])
TRAILERS = encode([(b"x-end", b"1")])


class Page(asyncio.Protocol):
    """Answers each request with two bytes, when it is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http2 = Http2Server()

    def data_received(self, data: bytes) -> None:
        sending = self._http2.sending
        self._http2.receive(data)
        try:
            while (event := self._http2.next_event()) is not None:
                if isinstance(event, StreamHeaders | StreamData) and event.ended:
                    sending.respond(event.stream_id, HEADERS)
                    sending.send(event.stream_id, b"ok")
                    sending.finish(event.stream_id, TRAILERS)
            self._transport.writelines(self._http2.take())
        except Http2Error:
            self._transport.writelines(self._http2.take())
            self._transport.close()


@pytest.mark.grpc_all
async def test_http2_is_spoken_as_it_is_written(tmp_path: Path) -> None:
    program = or_missing(h2spec)
    loop = asyncio.get_running_loop()
    async with await loop.create_server(Page, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = [str(program), "-h", "127.0.0.1", "-p", str(port), "-o", "10"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, cwd=tmp_path
        )
    assert " 0 failed" in done.stdout, done.stdout[-4_000:]
