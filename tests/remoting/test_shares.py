"""What the connections of one server take together: who is let in, who is read, who is closed."""

from pocketmq.remoting.transport.limits import ConnectionLimits, Shares

MIB = 1 << 20


class Peer:
    """A connection that tells what is done with it."""

    def __init__(self) -> None:
        self.last_read_ms = 0
        self.done: list[str] = []

    def read_again(self) -> None:
        self.done.append("read")

    def abort(self) -> None:
        self.done.append("abort")


def test_connections_are_counted_in_all_and_by_address() -> None:
    shares = Shares(ConnectionLimits(count_max=3, per_address_max=2))
    peers = [Peer() for _ in range(5)]
    assert shares.enter("a") is None
    assert shares.enter("a") is None
    assert "a has 2 open connections" in str(shares.enter("a"))
    shares.leave(peers[0], "a")
    assert shares.enter("b") is None
    assert "3 connections are open" in str(shares.enter("c"))
    shares.leave(peers[1], "c")
    shares.leave(peers[2], "a")
    assert shares.enter("c") is None
    assert (shares.count, shares.refused_count) == (3, 2)


def test_half_frames_that_are_too_large_together_become_whole_one_after_the_other() -> None:
    shares = Shares(ConnectionLimits(input_size_max=10 * MIB))
    first, second, third = Peer(), Peer(), Peer()
    assert shares.half_frame(first, 6 * MIB)
    assert not shares.half_frame(second, 6 * MIB)
    assert not shares.half_frame(third, 6 * MIB)
    # The oldest is read whatever the sum is.
    assert shares.half_frame(first, 16 * MIB)
    assert shares.half_frame(first, 0)
    assert (second.done, third.done) == (["read"], [])
    shares.leave(second, "a")
    assert third.done == ["read"]
    assert shares.half_frame(third, 0)
    assert shares.input_size == 0


def test_small_half_frames_are_not_counted() -> None:
    shares = Shares(ConnectionLimits(input_size_max=10 * MIB))
    assert all(shares.half_frame(Peer(), 60_000) for _ in range(1_000))
    assert shares.input_size == 0


def test_who_is_silent_within_a_frame_is_told_when_others_wait() -> None:
    shares = Shares(ConnectionLimits(input_size_max=MIB))
    silent, other = Peer(), Peer()
    shares.half_frame(silent, 2 * MIB)
    assert shares.stalled(60_000, 5_000) == []
    shares.half_frame(other, 2 * MIB)
    assert shares.stalled(4_000, 5_000) == []
    assert shares.stalled(6_000, 5_000) == [silent]


def test_the_connection_that_leaves_most_unread_is_closed_when_all_leave_too_much() -> None:
    shares = Shares(ConnectionLimits(output_size_max=10 * MIB))
    large, small, reader = Peer(), Peer(), Peer()
    shares.unread(large, 6 * MIB)
    shares.unread(reader, 4 * MIB)
    shares.unread(reader, 0)
    shares.unread(small, 3 * MIB)
    assert large.done == []
    shares.unread(small, 5 * MIB)
    assert (large.done, small.done, reader.done) == (["abort"], [], [])
    assert (shares.output_size, shares.dropped_count) == (5 * MIB, 1)
    shares.leave(large, "a")
    shares.leave(small, "a")
    assert shares.output_size == 0


def test_one_may_keep_a_third_of_what_is_left() -> None:
    """A connection with twice that is not read; nor one that keeps anything while all keep twice theirs."""
    shares = Shares(ConnectionLimits(kept_size_max=8 * MIB))
    shares.kept_size = MIB
    assert shares.has_room(MIB, MIB)
    assert not shares.has_room(MIB, MIB + 1)
    shares.kept_size = 4 * MIB
    assert shares.has_room(0, MIB)
    assert not shares.has_room(MIB, MIB)
    assert shares.may_be_read(4 * MIB)
    assert not shares.may_be_read(4 * MIB + 1)
    shares.kept_size = 8 * MIB
    assert not shares.has_room(0, 1)
    shares.kept_size = 16 * MIB + 1
    assert not shares.may_be_read(1)
    assert shares.may_be_read(0)
