"""A slave has its master's delivery record, and so a promoted broker has it."""

from pathlib import Path

from pocketmq.books.record_file import DROPPED, NAMES, RecordFiles, content
from pocketmq.broker.delivery.record_copy import held, next_part, take
from tests.broker.pairs import caught_up, pair
from tests.broker.serving import Peer, records
from tests.broker.test_balance import G, T, books, commit, send


def copy(master: RecordFiles, slave: RecordFiles) -> list[str]:
    """Copy all parts; their names."""
    found = []
    more = True
    while more:
        has = held(slave)
        part, data = next_part(master, has)
        found.append(part)
        more = take(slave, part, data, has)
    return found


def test_every_part_arrives_whatever_the_master_did(tmp_path: Path) -> None:
    master = RecordFiles(str(tmp_path / "master"), lambda: 400)
    slave = RecordFiles(str(tmp_path / "slave"), lambda: 400)
    assert copy(master, slave) == ["end"]
    seen: set[str] = set()
    for number in range(40):
        # At times it is seldom asked, and a whole file passes.
        for each in range(1 + number % 7 * (number > 25)):
            master.append(b"%d-%d" % (number, each) * 9)
            Path(master.path(DROPPED)).unlink(missing_ok=True)
        if number == 20:
            master.replace_sums(b"sums")
            # A record of its own, as after a promotion that was undone.
            slave.own()
            slave.append(b"own")
        seen |= set(copy(master, slave))
        for name in NAMES:
            assert content(slave.path(name)) == content(master.path(name)), (number, name)
    assert seen == {"current", "previous", "turn", "anew", "sums", "end"}


async def test_a_promoted_slave_knows_what_its_master_delivered(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        async with await Peer.at(master) as member:
            await send(member, *"AABB")
            await member.heartbeat(G, {T: "A"}, client_id="me")
            records(await member.pull(G, T, 0))
            await commit(member, 3)
            await caught_up(slave, master)
        await brokers.stop("m")
        await slave.parts.services.replication.promote(force=True)
        async with await Peer.at(slave) as member:
            told = {"stored": 4, "consumed": 2, "filtered": 1, "waiting": 1}
            assert await books(member) == told
            # From now on it records on its own.
            await send(member, "A")
            await member.heartbeat(G, {T: "A"}, client_id="me")
            records(await member.pull(G, T, 3))
            await commit(member, 5)
            assert await books(member) == {"stored": 5, "consumed": 3, "filtered": 2}
