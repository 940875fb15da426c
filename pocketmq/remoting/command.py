"""RemotingCommand <-> bytes, in both header encodings (wire.md 1).

    mark  int32   top byte: encoding of the header (below); low 24 bits: its length
    0  JSON       {"code","extFields","flag","language","opaque","remark","serializeTypeCurrentRPC","version"}
    1  ROCKETMQ   int16 code, uint8 language, int16 version, int32 opaque, int32 flag,
                  int32 n + remark, int32 n + (int16 n + key, int32 n + value)*

1. Each frame is decoded by its own mark; an answer uses the encoding of its request.
2. Every value of `ext` is text after decoding, whatever JSON type a peer used (ali-ons sends numbers).
3. `remark` and `ext` of a peer are data: they are never formatted into log lines without repr.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from pocketmq.remoting import json_codec
from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, LanguageCode, ResponseCode
from pocketmq.remoting.errors import FrameError, UnknownEncoding
from pocketmq.remoting.flags import FrameFlag
from pocketmq.remoting.quick.by_walk import FIELDS_MAX, read_fields

_RESPONSE = int(FrameFlag.RESPONSE)
_ONEWAY = int(FrameFlag.ONEWAY)


class SerializeType(IntEnum):
    """The encoding of a header: the top byte of the mark."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand:
    """One request or answer.

    Attributes: code (request or response code), language (LanguageCode name), version (MQVersion
    ordinal), opaque (matches an answer to its request), flag (FrameFlag), remark (None: absent), ext
    (header fields; None: absent), body (bytes-like), encoding (of the header).
    """

    __slots__ = (
        "body",
        "code",
        "encoding",
        "ext",
        "flag",
        "language",
        "opaque",
        "remark",
        "version",
    )

    def __init__(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        language: str = OUR_LANGUAGE,
        version: int = OUR_VERSION,
        encoding: int = 0,
    ) -> None:
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.ext = ext
        self.body = body
        self.encoding = encoding

    @property
    def is_response(self) -> bool:
        return self.flag & _RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & _ONEWAY != 0

    def answer(
        self,
        code: int,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
    ) -> "RemotingCommand":
        """Return an answer to this request: same opaque, same header encoding."""
        return RemotingCommand(
            code,
            ext,
            body,
            opaque=self.opaque,
            flag=_RESPONSE,
            remark=remark,
            encoding=self.encoding,
        )

    def not_supported(self, _: object) -> "RemotingCommand":
        """Return RocketMQ's answer to an unknown code; a handler of any request."""
        text = f" request type {self.code} not supported"
        return self.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)

    def __repr__(self) -> str:
        kind = "answer" if self.is_response else "oneway" if self.is_oneway else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} ext={self.ext!r} "
            f"remark={self.remark!r} body={len(self.body)} bytes>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotingCommand):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]


def encode(command: RemotingCommand) -> bytes:
    """Encode the whole frame, including its length word."""
    header = encode_header(command)
    body = command.body
    size = len(header)
    head = _HEAD.pack(4 + size + len(body), command.encoding << 24 | size)
    return b"".join((head, header, body)) if body else head + header


def encode_head(command: RemotingCommand, body_size: int) -> bytes:
    """Encode length word, mark and header for a body that is written separately, without a copy."""
    header = encode_header(command)
    size = len(header)
    return _HEAD.pack(4 + size + body_size, command.encoding << 24 | size) + header


def encode_header(command: RemotingCommand) -> bytes:
    """Encode the header alone, in the command's encoding."""
    encoding = command.encoding
    if encoding == 0:
        return _encode_json(command)
    return _encode_binary(command)


def decode(frame: bytes, header_size_max: int = 0xFF_FFFF) -> RemotingCommand:
    """Decode a frame without its length word.

    header_size_max: in bytes; servers pass REQUEST_HEADER_SIZE_MAX, while an answer may have a header of
    any size (the ids of a large batch).

    Raises: FrameError for an unknown encoding, lengths that do not fit, or an invalid header.
    """
    if len(frame) < 4:
        raise FrameError(f"a frame of {len(frame)} bytes has no header word")
    mark: int = _MARK(frame)[0]
    encoding, end = mark >> 24, 4 + (mark & 0xFF_FFFF)
    if end > len(frame):
        raise FrameError(f"a header of {end - 4} bytes is announced inside a frame of {len(frame)}")
    if end - 4 > header_size_max:
        raise FrameError(f"a header of {end - 4} bytes; the limit is {header_size_max}")
    if encoding == 0:
        command = _decode_json(frame[4:end])
    elif encoding == 1:
        command = _decode_binary(frame[4:end])
    else:
        raise UnknownEncoding(
            f"unknown header encoding {encoding}: send headers as JSON (0) or ROCKETMQ (1)"
        )
    command.body = frame[end:]
    return command


REQUEST_HEADER_SIZE_MAX = 262_144
"""Bytes of a request's header. Ours: a longer one would hold up the event loop. The longest that official
clients write has 32,767 characters of properties."""
_HEAD = struct.Struct(">II")
_MARK = struct.Struct(">I").unpack_from
_LANGUAGE_NAMES = {int(language): language.name for language in LanguageCode}
_LANGUAGE_NUMBERS = {language.name: int(language) for language in LanguageCode}
_FIELDS = ("body", "code", "encoding", "ext", "flag", "language", "opaque", "remark", "version")


def _encode_json(command: RemotingCommand) -> bytes:
    header: dict[str, Any] = {"code": command.code}
    if command.ext is not None:
        header["extFields"] = command.ext
    header["flag"] = command.flag
    header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return json_codec.dumps(header)


def _decode_json(header: bytes) -> RemotingCommand:
    try:
        fields = json_codec.loads(header)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header is not JSON: {error}") from error
    if fields.__class__ is not dict:
        raise FrameError("a JSON header is not an object")
    ext = fields.get("extFields")
    if ext is not None:
        if ext.__class__ is not dict:
            raise FrameError("extFields of a header is not an object")
        try:
            # The quickest look at whether every value is text.
            "".join(ext.values())
        except TypeError:
            ext = _as_text(ext)
        if len(ext) > FIELDS_MAX:
            raise FrameError(f"a header with {len(ext)} fields; the limit is {FIELDS_MAX}")
    get = fields.get
    code = get("code", 0)
    opaque = get("opaque", 0)
    flag = get("flag", 0)
    version = get("version", 0)
    if not (code.__class__ is opaque.__class__ is flag.__class__ is version.__class__ is int):
        raise FrameError("code, opaque, flag and version of a JSON header must be integers")
    if not -0x8000_0000 <= opaque <= 0x7FFF_FFFF:
        raise FrameError(f"opaque {opaque} is not a 32-bit integer")
    remark = get("remark")
    if remark is not None and remark.__class__ is not str:
        raise FrameError("the remark of a JSON header is not a string")
    language = get("language")
    # By place: names cost a dictionary a call.
    return RemotingCommand(
        code,
        ext,
        b"",
        opaque,
        flag,
        remark,
        language if language.__class__ is str else "OTHER",
        version,
    )


def _as_text(ext: Mapping[str, Any]) -> dict[str, str]:
    """Convert every value to text as Java would print it; a null field counts as absent (invariant 3)."""
    text: dict[str, str] = {}
    for key, value in ext.items():
        if value is None:
            continue
        if value is True:
            text[key] = "true"
        elif value is False:
            text[key] = "false"
        elif isinstance(value, (str, int, float)):
            text[key] = str(value)
        else:
            raise FrameError(f"extFields value of {key!r} is neither text nor a number")
    return text


_BINARY_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = command.remark.encode("utf-8") if command.remark else b""
    parts: list[bytes] = []
    for key, value in (command.ext or {}).items():
        raw_key = key.encode("utf-8")
        raw = value.encode("utf-8")
        parts += (_KEY.pack(len(raw_key)), raw_key, _SIZE.pack(len(raw)), raw)
    ext = b"".join(parts)
    fixed = _BINARY_FIXED.pack(
        _to_int16(command.code),
        _LANGUAGE_NUMBERS.get(command.language, 7),
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _SIZE.pack(len(ext)), ext))


def _to_int16(code: int) -> int:
    # The field has 16 bits: Java cuts a larger code silently (200050 arrives as 3442).
    return ((code + 0x8000) & 0xFFFF) - 0x8000


def _decode_binary(header: bytes) -> RemotingCommand:
    size = len(header)
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_FIXED.unpack_from(header)
        at = 17
        remark: str | None = None
        if remark_size:
            if remark_size < 0 or at + remark_size > size:
                raise FrameError(
                    f"a remark of {remark_size} bytes is announced in a header of {size}"
                )
            remark = header[at : at + remark_size].decode("utf-8")
            at += remark_size
        ext_size = int.from_bytes(header[at : at + 4], "big", signed=True)
        at += 4
        if ext_size < 0 or at + ext_size != size:
            raise FrameError(
                f"{ext_size} bytes of fields are announced but only {size - at} are left"
            )
        ext = read_fields(header, at) if ext_size else None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FrameError(f"a binary header is broken: {error}") from error
    name = _LANGUAGE_NAMES.get(language, "OTHER")
    return RemotingCommand(code, ext, b"", opaque, flag, remark, name, version, 1)
