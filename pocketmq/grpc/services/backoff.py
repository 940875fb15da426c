"""How long a push consumer waits before it tries a message again, by its group's policy."""

from typing import Any

from pocketmq.grpc.services.context import ms_of

# A consumer that asks for less has no pauses of its own: Node's SDK knows no customized ones, and asks for 0.
# At a proxy its message comes after some 2 s all the same, since RocketMQ's broker looks no more often; here
# it would come at once, and one that always fails would be a dead letter in two seconds.
PAUSE_MIN_MS = 1_000


def pause_ms(policy: Any, attempt: int) -> int:
    """Return the pause after an attempt, the first of which is 1, as SDKs read the policy (RetryPolicy)."""
    if policy.WhichOneof("strategy") == "customized_backoff":
        pauses = policy.customized_backoff.next
        return ms_of(pauses[min(max(attempt, 1), len(pauses)) - 1]) if pauses else 0
    backoff = policy.exponential_backoff
    longest_ms = ms_of(backoff.max)
    pause = float(ms_of(backoff.initial))
    for _ in range(1, attempt):
        if pause >= longest_ms or backoff.multiplier <= 1:
            break
        pause *= backoff.multiplier
    return int(min(pause, longest_ms))
