"""Which manifests and files hold rows of a filter, or files of some partitions. Driver.

Input: an Iceberg expression, or partitions; the table's metadata. Output: answers about manifests and files.
Source: Iceberg specification, "Scan Planning"; the semantics of predicates are SQL's, as in a scan.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan
from typing import Any, Final, Protocol

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, inclusive_projection, strict_projection
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StructType

from dml.deletes.delete_file_index import partition_key
from dml.errors import CommitConflictError
from dml.manifests.write import partition_type
from dml.model.manifest import ContentFile, FileContent, ManifestFile, Partition, unpartitioned_specs
from dml.pruning.bound_expressions import optional_schema
from dml.pruning.file_bounds import file_bounds, metric_columns, partition_bounds, summary_bounds
from dml.pruning.filter_text import filter_text
from dml.pruning.row_tests import BoundsOf, ColumnBounds, RowTest, all_match, any_match

__all__ = ["AnyOf", "FileFilter", "PartitionSet", "RowFilter"]

# Testing each manifest against more partitions than this costs more than opening it.
MOST_PARTITIONS: Final = 500


class FileFilter(Protocol):
    """Says which files a commit is about: `RowFilter` by rows, `PartitionSet` by partitions, `AnyOf` by either."""

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether the manifest may list such files."""

    def may_match(self, file: ContentFile) -> bool:
        """Whether the file may be one."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The files of several filters.

    Attributes:
        filters: The filters.
    """

    filters: tuple[FileFilter, ...]

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list files of one of them."""
        return any(one.manifest(manifest) for one in self.filters)

    def may_match(self, file: ContentFile) -> bool:
        """Whether a file may be one of one of them."""
        return any(one.may_match(file) for one in self.filters)


class RowFilter:
    """The files that hold rows of a filter.

    Args:
        expression: The filter, unbound.
        metadata: The table: its current schema, all its specs.
        case_sensitive: How names in the filter match.
        named_by: The schema whose names they are; None for the current one.

    Raises:
        CommitConflictError: a name of the filter is not in the schema any more, or means another column now.
    """

    def __init__(
        self,
        expression: BooleanExpression,
        metadata: TableMetadata,
        *,
        case_sensitive: bool,
        named_by: Schema | None = None,
    ) -> None:
        self.expression = expression
        self._metadata = metadata
        self._case_sensitive = case_sensitive
        self._schema = optional_schema(metadata.schema())
        self._columns = metric_columns(self._schema)
        self._specs: dict[int, SpecTests] = {}
        if named_by is not None:
            check_names(expression, named_by, metadata.schema(), case_sensitive=case_sensitive)
        try:
            self._may = any_match(expression, self._schema, case_sensitive=case_sensitive)
            self._must = all_match(expression, self._schema, case_sensitive=case_sensitive)
        except ValueError as error:
            raise outdated(expression, str(error)) from error

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list files with matching rows, or deletes for such files."""
        if manifest.partitions is None:
            return True
        spec = self._spec(manifest.partition_spec_id)
        return spec.may(summary_bounds(manifest.partitions, spec.fields))

    def may_match(self, file: ContentFile) -> bool:
        """Whether a file may hold matching rows, or deletes of such rows."""
        spec = self._spec(file.spec_id)
        if file.record_count == 0 or not spec.may(partition_bounds(file.partition, spec.fields)):
            return False
        # The metrics of position deletes are about paths and positions.
        return file.content is FileContent.POSITION_DELETES or self._may(self._known(file, spec))

    def must_match(self, file: ContentFile) -> bool:
        """Whether all rows of a file match; of a delete file, whether it can only apply to such rows."""
        spec = self._spec(file.spec_id)
        if spec.must(partition_bounds(file.partition, spec.fields)):
            return True
        return file.content is FileContent.DATA and self._must(self._known(file, spec))

    def _known(self, file: ContentFile, spec: "SpecTests") -> BoundsOf:
        """What metrics tell, and of identity partition columns their one value."""
        metrics, partition = file_bounds(file, self._columns), partition_bounds(file.partition, spec.fields)
        identity = spec.identity
        return lambda field_id: partition(identity[field_id]) if field_id in identity else metrics(field_id)

    def _spec(self, spec_id: int) -> "SpecTests":
        """The filter as it looks in a spec's partitions: made for the specs that are met."""
        if spec_id not in self._specs:
            spec = self._metadata.specs()[spec_id]
            fields = partition_type(spec, self._metadata)
            partitions = Schema(*fields.fields)
            inclusive = inclusive_projection(self._schema, spec, self._case_sensitive)(self.expression)
            strict = strict_projection(self._schema, spec, self._case_sensitive)(self.expression)
            self._specs[spec_id] = SpecTests(
                fields=fields,
                identity={
                    field.source_id: field.field_id
                    for field in spec.fields
                    if isinstance(field.transform, IdentityTransform)
                },
                may=any_match(inclusive, partitions, case_sensitive=True),
                must=all_match(strict, partitions, case_sensitive=True),
            )
        return self._specs[spec_id]


def check_names(expression: BooleanExpression, then: Schema, now: Schema, *, case_sensitive: bool) -> None:
    """Names of columns can be exchanged: each has to mean what it meant."""
    for field_id in extract_field_ids(bind(then, expression, case_sensitive)):
        name = then.find_column_name(field_id)
        if name != (now.find_column_name(field_id) if field_id in now.field_ids else None):
            raise outdated(expression, f"the column {name} was dropped or renamed")


def outdated(expression: BooleanExpression, reason: str) -> CommitConflictError:
    return CommitConflictError(
        f"The filter {filter_text(expression)} does not fit the table's schema any more: {reason}",
        hint="The schema was changed meanwhile: run the statement again",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecTests:
    """A filter in the partitions of one spec.

    Attributes:
        fields: The spec's partition type.
        identity: Partition fields that are a column as it is: column id to partition field id.
        may: Whether a partition may hold matching rows.
        must: Whether it holds no others.
    """

    fields: StructType
    identity: dict[int, int]
    may: RowTest
    must: RowTest


class PartitionSet:
    """The files of some partitions.

    Args:
        partitions: Spec ids and partition tuples.
        metadata: The table.
        with_global_deletes: Also the manifests of specs without partitions: an equality delete there applies to all.
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

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list files of these partitions."""
        partitions = self._by_spec.get(manifest.partition_spec_id)
        if manifest.partition_spec_id in self._global:
            return True
        if not partitions:
            return False
        if manifest.partitions is None or len(partitions) > MOST_PARTITIONS:
            return True
        fields = self._fields[manifest.partition_spec_id]
        summaries = summary_bounds(manifest.partitions, fields)
        return any(may_contain(summaries, fields, partition) for partition in partitions)

    def may_match(self, file: ContentFile) -> bool:
        """Whether a file lies in one of the partitions."""
        return partition_key(file.spec_id, file.partition) in self._keys


def may_contain(summaries: BoundsOf, fields: StructType, partition: tuple[Any, ...]) -> bool:
    return all(within(summaries(field.field_id), value) for field, value in zip(fields.fields, partition, strict=True))


def within(bounds: ColumnBounds, value: Any) -> bool:
    if value is None:
        return bounds.nulls
    if isinstance(value, float) and isnan(value):
        return bounds.nans
    return bounds.values and (
        (bounds.lower is None or bool(bounds.lower <= value)) and (bounds.upper is None or bool(bounds.upper >= value))
    )
