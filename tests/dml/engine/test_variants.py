"""Columns of the type `variant`: carried, shredded or not, by statements that do not name them, and read and written.

What is in the files is also asked of DuckDB and of Spark's own Parquet reader.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from dml.catalog import create_table
from dml.commit import AppendFiles, commit
from dml.engine.distribution import value_hash_sql
from dml.errors import AnalysisError, DataError, DmlError, NotSupportedError
from dml.pyiceberg_patch import VariantType
from tests.dml.commit.builders import data_file
from tests.interop.readers import duckdb_connection
from tests.lake import COMMANDS, Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

V3 = {"format-version": "3"}
SPLICED = {"write.splice.min-file-size-bytes": "1"}
ALL_MODES: tuple[tuple[str, dict[str, str]], ...] = (
    ("copy-on-write", {}),
    ("copy-on-write", SPLICED),
    ("merge-on-read", {}),
)
MODES = by_night(ALL_MODES, always=lambda one: one[1] or "read" in one[0])
COUNT = 8


def value(number: int) -> Any:
    """What the row of a number holds: objects, some of them like others, and values of other types."""
    if number % 4 == 3:
        return [number, None, "x"]
    return {"a": number, "b": f"b{number}", "c": {"d": [number, 1.5]}, **({"e": True} if number % 2 else {})}


def values(lake: Lake, name: str) -> dict[int, tuple[str | None, Any]]:
    """The rows of a table as RowDelta reads them."""
    rows = lake.session.sql(f"SELECT id, s, to_json(v) FROM {name}").collect()
    assert len({row[0] for row in rows}) == len(rows)
    return {number: (s, None if text is None else json.loads(text)) for number, s, text in rows}


def others(lake: Lake, name: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """The variants as DuckDB reads them in the table, and as Spark's own reader reads them in the files."""
    location = lake.table(name).metadata_location.removeprefix("file://")
    rows = duckdb_connection().execute(f"SELECT id, v::JSON::VARCHAR FROM iceberg_scan('{location}')").fetchall()
    lake.session.disable()
    try:
        files = [file.path for file in lake.data_files(name)]
        frame = lake.session.spark.read.parquet(*files).selectExpr("id", "to_json(v)")
        found = {number: loaded(text) for number, text in frame.collect()}
    finally:
        lake.session.enable()
    return {number: loaded(text) for number, text in rows}, found


def loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def duckdb_file(path: Path, shredding: str | None) -> None:
    """A file of DuckDB's, with field ids."""
    rows = ", ".join(f"({number}, 's{number}', '{json.dumps(value(number))}')" for number in range(COUNT))
    options = "" if shredding is None else f", SHREDDING {{v: '{shredding}'}}"
    duckdb.connect().execute(
        f"COPY (SELECT id::BIGINT AS id, s, j::JSON::VARIANT AS v FROM (VALUES {rows}) t(id, s, j) ORDER BY id) "
        f"TO '{path}' (FORMAT parquet, FIELD_IDS {{id: 1, s: 2, v: 3}}, ROW_GROUP_SIZE 2048{options})"
    )


def made(lake: Lake, mode: str, shredding: str | None, **properties: str) -> str:
    """A table with a file of another engine."""
    name = lake.new_name()
    modes = {f"write.{command}.mode": mode for command in COMMANDS}
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "s", StringType(), required=False),
        NestedField(3, "v", VariantType(), required=False),
    )
    catalog = lake.session.registry.catalogs["lake"]
    table = create_table(catalog, tuple(name.split(".")), schema, properties={**V3, **modes, **properties})
    file = replace(data_file(table, []), record_count=COUNT, lower_bounds={}, upper_bounds={}, value_counts={})
    local = Path(file.path.removeprefix("file://"))
    duckdb_file(local, shredding)
    file = replace(file, file_size_in_bytes=local.stat().st_size, null_value_counts={})
    commit(table, AppendFiles(data_files=(file,)))
    return name


def is_shredded(path: str) -> bool:
    group = pq.read_schema(path.removeprefix("file://")).field("v").type
    return group.get_field_index("typed_value") >= 0


def annotations(path: str) -> int:
    """How many groups of a file are called variants."""
    return str(pq.ParquetFile(path.removeprefix("file://")).schema).count("(Variant(1))")


@pytest.mark.parametrize(("mode", "properties"), MODES)
@pytest.mark.parametrize(
    "shredding",
    by_night([None, "INTEGER[]", "STRUCT(b VARCHAR, c STRUCT(d DOUBLE[]))"], always=lambda one: one and "b" in one),
)
def test_statements_that_do_not_name_them_carry_them(
    lake: Lake, mode: str, properties: dict[str, str], shredding: str | None
) -> None:
    """Copied as they are where files are spliced, shredded or not; put together where they are written anew."""
    name = made(lake, mode, shredding, **properties)
    (first,) = lake.data_files(name)
    assert is_shredded(first.path)
    expected = {number: (f"s{number}", value(number)) for number in range(COUNT)}
    assert values(lake, name) == expected
    lake.session.sql(f"UPDATE {name} SET s = 'changed' WHERE id IN (1, 2)")
    expected |= {number: ("changed", value(number)) for number in (1, 2)}
    assert values(lake, name) == expected
    if properties:
        (spliced,) = lake.data_files(name)
        assert is_shredded(spliced.path), "the column was not copied"
        assert annotations(spliced.path) == 1
        assert dict(spliced.null_value_counts or {})[3] == 0
    lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT id, 'merged' AS s FROM range(6, 10)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s)"
    )
    expected |= {number: ("merged", value(number)) for number in (6, 7)} | dict.fromkeys((8, 9), ("merged", None))
    assert values(lake, name) == expected
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (0, 7)")
    del expected[0], expected[7]
    assert values(lake, name) == expected
    assert lake.session.verify(name).ok
    read, in_files = others(lake, name)
    variants = {number: found for number, (_, found) in expected.items()}
    assert read == variants
    if mode == "copy-on-write":
        assert in_files == variants
    for file in lake.data_files(name):
        assert annotations(file.path) == 1
        assert 3 not in (file.lower_bounds or {})


@pytest.mark.parametrize(("mode", "properties"), by_night(ALL_MODES, always=lambda one: bool(one[1])))
def test_they_are_written_read_and_used_in_conditions(lake: Lake, mode: str, properties: dict[str, str]) -> None:
    modes = {f"write.{command}.mode": mode for command in COMMANDS}
    name = lake.create("id BIGINT, s STRING, v VARIANT", **V3, **modes, **properties)
    lake.session.sql(
        f"""INSERT INTO {name} VALUES (1, 'a', parse_json('{{"a": 1, "b": [1, {{"c": null}}]}}')),
        (2, 'b', parse_json('"text"')), (3, 'c', NULL), (4, 'd', parse_json('null')),
        (5, 'e', parse_json('{{"a": 5}}'))"""
    )
    expected: dict[int, Any] = {1: {"a": 1, "b": [1, {"c": None}]}, 2: "text", 3: None, 4: None, 5: {"a": 5}}
    (file,) = lake.data_files(name)
    assert (file.value_counts or {})[3] == 5
    assert (file.null_value_counts or {})[3] == 1, "a variant's null is not NULL"
    assert {3} & {*(file.lower_bounds or {}), *(file.upper_bounds or {}), *(file.nan_value_counts or {})} == set()
    assert lake.rows(f"SELECT id FROM {name} WHERE v IS NULL") == [(3,)]
    assert lake.rows(f"SELECT count(v) FROM {name}") == [(4,)]
    lake.session.sql(f"""UPDATE {name} SET v = parse_json('[true]') WHERE variant_get(v, '$.a', 'int') = 1""")
    expected[1] = [True]
    lake.session.sql(
        f"""MERGE INTO {name} t USING (SELECT id, parse_json(concat('{{"k":', id, '}}')) AS v FROM range(3, 7)) s
        ON t.id = s.id WHEN MATCHED AND is_variant_null(t.v) THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v
        WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"""
    )
    del expected[4]
    expected |= {number: {"k": number} for number in (3, 5, 6)}
    assert {number: found for number, (_, found) in values(lake, name).items()} == expected
    assert lake.session.sql(f"DELETE FROM {name} WHERE variant_get(v, '$.k', 'int') >= 5").rows_deleted == 2
    lake.session.sql(f"INSERT INTO {name} SELECT id + 10, s, v FROM {name} WHERE id = 3")
    del expected[5], expected[6]
    expected[13] = {"k": 3}
    assert {number: found for number, (_, found) in values(lake, name).items()} == expected
    read, in_files = others(lake, name)
    assert read == expected
    if mode == "copy-on-write":
        assert in_files == expected
    assert lake.session.verify(name).ok
    assert lake.rows(f"SELECT count(readable_metrics.id) FROM {name}.files") != []


def test_they_stand_inside_other_types_and_where_a_value_is_required(lake: Lake) -> None:
    columns = "id BIGINT, r VARIANT NOT NULL, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>, v STRUCT<x: VARIANT, n: INT>"
    name = lake.create(columns, **V3)
    lake.session.sql(
        f"INSERT INTO {name} SELECT 1, parse_json('1'), array(parse_json('[1]'), NULL), map('k', parse_json('\"x\"')), "
        "named_struct('x', parse_json('{\"q\": 1}'), 'n', 3)"
    )
    with pytest.raises(DataError, match="requires a value"):
        lake.session.sql(f"INSERT INTO {name} (id, r) SELECT id, CAST(NULL AS VARIANT) FROM range(1)")
    lake.session.sql(f"UPDATE {name} SET id = 2, v.x = parse_json('true')")
    row = (2, "1", "[[1],null]", '{"k":"x"}', '{"x":true,"n":3}')
    assert lake.rows(f"SELECT id, to_json(r), to_json(l), to_json(m), to_json(v) FROM {name}") == [row]
    (file,) = lake.data_files(name)
    assert annotations(file.path) == 4
    read, in_files = others(lake, name)
    assert read == in_files == {2: {"x": True, "n": 3}}
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN w VARIANT")
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN v.y VARIANT")
    assert lake.rows(f"SELECT w, v.y, v.n FROM {name}") == [(None, None, 3)]
    lake.session.sql(f"UPDATE {name} SET w = r, l = array(r)")
    assert lake.rows(f"SELECT to_json(w), to_json(l), v.y FROM {name}") == [("1", "[1]", None)]


def test_dataframes_and_tables_of_queries_have_them(lake: Lake, spark: SparkSession) -> None:
    name = lake.new_name()
    lake.session.sql(
        f"CREATE TABLE {name} PARTITIONED BY (p) TBLPROPERTIES ('format-version' = '3') AS "
        "SELECT id, id % 2 AS p, parse_json(concat('{\"a\":', id, '}')) AS v FROM range(6)"
    )
    frame = lake.session.table(name)
    frame.where("id < 2").writeTo(f"lake.{name}").append()
    found = frame.selectExpr("id", "v AS w").join(frame, "id").selectExpr("sum(variant_get(w, '$.a', 'int'))").collect()
    assert found[0][0] == sum(range(6)), "of the state before"
    row = lake.session.sql(f"SELECT v FROM {name} WHERE id = 5").collect()[0]
    assert row.v.toPython() == {"a": 5}
    assert [row.v.toPython() for row in lake.session.sql(f"SELECT v FROM {name} WHERE p = 1").toLocalIterator()]
    batch = spark.createDataFrame([(9, row.v)], "id BIGINT, v VARIANT")
    merge = lake.session.merge_into(batch, f"{name} t", "t.id = source.id")
    assert merge.whenNotMatched().insert({"id": "source.id", "v": "source.v"}).merge().rows_inserted == 1


REFUSED = (
    ("DELETE FROM {} WHERE v = parse_json('1')", AnalysisError),
    ("MERGE INTO {} t USING (SELECT parse_json('1') AS v) s ON t.v = s.v WHEN MATCHED THEN DELETE", AnalysisError),
    ("INSERT INTO {} SELECT 1, 's', parse_json('1') AS v GROUP BY v", AnalysisError),
    ("INSERT INTO {} VALUES (1, 's', 17)", AnalysisError),
    ("INSERT INTO {} VALUES (1, 's', '{{}}')", AnalysisError),
    ("UPDATE {} SET v = parse_json('{{') WHERE true", DmlError),
    ("UPDATE {} SET id = variant_get(v, '$.b', 'int') WHERE id = 1", DmlError),
    ("ALTER TABLE {} ADD PARTITION FIELD v", AnalysisError),
    ("ALTER TABLE {} WRITE ORDERED BY v", AnalysisError),
    ("ALTER TABLE {} ALTER COLUMN v TYPE STRING", NotSupportedError),
    ("ALTER TABLE {} ALTER COLUMN s TYPE VARIANT", NotSupportedError),
    ("ALTER TABLE {} ADD COLUMN w VARIANT DEFAULT 1", NotSupportedError),
)


def test_what_cannot_be_done_says_so_and_changes_nothing(lake: Lake) -> None:
    name = made(lake, "copy-on-write", None)
    before = lake.state(name)
    for statement, error in REFUSED:
        with pytest.raises(error):
            lake.session.sql(statement.format(name))
    assert lake.state(name) == before


def test_they_are_written_into_parquet_files_alone(lake: Lake) -> None:
    for file_format in ("avro", "orc"):
        name = made(lake, "copy-on-write", None, **{"write.format.default": file_format})
        before = lake.state(name)
        with pytest.raises(NotSupportedError, match=f"not into {file_format.upper()}"):
            lake.session.sql(f"UPDATE {name} SET s = 'x' WHERE id = 1")
        assert lake.state(name) == before


def test_row_groups_are_copied_beside_others_that_are_written_anew(lake: Lake) -> None:
    """Of one file: in one a row leaves, in one a row is updated, in one a variant is, and two stay."""
    name = lake.create("id BIGINT, s STRING, v VARIANT", **V3, **SPLICED, **{"write.parquet.row-group-limit": "2"})
    query = "SELECT id, 's' AS s, IF(id = 4, NULL, parse_json(concat('{\"a\":', id, '}'))) AS v FROM range(0, 10, 1, 1)"
    lake.session.sql(f"INSERT INTO {name} {query}")
    expected: dict[int, tuple[str, Any]]
    expected = {number: ("s", None if number == 4 else {"a": number}) for number in range(10)}
    result = lake.session.sql(
        f"""MERGE INTO {name} t USING (SELECT * FROM VALUES (3), (5), (6)) s(id) ON t.id = s.id
        WHEN MATCHED AND t.id = 3 THEN DELETE
        WHEN MATCHED AND t.id = 5 THEN UPDATE SET s = 'x'
        WHEN MATCHED THEN UPDATE SET v = parse_json('[]')"""
    )
    assert result.data_files_spliced == 1
    del expected[3]
    expected |= {5: ("x", {"a": 5}), 6: ("s", [])}
    assert values(lake, name) == expected
    assert others(lake, name) == ({number: v for number, (_, v) in expected.items()},) * 2
    (file,) = lake.data_files(name)
    assert annotations(file.path) == 1
    assert (dict(file.value_counts or {})[3], dict(file.null_value_counts or {})[3]) == (9, 1)
    assert lake.session.verify(name).ok


def test_a_table_may_have_them_shredded(lake: Lake) -> None:
    """What Spark's own reader and DuckDB put together is what was written; splicing keeps the columns."""
    name = lake.create("id BIGINT, s STRING, v VARIANT", **V3, **SPLICED, **{"write.parquet.shred-variants": "true"})
    rows = ", ".join(f"({number}, 's', parse_json('{json.dumps(value(number))}'))" for number in range(COUNT))
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}, (8, 's', NULL)")
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id + 20, s, v FROM {name} WHERE id NOT IN (3, 7)")
    expected = {number: value(number) for number in range(COUNT)} | {8: None, 28: None}
    expected |= {number + 20: value(number) for number in range(COUNT) if number % 4 != 3}
    assert [is_shredded(file.path) for file in lake.data_files(name)].count(True) == 1, "arrays beside objects are not"
    assert others(lake, name) == (expected, expected)
    lake.session.sql(f"UPDATE {name} SET s = 'changed' WHERE id > 20")
    lake.session.sql(f"DELETE FROM {name} WHERE variant_get(v, '$.a', 'int') = 4")
    lake.session.sql(f'UPDATE {name} SET v = parse_json(\'{{"b":"new"}}\') WHERE id IN (5, 8, 25)')
    expected = {number: found for number, found in expected.items() if number not in {4, 24}}
    expected |= {number: {"b": "new"} for number in (5, 8, 25)}
    assert {number: found for number, (_, found) in values(lake, name).items()} == expected
    assert others(lake, name) == (expected, expected)
    assert lake.session.verify(name).ok


def test_rows_that_spark_does_not_see_keep_theirs(lake: Lake) -> None:
    source = made(lake, "copy-on-write", "STRUCT(b VARCHAR)")
    name = lake.create("id BIGINT, s STRING, v VARIANT", **V3)
    lake.session.sql(f"INSERT INTO {name} SELECT * FROM {source} WHERE id < 5")
    assert values(lake, name) == {number: (f"s{number}", value(number)) for number in range(5)}


def test_rows_are_spread_by_their_other_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id, parse_json('1') v, array(parse_json('1')) a, struct(parse_json('1')) s FROM range(9)")
    assert value_hash_sql(frame) == "hash(`id`)"
    assert len({row[0] for row in frame.selectExpr(value_hash_sql(frame)).collect()}) == 9
