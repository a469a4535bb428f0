"""The state of a table that a scan reads: the loaded table, a snapshot, a schema. Driver.

Input: a table, and the requested version or time. Output: `TableState`.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StructType
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dml.catalog.registry import ResolvedTable
from dml.connector.table_changes import reference_of
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import as_of_instant, as_of_version, snapshot_to_read
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.spark.bridge.gateway import Py4JError
from dml.spark.runtime import Runtime
from dml.spark_scan.read import SparkRead

__all__ = [
    "TableState",
    "column_path",
    "load_once",
    "load_tables_once",
    "travel_options",
]

AS_OF_TIMESTAMP: Final = "as-of-timestamp"
INCREMENTAL: Final = ("start-snapshot-id", "end-snapshot-id", "start-timestamp", "end-timestamp")
"""Iceberg options for the rows that snapshots added. They are rejected: ignoring them would return all rows."""
NUMBERS: Final = frozenset({"snapshot-id", AS_OF_TIMESTAMP})
TRAVEL_OPTIONS: Final = ("snapshot-id", AS_OF_TIMESTAMP, "branch", "tag")
"""Options of `spark.read` that select a state of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table and the state of it that is read.

    Attributes:
        resolved: The table as it was loaded, with the part of it that its name selects.
        snapshot_id: The snapshot; None if the table has none yet.
        schema: The schema to read with.
        pinned: The requested version or time, as text; None if the current state is read.
    """

    resolved: ResolvedTable
    snapshot_id: int | None
    schema: Schema
    pinned: str | None = None

    @staticmethod
    def of(engine: Engine, resolved: ResolvedTable, version: str | None, micros: int | None) -> "TableState":
        """Resolve the state of a table that a session reads.

        Args:
            engine: The session and its catalogs.
            resolved: The table.
            version: The requested snapshot, branch or tag.
            micros: The requested time, in microseconds since 1970.

        Raises:
            NotFoundError: There is no such version, or no snapshot at that time.
        """
        reference = reference_of((resolved.catalog_name, *resolved.identifier))
        snapshot_id: int | None
        if micros is not None:
            snapshot_id, schema = as_of_instant("", resolved.table, reference, micros // 1000, "the requested time")
        elif version is not None:
            snapshot_id, schema = as_of_version(resolved.table, version, reference, "")
        else:
            settings = StatementSettings.of(engine)
            snapshot_id, schema = snapshot_to_read(engine, settings, "", resolved, reference)
        pinned = version if micros is None else str(micros)
        return TableState(resolved=resolved, snapshot_id=snapshot_id, schema=schema, pinned=pinned)

    def with_options(self, options: Mapping[str, str]) -> "TableState":
        """Return the state that read options select, with the columns of this one.

        Args:
            options: `snapshot-id`, `as-of-timestamp` in milliseconds, `branch`, `tag`, and others, in lower case.

        Raises:
            AnalysisError: The options select more than one state.
            NotFoundError: There is no such snapshot, branch or tag.
            NotSupportedError: The options select the rows that some snapshots added.
        """
        version, micros = travel_options(options, is_pinned=self.is_pinned)
        reference = reference_of((self.resolved.catalog_name, *self.resolved.identifier))
        snapshot_id: int | None
        if micros is not None:
            snapshot_id, _ = as_of_instant("", self.table, reference, micros // 1000, options[AS_OF_TIMESTAMP])
        elif version is not None:
            snapshot_id, _ = as_of_version(self.table, version, reference, "")
        else:
            return self
        selection = next(f"{key}={options[key]}" for key in TRAVEL_OPTIONS if key in options)
        return replace(self, snapshot_id=snapshot_id, pinned=selection)

    def pin(self) -> "TableState":
        """Pin this state to its snapshot, so that Spark never takes it for the table's current state."""
        return replace(self, pinned=f"snapshot {self.snapshot_id}")

    @property
    def is_pinned(self) -> bool:
        """True if a version, a branch or a time was requested."""
        return self.pinned is not None or self.resolved.is_part

    @property
    def table(self) -> Table:
        """The table."""
        return self.resolved.table

    @property
    def version(self) -> tuple[object, ...]:
        """A key that distinguishes this state of the table from every other."""
        return (*self.identity, str(self.table.metadata.table_uuid), self.snapshot_id, self.schema.schema_id)

    @property
    def identity(self) -> tuple[str, ...]:
        """A key that distinguishes the table from others, and from parts and states that were requested by name."""
        return (*self.resolved.identity, self.pinned or "")

    def read(self, settings: StatementSettings) -> SparkRead:
        """Return the read of all columns and rows, for a scan that Spark plans."""
        return SparkRead(
            name=self.resolved.name,
            version=self.version,
            table=self.table,
            snapshot_id=self.snapshot_id,
            schema=self.schema,
            columns=tuple(field.field_id for field in self.schema.fields),
            rules=settings.rules,
            parallelism=settings.parallelism,
        )


def column_path(schema: Schema | StructType, field_id: int) -> tuple[str, ...] | None:
    """Return the names from a column down to the field with an id, or None if there is none. Names may contain dots."""
    for field in schema.fields:
        if field.field_id == field_id:
            return (field.name,)
        below = column_path(field.field_type, field_id) if isinstance(field.field_type, StructType) else None
        if below is not None:
            return (field.name, *below)
    return None


def travel_options(options: Mapping[str, str], *, is_pinned: bool) -> tuple[str | None, int | None]:
    """Return the version, or the time in microseconds, that read options select.

    Args:
        options: The read options, with names in lower case.
        is_pinned: True if the table's name or Spark's time travel selects a state already.

    Raises:
        AnalysisError: The options select more than one state, or a value is not a number.
        NotSupportedError: The options select the rows that some snapshots added.
    """
    for key in INCREMENTAL:
        if key in options:
            raise NotSupportedError(
                f"The read option '{key}' selects the rows that snapshots have added, which is not supported",
                hint="Read both snapshots by 'snapshot-id' and compare them",
                option=key,
            )
    given = [(key, options[key]) for key in TRAVEL_OPTIONS if key in options]
    if not given:
        return None, None
    if len(given) > 1 or is_pinned:
        names = " and ".join(f"'{key}'" for key, _ in given)
        raise AnalysisError(
            f"The options {names} select more than one state of the table",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give one of " + ", ".join(TRAVEL_OPTIONS) + ", and no other version or branch",
        )
    ((key, value),) = given
    if key in NUMBERS and not value.strip().lstrip("-").isdigit():
        raise AnalysisError(f"The option '{key}' is '{value}'", kind=ErrorKind.INVALID_VALUE, hint="It is a number")
    return (None, int(value) * 1000) if key == AS_OF_TIMESTAMP else (value, None)


Loaded = TypeVar("Loaded")

STATEMENT: Final = "spark.rowdelta.statement"
"""The local property with the running statement. The JVM's threads that work for the statement inherit it."""

LOADED: Final[dict[str, dict[tuple[object, ...], object]]] = {}
"""The tables that Spark has loaded for each running RowDelta statement."""


class ThreadTables(threading.local):
    """The tables that the statement of this thread has loaded, on Spark Connect: the thread also builds the plans."""

    found: dict[tuple[object, ...], object] | None = None


CONNECT_TABLES: Final = ThreadTables()


@contextmanager
def load_tables_once(spark: SparkSession) -> Iterator[None]:
    """Make Spark load each table once while a RowDelta statement runs.

    Spark reloads the tables of a DataFrame or a view for each job. A MERGE that took the keys of its source from one
    state and the rows from another would insert rows that exist already.

    Args:
        spark: The session that runs the statement.
    """
    if Runtime.of(spark).is_connect:
        with load_tables_once_in_thread():
            yield
        return
    statement, before, context = str(uuid.uuid4()), None, spark.sparkContext
    with suppress(Py4JError, OSError):  # the JVM has ended: let the statement fail, not this call
        before = context.getLocalProperty(STATEMENT)
    if before in LOADED:
        yield
        return
    LOADED[statement] = {}
    set_running_statement(context, statement)
    try:
        yield
    finally:
        del LOADED[statement]
        set_running_statement(context, before)


@contextmanager
def load_tables_once_in_thread() -> Iterator[None]:
    """Make the plans of this thread load each table once."""
    before = CONNECT_TABLES.found
    CONNECT_TABLES.found = {} if before is None else before
    try:
        yield
    finally:
        CONNECT_TABLES.found = before


def set_running_statement(context: SparkContext, statement: str | None) -> None:
    """Set the running statement as a local property, which the JVM's threads for this one inherit."""
    with suppress(Exception):  # the context may have been stopped, or the call interrupted
        context.setLocalProperty(STATEMENT, cast("str", statement))  # PySpark's stub lacks None, which removes it


def load_once(spark: SparkSession, key: tuple[object, ...], load: Callable[[], Loaded]) -> Loaded:
    """Return a table as the running statement first loaded it; outside of a statement, load it now.

    Args:
        spark: The session that loads it.
        key: The table's name and the requested state.
        load: Loads the table.
    """
    if Runtime.of(spark).is_connect:
        tables = CONNECT_TABLES.found
    else:
        tables = LOADED.get(spark.sparkContext.getLocalProperty(STATEMENT) or "") if LOADED else None
    if tables is None:
        return load()
    return tables.setdefault(key, tables.get(key) or load())  # type: ignore[return-value]
