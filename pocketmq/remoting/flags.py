"""The bit fields of the protocol: sysFlag of messages and of pulls, topic permissions, frame flag.

Sources: MessageSysFlag, PullSysFlag, PermName, TopicSysFlag, CompressionType, RocketMQ 4.9.7/5.5.0.
"""

from enum import IntEnum, IntFlag


class FrameFlag(IntFlag):
    """RemotingCommand.flag."""

    RESPONSE = 1
    ONEWAY = 2


class MessageSysFlag(IntFlag):
    """sysFlag of a message. Bits 2-3 are the transaction state, bits 8-10 the compression type."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80


TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700


class Compression(IntEnum):
    """The compression of a body: bits 8-10 of sysFlag. 0 is zlib as old clients mark it."""

    ZLIB_OLD = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class PullSysFlag(IntFlag):
    """sysFlag of a pull request (acceptance S43)."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class Perm(IntFlag):
    """Permission of a topic or a broker."""

    INHERIT = 1
    WRITE = 2
    READ = 4
