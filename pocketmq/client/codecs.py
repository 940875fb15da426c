"""Codecs: message bodies as values: JSON, MessagePack, and models that validate.

    message = Message("Orders", JSON.encode({"id": 1}))
    @consumer.on("Orders", codec=Model(Order))

A codec has encode(value) -> bytes and decode(body) -> value; decode raises ValueError for other bytes.
"""

import json
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pocketmq.remoting.lazy_names import needs

V = TypeVar("V")


class Codec(Protocol[V]):
    """Converts between a value and a body."""

    def encode(self, value: V, /) -> bytes: ...

    def decode(self, body: bytes, /) -> V:
        """Decode a body. Raises: ValueError."""
        ...


class _Functions(Generic[V]):
    def __init__(self, encode: Callable[[V], bytes], decode: Callable[[bytes], V]) -> None:
        self.encode = encode
        self.decode = decode


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _msgpack() -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            needs("the codec MSGPACK", "msgpack", "broker"), name="msgpack"
        ) from error
    return msgpack


def _pack(value: Any) -> bytes:
    return _msgpack().packb(value) or b""


def _unpack(body: bytes) -> Any:
    return _msgpack().unpackb(body)


JSON: Codec[Any] = _Functions[Any](_json, json.loads)
MSGPACK: Codec[Any] = _Functions[Any](_pack, _unpack)
TEXT: Codec[str] = _Functions[str](str.encode, lambda body: body.decode())


class _Readable(Protocol):
    """The interface of pydantic's BaseModel."""

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Any: ...

    def model_dump_json(self) -> str: ...


M = TypeVar("M", bound=_Readable)


class Model(Generic[M]):
    """JSON by a pydantic class, or any class with its model_validate_json and model_dump_json."""

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind

    def encode(self, value: M) -> bytes:
        return value.model_dump_json().encode()

    def decode(self, body: bytes) -> M:
        """Decode and validate a body. Raises: ValueError, with the model's complaints."""
        value: M = self._kind.model_validate_json(body)
        return value
