"""x"""

import struct

SEND = {
    "a": "g",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k",
}


PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
    "subscription": "*",
}


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame around any header bytes."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body
