"""What of a table is read: the table as it was loaded, a snapshot, a schema. Driver.

Input: a table, and the version or time that is asked for. Output: `TableState`.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StructType
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dml.catalog.registry import ResolvedTable
from dml.connector.table_changes import reference_of
from dml.engine.engine import Engine, StatementSettings, is_connect
from dml.engine.query import as_of_instant, as_of_version, snapshot_to_read
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.spark_scan.scan import SparkRead

__all__ = [
    "TableState",
    "column_path",
    "loaded_once",
    "reading_one_state",
    "travel_options",
]

AS_OF_TIMESTAMP: Final = "as-of-timestamp"
INCREMENTAL: Final = ("start-snapshot-id", "end-snapshot-id", "start-timestamp", "end-timestamp")
"""Options of Iceberg's that ask for the rows that snapshots added: without them a reader would get all rows."""
NUMBERS: Final = frozenset({"snapshot-id", AS_OF_TIMESTAMP})
TRAVEL_OPTIONS: Final = ("snapshot-id", AS_OF_TIMESTAMP, "branch", "tag")
"""Options of `spark.read` that ask for a state of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table, and what of it is read.

    Attributes:
        resolved: The table as it was loaded, with the part of it that its name says.
        snapshot_id: The snapshot; None where there is none yet.
        schema: The schema it is read with.
        pinned: The version or time that was asked for, as text; None where the table is read as it is now.
    """

    resolved: ResolvedTable
    snapshot_id: int | None
    schema: Schema
    pinned: str | None = None

    @staticmethod
    def of(engine: Engine, resolved: ResolvedTable, version: str | None, micros: int | None) -> "TableState":
        """The table as a session reads it.

        Args:
            engine: The session and its catalogs.
            resolved: The table.
            version: The snapshot, branch or tag that is asked for.
            micros: The time that is asked for, since 1970.

        Raises:
            NotFoundError: there is no such version, or was no snapshot at the time.
        """
        reference = reference_of((resolved.catalog_name, *resolved.identifier))
        snapshot_id: int | None
        if micros is not None:
            snapshot_id, schema = as_of_instant("", resolved.table, reference, micros // 1000, "the time asked for")
        elif version is not None:
            snapshot_id, schema = as_of_version(resolved.table, version, reference, "")
        else:
            settings = StatementSettings.of(engine)
            snapshot_id, schema = snapshot_to_read(engine, settings, "", resolved, reference)
        pinned = version if micros is None else str(micros)
        return TableState(resolved=resolved, snapshot_id=snapshot_id, schema=schema, pinned=pinned)

    def with_options(self, options: Mapping[str, str]) -> "TableState":
        """The state that options of a read ask for, with the columns of this one.

        Args:
            options: `snapshot-id`, `as-of-timestamp` in milliseconds, `branch`, `tag`, and others, in lower case.

        Raises:
            AnalysisError: they ask for more than one.
            NotFoundError: there is no such snapshot, branch or tag.
            NotSupportedError: they ask for the rows that some snapshots added.
        """
        version, micros = travel_options(options, elsewhere=self.is_pinned)
        reference = reference_of((self.resolved.catalog_name, *self.resolved.identifier))
        snapshot_id: int | None
        if micros is not None:
            snapshot_id, _ = as_of_instant("", self.table, reference, micros // 1000, options[AS_OF_TIMESTAMP])
        elif version is not None:
            snapshot_id, _ = as_of_version(self.table, version, reference, "")
        else:
            return self
        asked = next(f"{key}={options[key]}" for key in TRAVEL_OPTIONS if key in options)
        return replace(self, snapshot_id=snapshot_id, pinned=asked)

    def fixed(self) -> "TableState":
        """This state by its snapshot, so that it is another table than the one that goes on."""
        return replace(self, pinned=f"snapshot {self.snapshot_id}")

    @property
    def is_pinned(self) -> bool:
        """Whether a version, a branch or a time was asked for."""
        return self.pinned is not None or self.resolved.is_part

    @property
    def table(self) -> Table:
        """The table."""
        return self.resolved.table

    @property
    def version(self) -> tuple[object, ...]:
        """What tells this state of the table from every other."""
        return (*self.identity, str(self.table.metadata.table_uuid), self.snapshot_id, self.schema.schema_id)

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells the table from others, and from parts and states of it that are asked for by name."""
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
    """The names from a column down to the one with an id, which may have dots in them; None where there is none."""
    for field in schema.fields:
        if field.field_id == field_id:
            return (field.name,)
        below = column_path(field.field_type, field_id) if isinstance(field.field_type, StructType) else None
        if below is not None:
            return (field.name, *below)
    return None


def travel_options(options: Mapping[str, str], *, elsewhere: bool) -> tuple[str | None, int | None]:
    """The version, or the time in microseconds, that options of a read ask for.

    Args:
        options: They, in lower case.
        elsewhere: Whether a state is asked for otherwise, by the table's name or by Spark's time travel.

    Raises:
        AnalysisError: they ask for more than one, or for what is no number.
        NotSupportedError: they ask for the rows that some snapshots added.
    """
    for key in INCREMENTAL:
        if key in options:
            raise NotSupportedError(
                f"The read option '{key}' asks for the rows that snapshots have added, and there is no such read",
                hint="Read both snapshots by 'snapshot-id' and compare them",
                option=key,
            )
    given = [(key, options[key]) for key in TRAVEL_OPTIONS if key in options]
    if not given:
        return None, None
    if len(given) > 1 or elsewhere:
        names = " and ".join(f"'{key}'" for key, _ in given)
        raise AnalysisError(
            f"The options {names} ask for more than one state of the table",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give one of " + ", ".join(TRAVEL_OPTIONS) + ", and no other version or branch",
        )
    ((key, value),) = given
    if key in NUMBERS and not value.strip().lstrip("-").isdigit():
        raise AnalysisError(f"The option '{key}' is '{value}'", kind=ErrorKind.INVALID_VALUE, hint="It is a number")
    return (None, int(value) * 1000) if key == AS_OF_TIMESTAMP else (value, None)


Loaded = TypeVar("Loaded")

STATEMENT: Final = "spark.rowdelta.statement"
"""The running statement, for the JVM's threads that work for it: Spark hands such properties on to them."""

LOADED: Final[dict[str, dict[tuple[object, ...], object]]] = {}
"""The tables that Spark has loaded for statements of ours that run."""


class ThreadTables(threading.local):
    """On Spark Connect: those of the statement that this thread runs, which makes the plans for the server as well."""

    found: dict[tuple[object, ...], object] | None = None


CONNECT_TABLES: Final = ThreadTables()


@contextmanager
def reading_one_state(spark: SparkSession) -> Iterator[None]:
    """While a statement of ours runs Spark finds each table in one state.

    It loads the tables of a DataFrame or a view anew for each job, and a MERGE that took the keys of its source from
    one state and the rows from another would insert rows that are there.

    Args:
        spark: The session that runs the statement.
    """
    if is_connect(spark):
        with reading_one_state_in_thread():
            yield
        return
    statement, before, context = str(uuid.uuid4()), None, spark.sparkContext
    with suppress(Py4JError, OSError):  # the JVM has ended, which the statement will find out
        before = context.getLocalProperty(STATEMENT)
    if before in LOADED:
        yield
        return
    LOADED[statement] = {}
    hand_on(context, statement)
    try:
        yield
    finally:
        del LOADED[statement]
        hand_on(context, before)


@contextmanager
def reading_one_state_in_thread() -> Iterator[None]:
    """The same for the plans that this thread makes."""
    before = CONNECT_TABLES.found
    CONNECT_TABLES.found = {} if before is None else before
    try:
        yield
    finally:
        CONNECT_TABLES.found = before


def hand_on(context: SparkContext, statement: str | None) -> None:
    """Name the running statement to the JVM's thread that works for this one, and to those that it starts."""
    with suppress(Exception):  # it may have been stopped, or interrupted in the middle of a call
        context.setLocalProperty(STATEMENT, cast("str", statement))  # PySpark's stub has no None, which takes it away


def loaded_once(spark: SparkSession, key: tuple[object, ...], load: Callable[[], Loaded]) -> Loaded:
    """A table as it was loaded first for the statement that runs; where none does, as it is now.

    Args:
        spark: The session that loads it.
        key: Its name, and the state that is asked for.
        load: Loads it.
    """
    if is_connect(spark):
        tables = CONNECT_TABLES.found
    else:
        tables = LOADED.get(spark.sparkContext.getLocalProperty(STATEMENT) or "") if LOADED else None
    if tables is None:
        return load()
    return tables.setdefault(key, tables.get(key) or load())  # type: ignore[return-value]
