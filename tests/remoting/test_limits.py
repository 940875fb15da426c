"""What the connections of one server take together: which is let in, which is read, which is closed."""

from pocketmq.remoting.transport.limits import ConnectionLimits, SharedLimits

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
    shared_limits = SharedLimits(ConnectionLimits(count_max=3, per_address_max=2))
    peers = [Peer() for _ in range(5)]
    assert shared_limits.enter("a") is None
    assert shared_limits.enter("a") is None
    assert "a has 2 open connections" in str(shared_limits.enter("a"))
    shared_limits.leave(peers[0], "a")
    assert shared_limits.enter("b") is None
    assert "3 connections are open" in str(shared_limits.enter("c"))
    shared_limits.leave(peers[1], "c")
    shared_limits.leave(peers[2], "a")
    assert shared_limits.enter("c") is None
    assert (shared_limits.count, shared_limits.refused_count) == (3, 2)


def test_half_frames_too_large_together_complete_in_turn() -> None:
    shared_limits = SharedLimits(ConnectionLimits(input_size_max=10 * MIB))
    first, second, third = Peer(), Peer(), Peer()
    assert shared_limits.half_frame(first, 6 * MIB)
    assert not shared_limits.half_frame(second, 6 * MIB)
    assert not shared_limits.half_frame(third, 6 * MIB)
    # The oldest is read whatever the sum is.
    assert shared_limits.half_frame(first, 16 * MIB)
    assert shared_limits.half_frame(first, 0)
    assert (second.done, third.done) == (["read"], [])
    shared_limits.leave(second, "a")
    assert third.done == ["read"]
    assert shared_limits.half_frame(third, 0)
    assert shared_limits.input_size == 0


def test_small_half_frames_are_not_counted() -> None:
    shared_limits = SharedLimits(ConnectionLimits(input_size_max=10 * MIB))
    assert all(shared_limits.half_frame(Peer(), 60_000) for _ in range(1_000))
    assert shared_limits.input_size == 0


def test_who_is_silent_within_a_frame_is_told_when_others_wait() -> None:
    shared_limits = SharedLimits(ConnectionLimits(input_size_max=MIB))
    silent, other = Peer(), Peer()
    shared_limits.half_frame(silent, 2 * MIB)
    assert shared_limits.stalled(60_000, 5_000) == []
    shared_limits.half_frame(other, 2 * MIB)
    assert shared_limits.stalled(4_000, 5_000) == []
    assert shared_limits.stalled(6_000, 5_000) == [silent]


def test_too_much_unread_in_all_closes_the_worst_connection() -> None:
    shared_limits = SharedLimits(ConnectionLimits(output_size_max=10 * MIB))
    large, small, reader = Peer(), Peer(), Peer()
    shared_limits.unread(large, 6 * MIB)
    shared_limits.unread(reader, 4 * MIB)
    shared_limits.unread(reader, 0)
    shared_limits.unread(small, 3 * MIB)
    assert large.done == []
    shared_limits.unread(small, 5 * MIB)
    assert (large.done, small.done, reader.done) == (["abort"], [], [])
    assert (shared_limits.output_size, shared_limits.dropped_count) == (5 * MIB, 1)
    shared_limits.leave(large, "a")
    shared_limits.leave(small, "a")
    assert shared_limits.output_size == 0


def test_one_may_keep_a_third_of_what_is_left() -> None:
    """A connection with twice that is not read; nor one that keeps anything while all keep twice theirs."""
    shared_limits = SharedLimits(ConnectionLimits(kept_size_max=8 * MIB))
    shared_limits.kept_size = MIB
    assert shared_limits.has_room(MIB, MIB)
    assert not shared_limits.has_room(MIB, MIB + 1)
    shared_limits.kept_size = 4 * MIB
    assert shared_limits.has_room(0, MIB)
    assert not shared_limits.has_room(MIB, MIB)
    assert shared_limits.may_be_read(4 * MIB)
    assert not shared_limits.may_be_read(4 * MIB + 1)
    shared_limits.kept_size = 8 * MIB
    assert not shared_limits.has_room(0, 1)
    shared_limits.kept_size = 16 * MIB + 1
    assert not shared_limits.may_be_read(1)
    assert shared_limits.may_be_read(0)
