"""Spark's type text to Iceberg types, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from dml.ddl import parse_type, schema_from_json, type_text
from dml.ddl.new_schema import schema_of
from dml.ddl.types import PRIMITIVES
from dml.errors import AlreadyExistsError, AnalysisError, NotSupportedError
from dml.model.arrow_types import NAMES
from dml.sqlparse.quoting import quote_string, string_value

PRIMITIVE = st.one_of(
    st.sampled_from([kind for kind in PRIMITIVES.values() if type(kind) in NAMES]),
    st.builds(FixedType, st.integers(1, 99)),
    st.integers(1, 38).flatmap(lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p))),
    st.just(TimeType()),
)


def nested(children: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
    field = st.builds(
        lambda kind, required, doc: (kind, required, doc),
        children,
        st.booleans(),
        st.none() | st.text(min_size=1).filter(lambda text: "\0" not in text),
    )
    names = st.lists(st.text("aB1 `:é", min_size=1, max_size=4), min_size=1, max_size=3, unique_by=str.lower)
    struct = names.flatmap(
        lambda names: st.tuples(*[field] * len(names)).map(
            lambda fields: StructType(
                *(
                    NestedField(0, name, kind, required=required, doc=doc)
                    for name, (kind, required, doc) in zip(names, fields, strict=True)
                )
            )
        )
    )
    array = children.map(lambda kind: ListType(0, kind, element_required=False))
    entries = st.builds(lambda key, value: MapType(0, key, 0, value, value_required=False), children, children)
    return struct | array | entries


@given(st.recursive(PRIMITIVE, nested, max_leaves=6))
def test_a_type_reads_back_from_its_own_text(kind: IcebergType) -> None:
    assert parse_type(type_text(kind)) == kind


@given(st.text())
def test_a_string_reads_back_from_its_literal(text: str) -> None:
    assert string_value(quote_string(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TINYINT", "int"),
        ("smallint", "int"),
        ("Long", "bigint"),
        ("varchar(20)", "string"),
        ("CHAR(3)", "string"),
        ("string collate UTF8_BINARY", "string"),
        ("decimal", "decimal(10,0)"),
        ("numeric( 12 )", "decimal(12,0)"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("time", "time(6)"),
        ("fixed[4]", "fixed(4)"),
        (
            r"""struct<a int comment r'\d "x"', b int comment "say ""\U0001F600\"">""",
            "struct<a:int COMMENT '\\\\d \"x\"',b:int COMMENT 'say \"😀\"'>",
        ),
        (
            "struct<a int not null comment 'it''s', `b c`: string>",
            "struct<a:int NOT NULL COMMENT 'it\\'s',`b c`:string>",
        ),
        ("map<string, array<struct<x: date>>>", "map<string,array<struct<x:date>>>"),
    ],
)
def test_a_type_has_the_text_that_spark_gives_it(text: str, expected: str) -> None:
    assert type_text(parse_type(text)) == expected


def test_a_timestamp_has_a_zone_and_a_timestamp_ntz_has_none() -> None:
    assert parse_type("timestamp") == TimestamptzType()
    assert parse_type("timestamp_ntz") == TimestampType()


@pytest.mark.parametrize("text", ["interval day", "void", "time(9)", "string collate UNICODE", "geometry(4326)"])
def test_what_iceberg_cannot_store_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(NotSupportedError) as caught:
        parse_type(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strin",
        "array<int",
        "map<int>",
        "struct<>",
        "struct<a: int, A: int>",
        "decimal(39)",
        "decimal(4, 5)",
        "int)",
        "fixed(0)",
        "array<int> x",
        "struct<a: int not>",
        "int; drop",
        "struct<a: int comment x>",
        "decimal(-1)",
    ],
)
def test_what_is_no_type_is_an_error_that_names_the_text(text: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        parse_type(text)
    assert caught.value.hint


def test_the_nearest_type_is_suggested() -> None:
    with pytest.raises(AnalysisError, match="Did you mean 'string'"):
        parse_type("strng")


def fields(text: str) -> tuple[NestedField, ...]:
    """Fields without ids."""
    struct = parse_type(f"struct<{text}>")
    assert isinstance(struct, StructType)
    return struct.fields


def test_ids_go_to_the_top_level_first_and_then_into_each_column() -> None:
    schema = schema_of(fields("a: struct<x: int, y: array<struct<z: int>>>, b: map<string, int>, c: int"))
    assert {schema.find_column_name(i): i for i in range(1, schema.highest_field_id + 1)} == {
        "a": 1,
        "b": 2,
        "c": 3,
        "a.x": 4,
        "a.y": 5,
        "a.y.element": 6,
        "a.y.element.z": 7,
        "b.key": 8,
        "b.value": 9,
    }


def test_the_schema_of_a_query_is_read_from_sparks_json() -> None:
    text = (
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{"comment":"k"}},'
        '{"name":"l","type":{"type":"array","elementType":"integer","containsNull":false},"nullable":true,"metadata":{}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[{"name":"d",'
        '"type":"decimal(5,2)","nullable":false,"metadata":{}}]},"valueContainsNull":true},"nullable":true,"metadata":{}}]}'
    )
    strict = schema_from_json(text, as_nullable=False)
    assert [field.required for field in strict.fields] == [True, False, False]
    assert strict.find_field("l.element").required
    assert strict.find_field("id").doc == "k"
    relaxed = schema_from_json(text)
    assert not any(relaxed.find_field(name).required for name in ("id", "l.element", "m.value.d"))
    assert relaxed.find_type("m.value.d") == DecimalType(5, 2)
    assert relaxed.find_type("m.key") == StringType()


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(AlreadyExistsError):
        schema_of((*fields("id: int"), *fields("ID: string")))
