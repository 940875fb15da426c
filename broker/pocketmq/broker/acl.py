"""PlainAccessValidator: who may send what where, by signatures and a file of accounts (wire.md 7.1, 7.2).

The file is RocketMQ's plain_acl.yml; every .yml of the folder `acl` beside it counts, too:

    globalWhiteRemoteAddresses: [192.168.0.*]
    accounts:
      - {accessKey: ..., secretKey: ..., whiteRemoteAddress: ..., admin: false,
         defaultTopicPerm: DENY, defaultGroupPerm: SUB, topicPerms: [T=PUB|SUB], groupPerms: [g=SUB]}

1. A request passes when its address is on the global list, or on its account's; else its signature must be
   right, and then the account must have what the request needs. Nothing else lets a request pass.
2. Five codes need an admin; an admin without lists of permissions of its own may do everything.
3. A file that cannot be read when the broker starts keeps it from starting; later the accounts that are
   known stay, and the log says why.
4. When the file has changed the new accounts hold from the next tick on.

RocketMQ 4.9 signs but does not check batches, light pulls and what came with 5.0; here they need what their
plain twins need, as in 5.x. A content signed without the mark of unique-key queries or without the security
token is accepted as well, since official clients differ there.
Source: PlainAccessValidator, PlainPermissionManager, Permission, RocketMQ 4.9.7. Owner: Broker.
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any

from pocketmq.broker.acl_address import AddressPattern
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.names import RETRY_PREFIX, TRACE_TOPIC

log = logging.getLogger(__name__)

_ACCESS_KEY, _SIGNATURE, _SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_KEY_SIZE_MIN = 7
# Java's class name: clients tell a refused signature from other system errors by it.
_REMARK = "org.apache.rocketmq.acl.common.AclException: "
_LOG_PAUSE_MS = 1_000


class AccessDenied(PocketMQError):
    """The request may not be served; the text is what its sender is told."""


class Permission(IntFlag):
    """What an account may do with a topic or group."""

    DENY = 1
    PUB = 4
    SUB = 8


_WORDS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        # 5.x: how a whole group gets its messages.
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)

Need = tuple[str, Permission]
"""A topic, or %RETRY%group for a group, and what is needed there."""


# ------------------------------------------------------------ what a request needs


def _send(topic: str, group: str) -> Callable[[Mapping[str, str]], Iterator[Need]]:
    def needs(ext: Mapping[str, str]) -> Iterator[Need]:
        name = ext.get(topic)
        if name is not None and name.startswith(RETRY_PREFIX):
            yield from _group(ext.get(group))
        elif name is not None:
            yield name, Permission.PUB

    return needs


def _read(topic: str | None, group: str | None) -> Callable[[Mapping[str, str]], Iterator[Need]]:
    def needs(ext: Mapping[str, str]) -> Iterator[Need]:
        if topic is not None and ext.get(topic) is not None:
            yield ext[topic], Permission.SUB
        if group is not None:
            yield from _group(ext.get(group))

    return needs


def _group(name: str | None) -> Iterator[Need]:
    if name is not None:
        yield RETRY_PREFIX + name, Permission.SUB


_NEEDS: dict[int, Callable[[Mapping[str, str]], Iterator[Need]]] = {
    RequestCode.SEND_MESSAGE: _send("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _read(None, "group"),
    RequestCode.PULL_MESSAGE: _read("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _read("topic", "consumerGroup"),
    RequestCode.POP_MESSAGE: _read("topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: _read("topic", "consumerGroup"),
    RequestCode.NOTIFICATION: _read("topic", "consumerGroup"),
    # The topic of a receipt can be the group's pop retry topic.
    RequestCode.ACK_MESSAGE: _read(None, "consumerGroup"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _read(None, "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _read("topic", None),
    RequestCode.UNREGISTER_CLIENT: _read(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _read(None, "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _read("topic", "consumerGroup"),
}


def needs_of(request: RemotingCommand) -> list[Need]:
    """What an account must have for this request. Raises: PocketMQError for a body that is none."""
    if request.code == RequestCode.HEART_BEAT:
        return list(_needs_of_heartbeat(request.body))
    if request.code == RequestCode.BATCH_ACK_MESSAGE:
        return list(_needs_of_batch_ack(request.body))
    needs = _NEEDS.get(request.code)
    return list(needs(request.ext or {})) if needs is not None else []


def _needs_of_heartbeat(body: bytes | bytearray | memoryview) -> Iterator[Need]:
    data = fastjson.loads(bytes(body))
    for consumer in data.get("consumerDataSet") or ():
        yield from _group(str(consumer.get("groupName")))
        for subscription in consumer.get("subscriptionDataSet") or ():
            yield str(subscription.get("topic")), Permission.SUB


def _needs_of_batch_ack(body: bytes | bytearray | memoryview) -> Iterator[Need]:
    data = fastjson.loads(bytes(body))
    for ack in data.get("acks") or ():
        yield from _group(str(ack.get("c")))


# ------------------------------------------------------------ accounts


@dataclass(slots=True)
class Account:
    """One access key and what it may do. perms: by topic, and by %RETRY%group for groups."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern
    admin: bool
    topic_default: Permission
    group_default: Permission
    perms: dict[str, Permission]

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> "Account":
        """Raises: IllegalArgument."""
        access_key, secret_key = str(data.get("accessKey") or ""), str(data.get("secretKey") or "")
        if len(access_key) < _KEY_SIZE_MIN or len(secret_key) < _KEY_SIZE_MIN:
            raise IllegalArgument(
                f"accessKey {access_key!r}: it and its secretKey need {_KEY_SIZE_MIN} characters or more"
            )
        perms = dict(_perms(data.get("topicPerms"), ""))
        perms.update(_perms(data.get("groupPerms"), RETRY_PREFIX))
        return cls(
            access_key,
            secret_key,
            AddressPattern(str(data.get("whiteRemoteAddress") or "")),
            data.get("admin") is True,
            _permission(data.get("defaultTopicPerm")),
            _permission(data.get("defaultGroupPerm")),
            perms,
        )

    def check(self, code: int, needs: Iterable[Need]) -> None:
        """Raises: AccessDenied (invariant 2)."""
        if code in ADMIN_CODES and not self.admin:
            raise AccessDenied(
                f"Need admin permission for request code={code}, but accessKey={self.access_key} is not"
            )
        if self.admin and not self.perms:
            return
        for name, wanted in needs:
            is_group = name.startswith(RETRY_PREFIX)
            default = self.group_default if is_group else self.topic_default
            if not self.perms.get(name, default) & wanted:
                what = f"group:{name.removeprefix(RETRY_PREFIX)}" if is_group else f"topic:{name}"
                raise AccessDenied(f"No default permission for {what}")


def _permission(word: object) -> Permission:
    """As Java reads it: a word that is none denies."""
    return _WORDS.get(str(word or "").strip(), Permission.DENY)


def _perms(listed: object, prefix: str) -> Iterator[tuple[str, Permission]]:
    if listed is None:
        return
    if not isinstance(listed, list):
        raise IllegalArgument(f"permissions must be a list of NAME=PUB|SUB, not {listed!r}")
    for item in listed:
        name, equals, word = str(item).partition("=")
        if not equals or not name.strip() or "=" in word:
            raise IllegalArgument(f"the permission {item!r} is not NAME=DENY, PUB, SUB or PUB|SUB")
        yield prefix + name.strip(), _permission(word)


class Accounts:
    """What the files say, all together."""

    def __init__(self) -> None:
        self.white_addresses: list[AddressPattern] = []
        self.by_key: dict[str, Account] = {}

    def add(self, data: object, path: Path) -> None:
        """Raises: IllegalArgument naming the file."""
        if data is None:
            return
        try:
            if not isinstance(data, dict):
                raise IllegalArgument("it holds no `accounts:`")
            for address in data.get("globalWhiteRemoteAddresses") or ():
                self.white_addresses.append(AddressPattern(str(address or "")))
            for each in data.get("accounts") or ():
                account = Account.parse(each)
                if account.access_key in self.by_key:
                    log.warning("access key repeated key=%s file=%s", account.access_key, path)
                self.by_key.setdefault(account.access_key, account)
        except (IllegalArgument, AttributeError, TypeError) as error:
            raise IllegalArgument(f"the ACL file {path}: {error}") from error


class PlainAccessValidator:
    """Checks requests against the files at `path`; see the head of the module."""

    def __init__(self, path: Path, monotonic_ms: Callable[[], int]) -> None:
        """Raises: IllegalArgument (invariant 3)."""
        self._path = path
        self._monotonic_ms = monotonic_ms
        self._seen = self._stamps()
        self._accounts = self._load()
        self._denied = 0
        self._logged_ms = -_LOG_PAUSE_MS

    # ------------------------------------------------------------ files

    def _files(self) -> list[Path]:
        folder = self._path.parent / "acl"
        more = [path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml")]
        return [self._path, *sorted(more)]

    def _stamps(self) -> dict[Path, tuple[int, int]]:
        found: dict[Path, tuple[int, int]] = {}
        for path in self._files():
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size)
        return found

    def _load(self) -> Accounts:
        # Imported here: a broker without ACL needs no YAML.
        import yaml

        accounts = Accounts()
        for path in self._files():
            try:
                data = yaml.safe_load(path.read_text("utf-8"))
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                raise IllegalArgument(
                    f"aclEnable=true needs a readable {path}: {error}. Write it as RocketMQ's plain_acl.yml, "
                    "or name another with aclFile"
                ) from error
            accounts.add(data, path)
        return accounts

    def tick(self) -> None:
        """Take changed files up (invariants 3 and 4); called about once a second."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._accounts = self._load()
        except IllegalArgument as error:
            log.error("ACL files changed but not taken up, the old accounts stay reason=%s", error)
        else:
            log.info("ACL files taken up accounts=%d", len(self._accounts.by_key))

    # ------------------------------------------------------------ requests

    def guarded(self, handler: Handler) -> Handler:
        """The handler behind the check."""

        def checked(request: RemotingCommand, connection: Connection) -> Any:
            try:
                self.check(request, connection.peer)
            except AccessDenied as denied:
                self._note(request, connection, denied)
                return request.answer(ResponseCode.SYSTEM_ERROR, f"{_REMARK}{denied}")
            return handler(request, connection)

        return checked

    def _note(self, request: RemotingCommand, connection: Connection, denied: AccessDenied) -> None:
        """A line a second at most: whoever tries keys shall not fill the disk."""
        self._denied += 1
        now = self._monotonic_ms()
        if now - self._logged_ms >= _LOG_PAUSE_MS:
            log.warning(
                "access denied code=%s peer=%s reason=%r denied=%d",
                request.code,
                connection.peer,
                str(denied),
                self._denied,
            )
            self._logged_ms = now
            self._denied = 0

    def check(self, request: RemotingCommand, peer: str) -> None:
        """peer: ip:port. Raises: AccessDenied (invariant 1)."""
        address = peer.rpartition(":")[0]
        accounts = self._accounts
        if any(pattern.matches(address) for pattern in accounts.white_addresses):
            return
        ext = request.ext or {}
        access_key = ext.get(_ACCESS_KEY)
        if access_key is None:
            raise AccessDenied("No accessKey is configured")
        account = accounts.by_key.get(access_key)
        if account is None:
            raise AccessDenied(f"No acl config for {access_key}")
        if account.white_address.matches(address):
            return
        if not _signature_holds(account.secret_key, ext, request.body):
            raise AccessDenied(f"Check signature failed for accessKey={access_key}")
        try:
            needs = needs_of(request)
        except (PocketMQError, AttributeError, TypeError) as error:
            raise AccessDenied(f"what the request is about cannot be read: {error}") from error
        if (TRACE_TOPIC, Permission.PUB) in needs:
            return
        account.check(request.code, needs)


def _signature_holds(
    secret_key: str, ext: Mapping[str, str], body: bytes | bytearray | memoryview
) -> bool:
    given = ext.get(_SIGNATURE, "")
    try:
        raw = base64.b64decode(given, validate=True)
    except ValueError:
        return False
    names = sorted(set(ext) - {_SIGNATURE}, key=lambda name: name.encode("utf-16-be"))
    # 4.9's server leaves the mark out, its clients sign it; Go's client leaves the token out.
    for without in (None, _UNIQUE_KEY_QUERY, _SECURITY_TOKEN):
        if without is not None and without not in ext:
            continue
        content = "".join(ext[name] for name in names if name != without)
        digest = hmac.new(secret_key.encode(), content.encode(), hashlib.sha1)
        digest.update(body)
        if hmac.compare_digest(digest.digest(), raw):
            return True
    return False
