"""Bodies as columns: JSON, Avro and Protobuf bodies decoded in Arrow, by a schema that the reader gives.

    text of bodySchema -> schema.body_schema() -> a BodyDecoder: bodies -> columns, and why a body did not fit

A body that does not fit has null in all columns and a reason in column `_body_error`. Only the columns that
are wanted are decoded.
"""
