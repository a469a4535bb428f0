"""SHOW PARTITIONS. Driver.

Input: the statement and a loaded table. Output: `DdlResult`, one row per partition with live data files, as Spark shows
those of its own tables. Iceberg's tables have no list of partitions, so the manifests are read. Source: Spark's
`ShowPartitionsExec`, `ExternalCatalogUtils.escapePathName`.
"""

import re
from collections.abc import Iterator
from typing import Final

from pyiceberg.table import Table

from dml.ddl.tables import DdlResult
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.manifests.read import entries_of, manifests_of
from dml.manifests.write import partition_type
from dml.model.manifest import ManifestContent
from dml.model.transforms import partition_value_text
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import ShowPartitions

__all__ = ["show_partitions"]

Texts = tuple[tuple[str, str | None], ...]
"""The names of a partition's fields, and their values as text; None for NULL."""

ESCAPED: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\{}\[\]^\x7f]""")


def show_partitions(statement: ShowPartitions, table: Table) -> DdlResult:
    """Run SHOW PARTITIONS.

    Raises:
        AnalysisError: The table is not partitioned, or has no partition field of a name.
    """
    name, fields = quote_name(table.name()), [field.name for field in table.spec().fields]
    if not fields:
        raise AnalysisError(f"The table {name} is not partitioned", hint="SHOW PARTITIONS is for partitioned tables")
    wanted = {entry.name.lower(): entry.text for entry in statement.partition}
    known = {field.name.lower() for spec in table.metadata.partition_specs for field in spec.fields}
    for entry in statement.partition:
        if entry.name.lower() not in known:
            with at(entry.span):
                raise AnalysisError(
                    f"The table {name} has no partition field '{entry.name}'",
                    kind=ErrorKind.NOT_FOUND,
                    hint=did_you_mean(entry.name, fields),
                )
    shown = {path_of(texts) for texts in partitions_of(table) if wanted.items() <= {(k.lower(), v) for k, v in texts}}
    return DdlResult(columns=(("partition", "string"),), rows=tuple((path,) for path in sorted(shown)))


def partitions_of(table: Table) -> Iterator[Texts]:
    """Yield the partitions of the live data files; partitions of earlier specs have the fields of those."""
    specs = table.specs()
    for manifest in manifests_of(table.io, table.current_snapshot()):
        if manifest.content is not ManifestContent.DATA:
            continue
        spec = specs[manifest.partition_spec_id]
        kinds = [field.field_type for field in partition_type(spec, table.metadata).fields]
        values = {entry.data_file.partition for entry in entries_of(manifest, table.io, live_only=True)}
        for partition in values:
            yield tuple(
                (field.name, None if value is None else partition_value_text(field.transform, kind, value))
                for field, kind, value in zip(spec.fields, kinds, partition, strict=True)
            )


def path_of(texts: Texts) -> str:
    return "/".join(f"{escape(name)}={'null' if text is None else escape(text)}" for name, text in texts)


def escape(text: str) -> str:
    return ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
