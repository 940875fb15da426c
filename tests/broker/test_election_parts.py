"""The parts of a broker under a controller that use no sockets: wire, epochs, identity, set in sync."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.epochs import Epochs, parse, text_of
from pocketmq.broker.election.identity import Applied, ControllerIdentity
from pocketmq.broker.election.in_sync import InSync
from pocketmq.broker.election.switch_wire import (
    EndReported,
    Epoch,
    FromMaster,
    FromSlave,
    Hello,
    LogPiece,
    Welcome,
    head,
    hello,
    report,
    welcome,
)
from pocketmq.broker.ha.wire import HaWireError
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store import StoreUnreadable

_FRAMES = Path(__file__).parent / "data" / "controller" / "frames.jsonl"


def frames() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _FRAMES.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------ wire


def test_recorded_frames_are_read_and_written_alike() -> None:
    """Recorded: RocketMQ 5.5.0, a master and its slave in both directions."""
    slave, master = FromSlave(), FromMaster()
    for row in frames():
        # The bodies were not recorded whole.
        whole = row.get("hex")
        raw = bytes.fromhex(whole or row["header"]) + bytes(0 if whole else row["bodySize"])
        if row["dir"] == "S→M":
            [found] = slave.feed(raw)
            if row["kind"] == "HANDSHAKE":
                assert found == Hello(row["brokerId"])
                assert hello(row["brokerId"]) == raw
            else:
                assert found == EndReported(row["offset"])
                assert report(row["offset"]) == raw
            continue
        [answer] = master.feed(raw)
        if row["kind"] == "HANDSHAKE":
            entries = tuple(Epoch(*each) for each in row["entries"])
            assert answer == Welcome(row["maxOffset"], entries)
            assert welcome(row["maxOffset"], entries) == raw
        else:
            epoch = Epoch(row["epoch"], row["epochStart"])
            assert isinstance(answer, LogPiece)
            assert answer[:3] == (row["offset"], epoch, row["confirmOffset"])
            assert len(answer.data) == row["bodySize"]
            made = head(row["offset"], row["bodySize"], epoch, row["confirmOffset"])
            assert made + bytes(answer.data) == raw


@given(st.lists(st.integers(1, 70), max_size=60))
def test_frames_are_cut_anywhere(cuts: list[int]) -> None:
    sent = welcome(9, [Epoch(1, 0), Epoch(2, 5)]) + head(5, 4, Epoch(2, 5), 3) + b"abcd"
    sent += head(9, 0, Epoch(2, 5), 9)
    said = hello(7, learner=True) + report(5) + report(9)
    found: list[Any] = []
    heard: list[Any] = []
    master, slave = FromMaster(), FromSlave()
    at = 0
    for size in [*cuts, len(sent)]:
        found += master.feed(sent[at : at + size])
        heard += slave.feed(said[at : at + size])
        at += size
    assert found == [
        Welcome(9, (Epoch(1, 0), Epoch(2, 5))),
        LogPiece(5, Epoch(2, 5), 3, memoryview(b"abcd")),
        LogPiece(9, Epoch(2, 5), 9, memoryview(b"")),
    ]
    assert heard == [Hello(7, learner=True), EndReported(5), EndReported(9)]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\3" + bytes(32),
        b"\0\0\0\2\xff\xff\xff\xff" + bytes(32),
        b"\0\0\0\2\x7f\xff\xff\xff" + bytes(32),
        b"\0\0\0\1\0\0\0\5" + bytes(32),
        bytes(8),
    ],
)
def test_what_no_master_sends_ends_the_connection(data: bytes) -> None:
    with pytest.raises(HaWireError):
        list(FromMaster().feed(data))


def test_a_slave_of_the_other_protocol_is_recognised() -> None:
    with pytest.raises(HaWireError, match="no slave of a broker in controller mode"):
        list(FromSlave().feed((586).to_bytes(8, "big")))


# ------------------------------------------------------------ epochs


def test_the_recorded_file_of_epochs() -> None:
    entries = [Epoch(1, 0), Epoch(2, 690), Epoch(3, 1152)]
    text = "3\n608671763\n1-0\n2-690\n3-1152\n"
    assert (text_of(entries), parse(text)) == (text, entries)
    for bad in ("", "1\n5\n1-0\n", "2\n0\n1-0\n", "2\n0\n1-0\n1-5\n", "1\nx\n1-0\n"):
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            parse(bad)


def test_epochs_survive_their_file(tmp_path: Path) -> None:
    epochs = Epochs(str(tmp_path))
    epochs.load()
    for each in (Epoch(1, 0), Epoch(2, 690), Epoch(4, 690), Epoch(5, 900)):
        epochs.append(each)
    assert epochs.entries == [Epoch(1, 0), Epoch(4, 690), Epoch(5, 900)], "2 has no byte"
    for bad in (Epoch(5, 901), Epoch(3, 1000), Epoch(6, 800)):
        with pytest.raises(HaWireError):
            epochs.append(bad)
    epochs.cut(900)
    again = Epochs(str(tmp_path))
    again.load()
    assert again.entries == [Epoch(1, 0), Epoch(4, 690)]
    again.settle(600)
    again.cut(0)
    third = Epochs(str(tmp_path))
    third.load()
    assert third.entries == [], "an empty list is written, too"
    (tmp_path / "epochFileCheckpoint").write_text("nonsense")
    with pytest.raises(StoreUnreadable):
        third.load()


def test_where_two_logs_part(tmp_path: Path) -> None:
    epochs = Epochs(str(tmp_path))
    epochs.entries = [Epoch(1, 0), Epoch(2, 690), Epoch(3, 1152)]
    cases = [
        # The same, and the master has more.
        ([Epoch(1, 0), Epoch(2, 690), Epoch(3, 1152)], 9_000, 2_000),
        # Ours has a tail in epoch 3 that the master, elected with 4, never had.
        ([Epoch(1, 0), Epoch(2, 690), Epoch(4, 1152)], 9_000, 1_152),
        ([Epoch(1, 0), Epoch(2, 690), Epoch(3, 1152), Epoch(4, 1_500)], 9_000, 1_500),
        ([Epoch(1, 0), Epoch(7, 400)], 9_000, 400),
        ([Epoch(9, 0)], 9_000, None),
        ([], 0, None),
    ]
    for theirs, end, common in cases:
        assert epochs.common_end(2_000, theirs, end) == common, theirs


@given(st.integers(0, 3_000), st.integers(0, 5))
def test_each_position_has_one_epoch(position: int, low: int) -> None:
    epochs = Epochs("nowhere")
    epochs.entries = [Epoch(1, low), Epoch(2, 690), Epoch(3, 1152)]
    found = epochs.at(position)
    if position < low:
        assert found is None
    else:
        assert found is not None
        (_, start), end = found
        assert start <= position
        assert end == -1 or position < end


# ------------------------------------------------------------ identity


def test_an_id_is_kept_and_belongs_to_one_name(tmp_path: Path) -> None:
    identity = ControllerIdentity(str(tmp_path), "HaCluster", "ha-a")
    assert (identity.load(), identity.applied()) == (None, None)
    identity.apply(Applied(2, "127.0.0.3:33540;1795831312261"))
    assert identity.applied() == Applied(2, "127.0.0.3:33540;1795831312261")
    assert identity.load() is None
    identity.keep(2)
    assert (identity.load(), identity.applied()) == (2, None)
    assert (tmp_path / "brokerIdentity").read_text() == "HaCluster#ha-a#2"
    with pytest.raises(StoreUnreadable, match="belongs to broker 'ha-a'"):
        ControllerIdentity(str(tmp_path), "HaCluster", "other").load()


# ------------------------------------------------------------ the set in sync


def leading(*members: int, least: int = 1) -> InSync:
    """Broker 1 leads in epoch 5, with set epoch 10."""
    in_sync = InSync(BrokerConfig(min_in_sync_replicas=least), own_id=1)
    in_sync.lead(5, members or (1,), 10)
    return in_sync


def test_alone_everything_counts_at_once() -> None:
    in_sync = leading()
    assert in_sync.is_alone
    assert in_sync.acked(700) == 700
    assert in_sync.wanted(0) is None


def test_every_member_of_the_union_has_what_counts() -> None:
    in_sync = leading(1, 2)
    assert in_sync.acked(700) == 0, "it has not been heard of"
    in_sync.reported(2, 500, 700, 0)
    assert in_sync.acked(700) == 500
    # A third one joins: from now on it has to have everything, too.
    in_sync.reported(3, 400, 700, 0)
    assert in_sync.acked(700) == 400
    assert in_sync.wanted(0) is None, "it lacks what was there when it began to join"
    in_sync.reported(2, 900, 900, 10)
    in_sync.reported(3, 700, 900, 10)
    wanted = in_sync.wanted(10)
    assert wanted is not None
    assert wanted.members == {1, 2, 3}
    in_sync.ask(wanted)
    assert in_sync.acked(900) == 700
    assert in_sync.answered(5, {1, 2, 3}, 11)
    assert (in_sync.confirmed, in_sync.wanted(10)) == (frozenset({1, 2, 3}), None)


def test_a_master_that_is_cut_off_acknowledges_nothing_alone() -> None:
    """Its slave was elected and has left; the controller does not answer. RocketMQ 5.5.0 lost messages so."""
    in_sync = leading(1, 2)
    in_sync.reported(2, 700, 700, 0)
    in_sync.left(2)
    wanted = in_sync.wanted(1)
    assert wanted is not None
    assert wanted.members == {1}
    in_sync.ask(wanted)
    assert in_sync.acked(9_000) == 700, "what it had, it has"
    for code in (
        ResponseCode.INVALID_MASTER,
        ResponseCode.FENCED_MASTER_EPOCH,
        ResponseCode.FENCED_SYNC_STATE_SET_EPOCH,
    ):
        in_sync.refused(wanted, code, 2)
        assert in_sync.acked(9_000) == 700
    assert in_sync.answered(5, {1}, 11)
    assert in_sync.acked(9_000) == 9_000, "the controller elects no other any more"


def test_a_set_without_an_answer_counts_until_its_epoch_is_replaced() -> None:
    """It may have been taken: then 2 may be elected, and needs everything."""
    in_sync = leading(1)
    in_sync.reported(2, 700, 700, 0)
    wanted = in_sync.wanted(0)
    assert wanted is not None
    in_sync.ask(wanted)
    in_sync.left(2)
    assert in_sync.acked(900) == 700
    assert not in_sync.answered(5, {1}, 10), "an old answer, or one of the same epoch"
    assert in_sync.acked(900) == 700
    again = in_sync.wanted(1)
    assert again is not None
    assert (again.members, again.epoch) == (frozenset({1}), 10), "the confirmed set is asked for"
    in_sync.ask(again)
    in_sync.refused(again, ResponseCode.FENCED_SYNC_STATE_SET_EPOCH, 2)
    assert in_sync.acked(900) == 700
    assert in_sync.answered(5, {1, 2}, 11), "it had been taken"
    assert in_sync.acked(900) == 700


def test_a_member_leaves_by_its_own_reports() -> None:
    in_sync = leading(1, 2)
    in_sync.reported(2, 700, 700, 0)
    in_sync.pass_time(700, 14_000)
    assert in_sync.wanted(14_000) is None
    in_sync.pass_time(900, 29_000)
    assert in_sync.wanted(29_000) is None
    late = in_sync.wanted(29_001)
    assert late is not None
    assert late.members == {1}


def test_a_member_that_lost_bytes_leaves_and_joins_anew() -> None:
    in_sync = leading(1, 2)
    in_sync.reported(2, 700, 700, 0)
    in_sync.left(2)
    in_sync.reported(2, 300, 700, 1)
    wanted = in_sync.wanted(1)
    assert wanted is not None
    assert wanted.members == {1}
    in_sync.ask(wanted)
    in_sync.answered(5, {1}, 11)
    in_sync.reported(2, 700, 700, 2)
    joined = in_sync.wanted(2)
    assert joined is not None
    assert joined.members == {1, 2}


def test_a_slave_that_joins_too_slowly_is_given_up_for_a_while() -> None:
    in_sync = leading(1)
    in_sync.reported(2, 400, 700, 0)
    in_sync.pass_time(900, 1_001)
    assert in_sync.is_alone
    in_sync.reported(2, 500, 900, 1_002)
    assert in_sync.is_alone
    in_sync.reported(2, 500, 900, 6_002)
    assert not in_sync.is_alone


def test_a_slave_far_behind_holds_up_no_send() -> None:
    in_sync = leading(1)
    in_sync.reported(2, 0, 10 << 20, 0)
    assert in_sync.is_alone


def test_too_few_in_sync() -> None:
    in_sync = leading(1, least=2)
    assert in_sync.too_few
    in_sync.answered(5, {1, 2}, 11)
    assert not in_sync.too_few


def test_a_new_epoch_forgets_what_was_asked() -> None:
    in_sync = leading(1)
    in_sync.reported(2, 700, 700, 0)
    wanted = in_sync.wanted(0)
    assert wanted is not None
    in_sync.ask(wanted)
    in_sync.lead(6, {1}, 12)
    assert in_sync.is_alone
