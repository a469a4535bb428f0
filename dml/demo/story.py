"""The script of the demo: load, correct, read with other engines. Driver.

Input: a console, a folder. Output on the console: a table with the rows and seconds of each statement in each mode, a
table with the rows that other engines read, and the result of two streams whose driver was killed. Raises an error if
an engine reads other rows.

PyIceberg and DuckDB read the tables. Their rows are converted to Arrow tables with one order and schema, so that each
value can be compared with the expected rows.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from rich.console import Console
from rich.table import Table

from dml.active_session import connect
from dml.demo.flights import COLUMNS, corrections, load_flights, sql_columns
from dml.demo.streams import MERGED, TABLE, stream_days
from dml.errors import SetupError, ValidationFailedError
from dml.hints import install_hint
from dml.result import Result
from dml.session import Session
from dml.spark.versions import INSTALLED_FEATURES, Feature

__all__ = ["STATEMENTS", "Variant", "expected_rows", "run", "sorted_rows"]

EXTENSIONS: Final = ("avro", "iceberg")


def read_with_pyiceberg(metadata_location: str) -> pa.Table:
    """Read a table's rows with PyIceberg, from the metadata file alone."""
    return StaticTable.from_metadata(metadata_location).scan().to_arrow()


def read_with_duckdb(metadata_location: str) -> pa.Table:
    """Read a table's rows with DuckDB, from the metadata file alone.

    Raises:
        SetupError: DuckDB's extensions are not installed.
    """
    path = metadata_location.removeprefix("file://")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # With this cache, DuckDB 1.5.5 can mix up the deletion vectors of a Puffin file.
        connection.execute("SET enable_external_file_cache = false")
        for name in EXTENSIONS:
            connection.load_extension(str(extension_file(name)))
        return connection.execute("SELECT * FROM iceberg_scan(?)", [path]).to_arrow_table()


def extension_file(name: str) -> Path:
    """Return the file of a DuckDB extension from PyPI, because the machine may not be able to download one."""
    try:
        package = distribution(f"duckdb-extension-{name}")
    except PackageNotFoundError as error:
        raise SetupError(
            f"The demo needs the package 'duckdb-extension-{name}'", hint=install_hint(f"duckdb-extension-{name}")
        ) from error
    found = [file for file in package.files or () if file.name == f"{name}.duckdb_extension"]
    return Path(str(package.locate_file(found[0])))


def expected_rows(flights: pa.Table, corrections: pa.Table, statements: Iterable[str]) -> pa.Table:
    """Compute the expected rows: DuckDB runs the statements in memory, without Iceberg and RowDelta.

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
    """Return a table with the columns and types of a schema, sorted by a key."""
    return table.select(schema.names).cast(schema).sort_by(key).combine_chunks()


def check_equal(read: pa.Table, expected: pa.Table, reader: str, table: str) -> None:
    """Compare two tables, both from `sorted_rows`.

    Raises:
        ValidationFailedError: They differ; the message names the first difference.
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


NAMESPACE: Final = "demo"
KEY: Final = "flight_id"
READERS: Final[dict[str, Callable[[str], pa.Table]]] = {
    "PyIceberg": read_with_pyiceberg,
    "DuckDB": read_with_duckdb,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A table of the demo: a mode and a format version."""

    mode: str
    format_version: int

    @property
    def label(self) -> str:
        """The name for output, `merge-on-read v3`."""
        return f"{self.mode} v{self.format_version}"

    @property
    def table(self) -> str:
        """The name in the catalog."""
        return f"{NAMESPACE}.flights_{self.label.replace('-', '_').replace(' ', '_')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A correcting statement; `flights` in the text is replaced by the table."""

    title: str
    text: str


VARIANTS: Final = tuple(
    Variant(mode=mode, format_version=version) for version in (2, 3) for mode in ("copy-on-write", "merge-on-read")
)

STATEMENTS: Final = (
    Correction(
        title="DELETE cancelled flights of February",
        text="DELETE FROM flights WHERE month = 2 AND dep_time IS NULL",
    ),
    Correction(
        title="UPDATE US Airways to American",
        text="UPDATE flights SET carrier = 'AA', arr_delay = arr_delay - 5 WHERE carrier = 'US' AND dest <> 'PHL'",
    ),
    Correction(
        title="MERGE a batch of corrections",
        text=f"""MERGE INTO flights t USING corrections s ON t.flight_id = s.flight_id
            WHEN MATCHED AND s.never_left THEN DELETE
            WHEN MATCHED THEN UPDATE SET dep_delay = s.dep_delay, arr_delay = t.arr_delay + 7
            WHEN NOT MATCHED AND NOT s.never_left THEN
              INSERT ({", ".join(COLUMNS.names)}) VALUES ({", ".join(f"s.{name}" for name in COLUMNS.names)})""",
    ),
    Correction(
        title="DELETE all of November",
        text="DELETE FROM flights WHERE month = 11",
    ),
)


def run(console: Console, warehouse: str | None = None) -> None:
    """Run the demo.

    Args:
        console: The console to print to.
        warehouse: The folder for its tables; by default a temporary folder.

    Raises:
        DmlError: A package is not installed, a statement failed, or another engine reads other rows.
    """
    with folder(warehouse) as location, tempfile.TemporaryDirectory(prefix="rowdelta-demo-") as inputs:
        flights = load_flights()
        batch = corrections(flights)
        console.print(f"{len(flights):,} flights and {len(batch):,} corrections; tables in {location}")
        session = connect(location)
        show_to_spark(session, flights, Path(inputs), "all_flights")
        show_to_spark(session, batch, Path(inputs), "corrections")
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
        results = {variant: correct(session, variant, console) for variant in VARIANTS}
        console.print(timings(results))
        statements = [statement.text for statement in STATEMENTS]
        expected = sorted_rows(expected_rows(flights, batch, statements), COLUMNS, KEY)
        console.print(compare_readers(session, expected))
        console.print(f"Every reader finds the same {len(expected):,} rows in every table, value by value.")
        stream(session, location, flights, Path(inputs), console)


@contextmanager
def folder(warehouse: str | None) -> Iterator[str]:
    """Yield the folder of the tables."""
    if warehouse is not None:
        yield warehouse
        return
    with tempfile.TemporaryDirectory(prefix="rowdelta-demo-") as location:
        yield location


def show_to_spark(session: Session, rows: pa.Table, inputs: Path, view: str) -> None:
    """Register rows as a view of Spark, through a plain Parquet file."""
    path = inputs / f"{view}.parquet"
    pq.write_table(rows, path)
    session.spark.read.parquet(path.as_uri()).createOrReplaceTempView(view)


def correct(session: Session, variant: Variant, console: Console) -> list[tuple[float, int]]:
    """Create a table and run all statements on it; return seconds and affected rows of each, loading first."""
    console.print(f"[bold]{variant.label}[/bold]")
    modes = ", ".join(f"'write.{command}.mode' = '{variant.mode}'" for command in ("delete", "update", "merge"))
    session.sql(
        f"CREATE OR REPLACE TABLE {variant.table} ({sql_columns()}) PARTITIONED BY (month) "
        f"TBLPROPERTIES ('format-version' = '{variant.format_version}', {modes})"
    )
    texts = [f"INSERT INTO {variant.table} SELECT * FROM all_flights"]
    texts += [rename_table(statement.text, variant.table) for statement in STATEMENTS]
    outcomes = []
    for text in texts:
        began = time.perf_counter()
        result = session.sql(text)
        assert isinstance(result, Result)
        seconds = time.perf_counter() - began
        console.print(f"  {result!r}", highlight=False, soft_wrap=True)
        outcomes.append((seconds, affected_rows(result)))
    return outcomes


def stream(session: Session, warehouse: str, flights: pa.Table, inputs: Path, console: Console) -> None:
    """Run the streams and check the rows with other engines; skipped before Spark 4.0.

    Raises:
        ValidationFailedError: A reader returns other rows than expected.
    """
    if Feature.DATA_SOURCE_V2 not in INSTALLED_FEATURES:
        console.print("Streams write to tables on PySpark 4.0 and later: that act is left out.")
        return
    console.print("[bold]streams[/bold]: flights of January by the day, corrected by a second stream")
    session.sql(
        f"CREATE OR REPLACE TABLE {TABLE} ({sql_columns()}) PARTITIONED BY (day) "
        "TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
    )
    began = time.perf_counter()
    appended, merged = stream_days(session, warehouse, flights, inputs, console)
    console.print(f"  {time.perf_counter() - began:.0f} seconds, with the start of the driver that was killed")
    expected = sorted_rows(expected_rows(appended, merged, [MERGED]), COLUMNS, KEY)
    for name, rows in read_with_all(session, TABLE).items():
        check_equal(rows, expected, name, TABLE)
    console.print(f"  {' and '.join(READERS)} find every change once: {len(expected):,} rows")


def affected_rows(result: Result) -> int:
    """Return the number of rows that a statement changed."""
    return (result.rows_deleted or 0) + result.rows_updated + result.rows_inserted


def rename_table(text: str, table: str) -> str:
    """Replace the table `flights` of a statement."""
    return text.replace(" flights ", f" {table} ", 1)


def timings(results: dict[Variant, list[tuple[float, int]]]) -> Table:
    """Build the table of seconds by statement and variant."""
    headings = ("".join(word[0] for word in variant.mode.split("-")).upper() for variant in results)
    versions = (f"{heading} v{variant.format_version}" for heading, variant in zip(headings, results, strict=True))
    title = "Seconds by statement: copy-on-write (COW) and merge-on-read (MOR), format versions 2 and 3"
    table = Table("statement", "rows", *versions, title=title)
    titles = ["INSERT all flights", *(statement.title for statement in STATEMENTS)]
    for i, title in enumerate(titles):
        outcomes = [outcome[i] for outcome in results.values()]
        rows = max(count for _, count in outcomes)
        table.add_row(title, f"{rows:,}", *(f"{seconds:.2f}" for seconds, _ in outcomes))
    return table


def compare_readers(session: Session, expected: pa.Table) -> Table:
    """Read every table with every reader, and compare.

    Raises:
        ValidationFailedError: A reader returns other rows than expected.
    """
    table = Table("table", *READERS, title="Rows that others read, against the same SQL run by DuckDB alone")
    for variant in VARIANTS:
        cells = []
        for name, rows in read_with_all(session, variant.table).items():
            check_equal(rows, expected, name, variant.table)
            cells.append(f"{len(rows):,} rows, equal")
        table.add_row(variant.label, *cells)
    return table


def read_with_all(session: Session, table: str) -> dict[str, pa.Table]:
    """Return the rows of a table from each reader."""
    catalog = session.registry.catalogs[session.registry.current_catalog]
    location = catalog.load_table(table).metadata_location
    return {name: sorted_rows(read(location), COLUMNS, KEY) for name, read in READERS.items()}
