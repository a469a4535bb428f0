"""The footer of a Puffin file: what its blobs are and where they lie. Worker-safe.

Input and output: the JSON payload's bytes and `PuffinFooter`. Source: Iceberg specification, Puffin, "Footer".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dml.deletes.puffin.blob import BlobMetadata
from dml.errors import CorruptFileError

__all__ = ["CREATED_BY", "MAGIC", "PuffinFooter", "corrupt_puffin", "footer_payload", "parse_footer_payload"]

MAGIC = b"PFA1"
CREATED_BY = "created-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinFooter:
    """The blobs of a file in their order, and properties of the file."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


def corrupt_puffin(file: str, what: str) -> CorruptFileError:
    """The error for a Puffin file that breaks its format."""
    return CorruptFileError(
        f"The Puffin file {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )


def footer_payload(footer: PuffinFooter) -> bytes:
    """The JSON of a footer, UTF-8."""
    payload: dict[str, Any] = {"blobs": [_blob_json(blob) for blob in footer.blobs]}
    if footer.properties:
        payload["properties"] = dict(footer.properties)
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def _blob_json(blob: BlobMetadata) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        result["compression-codec"] = blob.compression_codec
    if blob.properties:
        result["properties"] = dict(blob.properties)
    return result


def parse_footer_payload(payload: bytes, *, file: str) -> PuffinFooter:
    """The footer that the JSON describes; names that the specification does not have are passed over.

    Raises:
        CorruptFileError: it is not JSON, or lacks a member, or one has the wrong type.
    """
    try:
        content = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise corrupt_puffin(file, f"its footer is not JSON ({error})") from error
    blobs = _member(content, "blobs", list, file)
    return PuffinFooter(blobs=tuple(_blob(blob, file) for blob in blobs), properties=_properties(content, file))


def _blob(content: Any, file: str) -> BlobMetadata:
    fields = _member(content, "fields", list, file)
    if not all(type(field_id) is int for field_id in fields):
        raise corrupt_puffin(file, "the 'fields' of a blob in its footer are not all integers")
    codec = content.get("compression-codec")
    if codec is not None and not isinstance(codec, str):
        raise corrupt_puffin(file, "the 'compression-codec' of a blob in its footer is not a string")
    return BlobMetadata(
        type=_member(content, "type", str, file),
        fields=tuple(fields),
        snapshot_id=_member(content, "snapshot-id", int, file),
        sequence_number=_member(content, "sequence-number", int, file),
        offset=_member(content, "offset", int, file),
        length=_member(content, "length", int, file),
        compression_codec=codec,
        properties=_properties(content, file),
    )


def _member(content: Any, name: str, kind: type, file: str) -> Any:
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not kind:  # a bool is an int to isinstance
        raise corrupt_puffin(file, f"its footer has no '{name}' of type {kind.__name__} where one must be")
    return value


def _properties(content: dict[str, Any], file: str) -> dict[str, str]:
    properties = content.get("properties")
    if properties is None:
        return {}
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise corrupt_puffin(file, "'properties' in its footer do not map names to strings")
    return properties
