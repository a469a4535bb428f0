"""Other engines' readings of a table, by its metadata file: PyIceberg and DuckDB. Driver."""

import importlib.util
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

__all__ = ["READ"]


def read_pyiceberg(metadata_location: str) -> pa.Table:
    """The rows of the current snapshot as PyIceberg sees them."""
    return StaticTable.from_metadata(metadata_location).scan().to_arrow()


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """A DuckDB with the extensions of the installed wheels: nothing is downloaded."""
    settings = {"allow_unsigned_extensions": "true", "autoinstall_known_extensions": "false", "threads": "1"}
    opened = duckdb.connect(config=settings)
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        (library,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        opened.execute(f"LOAD '{library}'")
    return opened


def read_duckdb(metadata_location: str) -> pa.Table:
    """The rows of the current snapshot as DuckDB sees them."""
    path = metadata_location.removeprefix("file://")
    return connection().execute("SELECT * FROM iceberg_scan(?)", [path]).to_arrow_table()


READ = {"pyiceberg": read_pyiceberg, "duckdb": read_duckdb}
