"""What the access control does for other fronts than the classic wire."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.peer import Peer


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request is about: topics to publish to, to read, or either; groups."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class BearerAccess(Protocol):
    """The broker's accounts, asked by a front that reads signatures itself."""

    def check_bearer(
        self, peer: str, access_key: str | None, holds: Callable[[str], bool], wanted: Wanted
    ) -> None:
        """holds: whether the request is signed with that secret key. Raises: AccessDenied."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The accounts, as GET_BROKER_CLUSTER_ACL_CONFIG tells them."""
        ...

    def note(self, peer: Peer, access_key: str) -> None:
        """By which key a client was let in last."""
        ...


class AccessDenied(PocketMQError):
    """The request may not be served; the text is what its sender is told."""
