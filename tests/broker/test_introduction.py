"""Who may follow a master with accounts, and whom a slave with an account trusts with a signature."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.proof import CHALLENGE_MS, TICKET_MS, Challenges, Tickets
from pocketmq.remoting.admin_headers import RegisterBrokerHeader
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer
from tests.broker.pairs import Pair, caught_up, copied, pair, state_of
from tests.broker.raw_slave import RawSlave, ticket
from tests.broker.serving import At, Peer
from tests.broker.signing import signed
from tests.kit.waiting import until_async as until

ACCOUNTS = """
accounts:
  - {accessKey: followers, secretKey: secret-words, admin: true}
  - {accessKey: stranger, secretKey: other-words, defaultTopicPerm: PUB|SUB}
"""
SIGNS = json.dumps({"accessKey": "followers", "secretKey": "secret-words"})
INTRODUCE, FOLLOW = PocketRequestCode.INTRODUCE, PocketRequestCode.FOLLOW


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.follower.RETRY_MS", 50)


class Stranger:
    """A program without an account that listens like a broker, keeps what it is sent, and may hand it on."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[RemotingCommand] = []
        self.real: Peer | None = None
        self.registered: Peer | None = None

    async def answer(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.requests.append(request)
        if self.real is None or request.code == RequestCode.HEART_BEAT:
            return RemotingCommand.not_supported(request, connection)
        answer = await self.real.ask(request.code, request.ext, bytes(request.body))
        return request.answer(answer.code, answer.remark, answer.ext, bytes(answer.body))

    async def register(self, namesrv: str, *, address: str = "", ha: str = "") -> None:
        """Register as the master of the pair."""
        header = RegisterBrokerHeader(
            broker_name="b",
            broker_addr=address or self.address,
            cluster_name="DefaultCluster",
            ha_server_addr=ha or self.address,
            broker_id=0,
        )
        # A broker is forgotten with the connection over which it registered.
        self.registered = peer = await Peer.at(At(namesrv))
        assert (await peer.ask(RequestCode.REGISTER_BROKER, header.ext())).code == 0

    @property
    def signed(self) -> list[RemotingCommand]:
        return [each for each in self.requests if "Signature" in (each.ext or {})]


@asynccontextmanager
async def stranger() -> AsyncIterator[Stranger]:
    found = Stranger()
    server = RemotingServer({}, SystemClock(), default_handler=found.answer)
    async with server:
        host, port = await server.listen("127.0.0.1", 0)
        found.address = f"{host}:{port}"
        try:
            yield found
        finally:
            if found.registered is not None:
                await found.registered.close()


async def guarded_master(brokers: Pair, folder: Path, **settings: Any) -> Broker:
    """A master with accounts, and one message."""
    accounts = folder / "plain_acl.yml"
    if not accounts.exists():
        accounts.write_text(ACCOUNTS, encoding="utf-8")
    master = await brokers.master(acl_enable=True, acl_file=str(accounts), **settings)
    async with await Peer.at(master) as peer:
        send = {"producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "queueId": "0"}
        send |= {"defaultTopicQueueNums": "4", "sysFlag": "0", "flag": "0", "bornTimestamp": "0"}
        send |= {"properties": "", "reconsumeTimes": "0"}
        request = signed(
            RequestCode.SEND_MESSAGE, send, b"secret", key="followers", secret="secret-words"
        )
        assert (await peer.ask(request.code, request.ext, b"secret")).code == 0
    return master


async def gets_nothing(master: Broker, *reports: int) -> None:
    """Check that a connection that reports this is sent no byte of the log."""
    async with await RawSlave.at(master) as slave:
        for report in reports:
            slave.report(report)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await slave.slice()


async def test_a_false_master_gets_no_signature(tmp_path: Path) -> None:
    """Nor does it learn one by handing on what the slave asks: no replay opens the port for slaves."""
    async with pair(tmp_path) as brokers, stranger() as other:
        master = await guarded_master(brokers, tmp_path)
        # Else it would register again in between.
        master.registration.let_go()
        async with await Peer.at(master) as other.real:
            await other.register(brokers.namesrv)
            slave = await brokers.slave(inner_client_authentication_credentials=SIGNS)
            await until(lambda: "masterAddress" in state_of(slave).trouble)
            assert INTRODUCE in [each.code for each in other.requests]
            assert not other.signed
            for request in list(other.requests):
                await other.real.ask(request.code, request.ext, bytes(request.body))
            await gets_nothing(master, 0)
            # Even with the signature of an administrator that was overheard elsewhere.
            ask = signed(RequestCode.GET_BROKER_CONFIG, {}, key="followers", secret="secret-words")
            assert (await other.real.ask(ask.code, ask.ext)).code == 0
            await gets_nothing(master, 0)
            await gets_nothing(master, -(1 << 40), 0)
            other.real = None


async def test_a_ticket_goes_to_no_port_that_the_master_did_not_give(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers, stranger() as other:
        master = await guarded_master(brokers, tmp_path)
        master.registration.let_go()
        await other.register(brokers.namesrv, address=master.address, ha=other.address)
        slave = await brokers.slave(inner_client_authentication_credentials=SIGNS)
        await caught_up(slave, master)
        assert state_of(slave).master == master.registration.identity.ha_address


async def test_a_slave_signs_at_the_address_of_its_configuration(tmp_path: Path) -> None:
    """For masters that know no proof: Apache's, and earlier ones of ours."""
    async with pair(tmp_path) as brokers, stranger() as other:
        await brokers.slave(
            inner_client_authentication_credentials=SIGNS, master_address=other.address
        )
        await until(lambda: bool(other.signed))


async def test_a_listed_slave_needs_no_ticket(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS + "globalWhiteRemoteAddresses: [127.0.0.1]\n", encoding="utf-8")
    async with pair(tmp_path) as brokers:
        master = await guarded_master(brokers, tmp_path)
        async with await RawSlave.at(master) as raw:
            raw.report(0)
            assert len(await raw.take(master.parts.messages.store.commit_log_max_position)) > 0
        slave = await brokers.slave()
        await copied(slave)
        await brokers.stop("s")
        slave = await brokers.slave(inner_client_authentication_credentials=SIGNS)
        await copied(slave)


async def test_a_slave_with_an_account_follows_an_open_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        await brokers.master()
        await copied(await brokers.slave(inner_client_authentication_credentials=SIGNS))


async def test_what_is_no_proof_is_no_ticket(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await guarded_master(brokers, tmp_path)
        async with await Peer.at(master) as peer, await Peer.at(master) as second:
            ask = {"account": "followers", "nonce": "1", "address": master.address}
            for wrong in ({"account": "stranger"}, {"account": "x"}, {"address": "127.0.0.1:1"}):
                answer = await peer.ask(INTRODUCE, {**ask, **wrong})
                assert answer.code == ResponseCode.SYSTEM_ERROR
            shown = (await peer.ask(INTRODUCE, ask)).ext or {}
            proof = {**ask, "challenge": shown["challenge"], "proof": shown["proof"]}
            assert (await peer.ask(FOLLOW, proof)).remark == (
                "the proof for accessKey=followers is wrong"
            )
            answer = await second.ask(FOLLOW, proof)
            assert answer.remark == "the challenge is not of this connection"
            number = await ticket(peer, master.address, "followers", "secret-words")
            async with await RawSlave.at(master) as slave:
                slave.report(number)
                slave.report(0)
                await slave.take(master.parts.messages.store.commit_log_max_position)
            await gets_nothing(master, number, 0)


def test_challenges_and_tickets_end() -> None:
    now_ms = 1_000
    challenges, tickets = Challenges(lambda: now_ms), Tickets(lambda: now_ms)
    challenge = challenges.new("1.2.3.4:5")
    first, second = tickets.issue("a", b"k"), tickets.issue("a", b"k")
    assert first < -1
    assert second < -1
    now_ms += TICKET_MS - 1
    assert tickets.take(first) == ("a", b"k")
    assert tickets.take(first) is None
    now_ms += 1
    assert tickets.take(second) is None
    assert challenges.holds(challenge, "1.2.3.4:5")
    assert not challenges.holds(challenge, "1.2.3.4:6")
    assert not challenges.holds("5.ff.ff", "1.2.3.4:5")
    assert not challenges.holds("", "1.2.3.4:5")
    now_ms += CHALLENGE_MS
    assert not challenges.holds(challenge, "1.2.3.4:5")
