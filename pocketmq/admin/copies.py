"""What a copy of a stored message keeps when a tool sends it once more: its producer's own properties."""

from collections.abc import Mapping

# They belong to the way of one message through a broker: that it waits (delays, times, transactions), was
# retried or popped, where it was stored, and what was measured. A copy that has them is delayed again,
# becomes a half message, or names what it is not.
NOT_COPIED = frozenset(
    {
        *("CLUSTER", "CONSUME_START_TIME", "MAX_OFFSET", "MIN_OFFSET", "WAIT"),
        *("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"),
        *("TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
        *("TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL"),
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "ORIGIN_GROUP", "INNER_NUM", "INNER_BASE"),
        *("MSG_REGION", "TRACE_ON"),
    }
)


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a copy keeps.

    >>> own_properties({"KEYS": "k", "DELAY": "3", "mine": "x"})
    {'KEYS': 'k', 'mine': 'x'}
    """
    return {name: value for name, value in properties.items() if name not in NOT_COPIED}
