"""How long a push consumer waits before it tries a message again, by its group's policy."""

from typing import Any

from pocketmq.grpc.services.context import ms_of
from pocketmq.model.retry_policy import RetryPolicy

# A consumer that asks for less has no pauses of its own: Node's SDK knows no customized ones, and asks for 0.
# At a proxy its message comes after some 2 s all the same, since RocketMQ's broker looks no more often; here
# it would come at once, and one that always fails would be a dead letter in two seconds.
PAUSE_MIN_MS = 1_000


def pause_ms(policy: Any, attempt: int) -> int:
    """Return the pause after an attempt, the first of which is 1, as SDKs read the policy (RetryPolicy)."""
    times = max(attempt, 1) - 1
    if policy.WhichOneof("strategy") == "customized_backoff":
        pauses = tuple(ms_of(pause) for pause in policy.customized_backoff.next)
        return RetryPolicy(pauses).pause_ms(times) if pauses else 0
    backoff = policy.exponential_backoff
    growing = RetryPolicy((), ms_of(backoff.initial), ms_of(backoff.max), backoff.multiplier)
    return growing.pause_ms(times)
