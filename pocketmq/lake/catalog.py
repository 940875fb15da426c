"""Where the tables are: a catalog of pyiceberg, by default one in the file `catalog.db` of the warehouse."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)

from pocketmq.lake.columns import sort_order, table_name, table_schema
from pocketmq.lake.partitions import DAY, is_partitioned_by, partition_spec
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

NAMESPACE = "pocketmq"
#: The name under which the default catalog keeps its tables: other programs must open it by the same name.
DEFAULT_CATALOG = "pocketmq"
# A commit that lost a race is looked at before it is repeated: the winner may have written the same rows.
_NO_RETRIES = ("commit.retry.num-retries", "0")
_PROPERTIES = {
    _NO_RETRIES[0]: _NO_RETRIES[1],
    # Bounds of bodies and of maps would say nothing to a query.
    "write.metadata.metrics.column.body": "none",
    "write.metadata.metrics.column.properties.key": "none",
    "write.metadata.metrics.column.properties.value": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@contextmanager
def opened_catalog(warehouse: str, name: str | None = None) -> Iterator["Catalog"]:
    """Open the warehouse's own catalog, or one that pyiceberg's configuration names.

    Raises: IllegalArgument for a warehouse that cannot hold a catalog of its own, or an unknown name.
    """
    catalog = _default(warehouse) if name is None else _configured(warehouse, name)
    try:
        yield catalog
    finally:
        catalog.close()


def _default(warehouse: str) -> "Catalog":
    from pyiceberg.catalog.sql import SqlCatalog

    if "://" in warehouse:
        raise IllegalArgument(
            f"{warehouse} is not a folder, so it cannot hold the default catalog, a file of SQLite: name a "
            "catalog of your pyiceberg configuration with --catalog"
        )
    folder = os.path.abspath(warehouse)
    os.makedirs(folder, exist_ok=True)
    return SqlCatalog(
        DEFAULT_CATALOG, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )


def _configured(warehouse: str, name: str) -> "Catalog":
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(name, warehouse=warehouse)
    except (ValueError, NotImplementedError) as error:
        raise IllegalArgument(
            f"--catalog {name}: {error}. Catalogs are configured in ~/.pyiceberg.yaml or by "
            f"PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from error


def table_of(catalog: "Catalog", topic: str, partitions: tuple[str, ...] | None = None) -> "Table":
    """Return the table of a topic, created if need be.

    partitions: what partitions.py knows; None: by day, and a table that is there as it is.
    Raises: IllegalArgument for a table that is partitioned in another way.
    """
    identifier = (NAMESPACE, table_name(topic))
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        table = _created(catalog, identifier, partitions or DAY)
    if partitions is not None and not is_partitioned_by(table, partitions):
        fields = ", ".join(field.name for field in table.spec().fields) or "nothing"
        raise IllegalArgument(
            f"table {'.'.join(identifier)} is partitioned by {fields} and stays so: leave --partition away, "
            "or write to another warehouse"
        )
    if table.properties.get(_NO_RETRIES[0]) != _NO_RETRIES[1]:
        with table.transaction() as change:
            change.set_properties(dict([_NO_RETRIES]))
    return table


def add_columns(table: "Table", columns: pa.Schema) -> None:
    """Add the columns that a table lacks, and widen types that may be. Raises: IllegalArgument."""
    try:
        with table.update_schema() as change:
            change.union_by_name(columns)
    except (ValidationError, ValueError) as error:
        raise IllegalArgument(
            f"the columns of --body-schema do not fit those of table {'.'.join(table.name())}: {error}"
        ) from error


def _created(
    catalog: "Catalog", identifier: tuple[str, str], partitions: tuple[str, ...]
) -> "Table":
    try:
        catalog.create_namespace(NAMESPACE)
    except NamespaceAlreadyExistsError:
        pass
    schema = table_schema()
    try:
        return catalog.create_table(
            identifier,
            schema,
            partition_spec=partition_spec(schema, partitions),
            sort_order=sort_order(schema),
            properties=_PROPERTIES,
        )
    except TableAlreadyExistsError:
        # Another process was quicker.
        return catalog.load_table(identifier)


def existing_tables(catalog: "Catalog") -> list[str]:
    """Return the names of the tables in the namespace."""
    if not catalog.namespace_exists(NAMESPACE):
        return []
    return sorted(identifier[-1] for identifier in catalog.list_tables(NAMESPACE))
