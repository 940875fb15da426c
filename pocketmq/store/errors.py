"""The store's errors. Each text names the cause and the next step.

StoreError
  StoreLocked StoreForeign StoreUnreadable     the store cannot be opened
  StoreNotWriteable                            nothing is appended now; reading continues
    DiskFull                                   ends as soon as there is room again
    StoreFailed                                after an fsync error: until the broker is restarted
    StoreClosed                                not entered, or left
    StoreFollows                               a slave's store: only its master's bytes are written
  RecordIllegal                                this one message can never be stored
    RecordTooLarge
  Diverged                                     a master's bytes do not continue this log
  FlushFailed                                  raised to waiters of SYNC_FLUSH after an fsync error
"""

from pocketmq.remoting.errors import PocketMQError


class StoreError(PocketMQError):
    """Base of all errors that pocketmq.store raises deliberately."""


class StoreLocked(StoreError):
    """Another process has this store open.

    holder: ", process 4711 (java)", if the system reports it.
    """

    def __init__(self, root: str, holder: str = "") -> None:
        self.holder = holder
        super().__init__(
            f"the store {root} is in use by another broker{holder}: its file 'lock' is locked. Stop "
            "that broker, or start this one with another data directory"
        )


class StoreForeign(StoreError):
    """The directory is not a store that can be opened without harm."""

    def __init__(self, root: str, why: str) -> None:
        super().__init__(f"{root} cannot be opened as a store: {why}")


class CannotIndex(StoreError):
    """The index cannot be written for now; messages are stored and found by their offsets."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"cannot load numpy, which the index needs: {why}. Give the process more memory, or repair "
            "the installation, and start it again; it then indexes what is missing"
        )


class StoreUnreadable(StoreError):
    """A file or a directory of the store cannot be read or created."""

    def __init__(self, path: str, why: object) -> None:
        advice = ". Check its owner and its permissions" if isinstance(why, OSError) else ""
        super().__init__(f"{path} cannot be opened: {why}{advice}")


class StoreNotWriteable(StoreError):
    """Nothing can be appended now; what is stored can be read."""

    retriable = True


class DiskFull(StoreNotWriteable):
    """There is no room for the next record. Appending resumes when there is room again."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the disk of {path} is full ({why}): free some space, or lower fileReservedTime so that "
            "old files are deleted sooner. Appending resumes as soon as there is room"
        )


class StoreFailed(StoreNotWriteable):
    """An fsync failed: the kernel's pages may differ from the disk, so nothing more is accepted."""

    retriable = False

    def __init__(self, why: object) -> None:
        super().__init__(
            f"the store has been read-only since a flush to disk failed ({why}). Check the disk, then "
            "restart the broker; messages that were not answered with SEND_OK may be lost"
        )


class StoreClosed(StoreNotWriteable):
    """The store is not open."""

    def __init__(self) -> None:
        super().__init__("the store is not open")


class StoreFollows(StoreNotWriteable):
    """The log is its master's, byte for byte."""

    def __init__(self) -> None:
        super().__init__("this broker is a slave: send messages to its master")


class Diverged(StoreError):
    """A master's bytes do not continue this log: the two have different histories."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(
            f"what the master sent is not a record at position {position} ({why}): this log "
            f"diverged from the master's before that. Compare the two, and follow again from an "
            f"empty store or from where they still agree"
        )
        self.position = position


class FlushFailed(StoreError):
    """The record is in memory but could not be flushed to disk."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the message could not be flushed to disk: {why}")


class RecordIllegal(StoreError, ValueError):
    """This message can never be stored as it is."""


class RecordTooLarge(RecordIllegal):
    """Body, properties or the whole record exceed a limit."""

    def __init__(self, what: str, size: int, size_max: int) -> None:
        super().__init__(f"{what} of {size} bytes is larger than the allowed {size_max} bytes")
