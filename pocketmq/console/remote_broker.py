"""RemoteBroker: a broker in another process, whose figures and health this one serves (`up --brokers
N`).
"""

from typing import Protocol

from pocketmq.broker.health import Health


class RemoteBroker(Protocol):
    """The broker as /metrics, /health and /ready need it."""

    @property
    def metrics_url(self) -> str:
        """Return where its own figures are; empty if it serves none."""
        ...

    def health(self) -> Health:
        """Return whether its process serves."""
        ...
