"""PlainAccessValidator: access control of requests, by signatures and account files (wire.md 7.1, 7.2).

The file is RocketMQ's plain_acl.yml; every .yml of the folder `acl` beside it counts, too:

    globalWhiteRemoteAddresses: [192.168.0.*]
    accounts:
      - {accessKey: ..., secretKey: ..., whiteRemoteAddress: ..., admin: false,
         defaultTopicPerm: DENY, defaultGroupPerm: SUB, topicPerms: [T=PUB|SUB], groupPerms: [g=SUB]}

1. A request passes when its address is on the global list, or on its account's; else its signature must be
   right, and then the account must have what the request needs. Nothing else lets a request pass.
2. A code whose row (requests.py) names no access needs an admin; an admin without lists of permissions of
   its own may do everything. Topics and groups of the broker itself need an entry of their own, no default
   counts.
3. A file that cannot be read when the broker starts keeps it from starting; later the accounts that are
   known stay, and the log says why.
4. When the file has changed the new accounts hold from the next tick on. Connections whose account or
   address has lost rights are closed: their held requests were made with the old rights.
5. Brokers of one machine may share the files: each change is made to what stands there, by one at a time.

RocketMQ 4.9 names an admin for five codes and looks at the topics of a dozen others; all the rest needs a
signature only, so that an account with no right may reset offsets, delete log files or end transactions.
Here whatever is not known to be a client's own business is an admin's. A content signed without the mark of
unique-key queries or without the security token is accepted as well, since official clients differ there.
Source: PlainAccessValidator, PlainPermissionManager, Permission, RocketMQ 4.9.7. Owner: Broker.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pocketmq.broker.access import acl_file
from pocketmq.broker.access.account import Account
from pocketmq.broker.access.address_pattern import AddressPattern
from pocketmq.broker.access.callers import Callers, ip_of
from pocketmq.broker.access.denial_log import DenialLog
from pocketmq.broker.access.fronts import AccessDenied as AccessDenied
from pocketmq.broker.access.fronts import Caller, NeededRights
from pocketmq.broker.access.needs import MessageAt, needs_of, needs_of_call, write_need
from pocketmq.model.data_version import DataVersion
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import (
    ACCESS_KEY,
    signature_holds,
)
from pocketmq.remoting.errors import IllegalArgument, ProtocolError
from pocketmq.remoting.requests import Right
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store.one_writer import one_writer

if TYPE_CHECKING:
    from pocketmq.broker.config import BrokerConfig

log = logging.getLogger(__name__)

# Java's class name: clients tell a refused signature from other system errors by it.
_REMARK = "org.apache.rocketmq.acl.common.AclException: "


# ------------------------------------------------------------ accounts


class Accounts:
    """The merged content of all account files."""

    def __init__(self) -> None:
        self.white_addresses: list[AddressPattern] = []
        self.by_key: dict[str, Account] = {}

    def add(self, data: object, path: Path) -> None:
        """Add the content of one file. Raises: IllegalArgument naming the file."""
        if data is None:
            return
        try:
            if not isinstance(data, dict):
                raise IllegalArgument("it has no `accounts:`")
            for address in data.get("globalWhiteRemoteAddresses") or ():
                self.white_addresses.append(AddressPattern(str(address or "")))
            for each in data.get("accounts") or ():
                account = Account.parse(each)
                if account.access_key in self.by_key:
                    log.warning("access key repeated key=%s file=%s", account.access_key, path)
                self.by_key.setdefault(account.access_key, account)
        except (IllegalArgument, AttributeError, TypeError) as error:
            raise IllegalArgument(f"cannot read the ACL file {path}: {error}") from error

    def admit(self, address: str) -> bool:
        """Return True if an IP is on the global list."""
        return any(pattern.matches(address) for pattern in self.white_addresses)

    def cover(self, others: "Accounts", key: str, address: str) -> bool:
        """Return True if an access key, used from an IP, may do here whatever it may do with the others."""
        if self.admit(address):
            return True
        account, other = self.by_key.get(key), others.by_key.get(key)
        if others.admit(address) or account is None or other is None:
            return False
        return account.covers(other)


def _check(
    account: Account, request: RemotingCommand, access: Right | None, message_at: MessageAt
) -> None:
    """Check an account; access None means administrators only. Raises: AccessDenied (invariant 2)."""
    if access is None and not account.admin:
        raise AccessDenied(
            f"Need admin permission for request code={request.code}, "
            f"but accessKey={account.access_key} is not"
        )
    if access is None or account.may_all:
        return
    account.check_needs(needs_of(request, access, message_at))


class PlainAccessValidator:
    """Checks requests against the files at `path`; see the head of the module."""

    def __init__(self, path: Path) -> None:
        """Raises: IllegalArgument (invariant 3)."""
        self._path = path
        self._seen = self._stamps()
        self._changes = dict.fromkeys(self._seen, 0)
        self._accounts = self._load()
        # Those of the last tick, if they are others.
        self._before: Accounts | None = None
        self.denials = DenialLog()
        self.callers = Callers()

    @classmethod
    def configured(cls, config: "BrokerConfig", folder: str) -> Self:
        """Return the access checks. folder: of the store. Raises: IllegalArgument for a bad file."""
        own = Path(folder) / "config" / "plain_acl.yml"
        return cls(Path(config.acl_file) if config.acl_file else own)

    # ------------------------------------------------------------ files

    def _files(self) -> list[Path]:
        folder = self._path.parent / "acl"
        more = [path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml")]
        return [self._path, *sorted(more)]

    def _stamps(self) -> dict[Path, tuple[int, int, int]]:
        found: dict[Path, tuple[int, int, int]] = {}
        for path in self._files():
            try:
                stat = path.stat()
            except OSError:
                continue
            # A clock of some milliseconds alone would miss the second of two changes.
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return found

    def _load(self) -> Accounts:
        accounts = Accounts()
        for path in self._files():
            accounts.add(self._content(path), path)
        return accounts

    def _content(self, path: Path) -> Any:
        # Imported here: a broker without ACL needs no YAML.
        import yaml

        try:
            return yaml.safe_load(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise IllegalArgument(
                f"aclEnable=true needs a readable {path}: {error}. Write it in the form of RocketMQ's "
                "plain_acl.yml, or name another file with aclFile"
            ) from error

    def tick(self) -> bool:
        """Reload changed files (invariants 3 and 4); called about once a second.

        Returns: whether connections were closed.
        """
        self.denials.tick()
        self.reload()
        if self._before is None:
            return False
        before, self._before = self._before, None
        now = self._accounts
        return self.callers.close_others(lambda key, ip: now.cover(before, key, ip))

    def reload(self) -> None:
        """Let changed files hold for all requests from now on; the next tick closes connections."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        for path, stamp in stamps.items():
            if stamp != self._seen.get(path):
                self._changes[path] = self._changes.get(path, -1) + 1
        self._seen = stamps
        try:
            loaded = self._load()
        except IllegalArgument as error:
            log.error("cannot read ACL files, the old accounts stay reason=%s", error)
            return
        self._before = self._before or self._accounts
        self._accounts = loaded
        log.info("changed ACL files are in force accounts=%d", len(loaded.by_key))

    def to_json(self) -> dict[str, Any]:
        """Return the AclConfig of RocketMQ 4.9, without secrets."""
        accounts = self._accounts
        return {
            "globalWhiteAddrs": [each.text for each in accounts.white_addresses],
            "plainAccessConfigs": [each.to_json() for each in accounts.by_key.values()],
        }

    # ------------------------------------------------------------ changes

    def versions(self) -> dict[str, DataVersion]:
        """Return the version of each file, by its path."""
        return {
            str(path): DataVersion(stamp[0] // 1_000_000, self._changes[path])
            for path, stamp in self._seen.items()
        }

    def put_account(self, fields: Mapping[str, Any]) -> None:
        """Write these fields of an account, or a new account. Raises: IllegalArgument; OSError."""
        with one_writer(*self._files()):
            path, content = self._where(str(fields["accessKey"]))
            acl_file.put_account(content, fields)
            acl_file.write(path, content)

    def delete_account(self, access_key: str) -> bool:
        """Delete an account; return False if it does not exist. Raises: IllegalArgument; OSError."""
        with one_writer(*self._files()):
            path, content = self._where(access_key)
            if not acl_file.remove_account(content, access_key):
                return False
            acl_file.write(path, content)
            return True

    def set_white_addresses(self, addresses: list[str], path: str | None) -> None:
        """Replace the global list of a file, by default of the first. Raises: IllegalArgument; OSError."""
        wanted = self._path if path is None else Path(path)
        if wanted not in self._files():
            raise IllegalArgument(f"{path} is not one of this broker's account files")
        for address in addresses:
            AddressPattern(address)
        with one_writer(wanted):
            content = self._content(wanted) or {}
            content["globalWhiteRemoteAddresses"] = addresses
            acl_file.write(wanted, content)

    def _where(self, access_key: str) -> tuple[Path, acl_file.Content]:
        """Return the file that has an account, else the first, and its content. Raises: IllegalArgument."""
        # All of them must be sound: with one that is not, a change would not come into force.
        self._load()
        for path in self._files():
            content = self._content(path) or {}
            if any(acl_file.holds_key(each, access_key) for each in content.get("accounts") or ()):
                return path, content
        return self._path, self._content(self._path) or {}

    # ------------------------------------------------------------ requests

    def guarded(self, handler: Handler, access: Right | None, message_at: MessageAt) -> Handler:
        """Wrap `handler` in the check; access None means administrators only."""

        def checked(request: RemotingCommand, connection: Connection) -> Any:
            try:
                self.check(request, connection, access, message_at)
            except AccessDenied as denied:
                ip = ip_of(connection.peer)
                user = (request.ext or {}).get(ACCESS_KEY, "")
                self.denials.note(ip, request.code, str(connection.peer), str(denied), user)
                return request.answer(ResponseCode.SYSTEM_ERROR, f"{_REMARK}{denied}")
            self.note(connection, (request.ext or {}).get(ACCESS_KEY, ""))
            return handler(request, connection)

        return checked

    def lists(self, address: str) -> bool:
        """Return True for an IP of the global list, whose requests need no signature."""
        return self._accounts.admit(address)

    def secret_of_administrator(self, access_key: str) -> str | None:
        """Return the secret key of an administrator's account; None if there is no such account."""
        account = self._accounts.by_key.get(access_key)
        return account.secret_key if account is not None and account.admin else None

    def may_publish(self, peer: Peer, topic: str) -> bool:
        """Return True if a client may publish to a topic, by its address or its latest signature."""
        accounts, address = self._accounts, ip_of(peer.address)
        if accounts.admit(address):
            return True
        account = accounts.by_key.get(self.callers.key(peer))
        if account is None:
            return False
        return account.white_address.matches(address) or account.has(*write_need(topic))

    def same_account(self, one: Peer, other: Peer) -> bool:
        """Return True if the latest signatures of two clients are of the same account."""
        return self.callers.same(one, other)

    def signer(self, peer: Peer) -> str:
        """Return the access key of a client's latest signature; "" where none had to hold."""
        accounts, address, key = self._accounts, ip_of(peer.address), self.callers.key(peer)
        account = accounts.by_key.get(key)
        is_free = account is None or account.white_address.matches(address)
        return "" if is_free or accounts.admit(address) else key

    def check(
        self, request: RemotingCommand, caller: Caller, access: Right | None, message_at: MessageAt
    ) -> None:
        """Check a request. message_at: see MessageStore. Raises: AccessDenied (invariant 1)."""
        ext = request.ext or {}
        account = self._account(
            caller,
            ext.get(ACCESS_KEY),
            lambda secret: signature_holds(secret, ext, request.body),
        )
        if account is None:
            return
        try:
            _check(account, request, access, message_at)
        except ProtocolError as error:
            raise AccessDenied(f"cannot tell what the request is about: {error}") from error

    def check_bearer(
        self,
        caller: Caller,
        access_key: str | None,
        holds: Callable[[str], bool],
        wanted: NeededRights,
    ) -> None:
        """Check a request of another front. holds: whether the signature was made with a given secret key.

        Raises: AccessDenied (invariant 1).
        """
        account = self._account(caller, access_key, holds)
        if account is not None:
            account.check_needs(needs_of_call(wanted))

    def note(self, peer: Peer, access_key: str) -> None:
        """See Callers.note."""
        self.callers.note(peer, access_key)

    def _account(
        self, caller: Caller, access_key: str | None, holds: Callable[[str], bool]
    ) -> Account | None:
        """Return the account that signed; None if the address need not sign. Raises: AccessDenied."""
        address = ip_of(caller.peer)
        accounts = self._accounts
        if accounts.admit(address):
            self.callers.admit(caller, "")
            return None
        if access_key is None:
            raise AccessDenied("No accessKey is configured")
        account = accounts.by_key.get(access_key)
        if account is None:
            raise AccessDenied(f"No acl config for {access_key}")
        if account.white_address.matches(address):
            self.callers.admit(caller, access_key)
            return None
        if not holds(account.secret_key):
            raise AccessDenied(f"Check signature failed for accessKey={access_key}")
        self.callers.admit(caller, access_key)
        return account
