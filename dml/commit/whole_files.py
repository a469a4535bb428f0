"""Whether a filter selects whole files: then a DELETE needs no more than metadata. Driver.

Input: a table's snapshot, a filter. Output: yes or no.
Rules: yes where the filter is about identity partitions alone, in every spec, which takes no manifest to know; or where
each file with a matching row has matching rows only, by its partition or by its column metrics.
"""

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, inclusive_projection, rewrite_not, strict_projection
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType

from dml.commit.entry_reader import EntryReader
from dml.commit.file_filter import RowFilter
from dml.errors import NotFoundError
from dml.manifests import manifests_of
from dml.model.manifest import ManifestContent
from dml.model.partition_specs import is_unpartitioned
from dml.pruning.bound_expressions import optional_schema

__all__ = ["selects_whole_files"]


def selects_whole_files(table: Table, snapshot_id: int, row_filter: BooleanExpression, *, case_sensitive: bool) -> bool:
    """Whether `DeleteFiles` can delete the rows of a filter.

    Args:
        table: The table.
        snapshot_id: The snapshot that the statement reads.
        row_filter: All of its condition, as an unbound expression.
        case_sensitive: How names in the filter match.

    Raises:
        NotFoundError: the table has no such snapshot.
        CorruptFileError: a manifest is missing or broken.
        ExecutionError: the storage failed.
    """
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        name = ".".join(table.name())
        raise NotFoundError(f"The table '{name}' has no snapshot {snapshot_id}", snapshot_id=snapshot_id)
    if _selects_partitions(table.metadata, row_filter, case_sensitive=case_sensitive):
        return True
    rows = RowFilter(row_filter, table.metadata, case_sensitive=case_sensitive)
    reader = EntryReader(table.io)
    manifests = [
        manifest
        for manifest in manifests_of(table.io, snapshot)
        if manifest.content is ManifestContent.DATA and manifest.has_live_files and rows.manifest(manifest)
    ]
    return all(
        rows.must_match(entry.data_file)
        for manifest in reader.prepare(manifests)
        for entry in reader.entries(manifest)
        if entry.is_live and rows.may_match(entry.data_file)
    )


def _selects_partitions(metadata: TableMetadata, row_filter: BooleanExpression, *, case_sensitive: bool) -> bool:
    """Whether, in each spec, the partitions that may hold matching rows are those that hold no others."""
    schema = optional_schema(metadata.schema())
    used = extract_field_ids(bind(schema, rewrite_not(row_filter), case_sensitive))
    # What NaN is greater than is not told by equal projections.
    if any(isinstance(schema.find_type(field_id), (FloatType, DoubleType)) for field_id in used):
        return False
    return all(
        not is_unpartitioned(spec)
        and inclusive_projection(schema, spec, case_sensitive)(row_filter)
        == strict_projection(schema, spec, case_sensitive)(row_filter)
        for spec in metadata.specs().values()
    )
