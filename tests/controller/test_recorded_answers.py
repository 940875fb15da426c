"""What brokers of RocketMQ 5.5.0 asked their controller, and its answers beside ours: data/recorded.jsonl.

Recorded: two brokers begin; the master is killed; it returns; the other one freezes, and thaws; an operator
designates; a master is stopped.
"""

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.keeping import FileKeeper
from pocketmq.controller.processors import ControllerProcessors, master_header, set_body
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import NO_BROKER, BrokerHeartbeatHeader
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand

_DATA = Path(__file__).parent / "data" / "recorded.jsonl"
_ADDRESS, _GROUP = "127.0.0.2:33501", "g1"


class Replay:
    """A controller that gets the recorded requests."""

    def __init__(self) -> None:
        clock = ManualClock()
        keeper = FileKeeper(None)
        keeper.leader = _ADDRESS
        self.controller = Controller(ControllerConfig(group=_GROUP), clock, keeper)
        self.now_ms = clock.monotonic_ms
        processors = ControllerProcessors(
            self.controller.sets,
            self.controller.living,
            self.controller,
            clock.monotonic_ms,
            self.controller.config,
        )
        self.handlers = processors.handlers()

    async def ask(self, row: dict[str, Any]) -> None:
        code = RequestCode(row["request"])
        request = RemotingCommand(code, row["ext"], (row.get("body") or "").encode())
        answer: Any = self.handlers[code](request, None)  # type: ignore[arg-type]
        if inspect.isawaitable(answer):
            answer = await answer
        if code is RequestCode.BROKER_HEARTBEAT:
            assert answer is None
            return
        theirs = row["answer"]
        assert answer.code == theirs["code"], row
        if theirs["code"]:
            # RocketMQ fills the fields of a refusal with zeros.
            return
        assert (answer.ext or {}) == (theirs["ext"] or {}), row
        body = fastjson.loads(theirs["body"].encode()) if theirs["body"] else {}
        ours = fastjson.loads(answer.body) if answer.body else {}
        if code is RequestCode.CONTROLLER_ELECT_MASTER:
            # RocketMQ leaves out those that it did not read from its own table.
            ours["brokerMemberGroup"]["brokerAddrs"] = body["brokerMemberGroup"]["brokerAddrs"]
        assert ours == body, row

    async def notice(self, row: dict[str, Any]) -> None:
        """The controller elected by itself, or has just done so for a request."""
        name, epoch = "ha-a", int(row["ext"]["masterEpoch"])
        known = self.controller.sets.get(name)
        if known.master_epoch < epoch:
            assert known.master is not None
            live = self.controller.living.get(name, known.master)
            assert live is not None
            self.controller.living.declare_dead(live)
            await self.controller.elect(name, NO_BROKER, designated=False)
            known = self.controller.sets.get(name)
        assert master_header(known).ext() == row["ext"]
        assert json.loads(set_body(known)) == json.loads(row["body"])


async def test_every_recorded_answer_is_ours() -> None:
    rows = [json.loads(line) for line in _DATA.read_text().splitlines()]
    replay = Replay()
    async with replay.controller:
        for row in rows:
            if "notice" in row:
                await replay.notice(row)
                await asyncio.sleep(0)
            else:
                await replay.ask(row)
    assert replay.controller.sets.get("ha-a").master_epoch == 5


def test_a_heartbeat_without_an_id_does_not_count() -> None:
    replay = Replay()
    replay.controller.living.heard(BrokerHeartbeatHeader("c", "1.1.1.1:1", "b"), "a", 0)
    assert replay.controller.living.of("b") == {}
