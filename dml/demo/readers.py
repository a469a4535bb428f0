"""Engines that are not ours, as judges: what they read, and what the table should hold. Driver.

Input: the location of a table's metadata, or the statements. Output: Arrow tables in one order and with one schema, so
that they can be compared to the row.
"""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

from dml.errors import SetupError, ValidationFailedError
from dml.hints import install_hint

__all__ = ["check_equal", "expected_rows", "read_with_duckdb", "read_with_pyiceberg", "sorted_rows"]

EXTENSIONS: Final = ("avro", "iceberg")


def read_with_pyiceberg(metadata_location: str) -> pa.Table:
    """The rows of a table as PyIceberg reads them, from the metadata file alone."""
    return StaticTable.from_metadata(metadata_location).scan().to_arrow()


def read_with_duckdb(metadata_location: str) -> pa.Table:
    """The rows of a table as DuckDB reads them, from the metadata file alone.

    Raises:
        SetupError: DuckDB's extensions are not installed.
    """
    path = metadata_location.removeprefix("file://")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in EXTENSIONS:
            connection.load_extension(str(extension_file(name)))
        return connection.execute("SELECT * FROM iceberg_scan(?)", [path]).to_arrow_table()


def extension_file(name: str) -> Path:
    """The file of a DuckDB extension that PyPI installed: the machine may have no way to download one."""
    try:
        package = distribution(f"duckdb-extension-{name}")
    except PackageNotFoundError as error:
        raise SetupError(
            f"The demo needs the package 'duckdb-extension-{name}'", hint=install_hint(f"duckdb-extension-{name}")
        ) from error
    found = [file for file in package.files or () if file.name == f"{name}.duckdb_extension"]
    return Path(str(package.locate_file(found[0])))


def expected_rows(flights: pa.Table, corrections: pa.Table, statements: Iterable[str]) -> pa.Table:
    """What the statements should leave: DuckDB runs them in memory, with no Iceberg and nothing of ours.

    Args:
        flights: The rows before.
        corrections: The source of MERGE.
        statements: SQL that names the tables `flights` and `corrections`.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("all_flights", flights)
        connection.register("all_corrections", corrections)
        connection.execute("CREATE TABLE flights AS SELECT * FROM all_flights")
        connection.execute("CREATE TABLE corrections AS SELECT * FROM all_corrections")
        for statement in statements:
            connection.execute(statement)
        return connection.execute("SELECT * FROM flights").to_arrow_table()


def sorted_rows(table: pa.Table, schema: pa.Schema, key: str) -> pa.Table:
    """A table with its columns in a schema's order and types, rows in the order of a key."""
    return table.select(schema.names).cast(schema).sort_by(key).combine_chunks()


def check_equal(read: pa.Table, expected: pa.Table, reader: str, table: str) -> None:
    """Compare two tables to the row; both are `sorted_rows`.

    Raises:
        ValidationFailedError: they differ; the message names the first difference.
    """
    if read.equals(expected):
        return
    if len(read) != len(expected):
        difference = f"{len(read):,} rows instead of {len(expected):,}"
    else:
        name = next(name for name in expected.column_names if not read[name].equals(expected[name]))
        pairs = zip(read[name].to_pylist(), expected[name].to_pylist(), strict=True)
        row, (is_value, should_be) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        difference = f"row {row:,} has {name} = {is_value} instead of {should_be}"
    raise ValidationFailedError(
        f"{reader} reads other rows from {table}: {difference}", hint="This is an error of RowDelta: please report it"
    )
