"""A model of pop consumption against the real processors and a real store, with kill -9 at any moment.

No message is lost; none is handed out again before its time, restart or not; what was acknowledged in time
never comes again; each coming again counts one more.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.acts.receipts import ReceiptActs
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.wire.pop import PopMessageProcessor
from pocketmq.broker.wire.pop_ack import PopAckProcessor
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.bare import HOST, bare_parts
from tests.broker.members import open_connection
from tests.broker.popping import Popped, popped

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 22,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
}


def no_lite() -> Any:
    raise AssertionError("no receipt of a lite topic")


class Bench:
    """The parts that pop consumption needs, without a loop or a socket; `kill` loses what is not saved."""

    def __init__(self, folder: Path, *, rewrite_min: int = 12, **config: Any) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.config = BrokerConfig(broker_name="b", **config)
        self.rewrite_min = rewrite_min
        self.store = MessageStore(
            StoreConfig(store_path_root_dir=str(folder), **SMALL),
            clock=self.clock,
            store_host=HOST,
        )
        self.store.open()
        self.chance = 0
        self.saved: dict[str, Any] = {}
        self.saved_order: dict[str, Any] = {}
        self.start()
        self.topics.update(TopicConfig("T", 2, 2))

    def start(self) -> None:
        """A broker starts with what is on the disk."""
        parts = bare_parts(self.store, self.clock, self.config)
        tables, members, messages = parts.tables, parts.members, parts.messages
        self.topics, self.groups, self.offsets = tables.topics, tables.groups, tables.offsets
        self.pop = parts.services.pop
        self.topics.load()
        self.groups.find("g")
        self.offsets.from_json(self.saved)
        tables.order_info.from_json(self.saved_order)
        self.pop.log._rewrite_min = self.rewrite_min
        self.pop.load()
        acts = PopActs(
            parts.node,
            tables,
            members,
            messages,
            self.pop,
            random_below=lambda n: self.chance % n,
        )
        self.reader = PopMessageProcessor(acts)
        receipts = ReceiptActs(parts.node, tables, messages, self.pop)
        self.acks = PopAckProcessor(receipts, parts.messages.durability, no_lite)
        self.connection = open_connection(self.clock)

    def save(self) -> None:
        self.saved = self.offsets.to_json()
        self.saved_order = self.pop.order.to_json()

    def kill(self) -> None:
        """kill -9 and a start: the log is whole, the tables are as they were saved last."""
        self.start()

    def send(self, body: bytes, queue_id: int) -> None:
        now = self.clock.now_ms()
        self.store.append("T", queue_id, body, b"TAGS\x01a\x02", 0, 0, now, HOST)

    def take(self, **more: Any) -> list[Popped]:
        ext = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 5_000,
            "pollTime": 0,
            "bornTime": self.clock.now_ms(),
            "initMode": 0,
            **more,
        }
        answer = _sent(self.reader.pop(_request(RequestCode.POP_MESSAGE, ext), self.connection))
        assert answer.code in (0, 210), answer
        return popped(answer, "T", "g") if answer.code == 0 else []

    def ack(self, message: Popped) -> int:
        request = _request(RequestCode.ACK_MESSAGE, message.ext("g"))
        return _answer(self.acks.ack(request, self.connection)).code

    def change(self, message: Popped, invisible_ms: int) -> RemotingCommand:
        ext = {**message.ext("g"), "invisibleTime": invisible_ms}
        request = _request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)
        return _answer(self.acks.change_invisible_time(request, self.connection))

    def close(self) -> None:
        self.store.close()


def _request(code: int, ext: dict[str, Any]) -> RemotingCommand:
    return RemotingCommand(code, {name: str(value) for name, value in ext.items()})


def _answer(answer: Any) -> RemotingCommand:
    assert isinstance(answer, RemotingCommand)
    return answer


def _sent(reply: Any) -> RemotingCommand:
    """What a client decodes of a reply."""
    if isinstance(reply, RemotingCommand):
        return decode(encode(reply)[4:])
    return decode(b"".join(bytes(part) for part in reply)[4:])


@dataclass
class Message:
    """What the model knows of one message; until_ms: invisible before that."""

    out: Popped | None = None
    until_ms: int = 0
    times: int = 0
    acked: bool = False
    seen: int = 0
    old: list[Popped] = field(default_factory=list)


class PopModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.folder.name), pop_dead_letter_enable=False)
        self.messages: dict[bytes, Message] = {}

    @property
    def now(self) -> int:
        return self.bench.clock.now_ms()

    def out(self) -> list[Message]:
        return [message for message in self.messages.values() if message.out is not None]

    @rule(queue_id=st.integers(0, 1))
    def send(self, queue_id: int) -> None:
        body = b"%d" % len(self.messages)
        self.bench.send(body, queue_id)
        self.messages[body] = Message()

    @rule(
        count=st.integers(1, 5),
        invisible_ms=st.sampled_from([1_000, 5_000, 60_000]),
        queue_id=st.integers(-1, 1),
        chance=st.integers(0, 99),
    )
    def pop(self, count: int, invisible_ms: int, queue_id: int, chance: int) -> None:
        self.bench.chance = chance
        for got in self.bench.take(maxMsgNums=count, invisibleTime=invisible_ms, queueId=queue_id):
            message = self.messages[got.body]
            assert not message.acked, f"{got.body!r} was acknowledged"
            assert message.out is None, (
                f"{got.body!r} is out until {message.until_ms}, now {self.now}"
            )
            assert got.reconsume_times == message.times
            message.out = got
            message.until_ms = self.now + invisible_ms
            message.seen += 1

    @precondition(lambda self: self.out())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.out()))
        assert message.out is not None
        assert self.bench.ack(message.out) == 0
        # In time, or late but before anybody has looked: it is done.
        message.acked = True
        message.out = None

    @precondition(lambda self: any(message.old for message in self.messages.values()))
    @rule(data=st.data())
    def use_an_old_receipt(self, data: st.DataObject) -> None:
        """An acknowledgement that comes too late changes nothing; a change is refused."""
        old = [receipt for message in self.messages.values() for receipt in message.old]
        receipt = data.draw(st.sampled_from(old))
        assert self.bench.ack(receipt) == 0
        assert self.bench.change(receipt, 0).code == 208

    @precondition(lambda self: self.out())
    @rule(data=st.data(), invisible_ms=st.sampled_from([0, 700, 8_000]))
    def change(self, data: st.DataObject, invisible_ms: int) -> None:
        message = data.draw(st.sampled_from(self.out()))
        got = message.out
        assert got is not None
        answer = self.bench.change(got, invisible_ms)
        assert answer.code == 0
        words = got.receipt.split(" ")
        assert answer.ext is not None
        pop_ms = int(answer.ext["popTime"])
        words[:3] = [str(got.offset), str(pop_ms), str(invisible_ms)]
        message.old.append(got)
        message.out = Popped(**{**got.__dict__, "receipt": " ".join(words)})
        message.until_ms = self.now + invisible_ms

    @rule(ms=st.sampled_from([1, 500, 2_000, 10_000]))
    def pass_time(self, ms: int) -> None:
        self.bench.clock.advance_ms(ms)

    @rule()
    def step(self) -> None:
        """The broker looks what is due."""
        while self.bench.pop.step():
            pass
        for message in self.out():
            if message.until_ms <= self.now and message.out is not None:
                message.old.append(message.out)
                message.out = None
                message.times += 1

    @rule(save=st.booleans())
    def tick(self, save: bool) -> None:
        self.bench.pop.tick()
        if save:
            self.bench.save()

    @rule()
    def kill(self) -> None:
        self.bench.kill()
        for message in self.out():
            assert message.out is not None
            # Of several pop times within a millisecond the later ones run ahead of the clock, and the log has
            # no other time.
            pop_ms, invisible_ms = map(int, message.out.receipt.split(" ")[1:3])
            message.until_ms = min(pop_ms, self.now) + invisible_ms

    @invariant()
    def as_many_are_out_as_we_hold(self) -> None:
        if not hasattr(self, "bench"):
            return
        state = self.bench.pop.log.state
        out = sum(len(point.unacked) for point in state.live.values())
        assert out == len(self.out())

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        try:
            for _ in range(4):
                self.bench.clock.advance_ms(100_000)
                self.step()
                self.pop(32, 1_000, -1, 0)
                self.pop(32, 1_000, -1, 0)
                for message in self.out():
                    assert message.out is not None
                    self.bench.ack(message.out)
                    message.acked, message.out = True, None
            assert all(message.acked for message in self.messages.values())
            self.bench.pop.tick()
            self.bench.save()
            self.bench.kill()
            assert len(self.bench.pop.log.state) == 0
            assert self.bench.take() == []
        finally:
            self.bench.close()
            self.folder.cleanup()


PopModel.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPopModel = PopModel.TestCase
