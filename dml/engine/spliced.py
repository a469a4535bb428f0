"""Data files of which most columns are copied: which statements make them, and their metrics. Driver.

Copied columns have the metrics that the old file's manifest entry has: the worker does not know them, and what a footer
says is less (it counts no NaNs, and other writers cut values). Spec: "Manifests", fields 108 to 128 and 140.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import BinaryType, FixedType, IcebergType, StringType

from dml.engine.writes import WriteOutcome
from dml.manifests.read import entries_of, manifests_of
from dml.model.columns import RowOperation
from dml.model.manifest import ContentFile
from dml.model.write_task import SplicedDataFile, WriteContext
from dml.options import RowLevelOperationMode, WriteOptions
from dml.plan.row_delta_plan import RowDeltaPlan
from dml.scan.planner import ScanPlan
from dml.write.column_metrics import MetricsMode, leaves, metrics_modes

__all__ = ["deletes_rows", "splices", "with_copied_metrics"]


def splices(plan: RowDeltaPlan, mode: RowLevelOperationMode, table: Table, options: WriteOptions) -> bool:
    """Whether a statement leaves the rows that stay in the order of their files.

    Args:
        plan: The statement.
        mode: Its mode.
        table: The table.
        options: The table's properties.
    """
    return (
        mode is not RowLevelOperationMode.MERGE_ON_READ
        and options.splice_enabled
        and options.file_format == "parquet"
        and not plan.inserts
        and placing_columns(table).isdisjoint(plan.assigned_ids)
    )


def deletes_rows(plan: RowDeltaPlan) -> bool:
    """Whether a statement may delete rows."""
    return any(clause.operation is RowOperation.DELETE for clause in plan.query.clauses)


def placing_columns(table: Table) -> frozenset[int]:
    """The columns that decide in which file a row is, and where: those of the partition spec and of sort orders."""
    sources = {field.source_id for field in table.spec().fields if not isinstance(field.transform, VoidTransform)}
    sources.update(field.source_id for order in table.sort_orders().values() for field in order.fields)
    columns = table.schema().fields
    return frozenset(columns[leaf.path[0]].field_id for leaf in leaves(columns) if leaf.field.field_id in sources)


def with_copied_metrics(outcome: WriteOutcome, table: Table, scan: ScanPlan, context: WriteContext) -> WriteOutcome:
    """What tasks wrote, with the metrics and the sort order that copied columns have had.

    Raises:
        CorruptFileError: a manifest is missing or broken.
        ExecutionError: the storage failed.
    """
    if not outcome.spliced_files:
        return outcome
    entries = entries_by_path(table, scan, {file.replaces for file in outcome.spliced_files})
    schema = Schema.model_validate_json(context.schema_json)
    sorted_ids = [field.source_id for field in table.sort_order().fields]
    modes = metrics_modes(schema, context.properties, sorted_ids)
    spliced = {file.path: file for file in outcome.spliced_files}
    return replace(
        outcome,
        data_files=tuple(
            copied_metrics(file, spliced[file.path], entries[spliced[file.path].replaces], modes, schema)
            if file.path in spliced
            else file
            for file in outcome.data_files
        ),
    )


def entries_by_path(table: Table, scan: ScanPlan, paths: Collection[str]) -> dict[str, ContentFile]:
    """The manifest entries of some data files of a scan; no manifest is decoded further than to the last of them."""
    snapshot = None if scan.snapshot_id is None else table.snapshot_by_id(scan.snapshot_id)
    wanted: dict[str, set[str]] = {}
    for path in paths:
        wanted.setdefault(scan.data_manifests[path], set()).add(path)
    found: dict[str, ContentFile] = {}
    for manifest in manifests_of(table.io, snapshot):
        missing = wanted.get(manifest.manifest_path, set())
        for entry in entries_of(manifest, table.io, live_only=True) if missing else ():
            if entry.data_file.path in missing:
                missing.remove(entry.data_file.path)
                found[entry.data_file.path] = entry.data_file
            if not missing:
                break
    return found


COUNTS = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")


def copied_metrics(
    file: ContentFile,
    spliced: SplicedDataFile,
    entry: ContentFile,
    modes: Mapping[int, MetricsMode],
    schema: Schema,
) -> ContentFile:
    """A new file with the metrics of the old one for the columns that were copied.

    What the old one has not, because the table's properties were others then, is left as the footer has it; what the
    properties do not want any more is left out.

    Args:
        file: The new file; its metrics come from its footer.
        spliced: What was copied.
        entry: The old file.
        modes: The metrics modes of the table's fields.
        schema: The table's schema.
    """
    wanted = {field_id: modes[field_id] for field_id in spliced.copied_ids if field_id in modes}
    counted = [field_id for field_id, mode in wanted.items() if mode.counts]
    bounded = [field_id for field_id in counted if wanted[field_id].bounds]
    values: dict[str, Any] = {name: merged(getattr(file, name), getattr(entry, name), counted) for name in COUNTS}
    for name in BOUNDS:
        old: Mapping[int, bytes] = getattr(entry, name)
        fitting = [
            field_id
            for field_id in bounded
            if field_id in old and fits(old[field_id], schema.find_type(field_id), wanted[field_id].length)
        ]
        values[name] = merged(getattr(file, name), old, fitting)
    values["nan_value_counts"].update(changed_nans(spliced, entry, modes))
    return replace(file, sort_order_id=entry.sort_order_id, **values)


def changed_nans(
    spliced: SplicedDataFile, entry: ContentFile, modes: Mapping[int, MetricsMode]
) -> Iterator[tuple[int, int]]:
    """The NaNs of columns that are new in a part of the file, where they can be known: field ids and numbers."""
    for field_id, new in spliced.new_nans.items():
        before = entry.nan_value_counts.get(field_id)
        if before is None or field_id not in modes or not modes[field_id].counts:
            continue
        if spliced.old_nans is not None and before >= spliced.old_nans.get(field_id, 0):
            yield field_id, before - spliced.old_nans.get(field_id, 0) + new
        elif not before:
            yield field_id, new


def merged(new: Mapping[int, Any], old: Mapping[int, Any], ids: Iterable[int]) -> dict[int, Any]:
    """A map of metrics with those of the old file for some columns, as far as it has them."""
    return {**new, **{field_id: old[field_id] for field_id in ids if field_id in old}}


def fits(bound: bytes, field_type: IcebergType, length: int | None) -> bool:
    """Whether a bound is not longer than bounds are to be."""
    if length is None or not isinstance(field_type, StringType | BinaryType | FixedType):
        return True
    return len(bound.decode("utf-8", "replace") if isinstance(field_type, StringType) else bound) <= length
