"""The balance of a group in random stories, against what the members themselves saw.

Members with different tags join, leave, share the queues as official clients do, pull, and commit late; an
administrator moves offsets, deletes the topic, and changes its number of queues; retention deletes files; the
broker starts again, also after a kill. The truth is kept here, outside the broker.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pocketmq.books.from_files import open_ledger
from pocketmq.broker.broker import Broker
from pocketmq.broker.ledger.folding import fold
from pocketmq.files.local import LocalFiles
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import read_records
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, serving
from tests.broker.test_balance import ask, commit, listed, send

QUEUES, TAGS = 4, "AB"
WISHES: tuple[str, ...] = ("A", "B", "A || B", "*")


@dataclass
class Member:
    """position: by queue id, where it pulls next; done: behind what it has processed."""

    name: str
    peer: Peer
    wish: str
    position: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)

    def wants(self, tag: str) -> bool:
        return self.wish == "*" or tag in self.wish


@dataclass
class Story:
    """tags: by (queue id, offset); processed: what some member kept; wished: what any member has wanted
    so far (one that left is expected back), and wished_at: when a message passed; unwritten: given since the
    record was last written; forgotten: of these, what a kill has taken; queues: how many members read.
    """

    chance: random.Random
    broker: Broker
    asker: Peer
    tags: dict[tuple[int, int], str] = field(default_factory=dict)
    processed: set[tuple[int, int]] = field(default_factory=set)
    members: list[Member] = field(default_factory=list)
    wished: set[str] = field(default_factory=set)
    wished_at: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    unwritten: set[tuple[int, int]] = field(default_factory=set)
    forgotten: set[tuple[int, int]] = field(default_factory=set)
    queues: int = QUEUES
    version: int = 1

    async def step(self) -> None:
        act = self.chance.choices(
            (
                *(self.send, self.pull, self.commit, self.join, self.leave, self.move),
                *(self.second, self.expire, self.resize, self.delete),
            ),
            (4, 8, 4, 1, 1, 0.3, 1, 0.2, 0.3, 0.1),
        )[0]
        await act()
        parts = self.broker.parts
        rows = parts.tables.offsets.rows()
        offsets = {(group, topic, queue): offset for topic, group, queue, offset in rows}
        fold(parts.messages.deliveries.files, offsets, parts.node.clock.now_ms())

    async def send(self) -> None:
        queue_id = self.chance.randrange(self.queues)
        for tag in self.chance.choices(TAGS, k=self.chance.randrange(1, 6)):
            count = sum(1 for queue, _ in self.tags if queue == queue_id)
            await send(self.asker, tag, queue_id=queue_id)
            self.tags[queue_id, count] = tag

    async def join(self) -> None:
        if len(self.members) == 3:
            return
        name = f"c{self.version}"
        member = Member(name, await Peer.at(self.broker), self.chance.choice(WISHES))
        self.members.append(member)
        self.wished.add(member.wish)
        await self.share()

    async def leave(self) -> None:
        if len(self.members) > 1:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            await member.peer.close()
            await self.share()

    async def share(self) -> None:
        """Every member is told, takes its queues, and says its subscription with a new version."""
        for place, member in enumerate(self.members):
            mine = {queue for queue in range(self.queues) if queue % len(self.members) == place}
            for queue in set(member.position) - mine:
                await self.save(member, queue)
                del member.position[queue]
            self.version += 1
            await member.peer.heartbeat(
                "g", {"T": member.wish}, client_id=member.name, sub_version=self.version
            )
        for place, member in enumerate(self.members):
            for queue in range(self.queues):
                if queue % len(self.members) == place and queue not in member.position:
                    member.position[queue] = member.done[queue] = self.offsets.get(queue, 0)

    async def pull(self) -> None:
        if not self.members:
            return
        member = self.chance.choice(self.members)
        for queue in list(member.position):
            at = member.position[queue]
            answer = await member.peer.pull(
                "g", "T", at, queue_id=queue, maxMsgNums=self.chance.randrange(1, 8)
            )
            assert answer.ext is not None, answer
            following = int(answer.ext["nextBeginOffset"])
            got = list(read_records(answer.body)) if answer.code == 0 else []
            member.position[queue] = following
            for offset in range(at, following):
                self.wished_at[queue, offset] = set(self.wished)
                self.unwritten.add((queue, offset))
                self.forgotten.discard((queue, offset))
            for record in got:
                tag = (get_property(record.properties, b"TAGS") or b"").decode()
                if member.wants(tag):
                    self.processed.add((queue, record.queue_offset))
            member.done[queue] = following

    async def commit(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            for queue in member.position:
                await self.save(member, queue)

    async def save(self, member: Member, queue: int) -> None:
        if member.done[queue] > self.offsets.get(queue, 0) or queue not in self.offsets:
            self.offsets[queue] = member.done[queue]
            await commit(member.peer, member.done[queue], queue_id=queue)

    async def move(self) -> None:
        """An administrator sets an offset; the members are told to go there."""
        queue = self.chance.randrange(QUEUES)
        high = sum(1 for each, _ in self.tags if each == queue)
        offset = self.chance.randrange(high + 1)
        await commit(self.asker, offset, queue_id=queue)
        self.offsets[queue] = offset
        for member in self.members:
            if queue in member.position:
                member.position[queue] = member.done[queue] = offset

    async def second(self) -> None:
        """A second passes: the record is written, and at times the tables."""
        self.broker.parts.messages.deliveries.tick()
        self.unwritten.clear()
        if self.chance.random() < 0.5:
            for table in self.broker.parts.tables.managers:
                table.persist()

    async def expire(self) -> None:
        """Retention deletes all but the last file."""
        await self.second()
        for _ in range(4):
            queue_id = self.chance.randrange(self.queues)
            count = sum(1 for queue, _ in self.tags if queue == queue_id)
            answer = await self.asker.produce("T", b"x" * 20_000, queue_id=queue_id, TAGS="A")
            assert answer.code == 0
            self.tags[queue_id, count] = "A"
        store = self.broker.parts.messages.store
        store.flush_now()
        store.delete_expired_files(manual=True)

    async def resize(self) -> None:
        """The topic gets more queues, or fewer, which are still read from what is stored."""
        self.queues = self.chance.randrange(1, QUEUES + 1)
        await self.config()
        await self.share()

    async def config(self) -> None:
        ext = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        numbers = {"readQueueNums": self.queues, "writeQueueNums": self.queues}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        answer = await self.asker.ask(code, {**ext, **numbers, "topicSysFlag": 0, "order": "false"})
        assert answer.code == 0, answer

    async def delete(self) -> None:
        """The topic is deleted, and made again under its name."""
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        assert (await self.asker.ask(code, {"topic": "T"})).code == 0
        for table in (self.tags, self.wished_at, self.offsets):
            table.clear()
        for places in (self.processed, self.unwritten, self.forgotten):
            places.clear()
        for member in self.members:
            member.position, member.done = dict.fromkeys(member.position, 0), {}
            member.done |= member.position
        await self.config()
        await self.share()

    def look(self) -> None:
        """After a kill: the offsets are those that were saved."""
        self.forgotten |= self.unwritten
        self.unwritten.clear()
        query = self.broker.parts.tables.offsets.query
        found = {queue: query("g", "T", queue) for queue in range(QUEUES)}
        self.offsets = {queue: offset for queue, offset in found.items() if offset >= 0}

    # ------------------------------------------------------------ what must be true

    async def check(self) -> None:
        for row in (await ask(self.asker))["topics"]:
            assert row["difference"] == 0, row
        names = (
            "consumed",
            "filtered",
            "lost",
            "skipped",
            "inHand",
            "waiting",
            "expired",
            "unknown",
        )
        said = {
            state: {
                (row["queueId"], offset): row
                for row in await listed(self.asker, state)
                for offset in range(row["first"], row["last"] + 1)
            }
            for state in names
        }
        assert sum(map(len, said.values())) == len({each for of in said.values() for each in of})
        for place in said["consumed"]:
            assert place in self.processed, place
        for place in said["filtered"]:
            assert not self.wanted(place), place
        for place, row in said["lost"].items():
            if row["cause"] == "the topic has fewer queues now":
                assert place[0] >= self.queues, place
            else:
                assert self.wanted(place), place
                assert row["cause"] in ("discarded by the member", "filtered for another member")
        assert all(queue < self.queues for queue, _ in said["waiting"])
        for queue, offset in said["unknown"]:
            assert (queue, offset) in self.forgotten, (queue, offset)
        for place in said["expired"]:
            assert not self.is_stored(*place), place
        passed = set().union(*(said[name] for name in names if name not in ("inHand", "waiting")))
        for queue, offset in self.tags:
            if offset < self.offsets.get(queue, 0):
                assert (queue, offset) in passed, (queue, offset)
            elif self.is_stored(queue, offset):
                assert (queue, offset) not in said["skipped"], (queue, offset)
            else:
                assert (queue, offset) not in said["waiting"], (queue, offset)

    def is_stored(self, queue: int, offset: int) -> bool:
        store = self.broker.parts.messages.store
        return store.record_at(*store.entries("T", queue, offset, 1)[0][:2]) is not None

    def wanted(self, place: tuple[int, int]) -> bool:
        return any(wish == "*" or self.tags[place] in wish for wish in self.wished_at[place])


async def tell(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    # In every other story files of the record are dropped again and again, and folded.
    size = 1_500 if seed % 2 else 16 << 20
    story: Story | None = None
    small = {"mapped_file_size_commit_log": 65_536, "file_reserved_time": 0}
    for life in range(3):
        # Each time the broker starts again, with what it has on its disk.
        async with (
            serving(folder, store=small, delivery_record_size=size) as broker,
            await Peer.at(broker) as asker,
        ):
            if story is None:
                story = Story(chance, broker, asker)
                await story.config()
                for queue_id in range(QUEUES):
                    await send(asker, "A", queue_id=queue_id)
                    story.tags[queue_id, 0] = "A"
            story.broker, story.asker, story.members = broker, asker, []
            story.look()
            await story.join()
            for number in range(45):
                await story.step()
                if number % 15 == 14:
                    await story.check()
            if chance.random() < 0.5:
                broker.parts.tables.wishes.persist()
                folder = Path(shutil.copytree(folder, folder.with_name(f"life{life}")))
                for member in story.members:
                    await member.peer.close()
                continue
            for member in story.members:
                for queue in member.position:
                    await story.save(member, queue)
                await member.peer.close()
            story.unwritten.clear()
            # Its answer says that the broker has seen the members leave.
            await asker.heartbeat("other", {"T": "*"}, client_id="other")
            told = (await ask(asker))["topics"]
        books = open_ledger(LocalFiles(), str(folder)).of_group("g")
        assert [each.to_json() for each in books.balances()] == told


@pytest.mark.parametrize("seed", range(24))
async def test_the_books_agree_with_what_members_saw(tmp_path: Path, seed: int) -> None:
    await tell(tmp_path / "store", seed)


@pytest.mark.parametrize("seed", range(8))
async def test_a_strict_group_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Of a group whose members all ask for the same, nothing is lost."""
    global WISHES
    wishes, WISHES = WISHES, (WISHES[seed % 4],)
    try:
        await tell(tmp_path / "store", 100 + seed)
    finally:
        WISHES = wishes
