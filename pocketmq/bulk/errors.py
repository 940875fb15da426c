"""Errors of bulk reading: a folder that is not a store, and data that is missing."""

from pocketmq.remoting.errors import PocketMQError


class BulkError(PocketMQError):
    """Base of all errors that bulk reading raises deliberately, except for the caller's bad input
    (`IllegalArgument`).
    """


class NotAStore(BulkError):
    """The path holds no commit log that can be read. instead: what to do then, if not the usual."""

    def __init__(self, path: str, reason: str, instead: str | None = None) -> None:
        usual = (
            "Give the folder that holds `commitlog` and `consumequeue` (storePathRootDir of the broker), a "
            "comma list of such folders, or a glob"
        )
        super().__init__(f"path {path} is not a store: {reason}. {instead or usual}")
        self.path = path
        self.reason = reason
        self.instead = instead


class OtherStore(BulkError):
    """A task found another store, or none, at the planned path. Never read on: its rows would be those of
    another broker.
    """

    def __init__(self, path: str, broker_name: str, host: str, reason: str) -> None:
        super().__init__(
            f"on host {host} the path {path} is not the store of broker {broker_name} that the read was "
            f"planned with: {reason}. Every executor must see the same files under this path (NFS, a "
            "shared volume, or an object store's URI); else read from the brokers with option nameServer"
        )


class DataLoss(BulkError):
    """Records are missing: a file is missing, a tail is torn, or a checksum is wrong.

    `file` and `position` (bytes, in the whole commit log) say where; `failOnDataLoss` false reads on behind
    the gap and warns.
    """

    def __init__(self, reason: str, file: str = "", position: int = -1) -> None:
        where = f" (file {file}, position {position})" if position >= 0 else ""
        super().__init__(
            f"{reason}{where}. To read what is left, set failOnDataLoss to false; to keep strict, "
            "restore the files or start from offsets that exist"
        )
        self.reason = reason
        self.file = file
        self.position = position
