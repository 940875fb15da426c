"""ExpressionMessageFilter: a SQL92 subscription as the filter of the store's reads.

Source: ExpressionMessageFilter, ExpressionForRetryMessageFilter, RocketMQ 4.9.7. The store's first step
(tags codes) lets everything through; this second one looks at the record's properties without decoding
the record, and only at those properties that the expression names.
"""

from collections.abc import Callable

from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.model.message_codec import get_property, properties_to_dict
from pocketmq.model.record import properties_of
from pocketmq.model.sql92.filter import Filter
from pocketmq.store.message_reader import RECORD_SCAN_MAX
from pocketmq.store.queue.consume_queue_ext import ExtUnit

# Above this many names one pass over all properties is cheaper than a search for each.
_NAMES_MAX = 3
# Parts of an expression that take as long as finding and decoding a record's properties.
_CHEAP_COST = 8
# Plain ints: an IntFlag costs a microsecond at every use.


class ExpressionMessageFilter:
    """The store's EntryFilter for one SQL92 subscription.

    Attributes: codes (None: tags do not matter), record (whether a stored record passes), unit (whether it
    may, by the bit map of consumequeue_ext; None without a bloom filter), scan_max (records that one read
    looks at), cost (parts that a look at a record visits), data.
    """

    __slots__ = ("codes", "cost", "data", "properties", "record", "scan_max", "unit")

    def __init__(self, data: ConsumerFilterData, bloom: BloomFilter | None = None) -> None:
        self.data = data
        self.unit: Callable[[ExtUnit], bool] | None = None
        if bloom is not None and data.bloom is not None:
            self.unit = lambda unit: data.may_match(unit.store_ms, unit.bit_map, bloom)
        self.codes: frozenset[int] | None = None
        compiled = data.compiled
        # Whether a record with these property bytes passes: what a held pull asks of a new message.
        self.properties: Callable[[bytes], bool] | None = None
        self.record: Callable[[memoryview], bool] | None = None
        # Records that one read looks at: many for a cheap expression, few for a costly one.
        self.scan_max = RECORD_SCAN_MAX
        self.cost = _CHEAP_COST + (0 if compiled is None else compiled.cost)
        if compiled is not None:
            passes = self.properties = _of_properties(compiled)
            self.record = lambda record: passes(properties_of(record))
            self.scan_max = max(1, RECORD_SCAN_MAX * _CHEAP_COST // self.cost)


def _of_properties(compiled: Filter) -> Callable[[bytes], bool]:
    matches = compiled.matches
    if len(compiled.names) > _NAMES_MAX:
        return lambda properties: matches(properties_to_dict(properties))
    names = [(name, name.encode("utf-8")) for name in compiled.names]

    def passes(properties: bytes) -> bool:
        found: dict[str, str] = {}
        for name, key in names:
            value = get_property(properties, key)
            if value is not None:
                found[name] = value.decode("utf-8", "replace")
        return matches(found)

    return passes
