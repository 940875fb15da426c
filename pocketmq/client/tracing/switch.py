"""Which clients have spans: those with `otel=True`; and those that leave it None, while `instrument` holds.

    instrument()      by an instrumentor of OpenTelemetry: clients that start from now on have spans
    uninstrument()    clients that start from now on have none again

The switch is the process's. Nothing of OpenTelemetry is imported before a client has spans.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pocketmq.remoting.lazy_names import without_extra

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from pocketmq.client.tracing.otel import ConsumeSpans, ProduceSpans, ReceiveSpans

_instrumented = False


def instrument(tracer_provider: "TracerProvider | None" = None) -> None:
    """Give spans to clients that start from now on, unless they have `otel=False`.

    tracer_provider: where all spans of this process's clients go; by default OpenTelemetry's global one.
    """
    global _instrumented
    from pocketmq.client.tracing import otel

    otel.use(tracer_provider)
    _instrumented = True


def uninstrument() -> None:
    """Take `instrument` back; clients that run keep their spans."""
    global _instrumented
    _instrumented = False


def produce_spans(option: bool | None, group: str) -> "ProduceSpans | None":
    """Return the spans of a producer, None if it has none. Raises: ModuleNotFoundError without the extra."""
    found = _otel(option)
    return None if found is None else found.ProduceSpans(group)


def consume_spans(option: bool | None, group: str) -> "ConsumeSpans | None":
    """Return the spans around a listener: see produce_spans."""
    found = _otel(option)
    return None if found is None else found.ConsumeSpans(group)


def receive_spans(option: bool | None, group: str) -> "ReceiveSpans | None":
    """Return the spans of a consumer without a listener: see produce_spans."""
    found = _otel(option)
    return None if found is None else found.ReceiveSpans(group)


def _otel(option: bool | None) -> Any:
    wanted = _instrumented if option is None else option
    if not wanted:
        return None
    try:
        return import_module("pocketmq.client.tracing.otel")
    except ModuleNotFoundError as missing:
        raise without_extra("otel=True", missing, "otel") from None
