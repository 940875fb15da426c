"""Node: a broker apart from its parts: identity, clock, events, and what its accounts allow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.broker.access.fronts import AccountFiles, BearerAccess
    from pocketmq.broker.access.users.table import UserTable
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.broker.events import Events
    from pocketmq.broker.role import Role
    from pocketmq.remoting.clock import Clock
    from pocketmq.remoting.transport.peer import Peer


def _anybody(peer: "Peer", about: object) -> bool:
    """Allow everyone: signatures are not checked."""
    return True


def _unsigned(peer: "Peer") -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This broker, apart from its parts: its identity, clock and events.

    address: `ip:port` advertised to clients; store_host: the same in the form of records. call_soon: runs a
    function in the next turn of the event loop; None, in tests: woken requests are run by hand.
    may_publish: whether a client, by its last signature, may publish to a topic; same_account: whether two
    have signed as the same account; signer: the access key that a client has signed with, or "". accounts:
    checks signatures; None: nothing does. files: its accounts if they are those of
    plain_acl.yml; users: its table if they are users with policies.
    """

    config: "BrokerConfig"
    clock: "Clock"
    events: "Events"
    role: "Role"
    address: str
    store_host: bytes
    call_soon: Callable[[Callable[[], None]], object] | None = None
    may_publish: "Callable[[Peer, str], bool]" = _anybody
    same_account: "Callable[[Peer, Peer], bool]" = _anybody
    signer: "Callable[[Peer], str]" = _unsigned
    accounts: "BearerAccess | None" = None
    files: "AccountFiles | None" = None
    users: "UserTable | None" = None

    def who(self, peer: "Peer") -> str:
        """Name a client for the record: its address, and the account that it signed as."""
        account = self.signer(peer)
        return f"{peer.address} (account {account})" if account else peer.address
