"""Access control for fronts other than the classic wire."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pocketmq.model.data_version import DataVersion
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.peer import Peer

if TYPE_CHECKING:
    from pocketmq.broker.access.denial_log import DenialLog


@dataclass(frozen=True, slots=True)
class NeededRights:
    """The topics that a request publishes to, reads, or either; its groups."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class Caller(Protocol):
    """A connection over which requests come, of whatever front. peer: ip:port."""

    peer: str
    closed: bool

    def abort(self) -> None:
        """Disconnect at once."""
        ...

    def __hash__(self) -> int: ...


class BearerAccess(Protocol):
    """The broker's accounts, for a front that parses signatures itself."""

    denials: "DenialLog"

    def check_bearer(
        self,
        caller: Caller,
        access_key: str | None,
        holds: Callable[[str], bool],
        wanted: NeededRights,
    ) -> None:
        """Check a request. holds: whether it is signed with a given secret key. Raises: AccessDenied."""
        ...

    def reload(self) -> None:
        """Let what was changed hold; connections that lost rights are closed a little later."""
        ...

    def lists(self, address: str) -> bool:
        """Return True for an IP of the global list, whose requests need no signature."""
        ...

    def secret_of_administrator(self, access_key: str) -> str | None:
        """Return the secret key of an administrator's account; None if there is no such account."""
        ...

    def note(self, peer: Peer, access_key: str) -> None:
        """Remember the access key that a client authenticated with."""
        ...


class AccountFiles(BearerAccess, Protocol):
    """The accounts of plain_acl.yml, for administrators."""

    def to_json(self) -> dict[str, Any]:
        """Return the accounts as GET_BROKER_CLUSTER_ACL_CONFIG does."""
        ...

    def versions(self) -> dict[str, DataVersion]:
        """Return the version of each file of accounts, by its path."""
        ...

    def put_account(self, fields: Mapping[str, Any]) -> None:
        """Write these fields of an account, or a new account. Raises: IllegalArgument; OSError."""
        ...

    def delete_account(self, access_key: str) -> bool:
        """Delete an account; return False if it does not exist. Raises: IllegalArgument; OSError."""
        ...

    def set_white_addresses(self, addresses: list[str], path: str | None) -> None:
        """Replace the global list of a file, by default of the first. Raises: IllegalArgument; OSError."""
        ...


class AccessDenied(PocketMQError):
    """The request is not permitted; the text is sent to the client."""
