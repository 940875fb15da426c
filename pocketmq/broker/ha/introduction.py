"""Introduction: the two requests by which a slave and its master prove themselves, at both ends (proof.py).

A slave with an account signs its requests for an address that its own configuration gives (masterAddress),
and for a master that has proved itself. For any other address that a name server gives it asks unsigned: such
a master has no accounts, lists the slave's address, or refuses.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.access.fronts import BearerAccess
from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.ha.proof import Challenges, RandomBytes, Tickets, derived_key, proof, proves
from pocketmq.broker.refused import Refused
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.requests import (
    FollowHeader,
    FollowResponseHeader,
    IntroduceHeader,
    IntroduceResponseHeader,
    PocketRequestCode,
)
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection

_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True)
class OwnAddresses:
    """broker: `ip:port` of this broker, as registered; ha: that of its port for slaves."""

    broker: str
    ha: str


def signer(config: HaConfig) -> Callable[[RemotingCommand], None] | None:
    """Return what signs the broker's own requests; None: they are not signed. Raises: IllegalArgument."""
    credentials = own_credentials(config)
    return None if credentials is None else credentials.sign


def own_credentials(config: HaConfig) -> Credentials | None:
    """Return the account that this broker has at others; None if absent. Raises: IllegalArgument."""
    text = config.inner_client_authentication_credentials
    if not text:
        return None
    try:
        data = json.loads(text)
        return Credentials(str(data["accessKey"]), str(data["secretKey"]))
    except (KeyError, TypeError, ValueError) as error:
        raise IllegalArgument(
            'innerClientAuthenticationCredentials must be {"accessKey": ..., "secretKey": ...}, and '
            f"cannot be read: {type(error).__name__}"
        ) from None


class Introductions:
    """The master's end: proves itself, and gives tickets for the port for slaves."""

    def __init__(
        self, clock: Clock, accounts: BearerAccess | None, own: Callable[[], OwnAddresses | None]
    ) -> None:
        """own: the addresses; None before the broker serves."""
        self._accounts = accounts
        self._own = own
        self._challenges = Challenges(clock.monotonic_ms)
        self.tickets = Tickets(clock.monotonic_ms)

    def introduce(self, header: IntroduceHeader, connection: Connection) -> IntroduceResponseHeader:
        """Prove this master to a slave that has dialled `header.address`. Raises: Refused."""
        own = self._own()
        key = self._key(header.account)
        # Else a program in between could have its own address proved (proof.py, 1).
        if own is None or header.address not in (own.broker, connection.local):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"{header.address[:100]} is not this broker's address"
            )
        challenge = self._challenges.new(connection.peer)
        words = (header.account, header.nonce, header.address, challenge, own.ha)
        return IntroduceResponseHeader(challenge, own.ha, proof(key, "master", words))

    def follow(self, header: FollowHeader, connection: Connection) -> FollowResponseHeader:
        """Give a slave that proves itself a ticket. Raises: Refused."""
        own = self._own()
        key = self._key(header.account)
        ha = "" if own is None else own.ha
        words = (header.account, header.nonce, header.challenge, ha)
        if not self._challenges.holds(header.challenge, connection.peer):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the challenge is not of this connection")
        if not proves(key, "slave", words, header.proof):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the proof for accessKey={header.account} is wrong"
            )
        return FollowResponseHeader(self.tickets.issue(header.account, key))

    def still_follows(self, account: str, key: bytes) -> bool:
        """Return True if an account may follow now, with the secret that its ticket was issued for."""
        try:
            return self._key(account) == key
        except Refused:
            return False

    def _key(self, account: str) -> bytes:
        if self._accounts is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker has no accounts (aclEnable)")
        secret = self._accounts.secret_of_administrator(account)
        if secret is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "a slave's account must be an administrator's")
        return derived_key(account, secret)


@dataclass(frozen=True, slots=True)
class DialledMaster:
    """A master that a slave has dialled. ha_address: empty if it has not proved itself; why: the reason."""

    address: str
    nonce: str = ""
    challenge: str = ""
    ha_address: str = ""
    why: str = ""

    @property
    def proved(self) -> bool:
        return bool(self.ha_address)


class Introducer:
    """The slave's end."""

    def __init__(
        self,
        credentials: Credentials,
        client: RemotingClient,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        self._account = credentials.access_key
        self._secret = credentials.secret_key
        self._client = client
        self._random_bytes = random_bytes

    async def meet(self, address: str) -> DialledMaster:
        """Have the broker at `address` prove itself. Raises: OSError, PocketMQError if it is not reached."""
        nonce = self._random_bytes(16).hex()
        header = IntroduceHeader(self._account, nonce, address)
        answer = await self._client.invoke(
            address,
            RemotingCommand(PocketRequestCode.INTRODUCE, header.ext()),
            _TIMEOUT_MS,
            signed=False,
        )
        if answer.code != ResponseCode.SUCCESS:
            return DialledMaster(address, why=f"{answer.code} {answer.remark}")
        try:
            shown = IntroduceResponseHeader.parse(answer.ext)
        except HeaderError as error:
            return DialledMaster(address, why=str(error))
        words = (self._account, nonce, address, shown.challenge, shown.ha_address)
        if not proves(self._key(), "master", words, shown.proof):
            return DialledMaster(address, why="its proof is wrong")
        return DialledMaster(address, nonce, shown.challenge, shown.ha_address)

    def _key(self) -> bytes:
        return derived_key(self._account, self._secret)

    async def ticket(self, met: DialledMaster) -> int | None:
        """Return a ticket of a master that has proved itself on this connection; None if it gives none.

        Raises: OSError, PocketMQError.
        """
        words = (self._account, met.nonce, met.challenge, met.ha_address)
        header = FollowHeader(
            self._account, met.nonce, met.challenge, proof(self._key(), "slave", words)
        )
        answer = await self._client.invoke(
            met.address,
            RemotingCommand(PocketRequestCode.FOLLOW, header.ext()),
            _TIMEOUT_MS,
            signed=False,
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        return FollowResponseHeader.parse(answer.ext).ticket
