"""Copy manifests and manifest lists with other values in some fields. Driver.

Input: a metadata file, and a function that changes a record in place. Output: the bytes of the copy. Everything else
is kept: the header and with it the format version, fields that RowDelta does not know, values that are inherited
because they are null, the order of the records. Spec: "Manifests", "Manifest Lists".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from dml.manifests.avro_schema import inner_struct
from dml.manifests.entry_fields import DATA_FILE, PARTITION
from dml.manifests.read import SCHEMA_KEY, decoders_of, header_and_blocks_of, records_of, report_damage
from dml.manifests.write import avro_bytes
from dml.model.manifest import ManifestFile

__all__ = ["RecordFields", "copy_manifest", "copy_manifest_list"]

CODEC_KEY: Final = "avro.codec"


class RecordFields:
    """The fields of a record by their ids.

    Args:
        places: The index of each field of the file.
        values: The record, which is changed in place.
    """

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[int, int], values: list[Any]) -> None:
        self._places = places
        self._values = values

    def __getitem__(self, field_id: int) -> Any:
        place = self._places.get(field_id)
        return None if place is None else self._values[place]

    def __setitem__(self, field_id: int, value: Any) -> None:
        # A file may lack an optional field: it is NULL already.
        if value is not None or field_id in self:
            self._values[self._places[field_id]] = value

    def __contains__(self, field_id: int) -> bool:
        return field_id in self._places


def copy_manifest(io: FileIO, manifest: ManifestFile, change: Callable[[RecordFields, RecordFields], None]) -> bytes:
    """Return a copy of a manifest.

    Args:
        io: The table's FileIO.
        manifest: A line of a manifest list.
        change: Changes an entry, and the file in it.

    Raises:
        CorruptFileError: The manifest is missing or damaged.
        ExecutionError: The storage failed.
    """

    def changer(file_type: StructType) -> Callable[[list[Any]], None]:
        of_entry, of_file = places_of(file_type), places_of(inner_struct(file_type, DATA_FILE))

        def change_record(record: list[Any]) -> None:
            change(RecordFields(of_entry, record), RecordFields(of_file, record[of_entry[DATA_FILE]]))

        return change_record

    return copy_records(io, manifest.manifest_path, "manifest_entry", changer, manifest.manifest_length)


def copy_manifest_list(io: FileIO, location: str, change: Callable[[RecordFields], None]) -> bytes:
    """Return a copy of a manifest list.

    Args:
        io: The table's FileIO.
        location: The manifest list.
        change: Changes a line.

    Raises:
        CorruptFileError: The manifest list is missing or damaged.
        ExecutionError: The storage failed.
    """

    def changer(file_type: StructType) -> Callable[[list[Any]], None]:
        places = places_of(file_type)
        return lambda record: change(RecordFields(places, record))

    return copy_records(io, location, "manifest_file", changer)


def copy_records(
    io: FileIO,
    location: str,
    name: str,
    changer: Callable[[StructType], Callable[[list[Any]], None]],
    length: int | None = None,
) -> bytes:
    with report_damage(location):
        header, file_type, blocks = header_and_blocks_of(io, location, length)
        change = changer(file_type)

        def changed(record: list[Any]) -> list[Any]:
            change(record)
            return record

        kept = {key: value.decode() for key, value in header.items() if key not in {SCHEMA_KEY, CODEC_KEY}}
        records = map(changed, records_of(file_type, decoders_of(blocks), stored_type(file_type)))
        return avro_bytes(Schema(*file_type.fields), name, kept, records)


def places_of(kind: StructType) -> dict[int, int]:
    return {field.field_id: place for place, field in enumerate(kind.fields)}


def stored_type(file_type: StructType) -> StructType:
    """Return the type to read all fields of a file: a partition tuple is read by position, as its ids may repeat."""
    data = inner_struct(file_type, DATA_FILE)
    return with_type(file_type, DATA_FILE, with_type(data, PARTITION, StructType())) if data.fields else file_type


def with_type(kind: StructType, field_id: int, inner: StructType) -> StructType:
    return StructType(
        *(one.model_copy(update={"field_type": inner}) if one.field_id == field_id else one for one in kind.fields)
    )
