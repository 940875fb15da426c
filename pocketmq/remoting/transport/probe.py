"""Detects what listens at an address that did not answer as a name server: HTTP, gRPC, TLS, or unknown.

Used only after a failure, on the address that the user gave, to say what is wrong with it.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

_WITHIN_S = 1.0
# The preface of HTTP/2, and SETTINGS without a setting.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


async def what_listens(address: str) -> str:
    """Return `HTTP`, `gRPC`, `TLS`, or an empty text for none of them."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return ""
    where = (host.strip("[]"), int(port))
    asks = {"HTTP": _speaks_http, "gRPC": _speaks_grpc, "TLS": _speaks_tls}
    # Side by side: the caller's time-out has room for one wait, not for three.
    async with asyncio.TaskGroup() as tasks:
        answers = {
            name: tasks.create_task(_answers(ask, *where), name=f"probe {name}")
            for name, ask in asks.items()
        }
    return next((name for name, answer in answers.items() if answer.result()), "")


async def _answers(ask: Callable[[str, int], Awaitable[bool]], host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_WITHIN_S):
            return await ask(host, port)
    except (OSError, OverflowError, EOFError):
        return False


async def _speaks_http(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        return await reader.read(5) == b"HTTP/"
    finally:
        await _drop(writer)


async def _speaks_grpc(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_HTTP2)
        # Its first frame has to be SETTINGS, type 4; on stream 0.
        head = await reader.readexactly(9)
        return head[3] == 4 and head[5:] == bytes(4)
    except asyncio.IncompleteReadError:
        return False
    finally:
        await _drop(writer)


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent beyond the handshake: a peer that answers it speaks TLS.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    await _drop(writer)
    return True


async def _drop(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once: the loop may end right after it."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
