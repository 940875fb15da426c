"""Files with secrets: replaced in one step, readable for their owner only from the first moment."""

import os
from pathlib import Path

from pocketmq.store.log.folder import sync_folder

_OWNER_ONLY = 0o600


def replace_private(path: Path, text: str) -> None:
    """Replace a file, with the rights it had; a new one is its owner's only. Blocks. Raises: OSError."""
    # The name may be a link to where an operator keeps it.
    path = path.resolve()
    # Brokers of one machine may share it.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _OWNER_ONLY)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else _OWNER_ONLY)
        os.fsync(descriptor)
    temporary.replace(path)
    sync_folder(str(path.parent))
