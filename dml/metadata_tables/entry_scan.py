"""Rows of `files`, `entries` and similar tables: manifests as record batches. Worker-safe.

Input: an `EntryScan`, manifests. Output: record batches of the projected columns. Predicates on partition, content
and spec prune manifests and rows; Spark evaluates the whole filter again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from dml.files.file_io import file_io
from dml.manifests.entries import EntryArrays, EvenMaps, RaggedMaps
from dml.manifests.entry_fields import CONTENT, DATA_FILE, FILE_FORMAT, MAP_TYPES, PARTITION, STATUS
from dml.manifests.read_arrays import read_arrays
from dml.metadata_tables.readable_metrics import METRIC_IDS, readable_metrics
from dml.metadata_tables.values import value_array
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile
from dml.pruning.bound_expressions import optional_schema
from dml.pruning.file_bounds import summary_bounds, value_bounds
from dml.pruning.row_tests import Bounds, BoundsOf, RowTest, any_match
from dml.read.projection import arrow_type
from dml.tasks.task_input import TaskInput

__all__ = ["SPEC_ID", "EntriesTask", "EntryReader", "EntryScan", "PartitionTest", "transpose_partitions"]

SPEC_ID = 141
UNKNOWN = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryScan:
    """The settings that all tasks of an entry scan share.

    Attributes:
        schema_json: The metadata table's schema (Iceberg JSON).
        columns: The names of the columns to read, in order.
        metrics_json: The table's columns with readable metrics, as a struct type (Iceberg JSON).
        live_only: Leave out entries with status DELETED.
        row_filter: An unbound expression; rows for which it is not TRUE may be left out. None for all rows.
        case_sensitive: How names in the filter match.
        io_properties: Properties of the FileIO. They may hold credentials and are never printed.
    """

    schema_json: str
    columns: tuple[str, ...]
    metrics_json: str
    live_only: bool
    row_filter: Any = None
    case_sensitive: bool = False
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)


class PartitionTest:
    """Tests if files of a manifest or a partition may match a filter.

    Args:
        schema: The metadata table's schema.
        row_filter: An unbound expression; None for all rows.
        case_sensitive: How names in the filter match.
    """

    def __init__(self, schema: Schema, row_filter: Any, *, case_sensitive: bool) -> None:
        self.prunes = row_filter is not None and not isinstance(row_filter, AlwaysTrue)
        expression = row_filter if self.prunes else AlwaysTrue()
        self.test: RowTest = any_match(expression, optional_schema(schema), case_sensitive=case_sensitive)
        self.partition_ids = frozenset(found.field_id for found in partition_type(schema).fields)

    def may_list_matches(self, manifest: ManifestFile, partition: StructType) -> bool:
        """Return True if a manifest may list matching files.

        Args:
            manifest: The entry of the manifest list.
            partition: The partition type of the manifest's spec.
        """
        if not self.prunes:
            return True
        contents = (0, 0) if manifest.content is ManifestContent.DATA else (1, 2)
        of_partition = (
            summary_bounds(manifest.partitions, partition) if manifest.partitions is not None else unknown_bounds
        )
        return self.test(self.bounds(of_partition, partition, manifest.partition_spec_id, contents))

    def may_match(self, values: Sequence[Any], partition: StructType, spec_id: int, content: int) -> bool:
        """Return True if a file with this partition, spec and content may match."""
        known = {found.field_id: value_bounds(value) for found, value in zip(partition.fields, values, strict=True)}
        return self.test(
            self.bounds(lambda field_id: known.get(field_id, UNKNOWN), partition, spec_id, (content, content))
        )

    def bounds(
        self, of_partition: BoundsOf, partition: StructType, spec_id: int, contents: tuple[int, int]
    ) -> BoundsOf:
        """Return the bounds that the metadata proves; a partition field that the spec lacks is null."""
        own = {found.field_id for found in partition.fields}
        known = {
            CONTENT: Bounds(lower=contents[0], upper=contents[1], nulls=False, nans=False),
            SPEC_ID: value_bounds(spec_id),
        }

        def bounds_of(field_id: int) -> Any:
            if field_id in self.partition_ids:
                return of_partition(field_id) if field_id in own else value_bounds(None)
            return known.get(field_id, UNKNOWN)

        return bounds_of


def unknown_bounds(_: int) -> Bounds:
    return UNKNOWN


def partition_type(schema: Schema) -> StructType:
    """Return the unified partition type of a metadata table's schema, empty without one."""
    kind = schema.find_type(PARTITION) if PARTITION in schema.field_ids else None
    return kind if isinstance(kind, StructType) else StructType()


class EntryReader:
    """Reads manifests as record batches.

    Args:
        scan: The columns and rows to read.
        io_of: Returns the FileIO of a location.
    """

    def __init__(self, scan: EntryScan, io_of: Callable[[str], FileIO]) -> None:
        schema = Schema.model_validate_json(scan.schema_json)
        self.scan = scan
        self.io_of = io_of
        self.fields = tuple(schema.find_field(name) for name in scan.columns)
        self.partition = partition_type(schema)
        self.metrics = StructType.model_validate_json(scan.metrics_json).fields
        self.tests = PartitionTest(schema, scan.row_filter, case_sensitive=scan.case_sensitive)
        self.schema = pa.schema([arrow_field_of(found) for found in self.fields])
        inner = [part for found in self.fields if found.field_id == DATA_FILE for part in struct_fields(found)]
        # Cached: converting a type takes longer than building a column of few files.
        self.arrow_fields = {found.field_id: arrow_field_of(found) for found in (*self.fields, *inner)}
        self.partition_fields = [arrow_field_of(found) for found in self.partition.fields]
        self.wanted = self.wanted_ids()

    def wanted_ids(self) -> frozenset[int]:
        """Return the ids of the manifest fields that the scan reads."""
        ids: set[int] = set()
        for found in self.fields:
            inner = struct_fields(found) if found.field_id == DATA_FILE else ()
            ids |= {found.field_id, *(part.field_id for part in inner)}
            if is_metrics(found):
                ids |= set(METRIC_IDS)
        return frozenset(ids | ({PARTITION} if self.tests.prunes else set()))

    def batches(self, manifests: Sequence[ManifestFile]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of manifests.

        Raises:
            CorruptFileError: a manifest is missing or damaged.
            ExecutionError: the storage failed.
        """
        for entries in read_arrays(manifests, self.io_of, self.wanted):
            arrays = [self.array(found, entries) for found in self.fields]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            kept = self.kept_rows(entries)
            yield batch if kept is None else batch.filter(kept)

    def kept_rows(self, entries: EntryArrays) -> pa.Array | None:
        """Return the mask of rows that the scan keeps, or None if it keeps all."""
        keep = np.ones(entries.size, bool)
        if self.scan.live_only:
            keep &= entries.numbers(STATUS) != EntryStatus.DELETED
        if self.tests.prunes:
            keep &= self.matching_rows(entries)
        return None if keep.all() else pa.array(keep)

    def matching_rows(self, entries: EntryArrays) -> Any:
        """Return the mask of rows that may match; each distinct partition is tested once."""
        known: dict[tuple[int, int], bool] = {}
        found = []
        for key in zip(entries.partition_of.tolist(), entries.values(CONTENT), strict=True):
            if key not in known:
                code, content = key
                known[key] = self.tests.may_match(
                    entries.partitions[code], entries.partition_type, entries.spec_id, content
                )
            found.append(known[key])
        return np.array(found, bool)

    def array(self, found: NestedField, entries: EntryArrays) -> pa.Array:
        """Build one column."""
        field_id, rows = found.field_id, entries.size
        kind = self.arrow_fields[field_id].type
        if is_metrics(found):
            return readable_metrics(self.metrics, entries.maps, rows).cast(kind)
        if field_id == DATA_FILE:
            inner = struct_fields(found)
            return pa.StructArray.from_arrays(
                [self.array(part, entries) for part in inner],
                fields=[self.arrow_fields[part.field_id] for part in inner],
            )
        if field_id == SPEC_ID:
            return pa.repeat(pa.scalar(entries.spec_id, pa.int32()), rows)
        if field_id == PARTITION:
            return self.partition_array(entries)
        if field_id in MAP_TYPES:
            return map_array(entries.maps[field_id], kind)
        column = entries.columns[field_id]
        if field_id == FILE_FORMAT:
            column = pc.utf8_upper(column.cast(pa.string()))
        return cast_if_needed(column, kind)

    def partition_array(self, entries: EntryArrays) -> pa.StructArray:
        """Convert each distinct partition tuple to a struct once, then take it for each entry."""
        fields = self.partition.fields
        columns = transpose_partitions(entries.partitions, entries.partition_type, self.partition)
        arrays = [value_array(values, found.field_type) for values, found in zip(columns, fields, strict=True)]
        distinct = pa.StructArray.from_arrays(
            arrays, fields=self.partition_fields, mask=pa.array([False] * len(entries.partitions))
        )
        return distinct.take(pa.array(entries.partition_of))


def transpose_partitions(tuples: Sequence[Sequence[Any]], own: StructType, target: StructType) -> list[list[Any]]:
    """Transpose the partition tuples of one spec into columns, one per field of all specs.

    Args:
        tuples: The tuples.
        own: The partition type of the tuples.
        target: The fields of all specs.

    Raises:
        ValueError: A tuple has the wrong number of fields.
    """
    places = {found.field_id: place for place, found in enumerate(own.fields)}
    columns = []
    for found in target.fields:
        place = places.get(found.field_id)
        columns.append([None] * len(tuples) if place is None else [values[place] for values in tuples])
    return columns


def struct_fields(found: NestedField) -> tuple[NestedField, ...]:
    return found.field_type.fields if isinstance(found.field_type, StructType) else ()


def is_metrics(found: NestedField) -> bool:
    return found.name == "readable_metrics"


def arrow_field_of(found: NestedField) -> pa.Field:
    return pa.field(found.name, arrow_type(found.field_type, spark=True))


def map_array(maps: RaggedMaps | EvenMaps, kind: pa.MapType) -> pa.MapArray:
    """Convert maps to an array with null for files without a map."""
    sizes, keys = maps.sizes_and_keys()
    ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
    offsets = pa.array(ends, pa.int32(), mask=np.append(maps.absent, False))
    values = cast_if_needed(maps.values, kind.item_type)
    return cast_if_needed(pa.MapArray.from_arrays(offsets, pa.array(keys, kind.key_type), values), kind)


def cast_if_needed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column unless it has the type: even a no-op cast takes longer than building a column of few files."""
    return column if column.type.equals(kind) else column.cast(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesTask:
    """Reads manifests in a Spark task. Picklable.

    Attributes:
        input: Groups of `ManifestFile`s, with an `EntryScan`.
    """

    input: TaskInput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task's groups."""
        scan: EntryScan = self.input.context
        reader = EntryReader(scan, lambda location: file_io(scan.io_properties, location))
        for manifests in self.input.groups(batches):
            yield from reader.batches(manifests)
