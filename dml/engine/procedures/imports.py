"""The procedures that import files of other programs: `add_files`, `snapshot` and `migrate`. Driver.

`add_files` appends files to a table; `snapshot` creates a table that reads the files of a table of Spark. Both examine
all files before they write anything, and commit them together. Source: Iceberg's
Spark procedures (`AddFilesProcedure`, `SnapshotTableProcedure`, `MigrateTableProcedure`); decision 048.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml import ddl, limits
from dml.catalog import CommitBase, LoadState, load_table, translate_errors
from dml.catalog.registry import ResolvedTable
from dml.commit import AppendFiles, RowCounts, conservation_summary
from dml.ddl import schema_from_json
from dml.ddl.properties import check_location_is_absolute
from dml.engine.create_as_select import drop_on_failure
from dml.engine.engine import Engine, StatementSettings
from dml.engine.procedures.declaration import (
    BIGINT,
    BOOLEAN,
    DRY_RUN,
    STRING,
    STRING_MAP,
    TABLE,
    Parameter,
    Procedure,
    dry_run_rows,
)
from dml.engine.publish import Outcome, publish
from dml.engine.target import Target, writable_target
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.maintenance.import_files import (
    FORMATS,
    FolderSource,
    ImportOptions,
    ImportPlan,
    SourcePartition,
    TableSource,
    load_for_import,
    plan_import,
)
from dml.maintenance.orphan_choice import Equivalents, is_inside
from dml.model.write_task import TaskMetrics
from dml.options import FOLDER_PROPERTIES, GC_ENABLED
from dml.result import Decision
from dml.spark.session_tables import SESSION_CATALOG, SessionTable, session_partitions, session_table
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import CreateTable, Span, TableReference, TransformTerm

__all__ = ["IMPORTS"]

Row = tuple[Any, ...]
Values = Mapping[str, Any]

NO_SPAN: Final = Span(0, 0)
NO_EQUIVALENTS: Final = Equivalents.of({}, {})
IMPORTABLE: Final = frozenset({*FORMATS, "hive"})
"""The providers of tables that can be imported."""

NOT_COPIED: Final = frozenset(
    {"path", "transient_lastDdlTime", "serialization.format", "location", "provider", *FOLDER_PROPERTIES}
)
"""Properties that describe only the source of a snapshot and are not copied to the new table."""


def add_files(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Append the files of a folder, or of a table of Spark, to a table."""
    started, settings = time.perf_counter(), StatementSettings.of(engine)
    target = target_table(engine, parts, settings)
    options = import_options(values, settings)
    source = source_of(engine, values["source_table"])
    catalog, identifier = target.resolved.catalog, target.resolved.identifier
    with translate_errors(f"Importing '{values['source_table']}'", catalog):
        plan = plan_import(engine.spark, target.table, target.resolved.name, source, options, target.head)
    if values.get("dry_run", False):
        return decision_rows(plan, (len(plan.data_files), plan.changed_partitions))
    plan.check()

    def load() -> CommitBase:
        return CommitBase(table=load_table(catalog, identifier))

    if plan.data_files:
        commit_import(engine, target, plan, load, started)
    return [(len(plan.data_files), plan.changed_partitions)]


def target_table(engine: Engine, parts: tuple[str, ...], settings: StatementSettings) -> Target:
    return target_of_import(engine.registry.find(parts), parts, settings)


def target_of_import(resolved: ResolvedTable, parts: tuple[str, ...], settings: StatementSettings) -> Target:
    text = quote_name(parts)
    reference = TableReference(parts=parts, span=Span(0, len(text)))
    return writable_target(resolved, reference, text, settings, "add_files")


def import_options(values: Values, settings: StatementSettings) -> ImportOptions:
    return ImportOptions(
        partition_filter=values.get("partition_filter", {}),
        parallelism=values.get("parallelism", limits.READ_THREADS),
        ignore_missing_files=values.get("ignore_missing_files", False),
        time_zone=settings.time_zone,
    )


def commit_import(engine: Engine, target: Target, plan: ImportPlan, load: LoadState, started: float) -> None:
    """Append the files of a plan in one commit."""
    rows = sum(file.record_count for file in plan.data_files)
    planned = time.perf_counter()
    publish(
        engine,
        target,
        Outcome(
            command="ADD FILES",
            mode="append",
            metrics=TaskMetrics(rows_inserted=rows),
            started=started,
            planned=planned,
            executed=planned,
        ),
        AppendFiles(data_files=plan.data_files),
        summary=conservation_summary(RowCounts(inserted=rows)),
        load_state=load_for_import(target.table, plan, load, target.branch),
    )


def decision_rows(plan: ImportPlan, counts: tuple[int, ...]) -> list[Row]:
    """Return the rows of a dry run, with a decision for each file of the source."""
    found = (Decision(decision=str(one.decision), object=one.location, reason=one.reason) for one in plan.decisions)
    return dry_run_rows(counts, found)


# ---- sources --------------------------------------------------------------------------------------------------


def source_of(engine: Engine, text: str) -> FolderSource | TableSource:
    """Return the source that a name refers to: a folder, as in parquet.`/folder`, or a table of Spark."""
    parts = name_parts(text)
    if len(parts) == 2 and parts[0].lower() in FORMATS:
        if not parts[1].strip():
            raise AnalysisError(f"'{text}' names no folder", kind=ErrorKind.INVALID_VALUE)
        check_location_is_absolute(parts[1])
        return FolderSource(location=parts[1], file_format=parts[0].lower())
    return table_source(engine, source_table(engine, text))


def source_table(engine: Engine, text: str) -> SessionTable:
    """Return the table of Spark's session catalog that a name refers to."""
    parts = name_parts(text)
    if not parts:
        raise AnalysisError(
            "Cannot handle an empty identifier for parameter 'source_table'"
            if not text.strip()
            else f"'{text}' is not a valid name of a source",
            kind=ErrorKind.INVALID_VALUE,
            hint="Name a table of spark_catalog, or for add_files a folder: parquet.`/folder`",
        )
    if parts[0] == SESSION_CATALOG and len(parts) > 1:
        parts = parts[1:]
    elif len(parts) > 2 or (len(parts) == 2 and parts[0] in engine.registry.catalogs):
        raise AnalysisError(
            f"Cannot import a table that isn't in the session catalog (i.e. {SESSION_CATALOG}). Found source catalog: "
            f"{parts[0]}.",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Tables of other catalogs are read with INSERT INTO ... SELECT or CREATE TABLE ... AS SELECT",
        )
    if len(parts) == 1:
        catalog = engine.spark.catalog
        is_current = catalog.currentCatalog() == SESSION_CATALOG
        parts = (catalog.currentDatabase() if is_current else "default", *parts)
    return session_table(engine.spark, parts)


def table_source(engine: Engine, table: SessionTable) -> TableSource:
    if not table.file_format:
        raise NotSupportedError(
            f"Cannot import files of the provider '{table.provider}' of {table.full_name}",
            hint="Data files are Parquet, ORC or Avro: read others with INSERT INTO ... SELECT",
            table=table.full_name,
        )
    if not table.location:
        raise NotSupportedError(f"{table.full_name} has no location", table=table.full_name)
    return TableSource(
        name=table.full_name,
        location=table.location,
        file_format=table.file_format,
        partition_columns=table.partition_columns,
        partitions=tuple(
            SourcePartition(texts=tuple(zip(table.partition_columns, one.values, strict=True)), location=one.location)
            for one in session_partitions(engine.spark, table)
        ),
    )


# ---- snapshot -------------------------------------------------------------------------------------------------


def snapshot(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Create a table that reads the files of a table of Spark."""
    started, settings = time.perf_counter(), StatementSettings.of(engine)
    catalog_name, identifier = engine.registry.split(parts)
    catalog = engine.registry.catalog(catalog_name)
    table = source_table(engine, values["source_table"])
    if name_parts(values["source_table"]) == parts:
        raise AnalysisError("Cannot create a snapshot with the same name as the source of the snapshot.")
    check_source(table)
    location = values.get("location")
    if location is not None and is_same_folder(location, table.location):
        raise AnalysisError(
            "The snapshot table location cannot be same as the source table location. This would mix snapshot table "
            "files with original table files.",
            location=location,
        )
    source = table_source(engine, table)
    options = import_options(values, settings)
    statement, schema = creation(parts, table, values), schema_from_json(table.schema.json())
    dry_run = values.get("dry_run", False)

    def run(created: Table, load: Callable[[], CommitBase]) -> list[Row]:
        check_no_overlap(created.metadata.location, table.location)
        resolved = ResolvedTable(catalog_name=catalog_name, catalog=catalog, identifier=identifier, table=created)
        with translate_errors(f"Importing {table.full_name}", catalog):
            plan = plan_import(engine.spark, created, resolved.name, source, options, None)
        if dry_run:
            return decision_rows(plan, (len(plan.data_files),))
        plan.check()
        target = target_of_import(resolved, parts, settings)
        commit_import(engine, target, plan, load, started)
        return [(len(plan.data_files),)]

    load_state = ddl.stage_table(statement, catalog, identifier, schema, time_zone=settings.time_zone)
    if load_state is not None:
        return run(load_state().table, load_state)
    if dry_run:
        raise NotSupportedError(
            f"The catalog '{catalog_name}' cannot stage tables, which dry_run needs",
            hint="Use the dry_run of add_files with an existing table of the same columns",
        )
    return run_after_create(ddl.create_table(statement, catalog, identifier, schema), catalog, identifier, run)


def run_after_create(
    created: Table,
    catalog: Catalog,
    identifier: tuple[str, ...],
    run: Callable[[Table, Callable[[], CommitBase]], list[Row]],
) -> list[Row]:
    with drop_on_failure(created):
        return run(created, lambda: CommitBase(table=load_table(catalog, identifier)))


def check_source(table: SessionTable) -> None:
    """Refuse tables that an Iceberg table cannot read.

    Raises:
        NotSupportedError: The provider is not supported, or the table is bucketed or has no location.
    """
    if table.provider not in IMPORTABLE:
        raise NotSupportedError(
            f"Cannot create an Iceberg table from source provider: '{table.provider}'",
            hint="Use CREATE TABLE ... AS SELECT",
            table=table.full_name,
        )
    if not table.location:
        raise NotSupportedError(
            "Cannot create an Iceberg table from a source without an explicit location", table=table.full_name
        )
    if table.is_bucketed:
        raise NotSupportedError(
            f"Cannot create an Iceberg table from a bucketed source table: {table.full_name}",
            hint="Use CREATE TABLE ... AS SELECT: Iceberg's buckets differ from Spark's",
            table=table.full_name,
        )


def creation(parts: tuple[str, ...], table: SessionTable, values: Values) -> CreateTable:
    """Return the statement that creates the table of a snapshot."""
    copied = {key: value for key, value in table.properties.items() if key not in NOT_COPIED}
    properties = {**copied, **values.get("properties", {}), GC_ENABLED: "false", "snapshot": "true"}
    return CreateTable(
        table=TableReference(parts=parts, span=NO_SPAN),
        location=values.get("location"),
        partitioning=tuple(
            TransformTerm(transform="identity", column=(name,), argument=None, span=NO_SPAN)
            for name in table.partition_columns
        ),
        properties=tuple(properties.items()),
    )


def is_same_folder(one: str, other: str) -> bool:
    return is_inside(one, other, NO_EQUIVALENTS) and is_inside(other, one, NO_EQUIVALENTS)


def check_no_overlap(location: str, source: str) -> None:
    """Refuse a table whose folder overlaps with that of its source.

    Raises:
        AnalysisError: One is inside the other.
    """
    if is_inside(location, source, NO_EQUIVALENTS) or is_inside(source, location, NO_EQUIVALENTS):
        raise AnalysisError(
            f"Cannot create a snapshot at location {location} because it would overlap with source table location "
            f"{source}. Overlapping snapshot and source would mix table files.",
            location=location,
        )


# ---- migrate --------------------------------------------------------------------------------------------------


def migrate(_: Engine, parts: tuple[str, ...], __: Values) -> list[Row]:
    """Raise NotSupportedError: RowDelta cannot replace a table of the session catalog."""
    name = quote_name(parts)
    raise NotSupportedError(
        f"Cannot migrate {name}: it would be replaced in {SESSION_CATALOG}, which is Spark's own catalog and holds no "
        "Iceberg tables of RowDelta",
        hint="snapshot makes a table that reads its files, to try it; add_files imports them into a table for good; "
        "register_table adds an existing Iceberg table to a catalog",
        table=name,
    )


SOURCE: Final = Parameter(
    name="source_table",
    type=STRING,
    required=True,
    doc="A table of Spark, or a folder such as 'parquet.`/data/events`'",
)
PARALLELISM: Final = Parameter(name="parallelism", type=BIGINT, doc="The number of files to examine at once")
IGNORE_MISSING: Final = Parameter(
    name="ignore_missing_files", type=BOOLEAN, doc="Leave out partitions whose folder does not exist"
)
PROPERTIES: Final = Parameter(name="properties", type=STRING_MAP, doc="A property of the new table")
IMPORTS: Final = (
    Procedure(
        name="add_files",
        summary="Append the data files of a folder, or of a table of Spark, to a table.",
        parameters=(
            TABLE,
            SOURCE,
            Parameter(
                name="partition_filter",
                type=STRING_MAP,
                doc="Import the files of this partition only, such as day=2026-01-31",
            ),
            Parameter(
                name="check_duplicate_files",
                type=BOOLEAN,
                doc="Has no effect: files that the table has already are always rejected",
            ),
            PARALLELISM,
            DRY_RUN,
        ),
        columns="added_files_count bigint, changed_partition_count bigint",
        has_decisions=True,
        run=add_files,
        changes_table=True,
    ),
    Procedure(
        name="snapshot",
        summary="Create a table that reads the files of a table of Spark, to try it without changing the source.",
        parameters=(
            SOURCE,
            TABLE,
            Parameter(name="location", type=STRING, doc="The location of the new table"),
            PROPERTIES,
            PARALLELISM,
            IGNORE_MISSING,
            DRY_RUN,
        ),
        columns="imported_files_count bigint",
        has_decisions=True,
        run=snapshot,
    ),
    Procedure(
        name="migrate",
        summary="Is refused, with the ways to bring in a table of Spark.",
        parameters=(
            TABLE,
            PROPERTIES,
            Parameter(name="drop_backup", type=BOOLEAN, doc="Drop the source afterwards"),
            Parameter(name="backup_table_name", type=STRING, doc="The name of the source afterwards"),
            PARALLELISM,
            IGNORE_MISSING,
        ),
        columns="migrated_files_count bigint",
        run=migrate,
    ),
)
