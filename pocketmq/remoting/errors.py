"""The error tree. The class says who can act; the message names the cause and the next step.

PocketMQError
  ProtocolError          the peer's bytes are not the protocol: the connection is closed
    FrameError, FrameTooLarge, HeaderError, MessageCodecError
  RequestRefused         an answer with a code other than SUCCESS; `code` and `retriable` say more
  RemotingError          nothing was answered: connect, send, time-out
    ConnectFailed, ConnectionLost, RequestTimeout, TooManyRequests, NotANameServer (also a CallerError)
  CallerError            the caller can fix it
    IllegalArgument      the caller's own input is wrong (also a ValueError)
"""

from collections.abc import Iterable
from typing import Any, cast

from pocketmq.remoting.codes import response_name


def _again(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class Carried:
    """Base of errors that cross a process, or are copied, as they are: class, text, attributes.

    An Exception itself is made anew from its text, which fails where a constructor takes anything else: a
    pool's parent then waits for ever. Here the constructor is not called again.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), cast(BaseException, self).args), vars(self)


class CarriedError(Carried, Exception):
    """The same as the only base: a compiled class is an exception only by the first of its bases."""


class PocketMQError(CarriedError):
    """Base of all errors that this package raises deliberately."""

    retriable = False


class ProtocolError(PocketMQError, ValueError):
    """Bytes that are not the protocol."""


class FrameError(ProtocolError):
    """A frame whose lengths or header cannot be read."""


class UnknownEncoding(FrameError):
    """A header in an encoding that is not read; the frame before it is whole."""


class FrameTooLarge(FrameError):
    """A length prefix beyond the limit; nothing of the frame is buffered."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"a frame of {size} bytes is announced, but at most {size_max} are accepted: the peer "
            "does not speak RocketMQ's protocol, or a message is larger than maxMessageSize"
        )
        self.size = size


class HeaderError(ProtocolError):
    """A header field is missing or has the wrong type."""


class MessageCodecError(ProtocolError):
    """Bytes that are not a stored message, a batch or a compressed body."""


class CallerError(PocketMQError):
    """The caller can fix it; repeating the same call fails again."""


class IllegalArgument(CallerError, ValueError):
    """The caller's own input is wrong; the text says what is allowed."""


class RemotingError(PocketMQError):
    """No answer arrived; unless the subclass says so, it is unknown whether the peer acted."""

    retriable = True


class ConnectFailed(RemotingError):
    """The peer could not be reached; nothing was sent. fact: what happened, without the next step."""

    def __init__(self, address: str, reason: object, advice: str = "") -> None:
        """advice: the next step, if the reason is not that nothing answers there."""
        usual = (
            "Is a broker or name server listening there, and is that address reachable from this machine? "
            "To start both on this machine: pocketmq up"
        )
        self.fact = f"cannot connect to {address}: {reason}"
        super().__init__(f"{self.fact}. {advice or usual}")
        self.address = address


class ConnectionLost(RemotingError):
    """The connection closed before the answer: the request may or may not have been carried out."""


class RequestTimeout(RemotingError):
    """No answer in time: the request may or may not have been carried out."""

    def __init__(self, address: str, request: str, timeout_ms: int) -> None:
        super().__init__(f"no answer from {address} to {request} within {timeout_ms} ms")
        self.address = address
        self.timeout_ms = timeout_ms


class TooManyRequests(RemotingError):
    """The connection's limit of requests in flight is reached; nothing was sent."""


class RequestRefused(PocketMQError):
    """The peer answered with a code other than SUCCESS.

    Attributes: code (a ResponseCode number), remark (the peer's text), address.
    """

    def __init__(self, code: int, remark: str | None, address: str = "", what: str = "") -> None:
        text = f"{what or 'the request'} was refused"
        if address:
            text += f" by {address}"
        super().__init__(f"{text} with {response_name(code)}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest of the known names; an empty text if none is near."""
    # For a mistake only: a start is free of it.
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class NotANameServer(RemotingError, CallerError):
    """The address that was given for a name server belongs to something else."""

    def __init__(self, address: str, what: str, advice: str) -> None:
        super().__init__(f"name_server={address} is not a name server, {what}. {advice}")


_USUAL = "The usual port of a name server is 9876"
_WRONG = {
    "HTTP": ("it answers HTTP", f"{_USUAL}; 8080 and 8082 are the consoles' ports"),
    "gRPC": (
        "it answers gRPC, for the SDKs of RocketMQ 5",
        f"{_USUAL}; 8081 is that of gRPC",
    ),
    "TLS": (
        "or one that accepts TLS only",
        "If it is one, connect with tls=True or an SSL context; a command does with --tls-ca FILE, Spark "
        "with option useTLS",
    ),
    "broker": (
        "it answers like a broker",
        f"{_USUAL}; from it clients learn where the brokers are",
    ),
}


def not_a_name_server(address: str, listens: str) -> NotANameServer | None:
    """Return the error for an address where `HTTP`, `gRPC`, `TLS` or a `broker` listens; None if unknown."""
    wrong = _WRONG.get(listens)
    return None if wrong is None else NotANameServer(address, *wrong)
