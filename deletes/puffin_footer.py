"""Change the footer of a Puffin file. Worker-safe.

Input: the bytes of a file, and a function of a data file's location. Output: the bytes of a file with the same blobs
at the same offsets, whose deletion vectors refer to other locations. Source: Puffin, "Footer", "deletion-vector-v1 blob
type". A footer ends in the length of its payload, flags and the magic; the payload may be compressed with LZ4.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dml import limits
from dml.deletes.deletion_vector import FOOTER_END, NO_FLAGS, PUFFIN_MAGIC, REFERENCED_DATA_FILE
from dml.errors import CorruptFileError

__all__ = ["with_other_references"]

COMPRESSED = 1


def with_other_references(data: bytes, change: Callable[[str], str], *, file: str) -> bytes:
    """Return a Puffin file whose deletion vectors refer to other data files.

    Args:
        data: The whole file.
        change: Returns the new location of a data file.
        file: The location of the file, for messages.

    Raises:
        CorruptFileError: The bytes have no footer of a Puffin file.
    """
    start, payload = read_footer(data, file)
    for blob in payload.get("blobs", []):
        properties = blob.get("properties", {})
        if REFERENCED_DATA_FILE in properties:
            properties[REFERENCED_DATA_FILE] = change(properties[REFERENCED_DATA_FILE])
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join((data[:start], PUFFIN_MAGIC, text, FOOTER_END.pack(len(text), NO_FLAGS, PUFFIN_MAGIC)))


def read_footer(data: bytes, file: str) -> tuple[int, dict[str, Any]]:
    """Return the offset and the payload of a footer."""
    end = len(data) - FOOTER_END.size
    if end < len(PUFFIN_MAGIC) or not data.startswith(PUFFIN_MAGIC):
        raise corrupt(file, "it does not begin and end as one")
    length, flags, magic = FOOTER_END.unpack_from(data, end)
    start = end - length - len(PUFFIN_MAGIC)
    if magic != PUFFIN_MAGIC or flags & ~COMPRESSED or start < 0 or not data.startswith(PUFFIN_MAGIC, start):
        raise corrupt(file, "its footer has another form")
    payload = data[start + len(PUFFIN_MAGIC) : end]
    try:
        parsed = json.loads(decompressed(payload) if flags else payload)
    except (ValueError, RecursionError, OSError, pa.ArrowException) as error:
        raise corrupt(file, f"its footer cannot be read ({error})") from error
    blobs = parsed.get("blobs") if isinstance(parsed, dict) else None
    if not isinstance(blobs, list) or not all(is_blob(blob) for blob in blobs):
        raise corrupt(file, "its footer lists no blobs")
    return start, parsed


def is_blob(blob: object) -> bool:
    if not isinstance(blob, dict) or not isinstance(properties := blob.get("properties", {}), dict):
        return False
    return isinstance(properties.get(REFERENCED_DATA_FILE, ""), str)


def decompressed(payload: bytes) -> bytes:
    limit = max(limits.FREE_METADATA_BYTES, limits.MAX_DECOMPRESSION_RATIO * len(payload))
    with pa.CompressedInputStream(pa.BufferReader(payload), "lz4") as stream:
        plain = bytes(stream.read(limit + 1))
    if len(plain) > limit:
        raise ValueError(f"it has more than {limit} bytes when it is decompressed")
    return plain


def corrupt(file: str, what: str) -> CorruptFileError:
    return CorruptFileError(
        f"The Puffin file {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )
