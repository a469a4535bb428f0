"""Compute the statistics of a table: a theta sketch of the distinct values of each column. Driver.

Tasks read the live rows of a snapshot and report sketches; the driver merges them and writes a Puffin file, which is
registered in the table's metadata. Source: Iceberg's `ComputeTableStatsSparkAction` and `NDVSketchUtil`; Puffin
specification.
"""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from uuid import uuid4

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate
from pyiceberg.types import NestedField, PrimitiveType, StructType

from dml import limits
from dml.catalog.registry import ResolvedTable
from dml.catalog.translation import translate_errors
from dml.deletes.deletion_vector import Blob, PuffinWriter
from dml.engine.by_tasks import TaskJob
from dml.engine.engine import Engine, StatementSettings
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.maintenance.statistics_files import register_statistics, schema_of, snapshot_with, write_statistics_file
from dml.model.scan_task import ScanTask
from dml.model.write_task import ColumnSketches
from dml.pyiceberg_patch import VariantType
from dml.rows.theta_sketch import NOMINAL_ENTRIES, ThetaSketch
from dml.scan.table_scan import TableScan
from dml.tasks.sketch_task import SketchTask
from dml.tasks.task_input import TaskInput
from dml.write.delete_files import CREATED_BY

__all__ = ["compute_table_statistics", "find_path", "is_primitive"]

SKETCH = "apache-datasketches-theta-v1"
DISTINCT_VALUES = "ndv"
CODEC = "zstd"
HASH_BYTES = 8


def compute_table_statistics(
    engine: Engine,
    resolved: ResolvedTable,
    snapshot_id: int | None = None,
    columns: Sequence[str] | None = None,
    *,
    case_sensitive: bool = True,
) -> str | None:
    """Compute the statistics of a snapshot, and register them in place of existing ones.

    Args:
        engine: The session and its catalogs.
        resolved: The table.
        snapshot_id: The snapshot; None for the current one.
        columns: Names of columns, dotted for fields of structs; None for all columns of primitive types.
        case_sensitive: Whether the case of names matters.

    Returns:
        The location of the Puffin file; None for a table without a current snapshot.

    Raises:
        NotFoundError: There is no such snapshot.
        AnalysisError: There is no such column, or it is not of a primitive type.
        DmlError: Reading, writing or the commit failed; no file is left.
    """
    table = resolved.table
    snapshot = snapshot_with(table.metadata, snapshot_id)
    if snapshot is None:
        return None
    schema = schema_of(table, snapshot)
    fields = sketched_fields(schema, columns, case_sensitive=case_sensitive)
    with translate_errors(f"Computing the statistics of the table '{resolved.name}'", resolved.catalog):
        sketches = sketch_columns(engine, table, snapshot, schema, fields)
        written: list[PuffinWriter] = []

        def write(stream: pa.NativeFile) -> None:
            puffin = PuffinWriter(stream.write, CREATED_BY)
            for field, sketch in zip(fields, sketches, strict=True):
                puffin.write_blob(blob_of(field[-1], sketch, snapshot), pa.compress(sketch.to_bytes(), CODEC, True))
            puffin.close()
            written.append(puffin)

        location, size = write_statistics_file(table, f"{snapshot.snapshot_id}-{uuid4()}.stats", write)
        file = StatisticsFile(
            snapshot_id=snapshot.snapshot_id,
            statistics_path=location,
            file_size_in_bytes=size,
            file_footer_size_in_bytes=written[0].footer_size,
            blob_metadata=[
                RegisteredBlob(
                    type=SKETCH,
                    snapshot_id=blob.snapshot_id,
                    sequence_number=blob.sequence_number,
                    fields=list(blob.fields),
                    properties=dict(blob.properties),
                )
                for blob in written[0].blobs
            ],
        )
        register_statistics(
            resolved.catalog, table, location, SetStatisticsUpdate(statistics=file), snapshot.snapshot_id
        )
    return location


FieldPath = Sequence[NestedField]
"""A column, followed by a field of its struct, and so on, down to a field of a primitive type."""


def sketched_fields(schema: Schema, columns: Sequence[str] | None, *, case_sensitive: bool = True) -> list[FieldPath]:
    """Return the columns to sketch, each once.

    Raises:
        AnalysisError: A column does not exist or is not of a primitive type, or there is no column to sketch.
    """
    if columns is None:
        found: list[FieldPath] = [(field,) for field in schema.fields if is_primitive(field)]
    else:
        paths = [field_path(schema, name, case_sensitive=case_sensitive) for name in columns]
        found = list({path[-1].field_id: path for path in paths}.values())
    if not found:
        raise AnalysisError(
            "No columns found to compute stats",
            kind=ErrorKind.INVALID_VALUE,
            hint="Statistics are those of columns of primitive types; 'columns' names at least one",
        )
    return found


def is_primitive(field: NestedField) -> bool:
    """Return whether a column can have statistics."""
    return isinstance(field.field_type, PrimitiveType) and not isinstance(field.field_type, VariantType)


def field_path(schema: Schema, name: str, *, case_sensitive: bool) -> FieldPath:
    """Find a field by its dotted path. Names of columns and fields may contain dots themselves."""
    path = find_path(schema.fields, name, str if case_sensitive else str.lower)
    if not path:
        raise AnalysisError(
            f"Can't find column {name} in {', '.join(field.name for field in schema.fields)}",
            kind=ErrorKind.NOT_FOUND,
            hint=did_you_mean(name, [field.name for field in schema.fields]),
            column=name,
        )
    if not is_primitive(path[-1]):
        raise AnalysisError(
            f"Can't compute stats on non-primitive type column: {name} ({path[-1].field_type})",
            kind=ErrorKind.INVALID_VALUE,
            hint="Name a field of a struct by its path, such as 'place.city'",
            column=name,
        )
    return path


def find_path(fields: Sequence[NestedField], name: str, key: Callable[[str], str]) -> tuple[NestedField, ...]:
    """Return a column and the fields of structs that a dotted name leads through; empty if it names none.

    Args:
        fields: The columns.
        name: The name.
        key: Returns what is compared of names.
    """
    for field in fields:
        if key(field.name) == key(name):
            return (field,)
        if key(name).startswith(key(f"{field.name}.")) and isinstance(field.field_type, StructType):
            rest = find_path(field.field_type.fields, name[len(field.name) + 1 :], key)
            if rest:
                return (field, *rest)
    return ()


def sketch_columns(
    engine: Engine, table: Table, snapshot: Snapshot, schema: Schema, fields: Sequence[FieldPath]
) -> list[ThetaSketch]:
    """Sketch columns of the live rows of a snapshot, in tasks."""
    columns = list(dict.fromkeys(path[0].field_id for path in fields))
    scan = TableScan(table=table, snapshot_id=snapshot.snapshot_id, schema=schema, columns=tuple(columns)).plan_for(
        engine.lazy_session
    )
    sketches = [ThetaSketch() for _ in fields]
    groups = scan.read.groups(scan.plan.tasks, StatementSettings.of(engine).parallelism)
    parts = combine_groups(groups, limits.MAX_ALL_REPORT_BYTES // (len(fields) * NOMINAL_ENTRIES * HASH_BYTES))
    if not parts:
        return sketches
    task = SketchTask(input=TaskInput.of(parts, scan.context), paths=tuple(place_of(path, columns) for path in fields))
    files = [file for part in parts for file in part]
    job = TaskJob(lazy_session=engine.lazy_session, task=task, tasks=len(parts), files=files)
    for report in job.run(engine.max_failures()):
        assert isinstance(report, ColumnSketches)
        for sketch, part in zip(sketches, report.sketches, strict=True):
            sketch.merge(part)
    return sketches


def combine_groups(groups: Sequence[Sequence[ScanTask]], most: int) -> list[list[ScanTask]]:
    """Combine groups so that the reports of all tasks fit into the driver's memory."""
    count = min(len(groups), max(1, most))
    return [list(chain.from_iterable(groups[number::count])) for number in range(count)]


def place_of(path: FieldPath, columns: Sequence[int]) -> tuple[int, ...]:
    """Return the index of a column among the columns that are read, and the index of each field in its struct."""
    places = [columns.index(path[0].field_id)]
    for parent, field in pairwise(path):
        assert isinstance(parent.field_type, StructType)
        places.append([found.field_id for found in parent.field_type.fields].index(field.field_id))
    return tuple(places)


def blob_of(field: NestedField, sketch: ThetaSketch, snapshot: Snapshot) -> Blob:
    return Blob(
        type=SKETCH,
        fields=(field.field_id,),
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        properties={DISTINCT_VALUES: str(int(sketch.estimate))},
        compression_codec=CODEC,
    )
