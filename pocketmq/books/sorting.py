"""Sorting: which messages of a pull its client keeps, discards, or never sees though a member wants them.

    KEPT       the pull's filter and the client's own subscription let it through
    DISCARDED  the filter lets it through, the client drops it, and a member wants it
    MISSED     the filter stops it, and a member wants it
    UNWANTED   no member wants it

Tags are compared by their codes in the queue, like the broker's filter; SQL92 expressions read each record.
Expressions are texts as in the delivery record (invariant 2 of record.py).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from pocketmq.files.layout import EXT_ADDRESS_MAX
from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import properties_of
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import ALL, TAG, SubscriptionData, parse_tags
from pocketmq.remoting.errors import IllegalArgument

UNWANTED, KEPT, DISCARDED, MISSED = range(4)
# Entries, and records, that are looked at in one piece.
ENTRIES_MAX, RECORDS_MAX = 65_536, 2_048


class Wanted(NamedTuple):
    """An expression. codes: the tag codes that pass, None for all; compiled: of a SQL92 expression."""

    codes: frozenset[int] | None
    compiled: Any = None


ASKS_ALL = Wanted(None)


class Pulling(NamedTuple):
    """How messages were given: filtered `by`, to a client that asks for its `own`, in a group whose members
    ask for `wishes`.
    """

    by: str
    own: str
    wishes: tuple[str, ...]

    @property
    def is_alike(self) -> bool:
        """Return True if what passes the filter is what any member wants."""
        others = {self.own or self.by, *self.wishes} - {self.by}
        return not others or {asked(each) for each in others} == {asked(self.by)}


class Split(NamedTuple):
    """Numbers of messages; the rest is unwanted."""

    kept: int
    discarded: int
    missed: int


def expression_text(subscription: SubscriptionData | None) -> str:
    """Format a subscription as a text; "" without one."""
    if subscription is None:
        return ""
    kind = TAG if subscription.is_tag else subscription.expression_type
    return f"{kind} {subscription.sub_string}"


def subscription_of(text: str) -> str:
    """Return an expression as people write it: tags alone, SQL92 with its kind.

    >>> subscription_of("TAG A || B"), subscription_of("SQL92 a > 1")
    ('A || B', 'SQL92 a > 1')
    """
    return text.removeprefix(f"{TAG} ")


def asked(text: str) -> Wanted:
    """Parse an expression; what cannot be read lets everything through, as the broker does."""
    kind, _, expression = text.partition(" ")
    try:
        if not expression or (kind == TAG and expression == ALL):
            return ASKS_ALL
        if kind == TAG:
            return _few(expression) if len(expression) <= _FEW_SIZE_MAX else _many(expression)
        return Wanted(None, compile_expression(expression))
    except (IllegalArgument, SelectorError):
        return ASKS_ALL


def is_sql(text: str) -> bool:
    """Return True for an expression that is evaluated on each record."""
    return asked(text).compiled is not None


def _tags(expression: str) -> Wanted:
    tags = parse_tags(expression)
    return Wanted(frozenset(map(string_hash, tags)) if tags else None)


# Clients choose these texts, so the sizes of what is kept are bounded; SQL92 has a cache of its own.
_FEW_SIZE_MAX = 256
_few = lru_cache(maxsize=2048)(_tags)
_many = lru_cache(maxsize=8)(_tags)


class HasCode(Protocol):
    """A unit of consumequeue_ext."""

    @property
    def tags_code(self) -> int: ...


class Queues(Protocol):
    """Queues and log of a store, as far as sorting reads them."""

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> Sequence[tuple[int, int, int]]:
        """Return (position, size, tags code) from an offset on, up to `count`."""
        ...

    def record_at(self, position: int, size: int) -> memoryview | None:
        """Return a record; None if it was deleted."""
        ...

    def ext_unit(self, topic: str, queue_id: int, code: int) -> HasCode | None:
        """Return the unit at the address that a code is; None if it is missing."""
        ...


class Sorter:
    """Sorts the messages of a store's queues."""

    def __init__(self, store: Queues) -> None:
        self._store = store

    def classes(
        self, topic: str, queue_id: int, begin: int, end: int, pulling: Pulling
    ) -> bytes | None:
        """Return a class for each offset; None if the queue does not have them all, or they are too many."""
        by_records = any(map(is_sql, _texts(pulling)))
        if end - begin > (RECORDS_MAX if by_records else ENTRIES_MAX):
            return None
        entries = self._store.entries(topic, queue_id, begin, end - begin)
        if len(entries) < end - begin:
            return None
        if by_records:
            return self._by_records(entries, pulling)
        table = _ByCode(pulling)
        codes: Iterable[int] = [code for _, _, code in entries]
        if min(codes, default=0) <= EXT_ADDRESS_MAX:
            codes = [self._code(topic, queue_id, code) for code in codes]
        return bytes(map(table.__getitem__, codes))

    def split(
        self, topic: str, queue_id: int, begin: int, end: int, pulling: Pulling
    ) -> Split | None:
        """Return how many messages are in each class; None as for `classes`."""
        found = self.classes(topic, queue_id, begin, end, pulling)
        return None if found is None else split_of(found)

    def _code(self, topic: str, queue_id: int, code: int) -> int:
        unit = self._store.ext_unit(topic, queue_id, code)
        return code if unit is None else unit.tags_code

    def _by_records(
        self, entries: Iterable[tuple[int, int, int]], pulling: Pulling
    ) -> bytes | None:
        found = bytearray()
        for position, size, _ in entries:
            record = self._store.record_at(position, size)
            if record is None:
                return None
            found.append(_class_of_record(properties_of(record), pulling))
        return bytes(found)


class _ByCode(dict[int, int]):
    """The class of each tag code, found when it is asked for first."""

    def __init__(self, pulling: Pulling) -> None:
        super().__init__()
        self._by, self._own = asked(pulling.by).codes, asked(pulling.own).codes
        self._wishes = [asked(each).codes for each in pulling.wishes]

    def __missing__(self, code: int) -> int:
        passes = self._by is None or code in self._by
        keeps = self._own is None or code in self._own
        wanted = any(codes is None or code in codes for codes in self._wishes)
        self[code] = found = class_of(passes=passes, keeps=keeps, wanted=wanted)
        return found


def class_of(*, passes: bool, keeps: bool, wanted: bool) -> int:
    """Return the class of one message."""
    if passes and keeps:
        return KEPT
    if not wanted:
        return UNWANTED
    return DISCARDED if passes else MISSED


def wanted_by(properties: bytes, wishes: Iterable[str]) -> bool:
    """Return True if one of these expressions lets a message with these properties through."""
    return any(
        _class_of_record(properties, Pulling(text, text, (text,))) == KEPT for text in wishes
    )


def split_of(classes: bytes) -> Split:
    """Count the classes."""
    return Split(*(classes.count(each) for each in (KEPT, DISCARDED, MISSED)))


def _texts(pulling: Pulling) -> tuple[str, ...]:
    return (pulling.by, pulling.own, *pulling.wishes)


def _class_of_record(properties: bytes, pulling: Pulling) -> int:
    values = properties_to_dict(properties)
    tag = string_hash(values["TAGS"]) if "TAGS" in values else None

    def lets(text: str) -> bool:
        each = asked(text)
        if each.compiled is not None:
            return bool(each.compiled.matches(values))
        return each.codes is None or tag in each.codes

    return class_of(
        passes=lets(pulling.by),
        keeps=lets(pulling.own),
        wanted=any(lets(each) for each in pulling.wishes),
    )
