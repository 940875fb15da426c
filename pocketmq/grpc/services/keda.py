"""KedaScaler: tells KEDA how much a group has left to do, so that it starts and stops the group's members.

A ScaledObject's trigger of type `external` or `external-push` names this port; its metadata are the keys of
_read. One port tells of its own broker: where a cluster has several, each has a trigger of its own, and the
one that needs most members decides.

Source: externalscaler.proto, external_scaler.go of KEDA 2.18.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from pocketmq.broker.access.fronts import NeededRights
from pocketmq.broker.acts.demand import Demand, DemandActs
from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.http2.call import GrpcCall, GrpcError, GrpcStatus, Method, framed
from pocketmq.grpc.messages import make
from pocketmq.grpc.schema import Rpc, Schema
from pocketmq.grpc.services.context import RequestContext, parsed
from pocketmq.model.names import group_is_legal, is_broker_only, topic_fault

KEDA = Schema(
    "externalscaler.proto",
    "externalscaler",
    "ExternalScaler",
    {
        "IsActive": Rpc(False, False, "ScaledObjectRef", "IsActiveResponse"),
        "StreamIsActive": Rpc(False, True, "ScaledObjectRef", "IsActiveResponse"),
        "GetMetricSpec": Rpc(False, False, "ScaledObjectRef", "GetMetricSpecResponse"),
        "GetMetrics": Rpc(False, False, "GetMetricsRequest", "GetMetricsResponse"),
        "StreamMetricSpec": Rpc(False, True, "ScaledObjectRef", "GetMetricSpecResponse"),
    },
    """
ScaledObjectRef: 1 name string, 2 namespace string, 3 scalerMetadata map
IsActiveResponse: 1 result bool
GetMetricSpecResponse: 1 metricSpecs MetricSpec*
MetricSpec: 1 metricName string, 2 targetSize int64, 3 targetSizeFloat double
GetMetricsRequest: 1 scaledObjectRef ScaledObjectRef, 2 metricName string
GetMetricsResponse: 1 metricValues MetricValue*
MetricValue: 1 metricName string, 2 metricValue int64, 3 metricValueFloat double
""",
)
# Names of metrics, also of those that the HPA shows.
LAG, WAITING, IN_FLIGHT = "lag", "waiting-seconds", "in-flight"
_VALUES: dict[str, Callable[[Demand], float]] = {
    LAG: lambda demand: demand.count,
    WAITING: lambda demand: demand.oldest_ms / 1000,
    IN_FLIGHT: lambda demand: demand.in_flight,
}
# The metadata that sets a metric's target, for one member.
_TARGETS = {
    "lagThreshold": LAG,
    "waitingSecondsThreshold": WAITING,
    "inFlightThreshold": IN_FLIGHT,
}
_LAG_THRESHOLD = 10.0
_WORDS = ("accessKey", "secretKey")
_STREAMS_MAX = 256
# KEDA's own keys of a trigger.
_OF_KEDA = frozenset(("scalerAddress", "enableTLS", "unsafeSsl"))


class _Asked(NamedTuple):
    """A trigger. active_above: of messages, from which on the group's members are wanted."""

    group: str
    topic: str | None
    targets: dict[str, float]
    active_above: float


class KedaScaler:
    """The service; `look` is called once a second."""

    def __init__(self, context: RequestContext) -> None:
        parts = context.parts
        self._context = context
        self._classes = make(KEDA)
        self._demand = DemandActs(
            parts.node, parts.tables, parts.members.consumers, parts.messages, parts.services.pop
        )
        self._streams: dict[GrpcCall, _Stream] = {}

    def methods(self) -> dict[bytes, Method]:
        handlers = {
            "IsActive": self.is_active,
            "StreamIsActive": self.stream_is_active,
            "GetMetricSpec": self.metric_spec,
            "GetMetrics": self.metrics,
            "StreamMetricSpec": self.stream_metric_spec,
        }
        return {f"/{KEDA.path}/{name}".encode(): Method(each) for name, each in handlers.items()}

    # ------------------------------------------------------------ calls

    def is_active(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer whether members are wanted. Raises: GrpcError."""
        asked = self._asked(call, parsed(self._classes["ScaledObjectRef"], data or b""))
        call.reply(self._activity(self._is_active(asked)))

    def stream_is_active(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer so now, and whenever it changes. Raises: GrpcError."""
        asked = self._asked(call, parsed(self._classes["ScaledObjectRef"], data or b""))
        active = self._is_active(asked)
        self._keep(call, _Stream(self._streams, call, asked, active))
        call.write(framed(self._activity(active)))

    def metric_spec(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer the targets. Raises: GrpcError."""
        asked = self._asked(call, parsed(self._classes["ScaledObjectRef"], data or b""))
        call.reply(self._specs(asked))

    def stream_metric_spec(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer the targets, which no more change: KEDA asks anew for another trigger. Raises: GrpcError."""
        asked = self._asked(call, parsed(self._classes["ScaledObjectRef"], data or b""))
        self._keep(call, _Stream(self._streams, call, None, False))
        call.write(framed(self._specs(asked)))

    def metrics(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer the value of a metric, or without a name of all that have a target. Raises: GrpcError."""
        request = parsed(self._classes["GetMetricsRequest"], data or b"")
        asked = self._asked(call, request.scaledObjectRef)
        name = request.metricName
        if name and name not in _VALUES:
            raise GrpcError(
                GrpcStatus.INVALID_ARGUMENT,
                f"there is no metric {name[:100]!r}: there are {', '.join(_VALUES)}",
            )
        demand = self._look(asked)
        answer = self._classes["GetMetricsResponse"]()
        for each in [name] if name else asked.targets:
            value = _VALUES[each](demand)
            answer.metricValues.add(
                metricName=each, metricValue=math.ceil(value), metricValueFloat=value
            )
        call.reply(answer.SerializeToString())

    # ------------------------------------------------------------ streams

    def _keep(self, call: GrpcCall, stream: "_Stream") -> None:
        if len(self._streams) >= _STREAMS_MAX:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"{_STREAMS_MAX} streams are open: end some, or use a trigger of type external",
            )
        self._streams[call] = stream
        call.wait(stream)

    def look(self) -> None:
        """Tell what has changed."""
        for call, stream in list(self._streams.items()):
            asked = stream.asked
            if asked is None:
                continue
            try:
                active = self._is_active(asked)
            except GrpcError as error:
                del self._streams[call]
                call.wait(None)
                call.finish(error.status, str(error))
                continue
            if active is not stream.active:
                stream.active = active
                call.write(framed(self._activity(active)))

    # ------------------------------------------------------------ parts

    def _asked(self, call: GrpcCall, reference: Any) -> _Asked:
        """Return what a trigger asks for, if it may. Raises: GrpcError."""
        metadata = dict(reference.scalerMetadata)
        asked = _read(metadata)
        key, secret = (metadata.get(word) or metadata.get(f"{word}FromEnv", "") for word in _WORDS)
        topics = () if asked.topic is None else (asked.topic,)
        wanted = NeededRights(subscribe=topics, groups=(asked.group,))
        try:
            self._context.check_role()
            if not self._context.access.is_open:
                self._context.access.check_words(call, key, secret, wanted)
        except StatusFailure as failure:
            raise GrpcError(GrpcStatus.PERMISSION_DENIED, str(failure)) from None
        return asked

    def _look(self, asked: _Asked) -> Demand:
        try:
            return self._demand.of(asked.group, asked.topic)
        except LookupError as error:
            kind = "group" if asked.topic is None else "topic"
            name = asked.topic or asked.group
            raise GrpcError(
                GrpcStatus.NOT_FOUND, f"{error}; create it with: pocketmq {kind} create {name}"
            ) from None

    def _is_active(self, asked: _Asked) -> bool:
        return self._look(asked).count > asked.active_above

    def _activity(self, active: bool) -> bytes:
        answer: bytes = self._classes["IsActiveResponse"](result=active).SerializeToString()
        return answer

    def _specs(self, asked: _Asked) -> bytes:
        answer = self._classes["GetMetricSpecResponse"]()
        for name, target in asked.targets.items():
            answer.metricSpecs.add(
                metricName=name, targetSize=max(1, round(target)), targetSizeFloat=target
            )
        found: bytes = answer.SerializeToString()
        return found


class _Stream:
    """A call that is told of changes; asked: None if nothing changes."""

    def __init__(
        self,
        streams: "dict[GrpcCall, _Stream]",
        call: GrpcCall,
        asked: _Asked | None,
        active: bool,
    ) -> None:
        self._streams = streams
        self._call = call
        self.asked = asked
        self.active = active

    def gone(self, unsent: int) -> None:
        """Forget the call."""
        self._streams.pop(self._call, None)


def _read(metadata: dict[str, str]) -> _Asked:
    """Return a trigger's metadata.

    Raises: GrpcError (INVALID_ARGUMENT) for a missing group, a key that is not known, or a wrong value.
    """
    known = {"consumerGroup", "topic", "activationLagThreshold", *_TARGETS, *_OF_KEDA}
    known |= {*_WORDS, *(f"{key}FromEnv" for key in _WORDS)}
    strange = sorted(metadata.keys() - known)
    if strange:
        raise _invalid(
            f"metadata {strange[0][:100]!r} is not known: use {', '.join(sorted(known))}"
        )
    group, topic = metadata.get("consumerGroup", ""), metadata.get("topic") or None
    if not group or not group_is_legal(group):
        raise _invalid("consumerGroup is the name of a group, of %|a-zA-Z0-9_-")
    if topic is not None and (fault := topic_fault(topic)) is not None:
        raise _invalid(fault)
    if topic is not None and is_broker_only(topic):
        raise _invalid(f"topic {topic} is the broker's own")
    targets = {
        name: _number(metadata, key, above=0) for key, name in _TARGETS.items() if key in metadata
    }
    active_above = 0.0
    if "activationLagThreshold" in metadata:
        active_above = _number(metadata, "activationLagThreshold", above=-1)
    return _Asked(group, topic, targets or {LAG: _LAG_THRESHOLD}, active_above)


def _number(metadata: dict[str, str], key: str, *, above: int) -> float:
    try:
        value = float(metadata[key])
    except ValueError:
        value = math.nan
    if not above < value < 2**53:
        least = "more than 0" if above == 0 else "0 or more"
        raise _invalid(f"{key} is a number, {least}, not {metadata[key][:100]!r}")
    return value


def _invalid(text: str) -> GrpcError:
    return GrpcError(GrpcStatus.INVALID_ARGUMENT, text)
