"""What cannot match a scan's filter: manifests, partitions and data files. Driver.

Input: an Iceberg expression; what manifests tell. Output: whether rows may match. Spec: "Scan Planning".
"""

from collections.abc import Mapping
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import inclusive_projection
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from dml.model.manifest import ContentFile, ManifestFile
from dml.pruning.bound_expressions import optional_schema
from dml.pruning.file_bounds import file_bounds, metric_columns, partition_bounds, summary_bounds
from dml.pruning.row_tests import any_match

__all__ = ["Pruner"]


class Pruner:
    """Decides what cannot match; a filter is projected and bound once for each spec.

    Args:
        specs: The table's partition specs.
        schema: The schema that the filter's names belong to.
        row_filter: An unbound expression.
        case_sensitive: How its names match.
    """

    def __init__(
        self,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
    ) -> None:
        plain = optional_schema(schema)
        self.prunes = not isinstance(row_filter, AlwaysTrue)
        self.columns = metric_columns(plain)
        self.file_test = any_match(row_filter, plain, case_sensitive=case_sensitive)
        self.widths = {spec_id: len(spec.fields) for spec_id, spec in specs.items()}
        # A spec whose source column was dropped since decides nothing: its files are told by their metrics alone.
        specs = {
            spec_id: spec
            for spec_id, spec in specs.items()
            if all(plain.find_column_name(field.source_id) is not None for field in spec.fields)
        }
        self.fields = {spec_id: spec.partition_type(plain) for spec_id, spec in specs.items()}
        self.partition_tests = {
            spec_id: any_match(
                inclusive_projection(plain, spec, case_sensitive)(row_filter),
                Schema(*self.fields[spec_id].fields),
                case_sensitive=True,
            )
            for spec_id, spec in specs.items()
        }
        self.partitions: dict[tuple[int, tuple[Any, ...]], bool] = {}

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list files with matching rows, or deletes for such files."""
        spec_id = manifest.partition_spec_id
        if not self.prunes or manifest.partitions is None or spec_id not in self.fields:
            return True
        return self.partition_tests[spec_id](summary_bounds(manifest.partitions, self.fields[spec_id]))

    def partition(self, spec_id: int, partition: tuple[Any, ...]) -> bool:
        """Whether the files of a partition may hold matching rows, or deletes of such rows.

        Raises:
            ValueError: the table has no such spec, or it has another number of fields.
        """
        if len(partition) != self.widths.get(spec_id):
            raise ValueError(f"it has a file with the partition {partition}, which does not fit the spec {spec_id}")
        fields = self.fields.get(spec_id)
        if not self.prunes or fields is None:
            return True
        key = (spec_id, partition)
        # Files are many and partitions few.
        if key not in self.partitions:
            self.partitions[key] = self.partition_tests[spec_id](partition_bounds(partition, fields))
        return self.partitions[key]

    def data_file(self, file: ContentFile) -> bool:
        """Whether a data file of a partition that may match may hold matching rows: its metrics tell."""
        return file.record_count != 0 and (not self.prunes or self.file_test(file_bounds(file, self.columns)))
