"""ControllerIdentity: the id that a controller gave this broker, in `brokerIdentity` of its store.

    brokerIdentity         cluster#brokerName#id                          kept for ever
    brokerIdentity-temp    cluster#brokerName#id#ip:port;ms               while the id is applied for

1. The temporary file is written before the id is applied for: a broker that is killed in between applies
   again with the same check code, and gets the same id.
2. Cluster or name other than the configuration's: the store is another broker's, and is refused.
Source: BrokerMetadata, TempBrokerMetadata, RocketMQ 5.5.0.
"""

import os
from dataclasses import dataclass

from pocketmq.store import StoreUnreadable
from pocketmq.store.log.folder import sync_folder

FILE_NAME = "brokerIdentity"


@dataclass(frozen=True, slots=True)
class Applied:
    """An id that is being applied for, and the check code that names this broker."""

    broker_id: int
    check_code: str


class ControllerIdentity:
    """Owner of both files. path: of the one that is kept for ever."""

    def __init__(self, folder: str, cluster: str, broker_name: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)
        self._names = cluster, broker_name

    def load(self) -> int | None:
        """Return this broker's id; None if it has none yet. Raises: StoreUnreadable."""
        parts = self._read(self.path)
        return None if parts is None else self._id(self.path, parts)

    def applied(self) -> Applied | None:
        """Return what was applied for and not confirmed. Raises: StoreUnreadable."""
        path = f"{self.path}-temp"
        parts = self._read(path)
        if parts is None or len(parts) != 4:
            return None
        return Applied(self._id(path, parts), parts[3])

    def apply(self, applied: Applied) -> None:
        """Note what is going to be applied for. Raises: OSError."""
        self._write(f"{self.path}-temp", applied.broker_id, applied.check_code)

    def keep(self, broker_id: int) -> None:
        """Note the id that the controller has given. Raises: OSError."""
        self._write(self.path, broker_id)
        self.drop_applied()

    def drop_applied(self) -> None:
        try:
            os.unlink(f"{self.path}-temp")
        except FileNotFoundError:
            pass

    def _read(self, path: str) -> list[str] | None:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read().strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnreadable(path, error) from error
        return text.split("#") if text else None

    def _id(self, path: str, parts: list[str]) -> int:
        """Return the id of a file's fields (invariant 2). Raises: StoreUnreadable."""
        if len(parts) < 3 or not parts[2].isdecimal():
            raise StoreUnreadable(
                path, f"it does not say cluster#brokerName#id: {'#'.join(parts)!r}"
            )
        if (parts[0], parts[1]) != self._names:
            raise StoreUnreadable(
                path,
                f"this store belongs to broker {parts[1]!r} of cluster {parts[0]!r}, but the configuration "
                f"says {self._names[1]!r} of {self._names[0]!r}",
            )
        return int(parts[2])

    def _write(self, path: str, broker_id: int, *more: str) -> None:
        text = "#".join((*self._names, str(broker_id), *more))
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)
        sync_folder(os.path.dirname(path))
