"""What bulk reading raises: a folder that is no store, and data that is not (any longer) there."""

from pocketmq.remoting.errors import PocketMQError


class BulkError(PocketMQError):
    """Everything that bulk reading raises on purpose, but for the caller's own bad input
    (`IllegalArgument`)."""


class NotAStore(BulkError):
    """The path holds no commit log."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"path {path} is not a store: {reason}. Give the folder that holds `commitlog` and "
            "`consumequeue` (storePathRootDir of the broker), a comma list of such folders, or a glob"
        )
        self.path = path


class DataLoss(BulkError):
    """Records that should be there are not: a file is gone, a tail is torn, a checksum is wrong.

    `file` and `position` (bytes, in the whole commit log) say where; `failOnDataLoss` false reads on
    behind the gap and warns.
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

    def __reduce__(self) -> tuple[type["DataLoss"], tuple[str, str, int]]:
        # Spark carries exceptions between processes by pickle.
        return (type(self), (self.reason, self.file, self.position))
