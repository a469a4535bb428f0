"""Compute the changes of a table between snapshots as a DataFrame, for changelog views. Driver.

Input: a table, the snapshots of a `ChangelogRange`, and what to compute. Output: a DataFrame of the table's columns,
`_change_type`, `_change_ordinal` and `_commit_snapshot_id`, which reads the data files when it runs.

A snapshot's changes are the rows of the data files that it added and removed. Only a snapshot that did both can have
carry-overs, so the rows of other snapshots bypass the comparison and its shuffle. A file that one compared snapshot
added and another one removed is read once. Source: Iceberg's `BaseIncrementalChangelogScan`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StructType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml import limits
from dml.engine.changelog_rows import CHANGE, CHANGE_ORDINAL, CHANGE_TYPE, ChangelogRows, ColumnPath, has_type
from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.manifests.entries import PlannedFile
from dml.manifests.read import entries_of, manifests_of, read_all
from dml.model.columns import FILE_ORDINAL
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile
from dml.scan.planner import delete_index, scan_task
from dml.scan.table_scan import TableScan, dataframe
from dml.spark.types import spark_type
from dml.spark.workers import check_reads
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name, quoted

__all__ = ["Changelog", "ChangelogFile", "changed_files", "column_path", "identifier_paths"]

COMMIT_SNAPSHOT_ID: Final = "_commit_snapshot_id"
CHANGELOG_COLUMNS: Final = (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The changes of a table in some snapshots.

    Attributes:
        name: The table's full name.
        table: The table.
        snapshots: The snapshots, oldest first, without those of operation `replace`.
        rows: How rows of the table's current schema become changes.
    """

    name: str
    table: Table
    snapshots: tuple[Snapshot, ...]
    rows: ChangelogRows

    def frame(self, spark: SparkSession, parallelism: int) -> DataFrame:
        """Return the changes.

        Args:
            spark: A session, classic or Connect.
            parallelism: The number of concurrent tasks.

        Raises:
            AnalysisError: The rows cannot be compared, or columns to identify them are missing.
            NotSupportedError: A snapshot has delete files, or a column has a type or name that changelogs cannot have.
            CorruptFileError: A metadata file is missing or damaged.
            ExecutionError: The storage failed.
        """
        self._check()
        check_reads(spark, self.table)
        files = changed_files(self.name, self.table, self.snapshots)
        added, removed = (
            {change >> 1 for file in files for change in file.changes if change & 1 == is_added} for is_added in (1, 0)
        )
        # A carry-over is a row that its snapshot both removed and added. Any later snapshot may undo a net change.
        compared = added | removed if self.rows.nets_changes else added & removed
        direct = (added | removed) - compared
        frames = []
        if compared:
            frames.append(self.rows.compared(self._read(spark, parallelism, files, compared)))
        if direct or not compared:
            frames.append(self.rows.direct(self._read(spark, parallelism, files, direct)))
        changes = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
        ids = ", ".join(f"{snapshot.snapshot_id}L" for snapshot in self.snapshots)
        names = zip(self.rows.values, self.rows.fields, strict=True)
        return changes.selectExpr(
            *(f"{value} AS {quoted(field.name)}" for value, field in names),
            CHANGE_TYPE,
            CHANGE_ORDINAL,
            f"CAST(array({ids}) AS ARRAY<BIGINT>)[{CHANGE_ORDINAL}] AS {COMMIT_SNAPSHOT_ID}",
        )

    def _check(self) -> None:
        rows, kinds = self.rows, {field.name: spark_type(field.field_type) for field in self.rows.fields}
        if not kinds:
            raise NotSupportedError(
                f"The changes of '{self.name}' cannot be shown: the table has no columns",
                hint=f"ALTER TABLE {self.name} ADD COLUMN ... adds one",
                table=self.name,
            )
        for name, kind in kinds.items():
            if name.lower() in CHANGELOG_COLUMNS:
                raise NotSupportedError(
                    f"The table '{self.name}' has the column '{name}', which is a column of changelogs",
                    hint=f"Rename it: ALTER TABLE {self.name} RENAME COLUMN {name} TO ...",
                    table=self.name,
                )
            if has_type(kind, VARIANT):
                raise NotSupportedError(
                    f"The changes of '{self.name}' cannot be computed: Spark cannot compare the values of '{name}', "
                    "which are of the type VARIANT",
                    hint="Keep them as text: to_json(value) writes it, parse_json(text) reads it",
                    table=self.name,
                )
        unordered = [name for name, kind in kinds.items() if has_type(kind, (spark_types.MapType,))]
        if unordered and not rows.identifiers:
            raise AnalysisError(
                f"Identifier field is required as table contains unorderable columns: [{', '.join(unordered)}]",
                kind=ErrorKind.TYPE_MISMATCH,
                hint="Give identifier_columns => array('...'): the columns that identify a row",
                table=self.name,
            )
        if rows.computes_updates and rows.nets_changes:
            raise AnalysisError(
                "Not support net changes with update images",
                kind=ErrorKind.INVALID_VALUE,
                hint="Leave out net_changes, or set compute_updates => false",
                table=self.name,
            )
        if rows.computes_updates and not rows.identifiers:
            raise AnalysisError(
                "Cannot compute the update images because identifier columns are not set",
                kind=ErrorKind.INVALID_VALUE,
                hint=f"Give identifier_columns, or declare them: ALTER TABLE {self.name} SET IDENTIFIER FIELDS ...",
                table=self.name,
            )

    def _read(
        self, spark: SparkSession, parallelism: int, files: Iterable["ChangelogFile"], ordinals: Collection[int]
    ) -> DataFrame:
        """Return the rows of the files, once for each change of their file in the given snapshots."""
        kept = [(file.file, tuple(one for one in file.changes if one >> 1 in ordinals)) for file in files]
        # Files with the same changes share a number, which each of their rows carries.
        numbers = {changes: number for number, changes in enumerate(dict.fromkeys(of for _, of in kept if of))}
        no_deletes = delete_index((), self.table.specs())
        tasks = [scan_task(numbers[changes], file, no_deletes, {}) for file, changes in kept if changes]
        scan = TableScan(
            table=self.table,
            snapshot_id=None,
            schema=self.table.schema(),
            columns=tuple(field.field_id for field in self.rows.fields),
            metadata_columns=(FILE_ORDINAL,),
        )
        values = self.rows.values
        found = dataframe(spark, scan.groups(tasks, parallelism), scan.context(tasks)).toDF(*values, CHANGE)
        combinations = ", ".join(f"array({', '.join(map(str, changes))})" for changes in numbers)
        listed = f"CAST(array({combinations}) AS ARRAY<ARRAY<INT>>)"  # a constant, also without any
        return found.selectExpr(*values, f"explode({listed}[{CHANGE}]) AS {CHANGE}")


VARIANT: Final = tuple(getattr(spark_types, name) for name in ("VariantType",) if hasattr(spark_types, name))
"""The type that Spark cannot group by; empty before Spark 4.0, which added it."""


# ---- files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogFile:
    """A data file that snapshots added or removed.

    Attributes:
        file: The file.
        changes: For each of these snapshots, twice its ordinal, plus 1 if it added the file.
    """

    file: PlannedFile
    changes: tuple[int, ...]


def changed_files(name: str, table: Table, snapshots: Sequence[Snapshot]) -> list[ChangelogFile]:
    """Return the data files that snapshots added or removed.

    Args:
        name: The table's full name, for errors.
        table: The table.
        snapshots: The snapshots, in the order of their ordinals.

    Raises:
        NotSupportedError: A snapshot has delete files.
        CorruptFileError: A metadata file is missing or damaged.
        ExecutionError: The storage failed.
    """
    ordinals = {snapshot.snapshot_id: ordinal for ordinal, snapshot in enumerate(snapshots)}
    with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="manifests") as pool:
        lists = list(zip(snapshots, pool.map(partial(manifests_of, table.io), snapshots), strict=True))
    for snapshot, manifests in lists:
        if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
            raise delete_files_error(name, snapshot)

    def changes_in(manifest: ManifestFile) -> list[tuple[PlannedFile, int]]:
        return [
            (
                PlannedFile.of(entry, with_metrics=False),
                2 * ordinals[entry.snapshot_id] + (entry.status is EntryStatus.ADDED),
            )
            for entry in entries_of(manifest, table.io)
            if entry.status is not EntryStatus.EXISTING and entry.snapshot_id in ordinals
        ]

    new = [
        found for snapshot, manifests in lists for found in manifests if found.added_snapshot_id == snapshot.snapshot_id
    ]
    files: dict[str, tuple[PlannedFile, list[int]]] = {}
    for changes in read_all(new, changes_in):
        for file, change in changes:
            known = files.setdefault(file.path, (file, []))[1]
            if change ^ 1 in known:  # a snapshot removed the file and added it again
                known.remove(change ^ 1)
            else:
                known.append(change)
    return [ChangelogFile(file=file, changes=tuple(sorted(changes))) for file, changes in files.values() if changes]


def delete_files_error(name: str, snapshot: Snapshot) -> NotSupportedError:
    """Return the error for a snapshot with delete files, which delete rows without changing data files."""
    return NotSupportedError(
        f"Delete files are currently not supported in changelog scans: snapshot {snapshot.snapshot_id} of '{name}' has "
        "delete files",
        hint="Choose a range without them: write.delete.mode, write.update.mode and write.merge.mode = copy-on-write "
        f"make none. Or compare two snapshots, in both directions: SELECT * FROM {name} VERSION AS OF a EXCEPT ALL "
        f"SELECT * FROM {name} VERSION AS OF b",
        table=name,
        snapshot_id=snapshot.snapshot_id,
    )


# ---- identifiers ------------------------------------------------------------------------------------------------


def nested_paths(fields: Iterable[NestedField], above: ColumnPath = ()) -> Iterator[tuple[ColumnPath, NestedField]]:
    """Yield columns and fields of structs, with their paths."""
    for field in fields:
        path = (*above, field.name)
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from nested_paths(field.field_type.fields, path)


def identifier_paths(schema: Schema) -> tuple[ColumnPath, ...]:
    """Return the paths of a table's identifier fields."""
    ids = set(schema.identifier_field_ids)
    return tuple(path for path, field in nested_paths(schema.fields) if field.field_id in ids)


def column_path(schema: Schema, name: str, *, case_sensitive: bool) -> ColumnPath:
    """Find a column or a field of a struct by its name, quoted or not.

    Raises:
        NotFoundError: There is no such column.
    """
    known = [path for path, _ in nested_paths(schema.fields)]
    for wanted in ((name,), name_parts(name)):
        if wanted in known:
            return wanted
        found = [path for path in known if [part.lower() for part in path] == [part.lower() for part in wanted]]
        if len(found) == 1 and not case_sensitive:
            return found[0]
    raise NotFoundError(
        f"Cannot find the identifier column '{name}'", hint=did_you_mean(name, map(quote_name, known)), column=name
    )
