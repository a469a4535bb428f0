"""Geometries as Parquet has them: bytes that the file's schema calls GEOMETRY or GEOGRAPHY. Worker.

Input: a file's columns. Output: their Arrow schema with the extension type that Arrow's Parquet writer takes for these
types. Spec: "Appendix A: Parquet"; Parquet's logical types GEOMETRY and GEOGRAPHY.

Everywhere else the values are plain bytes: nobody looks into them.
"""

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.types import GeographyType, GeometryType, IcebergType, NestedField

from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type

__all__ = ["geometry_schema"]

GEOARROW: Final = "geoarrow.wkb"
DEFAULT_CRS: Final = "OGC:CRS84"


class WellKnownBinary(pa.ExtensionType):  # type: ignore[misc]
    """GeoArrow's type of geometries; it is not registered, so that files are read as bytes.

    Args:
        metadata: What it says of the reference system and of the edges.
    """

    def __init__(self, metadata: dict[str, str]) -> None:
        self._metadata = metadata
        super().__init__(pa.binary(), GEOARROW)

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._metadata).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, serialized: bytes) -> "WellKnownBinary":
        return cls(json.loads(serialized))


def geometry_schema(columns: Sequence[NestedField]) -> pa.Schema:
    """The Arrow schema of a Parquet file with geometries.

    Args:
        columns: The file's columns.
    """
    return pa.schema([parquet_field(column) for column in columns])


def parquet_field(field: NestedField) -> pa.Field:
    """A column, or a field inside one, as `file_layout.arrow_field` has it."""
    kind = arrow_type_of(field.field_type, parquet_type, parquet_field)
    return pa.field(field.name, kind, not field.required, {PARQUET_FIELD_ID: str(field.field_id).encode()})


def parquet_type(primitive: IcebergType) -> pa.DataType:
    """The Arrow type of a primitive type's values in a Parquet file."""
    match primitive:
        case GeometryType(crs=crs):
            return WellKnownBinary({} if crs == DEFAULT_CRS else {"crs": crs})
        case GeographyType(crs=crs, algorithm=algorithm):
            return WellKnownBinary({"edges": algorithm, **({} if crs == DEFAULT_CRS else {"crs": crs})})
    found = primitive_arrow_type(primitive)
    assert found is not None  # the layout of files has been made of them
    return found
