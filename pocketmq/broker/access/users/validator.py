"""UserAccess: access control of requests by users and policies (docs/protocol/acl.md).

1. A request passes if an enabled user signed it, and that user is a super user, or each resource that the
   request names is allowed to it. Nothing else lets a request pass.
2. Without authorizationEnabled an enabled user may do everything but change users and policies.
3. When users have changed, connections whose user lost rights are closed with the next tick: their held
   requests were made with the old rights.
4. A group that is denied to a user by name stays so in pop retries, whose topics begin with its name.
Source: DefaultAuthenticationHandler, UserAuthorizationHandler, RocketMQ 5.5.0. Owner: Broker.
"""

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pocketmq.broker.access.callers import Callers, ip_of
from pocketmq.broker.access.denial_log import DenialLog
from pocketmq.broker.access.fronts import AccessDenied, Caller, NeededRights
from pocketmq.broker.access.needs import MessageAt, needs_of_call, write_need
from pocketmq.broker.access.users.asked import asked_by, asked_by_needs, parents
from pocketmq.broker.access.users.policy import Asked, PolicyDecision, UserPolicies
from pocketmq.broker.access.users.table import FILE, UserTable
from pocketmq.broker.access.users.user import SUBJECT_PREFIX, User, UserType
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import ACCESS_KEY, signature_holds
from pocketmq.remoting.errors import IllegalArgument, ProtocolError
from pocketmq.remoting.requests import REQUESTS, Right
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.peer import Peer

if TYPE_CHECKING:
    from pocketmq.broker.config import BrokerConfig

log = logging.getLogger("pocketmq.broker.access.acl")


class UserAccess:
    """Checks requests against a table of users."""

    def __init__(self, table: UserTable, cluster: str, *, policies: bool) -> None:
        """policies: authorizationEnabled."""
        self.table = table
        self._cluster = cluster
        self._policies = policies
        self.denials = DenialLog()
        # Those since the last tick that requests were accepted with.
        self._states = [table.state]
        self.callers = Callers()

    @classmethod
    def configured(cls, config: "BrokerConfig", folder: str) -> Self:
        """Return the checks, with the users that the settings name. Raises: IllegalArgument; OSError."""
        table = UserTable(Path(folder) / "config" / FILE)
        found = [
            (user, UserPolicies())
            for user in (
                _first_user(
                    config.init_authentication_user,
                    "initAuthenticationUser",
                    "username",
                    "password",
                ),
                _first_user(
                    config.inner_client_authentication_credentials,
                    "innerClientAuthenticationCredentials",
                    "accessKey",
                    "secretKey",
                ),
            )
            if user is not None
        ]
        added = table.import_users(found)
        if added:
            log.info("super users created users=%s", added)
        if not any(user.is_super and user.is_enabled for user in table.state.users.values()):
            log.warning(
                "there is no enabled super user: users can only be changed in config/%s, "
                "or by a start with initAuthenticationUser",
                FILE,
            )
        return cls(table, config.broker_cluster_name, policies=config.authorization_enabled)

    def tick(self) -> bool:
        """Take a changed file, and close connections (invariant 3); called about once a second.

        Returns: whether connections were closed.
        """
        self.denials.tick()
        self.table.reload()
        now, before = self.table.state, self._states
        if len(before) == 1 and before[0] is now:
            return False
        self._states = [now]

        def keeps(key: str, _: str) -> bool:
            known = [state for state in before if key in state.users]
            return bool(known) and all(now.cover(state, key) for state in known)

        return self.callers.close_others(keeps)

    def reload(self) -> None:
        """Take a changed file."""
        self.table.reload()

    # ------------------------------------------------------------ requests

    def guarded(self, handler: Handler, access: Right | None, message_at: MessageAt) -> Handler:
        """Wrap `handler` in the check; access None means that of an administrator's code."""

        def checked(request: RemotingCommand, connection: Connection) -> Any:
            try:
                self.check(request, connection, access, message_at)
            except AccessDenied as denied:
                ip = ip_of(connection.peer)
                user = (request.ext or {}).get(ACCESS_KEY, "")
                self.denials.note(ip, request.code, str(connection.peer), str(denied), user)
                return request.answer(ResponseCode.NO_PERMISSION, str(denied))
            self.note(connection, (request.ext or {}).get(ACCESS_KEY, ""))
            return handler(request, connection)

        return checked

    def check(
        self, request: RemotingCommand, caller: Caller, access: Right | None, message_at: MessageAt
    ) -> None:
        """Check a request. message_at: see MessageStore. Raises: AccessDenied (invariant 1)."""
        ext = request.ext or {}
        user = self._user(
            caller, ext.get(ACCESS_KEY), lambda secret: signature_holds(secret, ext, request.body)
        )
        if user.is_super:
            return
        if not self._policies:
            if access is None and REQUESTS[request.code].admin is None:
                raise AccessDenied(f"request code={request.code} is for super users")
            return
        try:
            self._decide(user, caller, asked_by(request, access, self._cluster, message_at))
        except ProtocolError as error:
            raise AccessDenied(f"cannot tell what the request is about: {error}") from error

    def check_bearer(
        self,
        caller: Caller,
        access_key: str | None,
        holds: Callable[[str], bool],
        wanted: NeededRights,
    ) -> None:
        """Check a request of another front. holds: whether the signature was made with a given password.

        Raises: AccessDenied (invariant 1).
        """
        user = self._user(caller, access_key, holds)
        if self._policies and not user.is_super:
            self._decide(user, caller, asked_by_needs(needs_of_call(wanted)))

    def _user(self, caller: Caller, name: str | None, holds: Callable[[str], bool]) -> User:
        """Return the user that signed. Raises: AccessDenied."""
        if not name:
            raise AccessDenied("username cannot be null.")
        state = self.table.state
        user = state.users.get(name)
        if user is None:
            raise AccessDenied(f"User:{name} is not found.")
        if not user.is_enabled:
            raise AccessDenied(f"User:{name} is disabled.")
        if not holds(user.password):
            raise AccessDenied("check signature failed.")
        if state is not self._states[-1]:
            self._states.append(state)
        self.callers.admit(caller, name)
        return user

    def _decide(self, user: User, caller: Caller, asked: Iterable[Asked]) -> None:
        policies, ip = self.table.state.policies(user.name), ip_of(caller.peer)
        for each in asked:
            refusal = refused(policies, each, ip)
            if refusal is not None:
                raise AccessDenied(
                    f"{SUBJECT_PREFIX}{user.name} has no permission to access {each.key} from {ip}, {refusal}"
                )

    # ------------------------------------------------------------ who has signed

    def note(self, peer: Peer, access_key: str) -> None:
        """See Callers.note."""
        self.callers.note(peer, access_key)

    def lists(self, address: str) -> bool:
        """Return False: there are no addresses whose requests need no signature."""
        return False

    def secret_of_administrator(self, access_key: str) -> str | None:
        """Return the password of an enabled super user; None if there is no such user."""
        user = self.table.state.users.get(access_key)
        return user.password if user is not None and user.is_super and user.is_enabled else None

    def may_publish(self, peer: Peer, topic: str) -> bool:
        """Return True if a client may publish to a topic, by its latest signature."""
        user = self.table.state.users.get(self.callers.key(peer))
        if user is None or not user.is_enabled:
            return False
        if user.is_super or not self._policies:
            return True
        policies, ip = self.table.state.policies(user.name), ip_of(peer.address)
        asked = asked_by_needs([write_need(topic)])
        return all(refused(policies, each, ip) is None for each in asked)

    def same_account(self, one: Peer, other: Peer) -> bool:
        """Return True if the latest signatures of two clients are of the same user."""
        return self.callers.same(one, other)

    def signer(self, peer: Peer) -> str:
        """Return the user of a client's latest signature."""
        return self.callers.key(peer)


def refused(policies: UserPolicies, asked: Asked, ip: str) -> str | None:
    """Return why a resource is refused; None if it is allowed."""
    verdict = policies.decide(asked, ip)
    if verdict.entry is None or not verdict.allowed:
        return verdict.detail
    if verdict.entry.resource.is_literal:
        return None
    for parent in parents(asked):
        above = policies.decide(parent, ip).entry
        if (
            above is not None
            and above.decision is PolicyDecision.DENY
            and above.resource.is_literal
        ):
            return f"the decision for {parent.key} is deny."
    return None


def _first_user(text: str, setting: str, name: str, password: str) -> User | None:
    """Return the super user that a setting names as JSON. Raises: IllegalArgument."""
    if not text:
        return None
    try:
        data = json.loads(text)
        fields = {
            "username": data[name],
            "password": data[password],
            "userType": str(UserType.SUPER),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise IllegalArgument(
            f'{setting} must be {{"{name}": ..., "{password}": ...}}, and cannot be read: '
            f"{type(error).__name__}"
        ) from None
    return User.parse(fields)
