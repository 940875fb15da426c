"""Chords: how many parts of a Celery chord have returned, counted by all workers together.

Each part that returns is noted in the queue that has the group's value (kombu/results.py), after it. A chord
leaves nothing: notes are deleted with all other messages, by their age.

1. A part's place is that of its first note: one that runs again, or is noted again, does not end the chord
   early.
2. How many parts there are is noted, too, before the last of them is sent; a task may add more.
3. A process reads each note once. A chord that has ended, which is noted, may begin anew with the same parts.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from typing import Any

from pocketmq.client import Message
from pocketmq.integrations.kombu.link import Link
from pocketmq.integrations.kombu.results import Results, Stored
from pocketmq.integrations.queue_names import topic_of

log = logging.getLogger(__name__)

_PART, _SIZE, _MORE, _OVER = "part", "size", "more", "over"
_VISIBLE_S = 5.0
_LOOK_S = 0.02
_WAIT_MS = 1_000
_CHORDS_MAX = 100


class Chord:
    """What a process has read of a chord's notes.

    places: of its parts; indexes: where their results stand in the group; added: results of later parts.
    """

    def __init__(self, group: Stored) -> None:
        self.group = group
        self.places: dict[str, int] = {}
        self.indexes: dict[str, int] = {}
        self.added: list[Any] = []
        self.is_over = group.value is None
        self._size = 0
        self._offset = group.offset

    @property
    def size(self) -> int | None:
        """How many parts there are; None: not known yet."""
        return self._size + len(self.added) if self._size else None

    def take(self, kind: str, value: Any) -> None:
        """Read a note."""
        if kind == _SIZE:
            self._size = self._size or value
        elif kind == _MORE:
            self.added.append(value)
        elif kind == _OVER:
            self.is_over = True
        else:
            part, index = value
            self.places.setdefault(part, len(self.places) + 1)
            self.indexes[part] = index or 0

    async def read_to(self, part: str, link: Link, tag: str) -> bool:
        """Read notes until the part's is among them; False if the chord ended before it."""
        while part not in self.places and not self.is_over:
            result = await link.pull(self.group.queue, self._offset, tag, _WAIT_MS)
            for message in result.messages:
                self.take(*json.loads(message.body))
            self._offset = max(self._offset, result.next_begin_offset)
        return not self.is_over


class Chords:
    """Owner: a result backend. Runs in the link's loop. key: of the group's value."""

    def __init__(self, link: Link, results: Results) -> None:
        self._link = link
        self._results = results
        self._chords: OrderedDict[str, Chord] = OrderedDict()

    async def note_size(self, key: str, size: int) -> None:
        """Note how many parts return; nothing for a group in a part, whose tasks count with the chord's."""
        group = await self._results.find(key, None)
        if group is not None and group.value is not None:
            await self._note(group, key, _SIZE, size)

    async def note_more(self, key: str, result: Any) -> None:
        """Note a part that a part has added, by its result as a tuple."""
        chord = await self._chord(key)
        if chord is not None:
            await self._note(chord.group, key, _MORE, result)

    async def note_end(self, key: str) -> None:
        """Note that the chord is over."""
        chord = self._chords.pop(key, None)
        if chord is not None:
            await self._note(chord.group, key, _OVER, None)

    async def count(self, key: str, part: str, index: int | None) -> Chord | None:
        """Note the part that has returned, and read the notes up to its own. None: there is no such group.

        index: where its result stands in the group.
        """
        while chord := await self._chord(key):
            if chord.is_over:
                return chord
            await self._note(chord.group, key, _PART, [part, index])
            if await chord.read_to(part, self._link, topic_of(key)):
                return chord
            del self._chords[key]
        return None

    async def _chord(self, key: str) -> Chord | None:
        chord = self._chords.get(key)
        if chord is None:
            group = await self._visible(key)
            if group is None:
                return None
            chord = Chord(group)
            if not chord.is_over:
                self._chords[key] = chord
                while len(self._chords) > _CHORDS_MAX:
                    self._chords.popitem(last=False)
        return chord

    async def _note(self, group: Stored, key: str, kind: str, value: Any) -> None:
        body = json.dumps([kind, value]).encode()
        await self._link.send(
            Message(group.queue.topic, body, tags=topic_of(key)), queue=group.queue
        )

    async def _visible(self, key: str) -> Stored | None:
        """Return a group's value, which may have been stored a moment ago; None: it is absent."""
        try:
            async with asyncio.timeout(_VISIBLE_S):
                while (found := await self._results.find(key, None)) is None:
                    await asyncio.sleep(_LOOK_S)
                return found
        except TimeoutError:
            log.warning("a chord's group is not stored key=%s", key)
            return None
