"""A table's rows as PyIceberg and DuckDB read them from its metadata file, in one form to compare."""

import decimal
import importlib
import math
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

__all__ = ["canonical", "duckdb_connection", "read_duckdb", "read_pyiceberg"]


def read_pyiceberg(metadata_location: str) -> list[str]:
    """The rows that PyIceberg reads."""
    return canonical(StaticTable.from_metadata(metadata_location).scan().to_arrow())


def read_duckdb(metadata_location: str, columns: str = "*") -> list[str]:
    """The rows that DuckDB reads."""
    path = metadata_location.removeprefix("file://").replace("'", "''")
    return canonical(duckdb_connection().execute(f"SELECT {columns} FROM iceberg_scan('{path}')").to_arrow_table())


@cache
def duckdb_connection(*further: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB with the extensions that the wheels bring, `avro`, `iceberg` and further ones; it downloads nothing."""
    connection = duckdb.connect(
        config={"allow_unsigned_extensions": "true", "autoinstall_known_extensions": "false", "threads": "1"}
    )
    connection.execute("SET enable_external_file_cache = false")  # it mixes up the deletion vectors of a file
    for name in ("avro", "iceberg", *further):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (library,) = Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{library}'")
    return connection


def canonical(table: pa.Table) -> list[str]:
    """Rows as text, sorted. Instants are in UTC; maps are sorted; floats of both widths are doubles."""
    columns = [[plain(value) for value in column] for column in table.columns]
    return sorted(repr(row) for row in zip(*columns, strict=True))


def plain(scalar: Any) -> Any:
    """A value of Arrow as plain Python, the same whichever library made it."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(scalar.value)
    if pa.types.is_dictionary(kind):
        return plain(scalar.value)
    if pa.types.is_struct(kind):
        return {kind.field(index).name: plain(scalar[kind.field(index).name]) for index in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return sorted(((plain(entry[0]), plain(entry[1])) for entry in scalar.values), key=repr)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(value) for value in scalar.values]
    if pa.types.is_timestamp(kind):
        return ("instant" if kind.tz else "timestamp", scalar.value * {"s": 10**6, "ms": 1000, "us": 1}[kind.unit])
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return str(uuid.UUID(bytes=scalar.as_py()))
    return plain_python(scalar.as_py())


def plain_python(value: Any) -> Any:
    """A primitive value."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value
