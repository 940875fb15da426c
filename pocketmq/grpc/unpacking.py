"""Unpacking: the bodies of one answer, unpacked for the SDKs: of four ways of packing only Java's knows all.

1. Bodies are unpacked as long as those of one answer take UNPACKED_MAX together: a few KB may unpack to
   64 MiB.
2. A body beyond that goes out packed, as RocketMQ's proxy sends any, to an SDK that unpacks it: the encoding
   is called GZIP, and the SDK looks at its first bytes.
3. To other SDKs it goes with a later answer, where it is the first: then it is unpacked alone.
4. A body that cannot be unpacked goes out packed: the SDK then reports that the body is broken.
Source of what SDKs unpack: rocketmq-clients, java Utilities, golang utils, python misc, csharp Utilities, cpp
UtilAll.
"""

from pocketmq.grpc.schema import Encoding
from pocketmq.model.message_codec import decompress
from pocketmq.model.record import Buffer, Record
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import Compression, MessageSysFlag

UNPACKED_MAX = 4 << 20
_PACKED = int(MessageSysFlag.COMPRESSED)
_ZLIB = frozenset({Compression.ZLIB_OLD, Compression.ZLIB})
# Languages of clients -> what their SDKs unpack. Node's unpacks gzip, in which no producer packs.
_KNOWN: dict[str, frozenset[Compression]] = {
    "JAVA": frozenset(Compression),
    "GO": _ZLIB,
    "PYTHON": _ZLIB,
    "DOTNET": _ZLIB,
    "CPP": _ZLIB,
}


class Unpacking:
    """The room that is left for one answer. Attributes: is_cut (a body was left for a later answer)."""

    def __init__(self, language: str, size: int = UNPACKED_MAX) -> None:
        self.is_cut = False
        self._known = _KNOWN.get(language, frozenset())
        self._left = size
        self._is_first = True

    def body_of(self, record: Record) -> tuple[Buffer, Encoding] | None:
        """Return what goes out; None if it has to wait for a later answer (invariant 3)."""
        body, flag = record.body, record.sys_flag
        is_first, self._is_first = self._is_first, False
        if not flag & _PACKED:
            return body, Encoding.IDENTITY
        unpacked = self._unpacked(body, flag)
        if unpacked is not None:
            return unpacked, Encoding.IDENTITY
        if flag >> 8 & 7 in self._known:
            return body, Encoding.GZIP
        if not is_first:
            self.is_cut = True
            return None
        try:
            return decompress(body, flag), Encoding.IDENTITY
        except MessageCodecError:
            return body, Encoding.GZIP

    def _unpacked(self, body: Buffer, flag: int) -> bytes | None:
        """Return a body that there is room for. After one that had none the rest is not tried any more."""
        if self._left <= 0:
            return None
        try:
            found = decompress(body, flag, self._left)
        except MessageCodecError:
            self._left = 0
            return None
        self._left -= len(found)
        return found
