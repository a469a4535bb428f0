"""Find the manifests, partitions and files that may hold rows of a filter, and the files that hold no others. Driver.

Input: an Iceberg expression, or partitions; the metadata of files in manifests. Output: True or False per file. Scans
skip files that cannot match, commits conflict with files that may match, and deletes of whole files need those whose
rows must all match. Source: Iceberg specification, "Scan Planning"; the semantics of predicates are SQL's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isnan
from typing import Any, Final
from uuid import UUID

import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StructType

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.manifests.entries import Entries, EntryArrays, Flags
from dml.manifests.entry_fields import RECORD_COUNT
from dml.manifests.write import partition_type
from dml.model.manifest import ContentFile, FileContent, ManifestFile, Partition, unpartitioned_specs
from dml.pruning.bound_expressions import optional_schema
from dml.pruning.bucket_predicate import partitions_that_may_match, partitions_that_must_match
from dml.pruning.file_bounds import file_bounds, metric_columns, partition_bounds, summary_bounds
from dml.pruning.many_files import FilesTest, any_match_of_files, files_bounds
from dml.pruning.partition_bounds import exact_type, rows_bounds
from dml.pruning.row_tests import BoundsOf, ColumnBounds, RowTest, all_match, any_match

__all__ = ["AnyFilter", "FileFilter", "PartitionSet", "Pruner"]


class Pruner:
    """Tests which files may hold rows of a filter. The filter is projected and bound once for each spec.

    Thread-safe: threads share only cached results, which are the same whichever thread computes them.

    Args:
        specs: The table's partition specs.
        schema: The schema of the filter's names.
        row_filter: An unbound expression.
        case_sensitive: Whether names match case-sensitively.
        older_schemas: The table's schemas, oldest first. They have the types of partition columns dropped since.

    Raises:
        ValueError: the filter does not fit the schema.
    """

    def __init__(
        self,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
        older_schemas: Sequence[Schema] = (),
    ) -> None:
        self.expression = row_filter
        self._case_sensitive = case_sensitive
        self._prunes = not isinstance(row_filter, AlwaysTrue)
        self._schema = optional_schema(schema)
        self._columns = metric_columns(self._schema)
        self._may = any_match(row_filter, self._schema, case_sensitive=case_sensitive)
        self._widths = {spec_id: len(spec.fields) for spec_id, spec in specs.items()}
        named = filter_columns(row_filter, self._schema, case_sensitive=case_sensitive) if specs else frozenset[int]()
        # A spec with a column that no schema has prunes nothing: its files are pruned by their metrics alone.
        self._specs = {
            spec_id: SpecPruner(spec, fields, self._schema, row_filter, named, case_sensitive=case_sensitive)
            for spec_id, spec in specs.items()
            if (fields := partition_fields(spec, (self._schema, *reversed(older_schemas)))) is not None
        }
        # Cached per partition: many files share one.
        self._partitions: dict[Partition, PartitionAnswer] = {}
        self._whole: dict[Partition, bool] = {}

    def may_list_matches(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest may list files with matching rows, or deletes for such files."""
        spec = self._specs.get(manifest.partition_spec_id)
        if not self._prunes or manifest.partitions is None or spec is None:
            return True
        return spec.may(spec.of_rows(summary_bounds(manifest.partitions, spec.fields)))

    def may_match_partition(self, spec_id: int, partition: tuple[Any, ...]) -> bool:
        """Return whether the files of a partition may hold matching rows, or deletes of such rows.

        Raises:
            ValueError: the table has no such spec, or it has another number of fields.
        """
        if len(partition) != self._widths.get(spec_id):
            raise ValueError(f"it has a file with the partition {partition}, which does not fit the spec {spec_id}")
        return not self._prunes or self._partition((spec_id, partition)).may

    def may_match(self, file: ContentFile) -> bool:
        """Return whether a file may hold matching rows, or deletes of such rows."""
        if file.record_count == 0 or not self._prunes:
            return file.record_count != 0
        partition = self._partition((file.spec_id, file.partition))
        if not partition.may:
            return False
        # Position delete files have metrics of paths and positions, not of the table's columns.
        return file.content is FileContent.POSITION_DELETES or self._may(
            file_bounds(file, self._columns, partition.identity)
        )

    def in_partitions(self, entries: Entries) -> list[int]:
        """Return the live entries in partitions that may hold matching rows, or deletes of such rows.

        Raises:
            ValueError: a live file has a partition that does not fit the table's spec.
        """
        return entries.select(partial(self.may_match_partition, entries.spec_id))

    def select_matching(self, entries: Entries) -> list[int]:
        """Return the live entries of a manifest of data files that may hold matching rows, as in `may_match`.

        Raises:
            ValueError: a live file has a partition that does not fit the table's spec.
        """
        return entries.select(partial(self.may_match_partition, entries.spec_id), self.may_match, self._may_match_of)

    def must_match(self, file: ContentFile) -> bool:
        """Return whether all rows of a file match; for a delete file, whether it can only apply to such rows."""
        key = (file.spec_id, file.partition)
        whole = self._whole.get(key)
        if whole is None:
            spec = self._specs.get(file.spec_id)
            whole = spec is not None and spec.must(spec.of_rows(partition_bounds(file.partition, spec.fields)))
            self._whole[key] = whole
        if whole:
            return True
        identity = self._partition(key).identity
        return file.content is FileContent.DATA and self._must(file_bounds(file, self._columns, identity))

    def _may_match_of(self, entries: EntryArrays, found: Flags) -> Flags:
        chosen: Flags = found & (entries.numbers(RECORD_COUNT) != 0)
        if not self._prunes or not chosen.any():
            return chosen
        identity = {
            code: self._partition((entries.spec_id, entries.partitions[code])).identity
            for code in np.unique(entries.partition_of[chosen]).tolist()
        }
        return np.asarray(chosen & self._may_of_files(files_bounds(entries, self._columns, identity)))

    @cached_property
    def _may_of_files(self) -> FilesTest:
        return any_match_of_files(self.expression, self._schema, case_sensitive=self._case_sensitive)

    @cached_property
    def _must(self) -> RowTest:
        # Built on demand: most pruners never need it, and a filter may list many values.
        return all_match(self.expression, self._schema, case_sensitive=self._case_sensitive)

    def _partition(self, key: Partition) -> "PartitionAnswer":
        found = self._partitions.get(key)
        if found is None:
            spec = self._specs.get(key[0])
            found = self._partitions[key] = UNDECIDED if spec is None else spec.answer(key[1])
        return found


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The result of a filter for one partition.

    Attributes:
        may: True if its files may hold matching rows.
        identity: Bounds, by column id, of the filter's columns that the partition fixes to one value.
    """

    may: bool
    identity: Mapping[int, ColumnBounds]


UNDECIDED: Final = PartitionAnswer(True, {})


class SpecPruner:
    """Tests a filter on the partitions of one spec.

    Args:
        spec: The spec.
        fields: Its partition type.
        schema: The schema of the filter's names.
        row_filter: The filter.
        named: Ids of the columns that the filter names.
        case_sensitive: Whether names match case-sensitively.
    """

    def __init__(
        self,
        spec: PartitionSpec,
        fields: StructType,
        schema: Schema,
        row_filter: BooleanExpression,
        named: frozenset[int],
        *,
        case_sensitive: bool,
    ) -> None:
        self.fields = fields
        sources = {
            field.field_id: (field.transform, schema.find_type(field.source_id))
            for field in spec.fields
            if field.source_id in named
        }
        # Other partition fields are not compared, so they keep their types.
        self._partitions = Schema(
            *(
                NestedField(field.field_id, field.name, exact_type(*sources[field.field_id]), required=False)
                if field.field_id in sources
                else field
                for field in fields.fields
            )
        )
        projected = partitions_that_may_match(row_filter, schema, spec, case_sensitive=case_sensitive)
        self.may = any_match(projected, self._partitions, case_sensitive=True)
        self._strict = (schema, spec, case_sensitive, row_filter)
        self._identity = {
            field.source_id: field.field_id
            for field in spec.fields
            if isinstance(field.transform, IdentityTransform) and field.source_id in named
        }
        converters = {field_id: rows_bounds(*found) for field_id, found in sources.items()}
        self._rows_bounds = {field_id: convert for field_id, convert in converters.items() if convert is not None}

    def of_rows(self, bounds: BoundsOf) -> BoundsOf:
        """Convert bounds of partition values to bounds of their rows, for values of any writer."""
        converters = self._rows_bounds
        if not converters:
            return bounds

        def bounds_of(field_id: int) -> ColumnBounds:
            convert, found = converters.get(field_id), bounds(field_id)
            return found if convert is None else convert(found)

        return bounds_of

    @cached_property
    def must(self) -> RowTest:
        """The test of whether partitions hold matching rows only."""
        schema, spec, case_sensitive, row_filter = self._strict
        strict = partitions_that_must_match(row_filter, schema, spec, case_sensitive=case_sensitive)
        return all_match(strict, self._partitions, case_sensitive=True)

    def answer(self, partition: tuple[Any, ...]) -> PartitionAnswer:
        """Test the filter on a partition."""
        bounds = partition_bounds(partition, self.fields)
        identity = {source_id: bounds(field_id) for source_id, field_id in self._identity.items()}
        return PartitionAnswer(self.may(self.of_rows(bounds)), identity)


def filter_columns(row_filter: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> frozenset[int]:
    """Return the ids of the columns that a filter names."""
    return frozenset(extract_field_ids(bind(schema, row_filter, case_sensitive)))


def partition_fields(spec: PartitionSpec, schemas: Iterable[Schema]) -> StructType | None:
    """Return the type of a spec's partitions; None if one of its columns is in no schema."""
    by_age = tuple(schemas)
    fields = []
    for field in spec.fields:
        source = next((one.find_type(field.source_id) for one in by_age if field.source_id in one.field_ids), None)
        if source is None:
            return None
        fields.append(NestedField(field.field_id, field.name, field.transform.result_type(source), required=False))
    return StructType(*fields)


class PartitionSet:
    """Selects the files of some partitions.

    Args:
        partitions: Spec ids and partition tuples.
        metadata: The table.
        with_global_deletes: True to select the manifests of unpartitioned specs too, whose equality deletes apply to
            every partition.
    """

    def __init__(
        self, partitions: Iterable[Partition], metadata: TableMetadata, *, with_global_deletes: bool = False
    ) -> None:
        by_key = {partition_key(*partition): partition for partition in partitions}
        self._keys = frozenset(by_key)
        self._by_spec: dict[int, list[tuple[Any, ...]]] = {}
        for spec_id, partition in by_key.values():
            self._by_spec.setdefault(spec_id, []).append(partition)
        specs = metadata.specs()
        self._global = frozenset(unpartitioned_specs(specs)) if with_global_deletes else frozenset[int]()
        self._fields = {
            spec_id: partition_type(specs[spec_id], metadata) for spec_id in self._by_spec if spec_id in specs
        }

    def may_list_matches(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest may list files of these partitions."""
        partitions = self._by_spec.get(manifest.partition_spec_id)
        if manifest.partition_spec_id in self._global:
            return True
        if not partitions:
            return False
        if manifest.partitions is None or len(partitions) > limits.MAX_PRUNING_PARTITIONS:
            return True
        fields = self._fields[manifest.partition_spec_id]
        summaries = summary_bounds(manifest.partitions, fields)
        return any(may_contain(summaries, fields, partition) for partition in partitions)

    def may_match(self, file: ContentFile) -> bool:
        """Return whether a file is in one of the partitions."""
        return partition_key(file.spec_id, file.partition) in self._keys


def may_contain(summaries: BoundsOf, fields: StructType, partition: tuple[Any, ...]) -> bool:
    return all(within(summaries(field.field_id), value) for field, value in zip(fields.fields, partition, strict=True))


def within(bounds: ColumnBounds, value: Any) -> bool:
    if value is None:
        return bounds.nulls
    if isinstance(value, float) and isnan(value):
        return bounds.nans
    if isinstance(value, UUID):
        value = value.bytes  # the form of its bounds
    return bounds.values and (
        (bounds.lower is None or bool(bounds.lower <= value)) and (bounds.upper is None or bool(bounds.upper >= value))
    )


@dataclass(frozen=True, slots=True)
class AnyFilter:
    """Selects the files that at least one of several filters selects.

    Attributes:
        filters: The filters.
    """

    filters: "tuple[FileFilter, ...]"

    def may_list_matches(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest may list such files."""
        return any(one.may_list_matches(manifest) for one in self.filters)

    def may_match(self, file: ContentFile) -> bool:
        """Return whether a filter may select a file."""
        return any(one.may_match(file) for one in self.filters)


FileFilter = Pruner | PartitionSet | AnyFilter
"""Selects the files that concern a commit: by rows, by partitions, or by either."""
