"""Arrow types of Iceberg types: what the scan reads without loss is what writers write."""

import pyarrow as pa
import pytest
from pyiceberg.types import (
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)

from dml.errors import NotSupportedError
from dml.model.arrow_types import PLAIN, primitive_arrow_type
from dml.read import projection as read
from dml.write import file_layout as written

PRIMITIVES = [*(kind() for kind in PLAIN), DecimalType(9, 2), FixedType(5)]
NESTED = [
    ListType(2, LongType(), element_required=False),
    MapType(2, StringType(), 3, UUIDType(), value_required=False),
    StructType(NestedField(2, "a", TimeType(), required=False)),
]


@pytest.mark.parametrize("kind", [*PRIMITIVES, *NESTED], ids=str)
def test_files_are_read_as_they_are_written(kind: IcebergType) -> None:
    field = NestedField(1, "x", kind, required=False)
    assert read.arrow_field(field, spark=False).equals(written.arrow_field(field), check_metadata=True)


def test_what_is_required_is_checked_where_rows_are_written() -> None:
    kind = StructType(NestedField(2, "a", LongType(), required=True))
    assert not written.arrow_type(kind, "x").field("a").nullable
    assert read.arrow_type(kind, spark=False).field("a").nullable


def test_spark_takes_other_forms_of_some_types() -> None:
    kinds = [UUIDType(), FixedType(5), TimeType(), LongType(), UnknownType()]
    assert [read.arrow_type(kind, spark=True) for kind in kinds] == [
        pa.string(), pa.binary(), pa.time64("ns"), pa.int64(), pa.null(),
    ]  # fmt: skip


def test_a_type_without_an_arrow_form_is_refused_by_name() -> None:
    assert primitive_arrow_type(UnknownType()) is None
    with pytest.raises(NotSupportedError, match="column 'x': it holds values of the type unknown"):
        written.arrow_type(UnknownType(), "x")


@pytest.mark.parametrize("kind", [GeometryType(), GeographyType()], ids=str)
def test_geometries_are_bytes_which_spark_is_not_given(kind: IcebergType) -> None:
    assert read.arrow_type(kind, spark=False) == written.arrow_type(kind, "x") == pa.binary()
    with pytest.raises(NotSupportedError, match=f"of the type {kind} cannot be read"):
        read.arrow_type(kind, spark=True)


def test_spark_has_no_nanoseconds() -> None:
    with pytest.raises(NotSupportedError, match="Columns of the type timestamptz_ns cannot be read"):
        read.arrow_type(TimestamptzNanoType(), spark=True)
