"""Find the data files of a folder or a table of Spark, and examine them for an import into an Iceberg table. Driver.

Input: an Iceberg table and a source. Output: a decision for each file below the source: add it with its partition and
metrics, skip it, or reject it with an error that names it. Nothing is written. `load_for_import` makes the commit of
the files safe against concurrent changes of the table. Source: Iceberg's `AddFilesProcedure`, `SparkTableUtil` and
`TableMigrationUtil`.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from pyarrow.fs import FileType
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCurrentSchemaId, SetPropertiesUpdate, TableUpdate
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from dml import limits
from dml.catalog import CommitBase, LoadState
from dml.catalog.credentials import storage_properties
from dml.ddl.commit import table_with
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CorruptFileError,
    DmlError,
    ErrorKind,
    NotFoundError,
    ValidationFailedError,
)
from dml.files.schemes import local_path
from dml.iceberg import changed_metadata
from dml.maintenance.orphan_choice import Equivalents, ListedFile, identity_of, is_hidden, path_of
from dml.maintenance.partition_folders import PartitionTexts, PartitionTyper, compatible_spec, folder_texts
from dml.maintenance.storage import Storage, storage_of
from dml.manifests.read import entries_of, manifests_of, read_all
from dml.model.manifest import ContentFile, ManifestContent, ManifestFile
from dml.model.transforms import partition_path
from dml.options import DEFAULT_NAME_MAPPING
from dml.spark.jobs import await_end_on_failure
from dml.spark.runtime import Runtime
from dml.spark.task_frames import task_frame
from dml.spark.workers import check_workers
from dml.tasks.task_input import TaskInput
from dml.write.column_metrics import metrics_modes
from dml.write.imported_files import ImportContext, ImportedFile, ImportTask, SourceFile, try_source_file

__all__ = [
    "FORMATS",
    "FileDecision",
    "FolderSource",
    "ImportDecision",
    "ImportOptions",
    "ImportPlan",
    "SourcePartition",
    "TableSource",
    "load_for_import",
    "plan_import",
]

FORMATS: Final = ("parquet", "orc", "avro")
SHOWN: Final = 10
"""The maximum number of files in an error message."""

NO_EQUIVALENTS: Final = Equivalents.of({}, {})
LOCAL_SCHEMES: Final = frozenset({"", "file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A folder with Hive-style partitions, or one file.

    Attributes:
        location: The location.
        file_format: The format of all of its files.
    """

    location: str
    file_format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition of a table of Spark.

    Attributes:
        texts: The values of the partition columns.
        location: The folder of its files.
    """

    texts: PartitionTexts
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table of Spark's session catalog.

    Attributes:
        name: The name.
        location: The folder of the table.
        file_format: The format of all of its files.
        partition_columns: The names of the partition columns, in order.
        partitions: The partitions; empty for an unpartitioned table.
    """

    name: str
    location: str
    file_format: str
    partition_columns: tuple[str, ...] = ()
    partitions: tuple[SourcePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of an import.

    Attributes:
        partition_filter: Values by partition column. Only matching partitions are imported.
        parallelism: The number of files that the driver reads at once.
        ignore_missing_files: Skip partitions whose folder does not exist.
        time_zone: The session's time zone, for timestamps in folder names.
    """

    partition_filter: Mapping[str, str] = field(default_factory=dict)
    parallelism: int = limits.READ_THREADS
    ignore_missing_files: bool = False
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.parallelism < 1:
            raise AnalysisError(
                "Parallelism should be larger than 0", kind=ErrorKind.INVALID_VALUE, option="parallelism"
            )


class ImportDecision(StrEnum):
    """What an import does with a file."""

    ADD = "add"
    SKIP = "skip"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDecision:
    """The decision about a file.

    Attributes:
        decision: The decision.
        location: The location of the file or folder.
        reason: Its partition and columns that are not read, or why it is not added.
        content_file: The entry for a manifest, if the file is added.
        error: The error that an import raises, if the file is rejected.
    """

    decision: ImportDecision
    location: str
    reason: str
    content_file: ContentFile | None = None
    error: DmlError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The decisions about all files of a source.

    Attributes:
        decisions: The decisions, in the order of the files.
        mapping: The name mapping by which files without field ids are read.
    """

    decisions: tuple[FileDecision, ...]
    mapping: str

    @property
    def data_files(self) -> tuple[ContentFile, ...]:
        """The files to add."""
        return tuple(one.content_file for one in self.decisions if one.content_file is not None)

    @property
    def changed_partitions(self) -> int:
        """The number of partitions that receive files."""
        return len({file.partition for file in self.data_files})

    def check(self) -> None:
        """Raise the error of the first rejected file, if any.

        Raises:
            DmlError: A file cannot be imported.
        """
        errors = [one.error for one in self.decisions if one.error is not None]
        if not errors:
            return
        others = sum(one.message != errors[0].message for one in errors)
        if others:
            more = "Another file" if others == 1 else f"{others} other files"
            hint = f"{more} cannot be imported either: dry_run => true shows all"
            errors[0].hint = hint if errors[0].hint is None else f"{errors[0].hint}. {hint}"
        raise errors[0]


def plan_import(
    spark: SparkSession,
    table: Table,
    name: str,
    source: FolderSource | TableSource,
    options: ImportOptions,
    head: Snapshot | None,
) -> ImportPlan:
    """Examine all files of a source.

    Args:
        spark: The session. Its tasks examine the files if there are many.
        table: The table that receives the files; it may be staged.
        name: The name of the table, for errors.
        source: The source.
        options: The options.
        head: The snapshot that the files are added to; None if there is none.

    Raises:
        NotFoundError: The source does not exist.
        AnalysisError: The partitions of the source or the filter do not fit the table.
        NotSupportedError: The table's catalog is not configured for the storage of the source.
        CorruptFileError: A manifest of the table is damaged.
        ExecutionError: The storage failed.
    """
    metadata = table.metadata
    listing = list_folder(table.io, source, metadata) if isinstance(source, FolderSource) else None
    names = source.partition_columns if isinstance(source, TableSource) else partition_names(listing or [])
    spec = compatible_spec(metadata, names, name)
    typer = PartitionTyper.of(metadata, spec, options.time_zone)
    wanted = typer.filter(options.partition_filter, name)
    found: list[Found]
    if isinstance(source, TableSource):
        found = list(files_of_table(table.io, source, ignore_missing_files=options.ignore_missing_files))
    else:
        found = listing or []
    decisions: dict[int, FileDecision] = {}
    chosen: dict[int, SourceFile] = {}
    for place, one in enumerate(found):
        outcome = choose(one, source.file_format, names, typer, wanted, table.io)
        if isinstance(outcome, FileDecision):
            decisions[place] = outcome
        else:
            chosen[place] = outcome
    if isinstance(source, FolderSource) and names and not chosen and not any(one.error for one in decisions.values()):
        raise AnalysisError(
            f"Cannot find any matching partitions in table {name}",
            hint=f"'{source.location}' has no visible file in a partition that the filter selects",
            table=name,
        )
    decisions |= reject_repeated(chosen)
    if head is not None:
        decisions |= duplicates(chosen, table.io, head)
    mapping = metadata.properties.get(DEFAULT_NAME_MAPPING) or new_mapping(metadata)
    left = {place: file for place, file in chosen.items() if place not in decisions}
    context = import_context(table, mapping, spec, typer)
    examined = examine(spark, table.io, context, list(left.values()), options.parallelism)
    for (place, file), seen in zip(left.items(), examined, strict=True):
        decisions[place] = decision_of(file, seen, spec, typer)
    return ImportPlan(decisions=tuple(decisions[place] for place in range(len(found))), mapping=mapping)


# ---- listing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file or folder below a source.

    Attributes:
        location: The location.
        size: The size in bytes; None if the storage does not list it.
        folders: The folders between the file and the partition's location, or the source.
        hidden: True if the file is not to be read: its name, or that of a folder, is hidden.
        texts: The values of its partition; None if the folders name them.
        missing: True for a partition whose folder does not exist.
    """

    location: str
    size: int | None = None
    folders: tuple[str, ...] = ()
    hidden: bool = False
    texts: PartitionTexts | None = None
    missing: bool = False

    @property
    def values(self) -> PartitionTexts | None:
        """The values of the partition; None if a folder does not name a partition value."""
        if self.texts is None:
            return folder_texts(self.folders)
        return None if self.folders else self.texts


def plain_location(location: str) -> str:
    """Return a location without a trailing slash; `file:/a`, as Hadoop writes it, becomes `file:///a`."""
    path = location.rstrip("/") or location
    return f"file://{path[5:]}" if path.startswith("file:/") and not path.startswith("file://") else path


def list_folder(io: FileIO, source: FolderSource, metadata: TableMetadata) -> list[Found]:
    """Return the files of a folder, or the file itself, sorted by location."""
    location = plain_location(source.location)
    storage = storage_of(io, location)
    fields = frozenset(one.name for spec in metadata.partition_specs for one in spec.fields)
    match storage.kind(location):
        case FileType.File:
            return [Found(location=location)]
        case FileType.NotFound:
            raise NotFoundError(
                f"There is no file or folder '{source.location}'",
                hint="Give the full location, which driver and tasks must be able to read: parquet.`s3://bucket/folder`",
                location=source.location,
            )
    return [found_file(file, fields) for file in list_source(storage, location)]


def list_source(storage: Storage, location: str) -> list[ListedFile]:
    return sorted(storage.files(location, follow_links=True), key=lambda file: file.relative)


def found_file(file: ListedFile, fields: frozenset[str], texts: PartitionTexts | None = None) -> Found:
    return Found(
        location=file.location,
        size=file.size,
        folders=tuple(file.relative.split("/")[:-1]),
        hidden=is_hidden(file.relative, fields),
        texts=texts,
    )


def files_of_table(io: FileIO, source: TableSource, *, ignore_missing_files: bool) -> Iterator[Found]:
    """Yield the files of a table of Spark, partition by partition."""
    partitions = source.partitions
    if not source.partition_columns:
        partitions = (SourcePartition(texts=(), location=source.location),)
    root = plain_location(source.location)
    folders: dict[str, list[ListedFile]] = {}
    if source.partition_columns:
        # List once for all partitions in the folder of the table.
        for file in list_source(storage_of(io, root), root):
            folders.setdefault(path_of(file.location).rpartition("/")[0], []).append(file)
    nested = set(outer_folders(folders))
    for partition in partitions:
        location = plain_location(partition.location)
        files = folders.get(path_of(location), [])
        if files:
            yield from (
                Found(
                    location=file.location,
                    size=file.size,
                    hidden=is_hidden(file.relative.rpartition("/")[2], frozenset()),
                    texts=partition.texts,
                )
                for file in files
            )
            if path_of(location) not in nested:
                continue
        storage, known = storage_of(io, location), {file.location for file in files}
        if storage.kind(location) is FileType.NotFound and partition.texts and not files:
            yield Found(location=location, texts=partition.texts, missing=not ignore_missing_files, hidden=True)
            continue
        for file in list_source(storage, location):
            if file.location not in known:
                yield found_file(file, frozenset(), partition.texts)


def outer_folders(folders: Iterable[str]) -> Iterator[str]:
    """Yield all parents of some folders."""
    for folder in folders:
        outer = folder.rpartition("/")[0]
        while outer:
            yield outer
            outer = outer.rpartition("/")[0]


def partition_names(found: Iterable[Found]) -> tuple[str, ...]:
    """Return the partition columns that the folders of the visible files name.

    Raises:
        AnalysisError: Folders name different columns.
    """
    seen: dict[tuple[str, ...], str] = {}
    for one in found:
        texts = None if one.hidden or one.size == 0 else one.values
        if texts:
            seen.setdefault(tuple(name for name, _ in texts), one.location)
    if len({tuple(name.lower() for name in names) for names in seen}) > 1:
        (first, location), (second, other), *_ = seen.items()
        raise AnalysisError(
            f"Conflicting partition column names detected: '{location}' has {', '.join(first)} and '{other}' has "
            f"{', '.join(second)}",
            hint="Import folders with different partition columns one by one, into tables that have these",
        )
    return next(iter(seen), ())


# ---- choosing -------------------------------------------------------------------------------------------------


def choose(
    one: Found,
    file_format: str,
    names: Sequence[str],
    typer: PartitionTyper,
    wanted: Callable[[tuple[Any, ...]], bool],
    io: FileIO,
) -> SourceFile | FileDecision:
    """Return a file to examine, or the decision about a file that is not opened."""
    if one.missing:
        gone = NotFoundError(
            f"The folder '{one.location}' of a partition of the source does not exist",
            hint="ignore_missing_files skips such partitions, where a procedure has it",
            location=one.location,
        )
        return rejection_of(one.location, gone)
    if one.hidden:
        missing = one.texts and one.size is None
        why = "its folder does not exist" if missing else "its name, or that of a folder, starts with _ or ."
        return FileDecision(decision=ImportDecision.SKIP, location=one.location, reason=why)
    size = one.size if one.size is not None else size_of(io, one.location)
    if size == 0:
        return FileDecision(decision=ImportDecision.SKIP, location=one.location, reason="it is empty")
    values = one.values
    if values is None or len(values) != len(names):
        where = f"a partition folder of {', '.join(names)}" if names else "the folder itself"
        error = AnalysisError(
            f"The file '{one.location}' is not in {where}",
            hint="Import its folder by itself, or move the file",
            file=one.location,
        )
        return rejection_of(one.location, error)
    try:
        partition = typer.partition(values)
    except AnalysisError as error:
        return rejection_of(one.location, error)
    if not wanted(partition):
        return FileDecision(
            decision=ImportDecision.SKIP, location=one.location, reason="its partition is not selected by the filter"
        )
    return SourceFile(location=one.location, size=size, file_format=file_format, partition=partition)


def size_of(io: FileIO, location: str) -> int:
    try:
        return len(io.new_input(location))
    except FileNotFoundError as error:
        raise CorruptFileError(f"The file '{location}' vanished while it was imported", file=location) from error


def rejection_of(location: str, error: DmlError) -> FileDecision:
    return FileDecision(decision=ImportDecision.REJECT, location=location, reason=error.message, error=error)


FileKey = tuple[str, str, str]
"""Scheme, authority and path of a file. Different spellings of a location have the same key."""


def file_key(location: str) -> FileKey:
    identity = identity_of(location, NO_EQUIVALENTS)
    # The path is not decoded: `a%20b` and `a b` are two files.
    return "" if identity.scheme in LOCAL_SCHEMES else identity.scheme, identity.authority, path_of(location)


def reject_repeated(chosen: Mapping[int, SourceFile]) -> dict[int, FileDecision]:
    """Reject files that belong to two partitions of the source, because their rows would be in the table twice."""
    seen: set[FileKey] = set()
    result = {}
    for place, file in chosen.items():
        key = file_key(file.location)
        if key in seen:
            error = ValidationFailedError(
                f"The file '{file.location}' is in two partitions of the source", file=file.location
            )
            result[place] = rejection_of(file.location, error)
        seen.add(key)
    return result


def duplicates(chosen: Mapping[int, SourceFile], io: FileIO, head: Snapshot) -> dict[int, FileDecision]:
    """Reject files that are already in a snapshot."""
    keys = {file_key(file.location): place for place, file in chosen.items()}
    places = sorted(keys[key] for key in files_in(io, head, frozenset(keys)))
    error = duplicate_error([chosen[place].location for place in places])
    return {place: rejection_of(chosen[place].location, error) for place in places}


def duplicate_error(locations: Sequence[str]) -> ValidationFailedError:
    listing = ",".join(locations[:SHOWN])
    return ValidationFailedError(
        f"Cannot complete import because data files to be imported already exist within the target table: {listing}",
        hint="A table refers to a data file once: leave these files out, or import copies of them",
    )


def files_in(io: FileIO, head: Snapshot, wanted: frozenset[FileKey]) -> set[FileKey]:
    """Return the wanted files that are live in a snapshot."""

    def keys_of(manifest: ManifestFile) -> set[FileKey]:
        paths = (entry.data_file.path for entry in entries_of(manifest, io, live_only=True))
        return {key for path in paths if (key := file_key(path)) in wanted}

    manifests = [one for one in manifests_of(io, head) if one.content is ManifestContent.DATA and one.has_live_files]
    return set[FileKey]().union(*read_all(manifests, keys_of))


# ---- examining ------------------------------------------------------------------------------------------------


def new_mapping(metadata: TableMetadata) -> str:
    """Return the name mapping of a table's current column names (JSON)."""
    return create_mapping_from_schema(metadata.schema()).model_dump_json()


def import_context(table: Table, mapping: str, spec: PartitionSpec, typer: PartitionTyper) -> ImportContext:
    metadata = table.metadata
    names: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        for field_id in schema.field_ids:
            names.setdefault(field_id, set()).add(schema.find_field(field_id).name)
    sorted_ids = [one.source_id for one in metadata.sort_order().fields]
    return ImportContext(
        schema_json=metadata.schema().model_dump_json(),
        mapping_json=mapping,
        names={field_id: frozenset(some) for field_id, some in names.items()},
        spec_id=spec.spec_id,
        source_ids=typer.source_ids,
        modes=metrics_modes(metadata.schema(), metadata.properties, sorted_ids),
        io_properties=storage_properties(table.io.properties),
    )


ROWS: Final = StructType([StructField("examined", BinaryType(), nullable=False)])


def examine(
    spark: SparkSession, io: FileIO, context: ImportContext, files: Sequence[SourceFile], parallelism: int
) -> list[ImportedFile]:
    """Examine files: a few in threads of the driver, many in Spark tasks."""
    remote = all(local_path(file.location) is None for file in files)
    if len(files) > limits.MAX_DRIVER_IMPORT_FILES and (remote or Runtime.of(spark).is_local):
        return examine_by_tasks(spark, context, files)
    with ThreadPoolExecutor(parallelism, thread_name_prefix="rowdelta-import") as pool:
        return list(pool.map(lambda file: try_source_file(context, file, io), files))


def examine_by_tasks(spark: SparkSession, context: ImportContext, files: Sequence[SourceFile]) -> list[ImportedFile]:
    check_workers(spark)
    size = limits.IMPORT_TASK_FILES
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    task = ImportTask(input=TaskInput.of(groups, context))
    frame = task_frame(spark, len(groups), task, ROWS, len(groups))
    with await_end_on_failure(spark):
        rows = frame.collect()
    found = {
        one.location: one
        for row in rows
        for one in pickle.loads(bytes(row[0]))  # noqa: S301 - made by the tasks of this import
    }
    return [found[file.location] for file in files]


def decision_of(file: SourceFile, one: ImportedFile, spec: PartitionSpec, typer: PartitionTyper) -> FileDecision:
    if one.error is not None:
        return rejection_of(file.location, one.error)
    reason = partition_path(spec, typer.kinds, file.partition)
    if one.unknown_columns:
        unread = f"columns that the table does not have: {', '.join(one.unknown_columns)}"
        reason = f"{reason}; {unread}" if reason else unread
    return FileDecision(
        decision=ImportDecision.ADD, location=file.location, reason=reason, content_file=one.content_file
    )


# ---- committing -----------------------------------------------------------------------------------------------


def mapping_update(metadata: TableMetadata, mapping: str) -> tuple[TableUpdate, ...]:
    if DEFAULT_NAME_MAPPING in metadata.properties:
        return ()
    return (SetPropertiesUpdate(updates={DEFAULT_NAME_MAPPING: mapping}),)


def load_for_import(planned: Table, plan: ImportPlan, load: LoadState, branch: str) -> LoadState:
    """Return a loader for the commit of an import, which sets the name mapping if the table has none.

    The commit fails if a concurrent one has added a file of the plan.

    Args:
        planned: The table that the files were examined for.
        plan: The decisions about the files.
        load: Loads the newest table, or a staged one.
        branch: The branch that receives the files.
    """
    head = planned.metadata.refs.get(branch)
    keys = frozenset(file_key(file.path) for file in plan.data_files)

    def load_checked() -> CommitBase:
        base = load()
        metadata = base.table.metadata
        if (
            metadata.schema().as_struct() != planned.metadata.schema().as_struct()
            or (metadata.properties.get(DEFAULT_NAME_MAPPING) or plan.mapping) != plan.mapping
        ):
            raise CommitConflictError(
                "The columns or the name mapping of the table were changed while its files were imported",
                hint="Run the import again",
            )
        newest = metadata.refs.get(branch)
        if newest is not None and newest != head:
            snapshot = metadata.snapshot_by_id(newest.snapshot_id)
            added = files_in(base.table.io, snapshot, keys) if snapshot is not None else set()
            if added:
                raise duplicate_error([file.path for file in plan.data_files if file_key(file.path) in added])
        updates = mapping_update(metadata, plan.mapping)
        if base.requirements is not None:  # a staged table, whose only requirement is that it does not exist
            return replace(base, updates=(*base.updates, *updates))
        same_schema = AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)
        return CommitBase(
            table=table_with(base.table, changed_metadata(metadata, updates)) if updates else base.table,
            updates=(*base.updates, *updates),
            further_requirements=(*base.further_requirements, same_schema),
        )

    return load_checked
