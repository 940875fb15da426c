"""Every act is called without a connection, a frame or a loop, by an asker of no front at all.

And the short way of a plain send stores the record, byte for byte, that the act stores.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.acts.clients import ClientActs, Heartbeat, Membership
from pocketmq.broker.acts.offsets import OffsetActs
from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.acts.progress import ProgressActs
from pocketmq.broker.acts.pull import PullActs, Pulled, Waits
from pocketmq.broker.acts.recall import RecallActs
from pocketmq.broker.acts.receipts import ReceiptActs
from pocketmq.broker.acts.reply import ReplyActs
from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.acts.send_back import SendBackActs, SentBack
from pocketmq.broker.acts.tables import GroupActs, TopicActs, TopicChange
from pocketmq.broker.acts.track import TrackActs
from pocketmq.broker.acts.transactions import Decision, HalfPlace, TransactionActs
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.model.message import MessageQueue
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.pop_receipt import Receipt
from pocketmq.model.record import encode_batch, read_record
from pocketmq.model.subscription import build_subscription
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.headers import PopMessageHeader, PullMessageHeader, SendMessageHeader
from pocketmq.remoting.quick.by_pattern import Cuttable, Patterns, learn_request, request_pattern
from pocketmq.remoting.requests import GetMessageTrackHeader
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.bare import HOST, Asker, bare_parts
from tests.broker.members import open_connection

OWN = 4  # sysFlag of a pull that brings its expression
HOLD = 2


class Site:
    """A broker's parts and acts; `asker` is who asks."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = MessageStore(
            StoreConfig(
                store_path_root_dir=str(folder),
                mapped_file_size_commit_log=1 << 22,
                max_hash_slot_num=1000,
                max_index_num=4000,
            ),
            clock=self.clock,
            store_host=HOST,
        )
        self.store.open()
        self.asker = Asker()
        self.parts: Parts = bare_parts(self.store, self.clock)
        node, tables, members, messages, services = (
            self.parts.node,
            self.parts.tables,
            self.parts.members,
            self.parts.messages,
            self.parts.services,
        )
        tables.topics.topics["T"] = TopicConfig("T", 4, 4)
        self.sends = SendActs(node, tables, messages)
        self.pulls = PullActs(node, tables, members, messages, services.long_polling)
        self.pops = PopActs(node, tables, members, messages, services.pop)
        self.receipts = ReceiptActs(node, tables, messages, services.pop)
        self.offsets = OffsetActs(tables, members, messages)
        self.clients = ClientActs(node, tables, members)
        self.transactions = TransactionActs(messages, services.half)
        self.send_backs = SendBackActs(node, tables, messages, random_below=lambda count: 0)
        self.recalls = RecallActs(node, tables, messages)

    def ask(self, topic: str = "T", queue_id: int = 0, **properties: str) -> SendMessageHeader:
        return SendMessageHeader(
            "pg",
            topic,
            "TBW102",
            4,
            queue_id,
            0,
            self.clock.now_ms(),
            0,
            properties_to_text(properties),
        )

    def send(self, body: bytes = b"x", topic: str = "T", **properties: str) -> int:
        """Returns the position of a new message."""
        ask = self.ask(topic, 0, **properties)
        checked = self.sends.check(ask, self.asker)
        return self.sends.send(ask, checked, body, self.asker).position

    def pull(
        self, offset: int = 0, topic: str = "T", sys_flag: int = OWN, *, first: bool = True
    ) -> Pulled | Waits:
        ask = PullMessageHeader("g", topic, 0, offset, 32, sys_flag, 0, 1_000, 0, "*", "TAG")
        return self.pulls.pull(ask, self.asker, first=first)

    def bodies(self, offset: int = 0, topic: str = "T") -> list[bytes]:
        found = self.pull(offset, topic)
        assert isinstance(found, Pulled)
        return [bytes(read_record(buffer).body) for buffer in found.result.buffers]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.store.close()


def test_send_and_pull(site: Site) -> None:
    site.send(b"one")
    with pytest.raises(Refused) as refused:
        site.sends.check(site.ask(queue_id=9), site.asker)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    found = site.pull()
    assert isinstance(found, Pulled)
    assert (found.code, found.result.next_offset) == (ResponseCode.SUCCESS, 1)
    assert site.bodies() == [b"one"]
    with pytest.raises(Refused) as refused:
        site.pull(topic="Nowhere")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_batch(site: Site) -> None:
    bodies = (b"a", b"b")
    batch = b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"
        for body in bodies
    )
    ask = site.ask(KEYS="k")
    sent = site.sends.send_batch(ask, site.sends.check(ask, site.asker), batch, site.asker)
    assert (len(sent.positions), sent.queue_offset, sent.end) == (2, 0, None)
    assert site.store.max_offset("T", 0) == 2


def test_a_pull_waits_and_is_pulled_again(site: Site) -> None:
    waits = site.pull(sys_flag=OWN | HOLD)
    assert isinstance(waits, Waits)
    found: list[object] = []
    site.pulls.wait(
        waits, site.asker, lambda: found.append(site.pull(sys_flag=OWN | HOLD, first=False))
    )
    polling = site.parts.services.long_polling
    assert polling.count == 1
    polling.wake_topic("T")
    polling.run_all()
    [answer] = found
    assert isinstance(answer, Pulled)
    assert answer.code == ResponseCode.PULL_NOT_FOUND


def test_pop_postpone_and_acknowledge(site: Site) -> None:
    site.send(b"one")
    ask = PopMessageHeader("g", "T", 0, 32, 60_000, 0, site.clock.now_ms(), 0)
    popped = site.pops.pop(ask, site.asker, site.pops.waits_until_ms(ask), lambda: None)
    assert popped is not None
    assert (popped.count, popped.code) == (1, ResponseCode.SUCCESS)
    receipt = Receipt(0, popped.pop_ms, 60_000, popped.revive_queue, "0", "b", 0, 0)
    queue = GroupQueue("g", "T", 0)
    site.clock.advance_ms(10)
    later = site.receipts.postpone(queue, 0, str(receipt), 5_000, site.asker)
    assert later is not None
    assert (later.pop_ms, later.invisible_ms) == (site.clock.now_ms(), 5_000)
    with pytest.raises(Refused) as refused:
        site.receipts.postpone(queue, 0, str(receipt), 5_000, site.asker)
    assert refused.value.code == ResponseCode.NO_MESSAGE
    again = receipt._replace(pop_ms=later.pop_ms, invisible_ms=5_000, start_offset=0)
    assert site.receipts.ack(queue, 0, str(again), site.asker) == site.store.commit_log_max_position
    assert len(site.parts.services.pop.log.state) == 0
    nothing = site.pops.pop(ask, site.asker, site.pops.waits_until_ms(ask), lambda: None)
    assert nothing is not None
    assert (nothing.count, nothing.code) == (0, ResponseCode.POLLING_TIMEOUT)


def test_query_and_commit_offsets(site: Site) -> None:
    queue = GroupQueue("g", "T", 0)
    assert site.offsets.query(queue, site.asker) == 0
    assert site.offsets.commit(queue, 7, site.asker, as_member=True)
    assert site.offsets.query(queue, site.asker) == 7


def test_progress_is_looked_at_and_copied(site: Site) -> None:
    for body in (b"one", b"two", b"three"):
        site.send(body)
    for topic in ("T", "gone"):
        site.offsets.commit(GroupQueue("g", topic, 0), 2, site.asker, as_member=True)
    members = site.parts.members
    acts = ProgressActs(site.parts.node, site.parts.tables, members.consumers, site.parts.messages)
    [found] = acts.of_group("g")
    assert (found.topic, found.lag, found.in_flight, len(found.queues)) == ("T", 1, 0, 4)
    assert (found.queues[0].end, found.queues[0].consumed) == (3, 2)
    spans = acts.spans("g", "T")
    assert spans is not None
    assert spans[0].first_ms == spans[0].last_ms == site.clock.now_ms()
    assert acts.spans("g", "gone") is None
    assert acts.copy("g", "h", None, by="1.2.3.4:5", offline=False) == ["T"]
    assert site.offsets.query(GroupQueue("h", "T", 0), site.asker) == 2
    assert acts.corrections("h", "T", None) == {0: 2}
    site.offsets.commit(GroupQueue("h", "T", 0), 1, site.asker, as_member=True)
    assert acts.corrections("g", "T", None) == {0: 1}
    assert acts.corrections("h", "T", "h") == {0: 2**63 - 1}


def test_heartbeat_members_locks_and_leave(site: Site) -> None:
    asked = build_subscription("T", "a", sub_version=1)
    member = Membership("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [asked])
    other = Asker("10.0.0.2:1")
    for name, asker in (("c1", site.asker), ("c2", other)):
        beat = Heartbeat(name, "PYTHON", 407, [member], ["pg"])
        for _ in site.clients.heartbeat(beat, asker):
            pass
    assert site.clients.members("g", other) == ["c1", "c2"]
    assert site.parts.members.producers.available("pg") in (site.asker, other)
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    assert site.clients.lock("g", "c1", queues) == queues
    assert site.clients.lock("g", "c2", queues) == []
    site.clients.unlock("g", "c1", queues)
    assert site.clients.lock("g", "c2", queues) == queues
    site.clients.notify_members("g", [site.asker])
    assert (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}) in site.asker.told
    for asker in (site.asker, other):
        site.clients.leave(asker, consumer="g", producer="pg")
    with pytest.raises(Refused, match="no consumer for this group"):
        site.clients.members("g", other)


def test_a_transaction_is_committed_once(site: Site) -> None:
    position = site.send(b"half", TRAN_MSG="true", PGROUP="pg")
    assert site.store.max_offset("T", 0) == 0
    place = HalfPlace("pg", 0, position)
    with pytest.raises(Refused, match="The producer group wrong"):
        site.transactions.end(HalfPlace("other", 0, position), Decision.COMMIT)
    for _ in range(2):
        site.transactions.end(place, Decision.COMMIT)
    assert site.bodies() == [b"half"]


def test_what_is_sent_back_comes_again_or_is_given_up(site: Site) -> None:
    position = site.send(b"x")
    site.send_backs.send_back(SentBack("g", position), site.asker)
    assert site.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1
    site.send_backs.send_back(SentBack("g", position, delay_level=-1), site.asker)
    assert site.store.max_offset("%DLQ%g", 0) == 1
    with pytest.raises(Refused, match="look message by offset failed"):
        site.send_backs.send_back(SentBack("g", 1 << 40), site.asker)


def test_a_message_that_is_not_due_is_recalled(site: Site) -> None:
    ask = site.ask(UNIQ_KEY="k1", TIMER_DELIVER_MS=str(site.clock.now_ms() + 60_000))
    sent = site.sends.send(ask, site.sends.check(ask, site.asker), b"x", site.asker)
    assert sent.recall_handle is not None
    assert site.recalls.recall("T", sent.recall_handle, "pg", site.asker).unique_key == "k1"
    site.parts.tables.topics.topics["U"] = TopicConfig("U")
    with pytest.raises(Refused, match="topic not match"):
        site.recalls.recall("U", sent.recall_handle, "pg", site.asker)


async def test_a_reply_is_pushed_to_whom_it_names(site: Site) -> None:
    asker = Asker("10.0.0.2:1")
    for _ in site.clients.heartbeat(Heartbeat("asks", "PYTHON", 407, [], ["pg"]), asker):
        pass
    members, messages = site.parts.members, site.parts.messages
    replies = ReplyActs(site.parts.node, site.sends, members.producers, messages.put)
    done = await replies.reply(site.ask(REPLY_TO_CLIENT="asks"), b"answer", site.asker)
    assert done.failure is None
    ((code, fields),) = asker.told
    assert (code, fields["bornHost"]) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, "10.0.0.1:4711")
    asker.closed = True
    done = await replies.reply(site.ask(REPLY_TO_CLIENT="asks"), b"answer", site.asker)
    assert done.failure == "push reply message fail, channel of <asks> not found."


async def test_a_message_is_tracked_by_its_place(site: Site) -> None:
    site.send(b"one")
    site.offsets.commit(GroupQueue("g", "T", 0), 0, site.asker, as_member=True)
    tracks = TrackActs(site.parts)
    ask = GetMessageTrackHeader(topic="T", queue_id=0, queue_offset=0)
    (found,) = (await tracks.track(ask))["tracks"]
    assert (found["group"], found["verdict"]) == ("g", "NOT_ONLINE")
    with pytest.raises(Refused, match="no such message"):
        await tracks.track(GetMessageTrackHeader(topic="T", queue_id=0, queue_offset=1))


def test_topics_and_groups_are_made_and_deleted(site: Site) -> None:
    parts = site.parts
    topics, groups = (
        TopicActs(parts.tables, parts.messages),
        GroupActs(parts.node, parts.tables, parts.messages),
    )
    topics.update([TopicChange(TopicConfig("New", 2, 2), "+a=b")], site.asker)
    made = parts.tables.topics.get("New")
    assert made is not None
    assert made.attributes == {"a": "b"}
    with pytest.raises(Refused, match="conflict with system topic"):
        topics.update([TopicChange(TopicConfig("TBW102"))], site.asker)
    site.send(topic="New")
    removal = topics.remove("New")
    topics.finish(removal.names, site.asker)
    assert parts.tables.topics.get("New") is None
    assert site.store.max_offset("New", 0) == 0
    groups.update([GroupConfig("made")], site.asker)
    assert parts.tables.groups.get("made") is not None
    with pytest.raises(Refused, match="illegal characters"):
        groups.update([GroupConfig("a b")], site.asker)
    groups.delete("made", site.asker, with_offsets=True)
    assert parts.tables.groups.get("made") is None


# ---------------------------------------------------------------- the short way

_NAMES = ["KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER", "DELAY", "POP_CK", "XWAIT", "a"]
_VALUES = st.sampled_from(["true", "false", "0", "k1", "", "x y"])
_TEXTS = st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=4).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("store"))
    yield made
    made.store.close()


@settings(max_examples=300)
@given(_TEXTS, st.booleans(), st.binary(max_size=8), st.sampled_from([0, 1, 3]))
def test_the_short_way_stores_what_the_act_stores(
    shared: Site, text: str, ends_bare: bool, body: bytes, flag: int
) -> None:
    """Whatever the properties: both records are equal but for where they stand."""
    text = text.removesuffix("\x02") if ends_bare else text
    parts, connection = shared.parts, open_connection(shared.clock)
    connection.peer_host = shared.asker.host
    short = SendMessageProcessor(parts.node, parts.messages, shared.sends)
    ext = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "j": "0",
        "g": str(shared.clock.now_ms()),
        "h": str(flag),
        "i": text,
        "k": "false",
        "m": "false",
    }
    request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, body)
    # The first one asks the act, and lets the next one go the short way.
    short.send(RemotingCommand(RequestCode.SEND_MESSAGE_V2, {**ext, "i": "a\x01b"}), connection)
    assert b"T" in short.parts.topics
    begin = shared.store.commit_log_max_position
    reply = short.send(request, connection)
    ask = SendMessageHeader("pg", "T", "TBW102", 4, 1, 0, shared.clock.now_ms(), flag, text)
    if isinstance(reply, RemotingCommand):
        # A delay that is no number.
        with pytest.raises(Refused, match="DELAY"):
            shared.sends.send(ask, shared.sends.check(ask, shared.asker), body, shared.asker)
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert shared.store.commit_log_max_position == begin
        return
    assert isinstance(reply, bytes)
    assert decode(reply[4:]).code == ResponseCode.SUCCESS
    middle = shared.store.commit_log_max_position
    shared.sends.send(ask, shared.sends.check(ask, shared.asker), body, shared.asker)
    both = [shared.store.record_at(position) for position in (begin, middle)]
    one, two = (read_record(each) for each in both if each is not None)
    assert one == two._replace(queue_offset=one.queue_offset, position=one.position)
    # Cut by the pattern of another header, and by its own, in either encoding.
    for first, encoding in (
        ({**ext, "i": "a\x01b"}, SerializeType.JSON),
        (ext, SerializeType.JSON),
        (ext, SerializeType.ROCKETMQ),
    ):
        end = shared.store.commit_log_max_position
        code = RequestCode.SEND_MESSAGE_V2
        pair = (
            RemotingCommand(code, first, b"", 1, encoding=encoding),
            RemotingCommand(code, ext, body, 2, encoding=encoding),
        )
        _quick_way_stores_it_too(shared, short, pair, connection)
        third = shared.store.record_at(end)
        if third is not None:
            three = read_record(third)
            assert one == three._replace(queue_offset=one.queue_offset, position=one.position)


def _quick_way_stores_it_too(
    shared: Site,
    short: SendMessageProcessor,
    pair: tuple[RemotingCommand, RemotingCommand],
    connection: Connection,
) -> None:
    """The header of the second cut by the pattern of the first; what it does not take is not stored."""
    patterns, handlers = Patterns(), short.handlers()
    handler = handlers[RequestCode.SEND_MESSAGE_V2]
    assert isinstance(handler, Cuttable)
    first, second = (encode(each)[4:] for each in pair)
    learn_request(patterns, first, decode(first), handler)
    before = shared.store.commit_log_max_position
    reply = patterns.answer(second, connection, handlers)
    if reply is None:
        assert shared.store.commit_log_max_position == before
    else:
        assert isinstance(reply, bytes)
        assert decode(reply[4:]).opaque == 2


# Fields of SEND_MESSAGE_V2 as the Java client writes them.
OFFICIAL = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1790000000000"}
OFFICIAL |= {"h": "0", "j": "0"}


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_what_official_clients_write_is_cut(shared: Site, encoding: SerializeType) -> None:
    """The keys of two messages differ, and nothing is parsed."""
    connection = open_connection(shared.clock)
    connection.peer_host = shared.asker.host
    short = SendMessageProcessor(shared.parts.node, shared.parts.messages, shared.sends)
    ext = {**OFFICIAL, "i": "UNIQ_KEY\x017F01\x02WAIT\x01true\x02TAGS\x01A\x02", "m": "false"}
    other = {**ext, "e": "0", "i": ext["i"].replace("7F01", "7F02")}
    code = RequestCode.SEND_MESSAGE_V2
    short.send(RemotingCommand(code, ext), connection)
    first, second = (
        encode(RemotingCommand(code, fields, b"body", opaque, encoding=encoding))[4:]
        for fields, opaque in ((ext, 8), (other, 9))
    )
    handler = short.handlers()[code]
    assert isinstance(handler, Cuttable)
    pattern = request_pattern(first, decode(first), handler)
    assert pattern is not None
    at = shared.store.commit_log_max_position
    reply = pattern.answer(second, 4 + int.from_bytes(second[1:4], "big"), connection)
    assert isinstance(reply, bytes)
    assert (decode(reply[4:]).opaque, decode(reply[4:]).encoding) == (9, encoding)
    stored = shared.store.record_at(at)
    assert stored is not None
    assert read_record(stored).properties.startswith(
        b"UNIQ_KEY\x017F02\x02TAGS\x01A\x02CLUSTER\x01"
    )
    assert shared.store.entries("T", 0, shared.store.max_offset("T", 0) - 1, 1)[0][2] == 65


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_a_batch_is_cut(shared: Site, encoding: SerializeType) -> None:
    """It is stored and answered as one whose header was parsed."""
    connection = open_connection(shared.clock)
    connection.peer_host = shared.asker.host
    short = SendMessageProcessor(shared.parts.node, shared.parts.messages, shared.sends)
    ext = {**OFFICIAL, "i": "WAIT\x01true\x02", "k": "false", "m": "true"}
    body = encode_batch([(0, b"one", b"TAGS\x01A\x02"), (0, b"two", b"TAGS\x01A\x02")])
    request = RemotingCommand(
        RequestCode.SEND_BATCH_MESSAGE, ext, body, opaque=8, encoding=encoding
    )
    frame = encode(request)[4:]
    parsed = short.send(decode(frame), connection)
    handler = short.handlers()[RequestCode.SEND_BATCH_MESSAGE]
    assert isinstance(handler, Cuttable)
    pattern = request_pattern(frame, decode(frame), handler)
    assert pattern is not None
    at = shared.store.commit_log_max_position
    cut = pattern.answer(frame, 4 + int.from_bytes(frame[1:4], "big"), connection)
    assert isinstance(parsed, bytes)
    assert isinstance(cut, bytes)
    one, two = decode(parsed[4:]), decode(cut[4:])
    assert one.ext is not None
    assert two.ext is not None
    assert int(two.ext["queueOffset"]) == int(one.ext["queueOffset"]) + 2
    two.ext = {**two.ext, "msgId": one.ext["msgId"], "queueOffset": one.ext["queueOffset"]}
    assert one == two
    stored = shared.store.record_at(at)
    assert stored is not None
    assert bytes(read_record(stored).body) == b"one"
