"""Half messages, their ends, and where they are found."""

from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, number

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


BORN = 1_700_000_000_000


async def prepare(peer: Peer, body: bytes = b"half", **properties: str) -> RemotingCommand:
    """Send a half message to queue 1 of T."""
    own: dict[str, Any] = {
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "UNIQ_KEY": body.decode() + "-id",
        **properties,
    }
    answer = await peer.produce("T", body, queue_id=1, sys_flag=4, **own)
    assert answer.code == ResponseCode.SUCCESS
    return answer


def ending(answer: RemotingCommand, decision: int, **changed: Any) -> dict[str, Any]:
    """The header of END_TRANSACTION for what a send was answered."""
    assert answer.ext is not None
    return {
        "producerGroup": "pg",
        "tranStateTableOffset": number(answer, "queueOffset"),
        "commitLogOffset": parse_offset_msg_id(answer.ext["msgId"])[1],
        "commitOrRollback": decision,
        "fromTransactionCheck": False,
        "msgId": "id",
        **changed,
    }


async def end(
    peer: Peer, answer: RemotingCommand, decision: int, **changed: Any
) -> RemotingCommand:
    return await peer.ask(RequestCode.END_TRANSACTION, ending(answer, decision, **changed))


async def found(peer: Peer) -> list[bytes]:
    return await peer.bodies("g", "T", queue_id=1)


async def check(broker: Broker) -> None:
    await broker.parts.services.check.check()


async def asked(peer: Peer) -> tuple[RemotingCommand, dict[str, Any]]:
    """The next CHECK_TRANSACTION_STATE, and the end of transaction that answers it."""
    request = await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
    assert request.is_oneway
    assert request.ext is not None
    header = {
        "producerGroup": "pg",
        "tranStateTableOffset": request.ext["tranStateTableOffset"],
        "commitLogOffset": request.ext["commitLogOffset"],
        "commitOrRollback": COMMIT,
        "fromTransactionCheck": True,
        "msgId": request.ext["msgId"],
    }
    return request, header
