"""The balance of a consumer group by the files of its stores, as a frame: what became of its messages.

    from pocketmq.spark import balance

    balance(spark, "/data/*/store", "billing").show()                                     # a row a topic
    balance(spark, "/data/*/store", "billing", listed="dead").show()                      # a row a range

The driver computes it: it reads queues and offsets, and hardly any message. States: docs/balance.md.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.books.from_files import StoreLedger, merged
from pocketmq.books.stored_queues import StoredQueues
from pocketmq.books.subscriptions import texts_of
from pocketmq.bulk.fetch import folders_of
from pocketmq.bulk.moments import moment_ms
from pocketmq.bulk.store import find_roots
from pocketmq.model.balance import Balance, ListedMessages, State
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pocketmq.books.from_files import StoredBooks

_COUNTS = ", ".join(f"{name} bigint" for name in ("stored", *State, "difference"))
_BALANCE = f"topic string, `group` string, {_COUNTS}"
_LISTED = (
    "topic string, broker string, queueId int, first bigint, last bigint, state string, cause string, "
    "member string, time bigint, subscription string, filter string"
)


def balance(
    spark: "SparkSession",
    path: str | Collection[str],
    group: str,
    *,
    subscriptions: Sequence[str] = (),
    topic: str | None = None,
    since: str = "",
    listed: str = "",
    broker_name: dict[str, str] | str | None = None,
) -> "DataFrame":
    """Return the books of a group, a row a topic over all stores; with `listed`, the messages in that state.

    path, broker_name: as options of format("pocketmq"); subscriptions: what members asked for, "TagA || TagB"
    or "SQL92 a > 1", once for each that differs; since: only messages stored then or later, `2h` ago or
    ISO 8601. Without a delivery record what the group has passed is unknown.
    Raises: IllegalArgument, NotAStore.
    """
    books = _books(path, group, texts_of(subscriptions), broker_name)
    since_ms = moment_ms(since) if since else 0
    if not listed:
        sums = merged(row for each in books for row in each.balances(topic, since_ms))
        return spark.createDataFrame([_row(each) for each in sums], _BALANCE)
    states = frozenset(state for state in State if state.value == listed)
    if not states:
        raise IllegalArgument(f"no state {listed!r}; states are: {', '.join(State)}")
    rows = [row for each in books for row in each.listed(states, topic, since_ms)]
    return spark.createDataFrame([_listed_row(each) for each in sorted(rows)], _LISTED)


def _books(
    path: str | Collection[str],
    group: str,
    texts: Sequence[str],
    broker_name: dict[str, str] | str | None,
) -> "list[StoredBooks]":
    """Return the books of each store that knows the group. Raises: IllegalArgument if none does."""
    found: list[StoredBooks] = []
    refused: IllegalArgument | None = None
    for root in find_roots(path, broker_name):
        folders, base = folders_of(root.path)
        ledger = StoreLedger(StoredQueues(folders, base), root.broker_name)
        try:
            found.append(ledger.of_group(group, texts))
        except IllegalArgument as error:
            refused = error
    if not found and refused is not None:
        raise refused
    return found


def _row(balance: Balance) -> tuple[Any, ...]:
    counts = (balance.of(state) for state in State)
    return (balance.topic, balance.group, balance.stored, *counts, balance.difference)


def _listed_row(row: ListedMessages) -> tuple[Any, ...]:
    return tuple(row.to_json().values())
