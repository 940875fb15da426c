"""BodyColumns: the fields of bodies as columns beside those of messages."""

from collections.abc import Sequence

import pyarrow as pa

from pocketmq.bulk.bodies.decoder import ERROR, BodyDecoder
from pocketmq.bulk.bodies.schema import Sample, body_schema
from pocketmq.bulk.columns.schema import COLUMNS
from pocketmq.remoting.errors import IllegalArgument, PocketMQError

_PREFIX = "body_"
#: What to do about a body that does not fit.
COLUMN, FAIL = "column", "fail"


class BodyMismatch(PocketMQError):
    """A body does not fit the schema, and the reader wants to fail then."""

    def __init__(self, count: int, reason: str) -> None:
        super().__init__(
            f"{count} bodies do not fit bodySchema, the first of them: {reason}. With bodyErrors=column they "
            f"are rows with null columns, and column {ERROR} says why"
        )


class BodyColumns:
    """Names and types of the columns, and what decodes them.

    A field with the name of a message's column gets the prefix `body_`.
    """

    def __init__(self, decoder: BodyDecoder, on_error: str = COLUMN) -> None:
        self._decoder = decoder
        self._on_error = on_error
        self._field_of: dict[str, str] = {}
        fields: list[pa.Field] = []
        for field in decoder.schema:
            name = _PREFIX + field.name if field.name in COLUMNS else field.name
            if name in self._field_of or name == ERROR:
                raise IllegalArgument(f"bodySchema: two columns would be named {name}")
            self._field_of[name] = field.name
            fields.append(pa.field(name, field.type))
        #: The columns, the last of them the reason why a body did not fit.
        self.schema = pa.schema([*fields, pa.field(ERROR, pa.string())])

    @classmethod
    def of(cls, text: str, on_error: str = COLUMN, sample: Sample | None = None) -> "BodyColumns":
        """Return the columns that an option asks for. Raises: IllegalArgument."""
        return cls(body_schema(text, sample), on_error)

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> list[pa.Array]:
        """Return the wanted columns of some bodies, in that order. Raises: BodyMismatch."""
        fields = [name for name in wanted if name != ERROR]
        found = self._decoder.decode(bodies, [self._field_of[name] for name in fields])
        bad = len(found.errors) - found.errors.null_count
        if bad and self._on_error == FAIL:
            raise BodyMismatch(bad, found.errors.drop_null()[0].as_py())
        columns = dict(zip(fields, found.columns, strict=True)) | {ERROR: found.errors}
        return [columns[name] for name in wanted]
