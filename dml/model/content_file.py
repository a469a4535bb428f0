"""A file that a task wrote, with all that its manifest entry will say. Worker-safe.

Source: Iceberg specification, "Manifests", struct `data_file`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

__all__ = ["ContentFile", "FileContent"]


class FileContent(IntEnum):
    """`content` of a data_file struct."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFile:
    """A data file, position delete file or deletion vector, as written.

    Attributes:
        content: What it holds.
        path: Full location, as the manifest will have it.
        file_format: Lower case: `parquet`, `orc`, `avro`, `puffin`.
        spec_id: Partition spec under which `partition` is a tuple.
        partition: Values in Iceberg's internal form, in spec field order.
        record_count: Rows; for a deletion vector its cardinality.
        file_size_in_bytes: Size of the whole file.
        column_sizes: Bytes on disk by field id.
        value_counts: Values by field id, nulls included.
        null_value_counts: Nulls by field id.
        nan_value_counts: NaNs by field id.
        lower_bounds: Serialised bounds by field id (specification, "Appendix D").
        upper_bounds: Serialised bounds by field id.
        split_offsets: Start of each row group or stripe, ascending.
        sort_order_id: The table's sort order that the rows follow; None for position deletes.
        referenced_data_file: The one data file that a deletion vector or file-scoped position delete file covers.
        content_offset: Deletion vectors: offset of the blob.
        content_size_in_bytes: Deletion vectors: length of the blob.
        equality_ids: Equality delete files: the field ids by which rows are equal.
        key_metadata: Encryption, as its writer left it.
    """

    content: FileContent
    path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    equality_ids: tuple[int, ...] = ()
    key_metadata: bytes | None = None

    @property
    def is_deletion_vector(self) -> bool:
        """Whether it is a blob in a Puffin file."""
        return self.content is FileContent.POSITION_DELETES and self.content_offset is not None

    @property
    def key(self) -> tuple[str, int | None, int | None]:
        """Its identity: many deletion vectors share one Puffin file."""
        return self.path, self.content_offset, self.content_size_in_bytes
