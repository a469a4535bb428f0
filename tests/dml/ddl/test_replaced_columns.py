"""Other columns in the place of all: which keep their ids, and which cannot go."""

import pytest
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from dml.ddl.alter_table import replaced_columns
from dml.errors import AlreadyExistsError, NotSupportedError
from dml.iceberg import changed_metadata

NESTED = "a INT, s STRUCT<x: INT, y: STRING>, l ARRAY<INT>, m MAP<STRING, STRUCT<z: INT>>"


def column(name, kind):
    return NestedField(0, name, kind, required=False)


def struct(**fields):
    return StructType(*(column(name, kind) for name, kind in fields.items()))


def replaced(lake, *columns, case_sensitive=False):
    """The table's schema before, and with other columns."""
    metadata = lake.table().metadata
    change = replaced_columns(metadata, Schema(*columns), case_sensitive=case_sensitive)
    return metadata.schema(), changed_metadata(metadata, change.updates).schema()


def ids(schema, *names):
    return [schema.find_field(name).field_id for name in names]


def test_what_is_the_same_or_wider_inside_keeps_its_ids(new_table):
    """In the order of the new columns, under the table's names."""
    before, after = replaced(
        new_table(NESTED),
        column("m", MapType(0, StringType(), 0, struct(z=LongType()), value_required=False)),
        column("l", ListType(0, LongType(), element_required=False)),
        column("S", struct(x=LongType(), y=StringType())),
        column("a", IntegerType()),
    )
    inside = ("a", "s", "s.x", "s.y", "l", "l.element", "m", "m.key", "m.value", "m.value.z")
    assert ids(after, *inside) == ids(before, *inside)
    assert [field.name for field in after.fields] == ["m", "l", "s", "a"]
    wider = [after.find_field(name).field_type for name in ("s.x", "l.element", "m.value.z")]
    assert wider == [LongType()] * 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a", StringType()),
        ("a", ListType(0, IntegerType(), element_required=False)),
        ("s", struct(x=IntegerType())),
        ("s", struct(y=StringType(), x=IntegerType())),
        ("s", struct(x=StringType(), y=StringType())),
        ("l", ListType(0, StringType(), element_required=False)),
        ("m", MapType(0, IntegerType(), 0, struct(z=IntegerType()), value_required=False)),
        ("m", MapType(0, StringType(), 0, StringType(), value_required=False)),
    ],
)
def test_what_is_of_another_type_is_a_new_column(new_table, name, kind):
    """Its ids were never given out before, down to the last one inside."""
    before, after = replaced(new_table(NESTED), column(name, kind))
    assert set(index_by_id(before)).isdisjoint(index_by_id(after))


def test_names_that_differ_by_case_alone(new_table):
    lake = new_table("a INT")
    with pytest.raises(AlreadyExistsError, match="Two of the columns are called 'A'"):
        replaced(lake, column("a", IntegerType()), column("A", IntegerType()))
    before, after = replaced(lake, column("A", IntegerType()), case_sensitive=True)
    assert ids(after, "A") != ids(before, "a")


def test_a_reserved_name_is_refused(new_table):
    with pytest.raises(NotSupportedError, match="'_file' is reserved"):
        replaced(new_table("a INT"), column("_file", StringType()))
