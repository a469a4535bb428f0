"""Metrics of spliced data files: those of copied columns come from the replaced file's manifest entry. Driver.

Input: new data files, and which of their columns are copied. Output: the new files with complete metrics. The worker
knows only the footer, which has less: it counts no NaNs, and other writers truncate values. Spec: "Manifests", fields
108 to 128 and 140.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, FixedType, IcebergType, StringType

from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile
from dml.model.write_task import SplicedDataFile, WriteContext
from dml.write.column_metrics import MetricsMode, metrics_modes

__all__ = ["copied_metrics", "with_copied_metrics"]


def with_copied_metrics(
    files: Sequence[ContentFile],
    spliced_files: Sequence[SplicedDataFile],
    table: Table,
    snapshot_id: int | None,
    data_manifests: Mapping[str, str],
    context: WriteContext,
) -> tuple[ContentFile, ...]:
    """Return new data files, the spliced ones with the metrics and the sort order of their copied columns.

    Args:
        files: The new files.
        spliced_files: Those that were spliced.
        table: The table.
        snapshot_id: The snapshot that was read.
        data_manifests: The manifest of each data file that was read.
        context: The write.

    Raises:
        CorruptFileError: a manifest is missing or broken.
        ExecutionError: the storage failed.
    """
    if not spliced_files:
        return tuple(files)
    replaced = {file.replaces for file in spliced_files}
    entries = entries_by_path(table, snapshot_id, {path: data_manifests[path] for path in replaced})
    schema = Schema.model_validate_json(context.schema_json)
    sorted_ids = [field.source_id for field in table.sort_order().fields]
    modes = metrics_modes(schema, context.properties, sorted_ids)
    spliced = {file.path: file for file in spliced_files}
    return tuple(
        copied_metrics(file, spliced[file.path], entries[spliced[file.path].replaces], modes, schema)
        if file.path in spliced
        else file
        for file in files
    )


def entries_by_path(table: Table, snapshot_id: int | None, manifests: Mapping[str, str]) -> dict[str, ContentFile]:
    """Return the manifest entries of data files; each manifest is decoded up to the last of them only.

    Args:
        table: The table.
        snapshot_id: The snapshot that has the files.
        manifests: The manifest of each file, by the file's path.
    """
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    wanted: dict[str, set[str]] = {}
    for path, manifest_path in manifests.items():
        wanted.setdefault(manifest_path, set()).add(path)
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


COUNTS: Final = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")


def copied_metrics(
    file: ContentFile,
    spliced: SplicedDataFile,
    entry: ContentFile,
    modes: Mapping[int, MetricsMode],
    schema: Schema,
) -> ContentFile:
    """Return a new file with the metrics of the old one for the columns that were copied.

    Metrics that the old entry lacks, because the table's properties differed then, stay as in the footer; metrics that
    the properties no longer ask for are dropped.

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
    """Yield the NaN counts of columns that are new in a part of the file, by field id, as far as they are certain."""
    for field_id, new in spliced.new_nans.items():
        before = entry.nan_value_counts.get(field_id)
        if before is None or field_id not in modes or not modes[field_id].counts:
            continue
        if spliced.old_nans is not None and before >= spliced.old_nans.get(field_id, 0):
            yield field_id, before - spliced.old_nans.get(field_id, 0) + new
        elif not before:
            yield field_id, new


def merged(new: Mapping[int, Any], old: Mapping[int, Any], ids: Iterable[int]) -> dict[int, Any]:
    """Overwrite some columns' metrics with those of the old file, as far as it has them."""
    return {**new, **{field_id: old[field_id] for field_id in ids if field_id in old}}


def fits(bound: bytes, field_type: IcebergType, length: int | None) -> bool:
    """Return whether a bound respects the length that the metrics mode allows."""
    if length is None or not isinstance(field_type, StringType | BinaryType | FixedType):
        return True
    return len(bound.decode("utf-8", "replace") if isinstance(field_type, StringType) else bound) <= length
