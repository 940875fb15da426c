"""Security: rights at the console. No I/O; time and randomness are passed in.

1. Bound to loopback and without a login: full rights. Beyond loopback without a login: read only. With a
   login set, or users of the brokers (users/seats.py), everything requires a login, wherever it is bound.
2. A session is a signed cookie (HttpOnly, SameSite=Strict, and Secure by HTTPS): id, user and time of issue,
   under a key generated at each start. An ended session is remembered until its cookie would have expired
   anyway.
3. Requests that change state carry a CSRF token, an HMAC of the session's id, in a header that no other site
   can set; so does login, so that no site logs a user in to another account.
4. The Host header must name this console: another site whose name is made to point here (DNS rebinding) is
   refused.
5. A dangerous action must be confirmed: the token of the first answer is valid once, within its time, in its
   session, for the same method, path and body.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pocketmq.console.config import ConsoleConfig
from pocketmq.console.errors import ApiError
from pocketmq.remoting import json_codec
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument

SESSION_MS = 12 * 3_600_000
CONFIRM_MS = 120_000
_FAILURES_MAX = 5
_FAILURES_WITHIN_MS = 60_000
_REMEMBERED_MAX = 10_000
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class Session:
    """The caller's session. user: None before login; id ties tokens to the session."""

    id: str
    user: str | None
    issued_ms: int


class Security:
    """Owner of the key, of the ended sessions, of the confirmations and of the failed logins."""

    def __init__(
        self,
        config: ConsoleConfig,
        clock: Clock,
        *,
        machine_name: str = "",
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """Create it. Raises: IllegalArgument for a half-set login, or for proxies that are no addresses."""
        self._config = config
        config.proxies()
        self._clock = clock
        self._random = random_bytes
        self._key = random_bytes(32)
        password = config.secret()
        if password is not None and config.broker_users:
            raise IllegalArgument(
                "consoleUser and consoleBrokerUsers are both set: either this console has a user of its own, "
                "or those of the brokers log in"
            )
        self.broker_users = config.broker_users
        self._password = None if password is None else self._mac("password", password)
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._confirmations: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._failures: OrderedDict[str, deque[int]] = OrderedDict()
        names = {name.strip().lower() for name in config.host_names.split(",") if name.strip()}
        self._any_host = "*" in names
        self._host_names = names | {"localhost", machine_name.lower(), config.host.lower()} - {""}

    # ------------------------------------------------------------ rights

    @property
    def login_required(self) -> bool:
        return self._password is not None or self.broker_users

    @property
    def read_only(self) -> bool:
        """Apply invariant 1."""
        return not self.login_required and not self._config.is_loopback

    @property
    def reason(self) -> str:
        """Return why the rights are as they are, for the page."""
        if self.broker_users:
            return "users of the brokers log in, and their policies decide"
        if self.login_required:
            return "a login is set (consoleUser)"
        if self.read_only:
            return (
                f"bound to {self._config.host} without a login: reading only. Set consoleUser and "
                "consolePassword to change things from here"
            )
        return "bound to loopback: full rights without login"

    def check_host(self, host: str | None) -> None:
        """Apply invariant 4.

        An address needs no name server, so no other site can claim it: all addresses are allowed.
        Raises: ApiError 403.
        """
        name = _host_name(host or "")
        if self._any_host or name in self._host_names or _is_address(name):
            return
        raise ApiError(
            403,
            "HOST",
            f"this console does not answer to the name {name!r}",
            "open it by its address, or add the name to consoleHostNames",
        )

    # ------------------------------------------------------------ sessions

    def session(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if it is missing, forged, expired or ended."""
        body, dot, mac = (cookie or "").rpartition(".")
        if not dot or not hmac.compare_digest(mac.encode(), self._mac("session", body).encode()):
            return None
        try:
            found = json_codec.loads(bytes.fromhex(body))
            session = Session(str(found["id"]), found["user"], int(found["at"]))
        except (KeyError, TypeError, ValueError):
            return None
        return session if self.lives(session) else None

    def lives(self, session: Session) -> bool:
        """Return True if a session has neither expired nor ended."""
        is_young = self._clock.now_ms() - session.issued_ms <= SESSION_MS
        return is_young and session.id not in self._ended

    def begin(self, user: str | None = None) -> Session:
        """Return a new session."""
        return Session(self._random(18).hex(), user, self._clock.now_ms())

    def cookie(self, session: Session) -> str:
        """Return the cookie value that `session` accepts."""
        data = {"id": session.id, "user": session.user, "at": session.issued_ms}
        body = json_codec.dumps(data).hex()
        return f"{body}.{self._mac('session', body)}"

    def end(self, session: Session) -> None:
        """End a session (invariant 2).

        One without a user gives no rights: not to be remembered, or strangers could push out the others.
        """
        if session.user is None:
            return
        self._ended[session.id] = self._clock.now_ms()
        while len(self._ended) > _REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def csrf_token(self, session: Session) -> str:
        return self._mac("csrf", session.id)

    def log_in(self, session: Session, user: str, password: str, address: str) -> Session:
        """Return a new session of the user, ending the old one. address: the client's, to count failures by.

        Raises: ApiError 403, 401, 429.
        """
        if self._password is None:
            raise ApiError(
                403, "FORBIDDEN", "this console has no login", "set consoleUser and consolePassword"
            )
        with self.attempt(address):
            # Both are compared, always, as digests: neither content nor length shows in the time it takes.
            same_user = hmac.compare_digest(
                self._mac("user", user).encode(), self._mac("user", self._config.user).encode()
            )
            same_password = hmac.compare_digest(
                self._mac("password", password).encode(), self._password.encode()
            )
            if not (same_user and same_password):
                raise ApiError(401, "LOGIN", "user or password is wrong", None)
        return self.enter(session, self._config.user)

    def enter(self, session: Session, user: str) -> Session:
        """Return a new session of a user who has proven to be that one, ending the old one."""
        self.end(session)
        return self.begin(user)

    @contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """Count a login: as a failure until the body is through, since others may be tried meanwhile.

        An error other than ApiError 401 says nothing of the password. Raises: ApiError 429.
        """
        address = _counted_as(address)
        self._check_failures(address)
        self._count_failure(address)
        try:
            yield
        except BaseException as error:
            failures = self._failures.get(address)
            if failures and not (isinstance(error, ApiError) and error.status == 401):
                failures.pop()
            raise
        self._failures.pop(address, None)

    def _check_failures(self, address: str) -> None:
        failures = self._failures.get(address) or deque()
        if len(failures) < _FAILURES_MAX:
            return
        wait_ms = failures[0] + _FAILURES_WITHIN_MS - self._clock.monotonic_ms()
        if wait_ms > 0:
            seconds = -(-wait_ms // 1_000)
            raise ApiError(
                429,
                "TOO_MANY",
                f"{_FAILURES_MAX} logins from {address} failed within a minute, so no more are "
                "accepted",
                f"try again in {seconds} s",
                retry_after_s=seconds,
            )

    def _count_failure(self, address: str) -> None:
        failures = self._failures.setdefault(address, deque(maxlen=_FAILURES_MAX))
        failures.append(self._clock.monotonic_ms())
        self._failures.move_to_end(address)
        while len(self._failures) > _REMEMBERED_MAX:
            self._failures.popitem(last=False)

    def check_read(self, session: Session) -> None:
        """Check the right to read. Raises: ApiError 401 if a login is required."""
        if self.login_required and session.user is None:
            raise ApiError(401, "LOGIN", "this needs a login", "log in first")

    def check_change(self, session: Session, token: str | None, *, for_login: bool = False) -> None:
        """Apply invariants 1 and 3. for_login: for the routes of login and logout.

        Raises: ApiError 403, 401.
        """
        if not hmac.compare_digest((token or "").encode(), self.csrf_token(session).encode()):
            raise ApiError(
                403,
                "CSRF",
                "the request does not carry this session's token",
                "load the page again: GET /api/session gives the token for X-CSRF-Token",
            )
        if for_login:
            return
        if self.read_only:
            raise ApiError(403, "READ_ONLY", "this console is read-only", self.reason)
        self.check_read(session)

    # ------------------------------------------------------------ confirmations

    def ask(self, session: Session, request: bytes) -> str:
        """Return a token for the second call of `request` (method, path, query and body)."""
        token = self._random(18).hex()
        self._confirmations[token] = (
            self._about(session, request),
            self._clock.monotonic_ms() + CONFIRM_MS,
        )
        while len(self._confirmations) > _REMEMBERED_MAX:
            self._confirmations.popitem(last=False)
        return token

    def confirmed(self, session: Session, request: bytes, token: str) -> None:
        """Use up a token. Raises: ApiError 409 (invariant 5)."""
        about, until_ms = self._confirmations.pop(token, ("", 0))
        same = hmac.compare_digest(about.encode(), self._about(session, request).encode())
        if not same or self._clock.monotonic_ms() > until_ms:
            raise ApiError(
                409,
                "CONFIRM",
                "this confirmation was used already, is too old, or is for another request",
                "ask again without X-Confirm",
            )

    def _about(self, session: Session, request: bytes) -> str:
        return session.id + hashlib.sha256(request).hexdigest()

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()


def _counted_as(address: str) -> str:
    """Return the key that counts failed logins: of an IPv6 client its /64 network.

    >>> _counted_as("192.0.2.7"), _counted_as("2001:db8:1:2:3::4"), _counted_as("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((found, 64), strict=False))


def _host_name(host: str) -> str:
    """`[::1]:8082` -> `::1`, `localhost:80` -> `localhost`.

    >>> _host_name("[::1]:8082"), _host_name("Example.org"), _host_name("127.0.0.1:1")
    ('::1', 'example.org', '127.0.0.1')
    """
    host = host.strip().lower()
    match = _HOST.fullmatch(host)
    # A text that is no host and port names no host: it is compared whole.
    return host if match is None else match[1] or match[2] or ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
