"""Scan tasks: ranges of data files to read, with the delete files that apply. Worker-safe.

Source: Iceberg specification, "Scan Planning". The driver creates them from manifests. A worker reads rows with a scan
task and the `ScanContext` alone.
"""

from dataclasses import dataclass, field
from typing import Any

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile
from dml.rows.program import TRUE, Predicate

__all__ = ["DeleteFileRef", "FileDeletes", "KeyFilter", "ScanContext", "ScanTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFileRef:
    """A delete file that applies to a data file.

    Attributes:
        path: Location as in the manifest.
        file_format: Lower case: `parquet`, `orc`, `avro` or `puffin`.
        content_offset: Offset of a deletion vector's blob in its Puffin file; None for other delete files.
        content_size_in_bytes: Length of that blob; None for other delete files.
        record_count: Deleted positions, or rows of an equality delete file.
        file_size_in_bytes: Size of the whole file.
        referenced_data_file: The only data file that it applies to, if known (for a position delete file also if its
            lower and upper bound of `file_path` are equal); None for partition-scoped ones.
        equality_ids: Field ids of an equality delete file; empty for position deletes.
        data_sequence_number: Its data sequence number.
    """

    path: str
    file_format: str
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    record_count: int
    file_size_in_bytes: int
    referenced_data_file: str | None = None
    equality_ids: tuple[int, ...] = ()
    data_sequence_number: int

    @staticmethod
    def of(file: ContentFile, *, referenced_data_file: str | None, data_sequence_number: int) -> "DeleteFileRef":
        """Convert a delete file from a manifest entry."""
        return DeleteFileRef(
            path=file.path,
            file_format=file.file_format,
            content_offset=file.content_offset,
            content_size_in_bytes=file.content_size_in_bytes,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            referenced_data_file=referenced_data_file,
            equality_ids=file.equality_ids,
            data_sequence_number=data_sequence_number,
        )

    @property
    def is_deletion_vector(self) -> bool:
        """True for a blob in a Puffin file."""
        return self.content_offset is not None

    @property
    def key(self) -> tuple[str, int | None, int | None]:
        """Its identity: many deletion vectors share one Puffin file."""
        return self.path, self.content_offset, self.content_size_in_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """A data file, or a byte range of it, with the deletes that apply.

    Attributes:
        file_ordinal: Index of the data file in the statement's list of files, from 0; splits of a file share it.
        path: Location as in the manifest, byte for byte.
        file_format: Lower case: `parquet`, `orc` or `avro`.
        record_count: Physical rows of the whole file, deleted ones included.
        file_size_in_bytes: Size of the whole file.
        start: First byte of the range: row groups or stripes that start in the range are read.
        length: Bytes of the range.
        spec_id: Partition spec of the file.
        partition: Its partition tuple: values in Iceberg's internal form (days as int, ...), in spec field order.
        data_sequence_number: Of the file's manifest entry, inherited values filled in.
        first_row_id: v3: the first row id of the file, inherited values filled in; None if rows have no lineage.
        deletion_vector: The one deletion vector of the file, if any; then `position_deletes` is empty.
        position_deletes: Position delete files that apply (sequence numbers checked).
        equality_deletes: Equality delete files that apply (sequence numbers checked).
        split_offsets: Start of each row group or stripe, for splitting it; empty if unknown, and in a split.
    """

    file_ordinal: int
    path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    start: int
    length: int
    spec_id: int
    partition: tuple[Any, ...]
    data_sequence_number: int
    first_row_id: int | None = None
    deletion_vector: DeleteFileRef | None = None
    position_deletes: tuple[DeleteFileRef, ...] = ()
    equality_deletes: tuple[DeleteFileRef, ...] = ()
    split_offsets: tuple[int, ...] = ()

    @staticmethod
    def of_file(file: ContentFile) -> "ScanTask":
        """Return a task of a whole data file, without its deletes and its sequence number."""
        return ScanTask(
            file_ordinal=0,
            path=file.path,
            file_format=file.file_format,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            start=0,
            length=file.file_size_in_bytes,
            spec_id=file.spec_id,
            partition=file.partition,
            # Only deletes and row lineage need it.
            data_sequence_number=0,
        )

    @property
    def has_deletes(self) -> bool:
        """True if any delete file applies."""
        return bool(self.deletion_vector or self.position_deletes or self.equality_deletes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilter:
    """The keys that a join can match: rows with other keys may be dropped.

    Attributes:
        column_ids: Field ids of the table's key columns (top-level, of primitive types).
        values: An Arrow IPC stream; its columns are the keys' columns, in the order of `column_ids`.
        null_safe: Indexes of the columns in which NULL equals NULL; in the others it equals nothing.
    """

    column_ids: tuple[int, ...]
    values: bytes = field(repr=False)
    null_safe: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext:
    """The context that all tasks of one scan share.

    Attributes:
        schema_json: The table's read schema (Iceberg JSON) with all columns: equality deletes may need more than the
            projection.
        projected_ids: Field ids of the top-level columns to return, in output order.
        metadata_columns: Names of `columns.METADATA_COLUMNS`, or `columns.FILE_ORDINAL`, to return after them.
        specs_json: Partition specs by id (Iceberg JSON): identity partition values fill absent columns.
        name_mapping_json: `schema.name-mapping.default`, or None.
        io_properties: Properties of the FileIO; may hold credentials, so never shown.
        row_filter: An Iceberg expression (unbound), pickled by the driver; None reads everything. It prunes row groups
            and, where Arrow's semantics equal Spark's, rows. Never needed for correctness: Spark evaluates the whole
            condition.
        key_filter: The join keys that may match, or None; like `row_filter`, never needed for correctness.
        row_predicate: A predicate in addition to `row_filter`; rows for which it is False may be dropped.
        decides_rows: True if no later stage filters the rows again, so that a predicate which cannot be evaluated
            exactly here is an error.
        batch_rows: The maximum number of rows in an Arrow batch.
        case_sensitive: Whether names in `row_filter` match case-sensitively.
    """

    schema_json: str
    projected_ids: tuple[int, ...]
    metadata_columns: tuple[str, ...] = ()
    specs_json: tuple[tuple[int, str], ...] = ()
    name_mapping_json: str | None = None
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)
    row_filter: Any = None
    key_filter: KeyFilter | None = None
    row_predicate: Predicate = TRUE
    decides_rows: bool = False
    batch_rows: int = limits.SPARK_BATCH_ROWS
    case_sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDeletes:
    """Deleted positions of one data file.

    Attributes:
        path: The data file.
        spec_id: Its partition spec.
        partition: Its partition tuple.
        positions: The positions.
    """

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    positions: PositionDeleteIndex
