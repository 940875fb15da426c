"""Spans without code (extra `otel`): `opentelemetry-instrument python app.py` gives them to all clients.

Or by hand, before the clients start: `PocketMQInstrumentor().instrument(tracer_provider=...)`. A client with
`otel=False` has none. Which spans: pocketmq.client.tracing.otel.
"""

from collections.abc import Collection
from typing import Any

from pocketmq.client.tracing import switch
from pocketmq.remoting.lazy_names import without_extra

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.opentelemetry", missing, "otel") from None


class PocketMQInstrumentor(BaseInstrumentor):
    """Turns spans of this process's clients on and off; entry point of `opentelemetry_instrumentor`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what must be installed: this package has both the clients and their spans."""
        return ["pocketmq"]

    def _instrument(self, **kwargs: Any) -> None:
        """tracer_provider: where the spans go, by default OpenTelemetry's global one."""
        switch.instrument(kwargs.get("tracer_provider"))

    def _uninstrument(self, **kwargs: Any) -> None:
        switch.uninstrument()
