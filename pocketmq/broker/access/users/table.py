"""UserTable: the users and their policies, config/users.json of the store.

    {"users": [UserInfo with its password], "acls": [{"subject": "User:app", "policies": [...]}]}

1. A change is on the disk before it holds, and before it is answered; a change that cannot be written does
   not hold. The file is its owner's only, and is replaced in one step.
2. A file that cannot be read keeps the broker from starting: an earlier version could bring a deleted user
   back. One that is changed by hand holds from the next second on; if it cannot be read then, the known users
   stay, and the log says why.
3. The last enabled super user stays: no one could create another.
Owner: UserAccess, or a program over the files of a stopped broker. Source: AuthenticationMetadataManagerImpl,
AuthorizationMetadataManagerImpl, RocketMQ 5.5.0.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pocketmq.broker.access.private_file import replace_private
from pocketmq.broker.access.users.policy import PolicyType, ResourcePattern, UserPolicies
from pocketmq.broker.access.users.user import SUBJECT_PREFIX, User, name_of
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store.one_writer import one_writer

log = logging.getLogger(__name__)

FILE = "users.json"
_USERS_MAX = 10_000
_NO_POLICIES = UserPolicies()


@dataclass(frozen=True, slots=True)
class Users:
    """One state of the table; changes make another one."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, UserPolicies] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Any) -> "Users":
        """Parse the content of the file. Raises: IllegalArgument."""
        if not isinstance(data, dict) or not isinstance(data.get("users"), list):
            raise IllegalArgument("it has no list of users")
        users = {user.name: user for user in map(User.parse, data["users"])}
        acls: dict[str, UserPolicies] = {}
        for each in data.get("acls", ()):
            name = name_of(each.get("subject") if isinstance(each, dict) else None)
            acls[name] = UserPolicies.parse(each.get("policies"))
        if acls.keys() - users.keys():
            raise IllegalArgument(
                f"it has policies of unknown users: {sorted(acls.keys() - users.keys())}"
            )
        return cls(users, acls)

    def to_json(self) -> dict[str, Any]:
        return {
            "users": [user.to_json(secret=True) for user in self.users.values()],
            "acls": [self.acl(name) for name in self.acls],
        }

    def acl(self, name: str) -> dict[str, Any]:
        """Return the AclInfo of a user that has policies."""
        return {"policies": self.acls[name].to_json(), "subject": SUBJECT_PREFIX + name}

    def policies(self, name: str) -> UserPolicies:
        return self.acls.get(name, _NO_POLICIES)

    def with_user(self, user: User) -> "Users":
        if user.name not in self.users and len(self.users) >= _USERS_MAX:
            raise IllegalArgument(f"a broker has {_USERS_MAX} users at most")
        return replace(self, users={**self.users, user.name: user})

    def without_user(self, name: str) -> "Users":
        users = {each: user for each, user in self.users.items() if each != name}
        return replace(self, users=users).with_policies(name, _NO_POLICIES)

    def with_policies(self, name: str, policies: UserPolicies) -> "Users":
        """Return them with these policies of a user; without any the user has none."""
        acls = {each: held for each, held in self.acls.items() if each != name}
        return replace(self, acls={**acls, name: policies} if policies else acls)

    def cover(self, others: "Users", name: str) -> bool:
        """Return True if a user certainly may do all that it may do with the others, signed as there."""
        now, before = self.users.get(name), others.users.get(name)
        if now is None or before is None or not now.is_enabled or now.password != before.password:
            return False
        if now.is_super:
            return True
        return not before.is_super and self.policies(name).cover(others.policies(name))


class UserTable:
    """The state, and its file."""

    def __init__(self, path: Path) -> None:
        """Raises: IllegalArgument (invariant 2)."""
        self._path = path
        self._seen = self._stamp()
        self.state = self._load()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _load(self) -> Users:
        try:
            text = self._path.read_text("utf-8")
        except FileNotFoundError:
            return Users()
        except (OSError, UnicodeDecodeError) as error:
            raise IllegalArgument(f"cannot read the users in {self._path}: {error}") from error
        try:
            return Users.parse(json.loads(text))
        except (ValueError, RecursionError) as error:
            # The text of an error of JSON has no content of the file.
            raise IllegalArgument(f"cannot read the users in {self._path}: {error}") from None

    def reload(self) -> None:
        """Take a file that was changed by another hand; called about once a second (invariant 2)."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self.state = self._load()
        except IllegalArgument as error:
            log.error("the known users stay reason=%s", error)
            return
        log.info("changed users are in force users=%d", len(self.state.users))

    def change(self, change: Callable[[Users], Users]) -> None:
        """Apply a change to what stands in the file. Blocks. Raises: IllegalArgument; OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with one_writer(self._path):
            before = self._load()
            after = change(before)
            if _can_rule(before) and not _can_rule(after):
                raise IllegalArgument(
                    "this is the last enabled super user: create another one before"
                )
            if after != before:
                replace_private(
                    self._path, json.dumps(after.to_json(), indent=1, ensure_ascii=False)
                )
            self.state, self._seen = after, self._stamp()

    # ------------------------------------------------------------ users

    def create_user(self, user: User) -> None:
        """Raises: IllegalArgument if the user exists; OSError."""

        def create(users: Users) -> Users:
            if user.name in users.users:
                raise IllegalArgument("The user is existed")
            return users.with_user(user)

        self.change(create)

    def update_user(self, name: str, data: Mapping[str, Any]) -> None:
        """Change the fields of a UserInfo that are there. Raises: IllegalArgument; OSError."""

        def update(users: Users) -> Users:
            user = users.users.get(name)
            if user is None:
                raise IllegalArgument("The user is not exist")
            return users.with_user(user.changed(data))

        self.change(update)

    def delete_user(self, name: str) -> None:
        """Delete a user, if there is one, and its policies. Raises: IllegalArgument; OSError."""
        self.change(lambda users: users.without_user(name))

    # ------------------------------------------------------------ policies

    def put_policies(self, name: str, policies: UserPolicies) -> None:
        """Add lines, or replace those of the same resources. Raises: IllegalArgument; OSError."""

        def put(users: Users) -> Users:
            if name not in users.users:
                raise IllegalArgument(f"The subject of {SUBJECT_PREFIX}{name} is not exist.")
            return users.with_policies(name, users.policies(name).merged(policies))

        self.change(put)

    def delete_policies(
        self, name: str, kind: PolicyType, resource: ResourcePattern | None
    ) -> None:
        """Delete the line of a resource, or all lines. Raises: IllegalArgument; OSError."""

        def delete(users: Users) -> Users:
            if name not in users.users:
                raise IllegalArgument("The subject is not exist.")
            if name not in users.acls:
                raise IllegalArgument("The acl is not exist.")
            left = _NO_POLICIES if resource is None else users.acls[name].without(kind, resource)
            return users.with_policies(name, left)

        self.change(delete)

    def import_users(self, found: Iterable[tuple[User, UserPolicies]]) -> list[str]:
        """Add users that do not exist yet; return their names. Raises: IllegalArgument; OSError."""
        added: list[str] = []

        def add(users: Users) -> Users:
            added.clear()
            for user, policies in found:
                if user.name not in users.users:
                    users = users.with_user(user).with_policies(user.name, policies)
                    added.append(user.name)
            return users

        self.change(add)
        return added

    def take(self, data: Any) -> None:
        """Replace all by a master's. Raises: IllegalArgument; OSError."""
        users = Users.parse(data)
        if users != self.state:
            self.change(lambda _: users)


def _can_rule(users: Users) -> bool:
    return any(user.is_super and user.is_enabled for user in users.users.values())
