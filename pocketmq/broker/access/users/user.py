"""User: a name, the password that it signs with, and whether it may do everything.

JSON: RocketMQ's UserInfo {"username", "password", "userType": Super or Normal, "userStatus": enable or
disable}. Source: User, UserConverter, AuthenticationMetadataManagerImpl, RocketMQ 5.5.0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pocketmq.broker.access.users.policy import word
from pocketmq.remoting.errors import IllegalArgument

# What ends a name in the header of gRPC calls, or could not be told apart in a log.
_NAME = re.compile(r"[^\s,/\x00-\x20\x7f]{1,128}")
_PASSWORD_LENGTH_MAX = 255
SUBJECT_PREFIX = "User:"


class UserType(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @classmethod
    def parse(cls, data: Any) -> "User":
        """Parse a UserInfo with its password. Raises: IllegalArgument."""
        if not isinstance(data, Mapping):
            raise IllegalArgument("a user is an object")
        name, password = data.get("username"), data.get("password")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or not name.isprintable():
            raise IllegalArgument(
                f"the username {name!r} is empty or too long, or has blanks, commas or slashes"
            )
        if (
            not isinstance(password, str)
            or not password.strip()
            or len(password) > _PASSWORD_LENGTH_MAX
        ):
            raise IllegalArgument(f"the password of {name} is blank or too long")
        return cls(name, password).changed(
            {"userType": data.get("userType"), "userStatus": data.get("userStatus")}
        )

    def changed(self, data: Mapping[str, Any]) -> "User":
        """Return the user with the fields of a UserInfo that are there. Raises: IllegalArgument."""
        password = data.get("password") or self.password
        if (
            not isinstance(password, str)
            or not password.strip()
            or len(password) > _PASSWORD_LENGTH_MAX
        ):
            raise IllegalArgument(f"the password of {self.name} is blank or too long")
        kind, status = data.get("userType"), data.get("userStatus")
        return replace(
            self,
            password=password,
            type=word(UserType, kind, "user type") if kind else self.type,
            status=word(UserStatus, status, "user status") if status else self.status,
        )

    def to_json(self, *, secret: bool) -> dict[str, Any]:
        """Return a UserInfo; secret: with the password."""
        password = {"password": self.password} if secret else {}
        return {
            **password,
            "userStatus": str(self.status),
            "userType": str(self.type),
            "username": self.name,
        }

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE


def name_of(subject: object) -> str:
    """Return the name of a subject as in `User:app`. Raises: IllegalArgument."""
    if not isinstance(subject, str) or not subject.lower().startswith(SUBJECT_PREFIX.lower()):
        raise IllegalArgument(f"the subject {subject!r} is not User: and a name")
    return subject[len(SUBJECT_PREFIX) :]
