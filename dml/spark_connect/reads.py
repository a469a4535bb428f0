"""`spark.table` and `spark.read` on RowDelta tables. Driver, Spark Connect.

Input: a table's name and the options of the reader. Output: a DataFrame that follows the table, or is pinned to the
requested version, time, branch or snapshot, as on classic Spark (decision 021). It reads all columns and all files,
because a server without RowDelta does not report what a query needs. Queries given as SQL prune.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState, load_once
from dml.engine.engine import Engine, StatementSettings
from dml.engine.ownership import parse_cached
from dml.engine.query import run_query, snapshot_to_read
from dml.errors import AnalysisError, ErrorKind
from dml.scan.split import MIN_PARALLEL_QUERY_BYTES
from dml.scan.table_scan import TableScan
from dml.spark.handlers import run_as_handler
from dml.spark_connect.errors import ErrorCondition, spark_error, translate_errors
from dml.spark_connect.plans import CurrentRows, following_frame
from dml.sqlparse.quoting import quote_name, quote_string
from dml.sqlparse.statements import Query, Span, TableReference

__all__ = ["read_table"]

VERSION = "versionasof"
TIME = "timestampasof"


def read_table(engine: Engine, parts: tuple[str, ...], options: Mapping[str, str]) -> DataFrame:
    """Return the DataFrame of a table.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, catalog first, perhaps with a branch, a tag or a metadata table at its end.
        options: The reader's options.

    Raises:
        AnalysisException: The table does not exist.
        DmlError: The options conflict, or there is no such version, branch or snapshot.
    """
    with run_as_handler(), translate_errors(engine, parts):
        read = RemoteRead.of(engine, parts, {key.lower(): str(value) for key, value in options.items()})
        resolved = read.resolve()
        read.current_rows()  # raise errors now, not at the first action
        name = (resolved.catalog_name, *resolved.identifier)
        return following_frame(engine.spark, name, resolved.metadata_table or name[-1], read.current_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRead:
    """A table and the snapshot that a Connect client reads.

    Attributes:
        engine: The session and its catalogs.
        parts: The table's name, catalog first.
        version: The requested snapshot, branch or tag.
        options: The reader's options, in lower case.
        settings: The session's settings when the DataFrame was created.
    """

    engine: Engine
    parts: tuple[str, ...]
    version: str | None
    options: Mapping[str, str]
    settings: StatementSettings

    @staticmethod
    def of(engine: Engine, parts: tuple[str, ...], options: Mapping[str, str]) -> "RemoteRead":
        """Parse the options of a reader; a timestamp is resolved to its snapshot.

        Raises:
            AnalysisError: The options have both a version and a timestamp.
        """
        settings = StatementSettings.of(engine)
        read = RemoteRead(engine=engine, parts=parts, version=options.get(VERSION), options=options, settings=settings)
        if TIME not in options:
            return read
        if read.version is not None:
            raise AnalysisError("A table cannot be read as of a version and as of a time", kind=ErrorKind.INVALID_VALUE)
        when = quote_string(options[TIME])
        reference = replace(read.reference, timestamp=when)
        snapshot_id, _ = snapshot_to_read(engine, settings, when, read.resolve(), reference)
        return replace(read, version=str(snapshot_id))

    @property
    def reference(self) -> TableReference:
        """The table reference as in a statement."""
        return TableReference(parts=self.parts, span=Span(0, 0), version=self.version)

    def resolve(self) -> ResolvedTable:
        """Load the table.

        Raises:
            AnalysisException: The table does not exist.
        """
        found = self.engine.registry.resolve(self.parts)
        if found is None:
            hint = self.engine.registry.suggestion(self.parts)
            message = f"The table or view {quote_name(self.parts)} cannot be found. {hint}"
            raise spark_error(ErrorCondition.TABLE_OR_VIEW_NOT_FOUND, self.parts, message)
        return found

    def current_rows(self) -> CurrentRows:
        """Return the current rows; a running RowDelta statement resolves them once."""
        key = (self.parts, self.version, *sorted(self.options.items()))
        return load_once(self.engine.spark, key, self.resolve_rows)

    def resolve_rows(self) -> CurrentRows:
        """Resolve the current rows."""
        resolved = self.resolve()
        if resolved.metadata_table is not None:
            return CurrentRows(state=resolved.table.metadata_location, frame=self.metadata_rows)
        snapshot_id, schema = snapshot_to_read(self.engine, self.settings, "", resolved, self.reference)
        state = TableState(resolved=resolved, snapshot_id=snapshot_id, schema=schema, pinned=self.version)
        state = state.with_options(self.options)
        access = tuple(sorted((str(key), str(value)) for key, value in resolved.table.io.properties.items()))
        return CurrentRows(state=(state.version, access), frame=lambda: self.rows_of(state))

    def rows_of(self, state: TableState) -> DataFrame:
        """Return the rows of a state of the table."""
        spark = self.engine.spark
        scan = TableScan(
            table=state.table,
            snapshot_id=state.snapshot_id,
            schema=state.schema,
            columns=tuple(field.field_id for field in state.schema.fields),
        ).plan_for(self.engine.lazy_session)
        return scan.frame(spark, scan.read.groups(scan.plan.tasks, self.settings.parallelism, MIN_PARALLEL_QUERY_BYTES))

    def metadata_rows(self) -> DataFrame:
        """Return the rows of a metadata table at the requested version."""
        version = "" if self.version is None else f" VERSION AS OF {quote_string(self.version)}"
        text = f"SELECT * FROM {quote_name(self.parts)}{version}"
        statement = parse_cached(text)
        assert isinstance(statement, Query)
        return run_query(self.engine, statement, text)
