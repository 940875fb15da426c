"""Questions: what the broker asks a client over its Telemetry call, and waits for. Source: GrpcClientChannel,
ClientActivity of the proxy, RocketMQ 5.3.3.

    309 CONSUME_MESSAGE_DIRECTLY    verify_message_command, answered by verify_message_result and a status
    307 GET_CONSUMER_RUNNING_INFO   print_thread_stack_trace_command, if the stacks are wanted; such a client
                                    tells nothing else of its state

1. A nonce leads from an answer to its question; it is of use to the client that was asked only.
2. A client has WAITING_MAX questions open at most. Those of one that leaves fail.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.grpc.encode import message_alone
from pocketmq.grpc.messages import TelemetryCommand
from pocketmq.grpc.schema import Code
from pocketmq.model.record import read_record
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode, request_name
from pocketmq.remoting.errors import ConnectionLost, RequestTimeout, TooManyRequests
from pocketmq.remoting.transport.peer import PeerAnswer

WAITING_MAX = 64
_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class Questions:
    """Those of one client. Owner: its GrpcClient."""

    def __init__(self, client_id: str, language: str) -> None:
        self._client_id, self._language = client_id, language
        self._waiting: dict[str, asyncio.Future[PeerAnswer]] = {}
        self._count = 0

    async def ask(
        self,
        send: Callable[[Any], None],
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
    ) -> PeerAnswer:
        """Send a question and wait for its answer.

        Raises: ConnectionLost, RequestTimeout, TooManyRequests.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyRequests(f"{WAITING_MAX} questions to {self._client_id} are open")
        self._count += 1
        nonce = str(self._count)
        command = self._command(nonce, code, fields, body)
        answer: asyncio.Future[PeerAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = answer
        try:
            send(command)
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise RequestTimeout(self._client_id, request_name(code), timeout_ms) from None
        finally:
            del self._waiting[nonce]

    def _command(self, nonce: str, code: int, fields: Mapping[str, str], body: bytes) -> Any:
        """Return a question. Raises: ConnectionLost if there is no such question."""
        command = TelemetryCommand()
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            record = read_record(body, check_crc=False)
            verify = command.verify_message_command
            verify.nonce = nonce
            attempt = 1 + record.reconsume_times
            message = message_alone(record, self._language, record.topic, attempt=attempt)
            verify.message.MergeFromString(message)
            return command
        wants_stacks = fields.get("jstackEnable", "").lower() == "true"
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO and wants_stacks:
            command.print_thread_stack_trace_command.nonce = nonce
            return command
        raise ConnectionLost(
            f"the client {self._client_id} uses gRPC, which does not support this request"
        )

    def answered(self, command: Any) -> None:
        """Take a client's answer from its Telemetry call; its waiter may have left."""
        kind = command.WhichOneof("command")
        if kind == "verify_message_result":
            nonce, answer = command.verify_message_result.nonce, _verified(command.status)
        elif kind == "thread_stack_trace":
            nonce = command.thread_stack_trace.nonce
            answer = _printed(command.status, command.thread_stack_trace.thread_stack_trace)
        else:
            return
        waiting = self._waiting.get(nonce)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def close(self) -> None:
        """Fail the waiters: the client has left."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(f"the client {self._client_id} has left"))


def _verified(status: Any) -> PeerAnswer:
    """Return it as a classic member answers. An SDK that cannot do it says so by another code."""
    result = _RESULTS.get(status.code)
    if result is None:
        return PeerAnswer(
            ResponseCode.SYSTEM_ERROR, f"{status.code} {status.message}".strip(), None, b""
        )
    data = {
        "autoCommit": True,
        "consumeResult": result,
        "order": False,
        "remark": "from gRPC client",
        "spentTimeMills": 0,
    }
    return PeerAnswer(ResponseCode.SUCCESS, None, None, fastjson.dumps(data))


def _printed(status: Any, stacks: str) -> PeerAnswer:
    if status.code != Code.OK:
        return PeerAnswer(
            ResponseCode.SYSTEM_ERROR, f"{status.code} {status.message}".strip(), None, b""
        )
    data = {
        "jstack": stacks,
        "mqTable": {},
        "properties": {},
        "statusTable": {},
        "subscriptionSet": [],
    }
    return PeerAnswer(ResponseCode.SUCCESS, None, None, fastjson.dumps(data))
