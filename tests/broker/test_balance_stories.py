"""The balance of a group in random stories, against what the members themselves saw.

Members with different tags join, leave, share the queues as official clients do, pull, and commit late; an
administrator moves offsets; the broker starts again. The truth is kept here, outside the broker.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import read_records
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
    """truth: by (queue id, offset), the tag; processed: what some member kept; wished: what any member has
    wanted so far (one that left is expected back), and wished_at: when a message passed.
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
    version: int = 1

    async def step(self) -> None:
        act = self.chance.choices(
            (self.send, self.pull, self.commit, self.join, self.leave, self.move),
            (4, 8, 4, 1, 1, 0.3),
        )[0]
        await act()

    async def send(self) -> None:
        queue_id = self.chance.randrange(QUEUES)
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
            mine = {queue for queue in range(QUEUES) if queue % len(self.members) == place}
            for queue in set(member.position) - mine:
                await self.save(member, queue)
                del member.position[queue]
            self.version += 1
            await member.peer.heartbeat(
                "g", {"T": member.wish}, client_id=member.name, sub_version=self.version
            )
        for place, member in enumerate(self.members):
            for queue in range(QUEUES):
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

    # ------------------------------------------------------------ what must be true

    async def check(self) -> None:
        for row in (await ask(self.asker))["topics"]:
            assert row["difference"] == 0, row
            assert row["unknown"] == 0, row
        said = {
            state: {
                (row["queueId"], offset): row
                for row in await listed(self.asker, state)
                for offset in range(row["first"], row["last"] + 1)
            }
            for state in ("consumed", "filtered", "lost", "skipped", "inHand", "waiting")
        }
        assert sum(map(len, said.values())) == len({each for of in said.values() for each in of})
        for place in said["consumed"]:
            assert place in self.processed, place
        for place in said["filtered"]:
            assert not self.wanted(place), place
        for place, row in said["lost"].items():
            assert self.wanted(place), place
            assert row["cause"] in ("discarded by the member", "filtered for another member")
        passed = {*said["consumed"], *said["filtered"], *said["lost"], *said["skipped"]}
        for queue, offset in self.tags:
            if offset < self.offsets.get(queue, 0):
                assert (queue, offset) in passed, (queue, offset)

    def wanted(self, place: tuple[int, int]) -> bool:
        return any(wish == "*" or self.tags[place] in wish for wish in self.wished_at[place])


async def tell(folder: Path, seed: int, **settings: Any) -> None:
    chance = random.Random(seed)
    story: Story | None = None
    for _ in range(2):
        # The second time the broker starts again, with what it has on its disk.
        async with serving(folder, **settings) as broker, await Peer.at(broker) as asker:
            if story is None:
                story = Story(chance, broker, asker)
                for queue_id in range(QUEUES):
                    await send(asker, "A", queue_id=queue_id)
                    story.tags[queue_id, 0] = "A"
            story.broker, story.asker, story.members = broker, asker, []
            await story.join()
            for number in range(60):
                await story.step()
                if number % 15 == 14:
                    await story.check()
            for member in story.members:
                for queue in member.position:
                    await story.save(member, queue)
                await member.peer.close()


@pytest.mark.parametrize("seed", range(24))
async def test_the_books_agree_with_what_members_saw(tmp_path: Path, seed: int) -> None:
    await tell(tmp_path, seed)


@pytest.mark.parametrize("seed", range(8))
async def test_a_strict_group_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Of a group whose members all ask for the same, nothing is lost."""
    global WISHES
    wishes, WISHES = WISHES, (WISHES[seed % 4],)
    try:
        await tell(tmp_path, 100 + seed)
    finally:
        WISHES = wishes
