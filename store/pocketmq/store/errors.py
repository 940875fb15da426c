"""What the store refuses, and why. Each text names the cause and the next step.

StoreError
  StoreLocked StoreForeign StoreUnreadable     the store cannot be opened
  StoreNotWriteable                            nothing is appended just now; reading goes on
    DiskFull                                   over as soon as there is room again
    StoreFailed                                after an fsync error: until the broker is restarted
    StoreClosed                                not entered, or left
    StoreFollows                               it is a slave's: only its master's bytes are written
  MessageIllegal                               this one message can never be stored
    MessageTooLarge
  Diverged                                     what a master sent is no log
  FlushFailed                                  what a waiter of SYNC_FLUSH gets after an fsync error
"""

from pocketmq.remoting.errors import PocketMQError


class StoreError(PocketMQError):
    """Everything that pocketmq.store raises on purpose."""


class StoreLocked(StoreError):
    """Another process has this store open."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"the store {root} is in use by another broker (its file 'lock' is locked). Stop that "
            "broker, or start this one with another data directory"
        )


class StoreForeign(StoreError):
    """The directory is no store that can be opened without harm."""

    def __init__(self, root: str, why: str) -> None:
        super().__init__(f"{root} cannot be opened as a store: {why}")


class StoreUnreadable(StoreError):
    """A file or a directory of the store cannot be read or made."""

    def __init__(self, path: str, why: object) -> None:
        super().__init__(f"{path} cannot be opened: {why}. Check its owner and its permissions")


class StoreNotWriteable(StoreError):
    """Nothing can be appended now; what is stored can be read."""

    retriable = True


class DiskFull(StoreNotWriteable):
    """There is no room for the next record. Appending goes on by itself when there is room again."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the disk of {path} is full ({why}): free some space, or lower fileReservedTime so that "
            "old files are deleted sooner. Appending goes on as soon as there is room"
        )


class StoreFailed(StoreNotWriteable):
    """An fsync failed: what the kernel holds is not what the disk holds, so nothing more is taken."""

    retriable = False

    def __init__(self, why: object) -> None:
        super().__init__(
            f"the store is read-only since a flush to disk failed ({why}). Check the disk, then "
            "restart the broker; messages that were not answered with SEND_OK may be lost"
        )


class StoreClosed(StoreNotWriteable):
    """The store is not open."""

    def __init__(self) -> None:
        super().__init__("the store is not open")


class StoreFollows(StoreNotWriteable):
    """The log is its master's, byte for byte."""

    def __init__(self) -> None:
        super().__init__("this broker is a slave: messages are stored at its master")


class Diverged(StoreError):
    """The bytes of a master do not go on where this log ends: the two have different histories."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(
            f"what the master sent is no record at position {position} ({why}): this log and the "
            "master's have parted before. Compare the two, and follow anew from an empty store or "
            "from where they are still the same"
        )
        self.position = position


class FlushFailed(StoreError):
    """The record is in memory but could not be brought to the disk."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the message could not be flushed to disk: {why}")


class MessageIllegal(StoreError, ValueError):
    """This message can never be stored as it is."""


class MessageTooLarge(MessageIllegal):
    """Body, properties or the whole record are beyond a limit."""

    def __init__(self, what: str, size: int, size_max: int) -> None:
        super().__init__(f"{what} of {size} bytes is larger than the allowed {size_max} bytes")
