"""BrokerElsewhere: a broker of another process that this one answers for, as `up --brokers N` does."""

from typing import Protocol

from pocketmq.broker.health import Health


class BrokerElsewhere(Protocol):
    """What /metrics, /health and /ready need of it."""

    @property
    def metrics_url(self) -> str:
        """Where its own figures are; empty while it has none."""
        ...

    def health(self) -> Health:
        """Whether its process serves."""
        ...
