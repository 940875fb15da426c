"""Bodies in Confluent's framing, by the schemas of a registry: a zero byte, four of schema id, the data.

The columns are those of the subject's latest version. Each body is read by the schema of its id, which is
asked for once. Source: Confluent's "Wire format" and the registry's REST API (/subjects, /schemas/ids).
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from pocketmq.bulk.bodies.avro import FRAME, AvroBodies
from pocketmq.bulk.bodies.decoder import BodyDecoder, DecodedBodies
from pocketmq.bulk.bodies.json_bodies import JsonBodies
from pocketmq.bulk.bodies.json_schema import fields_of
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.lazy_names import needs

_TIMEOUT_S = 10
_SUBJECT = re.compile(r"(?P<base>https?://.+?)/subjects/(?P<subject>[^/]+)/?")


class RegistryBodies:
    """Decodes the messages of one subject, written with any of its schemas."""

    def __init__(self, url: str) -> None:
        found = _SUBJECT.fullmatch(url)
        if found is None:
            raise IllegalArgument(
                f"bodySchema: name a subject of the registry, such as {url.rstrip('/')}/subjects/orders-value"
            )
        self._base, self._subject = found["base"], found["subject"]
        self._schemas: dict[int, Any] = {}

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> DecodedBodies:
        if isinstance(self._decoder, AvroBodies):
            return self._decoder.decode(bodies, wanted)
        # Without a frame it is no JSON of a registry.
        inner = [body[FRAME:] if body and body[0] == 0 else b"" for body in bodies.to_pylist()]
        return self._decoder.decode(pa.array(inner, pa.binary()), wanted)

    @cached_property
    def _decoder(self) -> BodyDecoder:
        latest = self._get(f"/subjects/{self._subject}/versions/latest")
        kind, parsed = latest.get("schemaType", "AVRO"), json.loads(latest["schema"])
        if kind == "AVRO":
            return AvroBodies(parsed, self._written_by)
        if kind == "JSON":
            return JsonBodies(fields_of(parsed))
        raise IllegalArgument(
            f"bodySchema: subject {self._subject} has a schema of type {kind}: give a Protobuf descriptor"
        )

    def _written_by(self, schema_id: int) -> Any:
        if schema_id not in self._schemas:
            try:
                import fastavro
            except ImportError as error:
                raise IllegalArgument(
                    needs("a registry of Avro schemas", "fastavro", "avro")
                ) from error

            found = self._get(f"/schemas/ids/{schema_id}")
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(found["schema"]))
        return self._schemas[schema_id]

    def _get(self, path: str) -> dict[str, Any]:
        """Raises: IllegalArgument if the registry does not answer with an object."""
        try:
            with urllib.request.urlopen(f"{self._base}{path}", timeout=_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError) as error:
            raise IllegalArgument(
                f"bodySchema: {self._base}{path} does not answer with a schema: {error}"
            ) from error
