"""TagFilter: the first of the two steps of tag filtering (S80): tag codes against the queue's entries.

The client compares the tags themselves, since two tags can share a code.
"""

from collections.abc import Callable
from functools import lru_cache

from pocketmq.remoting.subscription import SubscriptionData


class TagFilter:
    """An EntryFilter of the store: the codes that pass, and no second look."""

    __slots__ = ("codes",)
    record: Callable[[memoryview], bool] | None = None

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes: frozenset[int] | None = codes

    @staticmethod
    def of(subscription: SubscriptionData) -> "TagFilter":
        """The filter of a tag subscription; equal code sets share one."""
        return _filter_of(frozenset(subscription.code_set))


@lru_cache(maxsize=1024)
def _filter_of(codes: frozenset[int]) -> TagFilter:
    return TagFilter(codes)
