"""Standard services of gRPC servers: grpc.health.v1 for probes, and reflection for tools such as grpcurl.

The proxy 5.5.0 serves reflection v1alpha, and no health. Source: health.proto, reflection.proto of gRPC.
"""

from enum import IntEnum
from typing import Any

from pocketmq.grpc.http2.call import GrpcCall, GrpcError, GrpcStatus, Method, framed
from pocketmq.grpc.messages import WELL_KNOWN, file_descriptor, make
from pocketmq.grpc.schema import ROCKETMQ, Rpc, Schema
from pocketmq.grpc.services.context import parsed
from pocketmq.grpc.services.keda import KEDA


class ServingStatus(IntEnum):
    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


HEALTH = Schema(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    "Health",
    {
        "Check": Rpc(False, False, "HealthCheckRequest", "HealthCheckResponse"),
        "Watch": Rpc(False, True, "HealthCheckRequest", "HealthCheckResponse"),
    },
    """
HealthCheckRequest: 1 service string
HealthCheckResponse: 1 status ServingStatus
""",
    (ServingStatus,),
)
_INFO = Rpc(True, True, "ServerReflectionRequest", "ServerReflectionResponse")
_REFLECTION = """
ServerReflectionRequest: 1 host string, 3 file_by_filename string|message_request,
    4 file_containing_symbol string|message_request, 7 list_services string|message_request
ServerReflectionResponse: 1 valid_host string, 2 original_request ServerReflectionRequest,
    4 file_descriptor_response FileDescriptorResponse|message_response,
    6 list_services_response ListServiceResponse|message_response,
    7 error_response ErrorResponse|message_response
FileDescriptorResponse: 1 file_descriptor_proto bytes*
ListServiceResponse: 1 service ServiceResponse*
ServiceResponse: 1 name string
ErrorResponse: 1 error_code int32, 2 error_message string
"""
REFLECTION, REFLECTION_ALPHA = (
    Schema(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        "ServerReflection",
        {"ServerReflectionInfo": _INFO},
        _REFLECTION,
    )
    for version in ("v1", "v1alpha")
)
SERVED = (ROCKETMQ, KEDA, HEALTH, REFLECTION, REFLECTION_ALPHA)


class HealthService:
    """Answers SERVING: the port is open only while the broker leads."""

    def __init__(self) -> None:
        self._classes = make(HEALTH)

    def methods(self) -> dict[bytes, Method]:
        return {
            f"/{HEALTH.path}/Check".encode(): Method(self.check),
            f"/{HEALTH.path}/Watch".encode(): Method(self.watch),
        }

    def _status(self, data: bytes | None) -> ServingStatus:
        asked = parsed(self._classes["HealthCheckRequest"], data or b"").service
        known = not asked or any(asked == schema.path for schema in SERVED)
        return ServingStatus.SERVING if known else ServingStatus.SERVICE_UNKNOWN

    def _answer(self, status: ServingStatus) -> bytes:
        answer: bytes = self._classes["HealthCheckResponse"](status=status).SerializeToString()
        return answer

    def check(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer a check. Raises: GrpcError."""
        status = self._status(data)
        if status is ServingStatus.SERVICE_UNKNOWN:
            raise GrpcError(GrpcStatus.NOT_FOUND, "there is no such service")
        call.reply(self._answer(status))

    def watch(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer a watch once: the status stays until the connection closes."""
        call.write(framed(self._answer(self._status(data))))


class Reflection:
    """The descriptions of the services, in both versions of the protocol."""

    def __init__(self) -> None:
        files = [file_descriptor(schema) for schema in SERVED]
        self._known = {each.name: each.serialized_pb for each in WELL_KNOWN.values()}
        self._files = {each.name: each.SerializeToString() for each in files}
        self._symbols: dict[str, str] = {}
        for schema, file in zip(SERVED, files, strict=True):
            names = [schema.service, *(f"{schema.service}.{name}" for name in schema.methods)]
            names += [each.name for each in file.message_type]
            names += [each.name for each in file.enum_type]
            self._symbols.update({f"{schema.package}.{name}": file.name for name in names})

    def methods(self) -> dict[bytes, Method]:
        return {
            f"/{schema.path}/ServerReflectionInfo".encode(): Method(
                _Asked(make(schema), self).handle, is_session=True
            )
            for schema in (REFLECTION, REFLECTION_ALPHA)
        }

    def files_of(self, name: str) -> list[bytes]:
        """Return the file of a symbol or file name, and its imports; empty if unknown."""
        name = self._symbols.get(name, name)
        if name in self._known:
            return [self._known[name]]
        found = self._files.get(name)
        return [] if found is None else [found, *self._known.values()]


class _Asked:
    """The requests of one version."""

    def __init__(self, classes: dict[str, Any], files: Reflection) -> None:
        self._request = classes["ServerReflectionRequest"]
        self._answer_of = classes["ServerReflectionResponse"]
        self._files = files

    def handle(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer a request. Raises: GrpcError."""
        if data is None:
            call.finish()
            return
        request = parsed(self._request, data)
        answer = self._answer_of(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for schema in SERVED:
                answer.list_services_response.service.add(name=schema.path)
        else:
            files = self._files.files_of(getattr(request, kind)) if kind else []
            if files:
                answer.file_descriptor_response.file_descriptor_proto.extend(files)
            else:
                answer.error_response.error_code = GrpcStatus.NOT_FOUND
                answer.error_response.error_message = "there is no such file or symbol"
        call.write(framed(answer.SerializeToString()))
