"""TagFilter: the broker's part of tag filtering (S80): tag codes against the queue's entries.

The client then compares the tags themselves, since two tags can share a code.
"""

from collections.abc import Callable
from functools import lru_cache

from pocketmq.model.subscription import SubscriptionData


class TagFilter:
    """An EntryFilter of the store: the codes that pass; records need no second check."""

    __slots__ = ("codes",)
    record: Callable[[memoryview], bool] | None = None

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes: frozenset[int] | None = codes

    @staticmethod
    def of(subscription: SubscriptionData) -> "TagFilter":
        """Return the filter of a tag subscription; equal code sets share one."""
        return _filter_of(frozenset(subscription.code_set))


@lru_cache(maxsize=1024)
def _filter_of(codes: frozenset[int]) -> TagFilter:
    return TagFilter(codes)
