"""What a Puffin file says of a blob. Worker-safe.

Output of the writer and of the footer reader. Source: Iceberg specification, Puffin, "BlobMetadata".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DELETION_VECTOR_V1", "Blob", "BlobMetadata", "deletion_vector_blob"]

DELETION_VECTOR_V1 = "deletion-vector-v1"

ROW_POSITION_FIELD_ID = 2147483645
NOT_INHERITED_YET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob before it is written.

    Attributes:
        type: What the bytes are.
        fields: Ids of the fields that they were computed from.
        snapshot_id: Snapshot that they were computed from.
        sequence_number: Sequence number of that snapshot.
        properties: Facts by name.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobMetadata(Blob):
    """A blob in a file.

    Attributes:
        offset: Place of its first byte in the file.
        length: Its bytes in the file, compressed if it is.
        compression_codec: `zstd`, `lz4`, or None for plain bytes.
    """

    offset: int
    length: int
    compression_codec: str | None = None


def deletion_vector_blob(referenced_data_file: str, cardinality: int) -> Blob:
    """The blob of a data file's deletion vector.

    Snapshot and sequence number are -1: they are inherited from the manifest entry when the commit succeeds.

    Args:
        referenced_data_file: Location of the data file, byte for byte as its manifest has it.
        cardinality: Number of deleted positions.
    """
    return Blob(
        type=DELETION_VECTOR_V1,
        fields=(ROW_POSITION_FIELD_ID,),
        snapshot_id=NOT_INHERITED_YET,
        sequence_number=NOT_INHERITED_YET,
        properties={"referenced-data-file": referenced_data_file, "cardinality": str(cardinality)},
    )
