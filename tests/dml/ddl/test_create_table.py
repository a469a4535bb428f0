"""CREATE TABLE, REPLACE TABLE and DROP TABLE."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from dml.ddl import create_table
from dml.errors import AlreadyExistsError, AnalysisError, NotFoundError, NotSupportedError
from dml.sqlparse import parse
from tests.dml.ddl.conftest import DdlCatalog

NewTable = Callable[..., DdlCatalog]


def test_a_table_has_its_columns_comments_and_properties(lake: DdlCatalog, version: int) -> None:
    lake.run(
        "CREATE TABLE db.t (id BIGINT NOT NULL COMMENT 'key', s STRUCT<a: INT NOT NULL>) USING iceberg COMMENT 'about' "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    table = lake.table()
    assert lake.columns() == ["1: id: required long (key)", "2: s: optional struct<3: a: required int>"]
    assert table.metadata.format_version == version
    assert dict(table.properties) == {
        "comment": "about",
        "write.delete.mode": "merge-on-read",
        "write.parquet.compression-codec": "zstd",
    }


def test_without_a_format_version_a_table_has_version_2(lake: DdlCatalog) -> None:
    lake.run("CREATE TABLE db.t (id INT)")
    assert lake.table().metadata.format_version == 2


def test_a_location_is_where_the_table_goes(lake: DdlCatalog, tmp_path: Path) -> None:
    lake.run(f"CREATE TABLE db.t (id INT) LOCATION 'file://{tmp_path}/else/where'")
    assert lake.table().location() == f"file://{tmp_path}/else/where"


@pytest.mark.parametrize("place", ["here/t", "./t", "file:t", "file://tmp/t", "file://localhost/tmp/t"])
def test_a_location_that_other_programs_would_look_for_elsewhere_is_refused(
    lake: DdlCatalog, tmp_path: Path, place: str
) -> None:
    """A relative path lies below the folder of the program that reads it; PyIceberg drops the slashes of `file://a/b`."""
    with pytest.raises(AnalysisError, match="folder in which a program runs"):
        lake.run(f"CREATE TABLE db.t (id INT) LOCATION '{place}'")
    for key in ("write.data.path", "write.metadata.path"):
        with pytest.raises(AnalysisError, match=f"'{key}' is '{place}'"):
            lake.run(f"CREATE TABLE db.t (id INT) TBLPROPERTIES ('{key}' = '{place}')")
    lake.run("CREATE TABLE db.t (id INT)")
    with pytest.raises(AnalysisError, match=r"write\.data\.path"):
        lake.run(f"ALTER TABLE db.t SET TBLPROPERTIES ('write.data.path' = '{place}')")
    folders = f"'write.data.path' = '{tmp_path}/d', 'write.metadata.path' = 'file:{tmp_path}/m'"
    lake.run(f"ALTER TABLE db.t SET TBLPROPERTIES ({folders})")
    with pytest.raises(AnalysisError, match="folder in which a program runs"):
        lake.run(f"CREATE OR REPLACE TABLE db.t (id INT) LOCATION '{place}'")


def test_partition_fields_are_named_as_iceberg_names_them_on_creation(new_table: NewTable, version: int) -> None:
    lake = new_table(
        "id INT, dep STRING, ts TIMESTAMP, s STRUCT<d: DATE>",
        version,
        "PARTITIONED BY (dep, bucket(4, ID), truncate(2, dep), days(ts), years(s.d))",
    )
    assert lake.partitioning() == [
        "1000: dep: identity(2)",
        "1001: id_bucket: bucket[4](1)",
        "1002: dep_trunc: truncate[2](2)",
        "1003: ts_day: day(3)",
        "1004: s.d_year: year(5)",
    ]


def test_defaults_are_initial_and_write_defaults_of_a_version_3_table(new_table: NewTable) -> None:
    lake = new_table(
        "id INT, d DECIMAL(9, 2) NOT NULL DEFAULT 1.5, t TIMESTAMP DEFAULT TIMESTAMP '2020-01-01 00:00:00', "
        "s STRING DEFAULT 'a''b'",
        version=3,
    )
    fields = {field.name: field for field in lake.table().schema().fields}
    moment = datetime.datetime(2019, 12, 31, 23, tzinfo=datetime.UTC)
    expected = {"id": None, "d": Decimal("1.50"), "t": moment, "s": "a'b"}
    assert {name: field.initial_default for name, field in fields.items()} == expected
    assert {name: field.write_default for name, field in fields.items()} == expected
    assert fields["d"].required


def test_a_table_of_a_nested_namespace_can_have_defaults(lake: DdlCatalog) -> None:
    lake.run("CREATE NAMESPACE db.inner")
    lake.run("CREATE TABLE db.inner.t (id INT, x INT DEFAULT 5) TBLPROPERTIES ('format-version' = '3')")
    lake.run("ALTER TABLE db.inner.t ADD COLUMN y INT DEFAULT 6")
    fields = lake.catalog.load_table(("db", "inner", "t")).schema().fields
    assert [(field.name, field.initial_default) for field in fields] == [("id", None), ("x", 5), ("y", 6)]


@pytest.mark.parametrize("old", [1, 2])
def test_a_default_needs_version_3(new_table: NewTable, old: int) -> None:
    with pytest.raises(NotSupportedError, match="'format-version' = '3'"):
        new_table("id INT DEFAULT 1", old)


def test_a_type_of_version_3_is_refused_before(new_table: NewTable) -> None:
    with pytest.raises(NotSupportedError, match="format version 2"):
        new_table("t timestamp_ns", 2)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE TABLE db.t (id INT) USING parquet", NotSupportedError),
        ("CREATE TABLE db.t (id INT, ID STRING)", AlreadyExistsError),
        ("CREATE TABLE db.t (id INT) PARTITIONED BY (dep2)", AnalysisError),
        ("CREATE TABLE db.t (id INT) PARTITIONED BY (days(id))", AnalysisError),
        ("CREATE TABLE db.t (id INT) PARTITIONED BY (id, id)", AlreadyExistsError),
        ("CREATE TABLE db.t (t DATE) PARTITIONED BY (days(t), years(t))", AlreadyExistsError),
        ("CREATE TABLE db.t (id INT, id_bucket INT) PARTITIONED BY (bucket(4, id))", AlreadyExistsError),
        ("CREATE TABLE db.t (a ARRAY<STRUCT<x: INT>>) PARTITIONED BY (a.element.x)", AnalysisError),
        ("CREATE TABLE db.t (id INT) TBLPROPERTIES ('format-version' = '4')", AnalysisError),
        ("CREATE TABLE db.t (id INT) TBLPROPERTIES ('write.merge.mode' = 'mor')", AnalysisError),
        ("CREATE TABLE db.t (id INT) TBLPROPERTIES ('current-snapshot-id' = '1')", AnalysisError),
        ("CREATE TABLE db.t (_file STRING)", NotSupportedError),
        ("CREATE TABLE db.t (v VARIANT)", NotSupportedError),
        ("CREATE TABLE db.t (v VARIANT DEFAULT 1) TBLPROPERTIES ('format-version' = '3')", NotSupportedError),
        ("CREATE TABLE db.t (v VARIANT) PARTITIONED BY (v) TBLPROPERTIES ('format-version' = '3')", AnalysisError),
        (
            "CREATE TABLE db.t (v VARIANT) PARTITIONED BY (bucket(4, v)) TBLPROPERTIES ('format-version' = '3')",
            AnalysisError,
        ),
        ("CREATE TABLE nope.t (id INT)", NotFoundError),
        ("REPLACE TABLE db.t (id INT)", NotFoundError),
    ],
)
def test_what_cannot_be_created_is_refused_and_nothing_is_made(
    lake: DdlCatalog, sql: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        lake.run(sql)
    assert lake.catalog.list_tables("db") == []


def test_a_table_that_is_there_is_an_error_unless_if_not_exists_says_otherwise(new_table: NewTable) -> None:
    lake = new_table("id INT")
    before = lake.table().metadata
    with pytest.raises(AlreadyExistsError, match="IF NOT EXISTS"):
        lake.run("CREATE TABLE db.t (other INT)")
    lake.run("CREATE TABLE IF NOT EXISTS db.t (other INT)")
    assert lake.table().metadata == before


def test_like_takes_everything_but_properties_and_rows(lake: DdlCatalog, version: int, tmp_path: Path) -> None:
    """Identifier fields, comments, defaults, live partition fields and the write order; ids are new."""
    default = "DEFAULT 7" if version == 3 else ""
    lake.run(
        "CREATE TABLE db.t (dropped INT, id BIGINT NOT NULL COMMENT 'key', n INT, s STRUCT<a: INT NOT NULL>, "
        "ts TIMESTAMP) PARTITIONED BY (n, bucket(4, id), days(ts)) COMMENT 'about' "
        f"TBLPROPERTIES ('format-version' = '{version}', 'k' = 'v')"
    )
    for action in (
        "DROP COLUMN dropped",
        f"ADD COLUMN m INT {default} AFTER id",
        "DROP PARTITION FIELD n",
        "SET IDENTIFIER FIELDS id",
        "WRITE ORDERED BY s.a DESC, truncate(2, id)",
    ):
        lake.run(f"ALTER TABLE db.t {action}")
    clauses = f"USING iceberg LOCATION 'file://{tmp_path}/like' TBLPROPERTIES ('a' = 'b')"
    lake.run(f"CREATE TABLE lake.db.l LIKE db.t {clauses}")
    lake.run("CREATE TABLE IF NOT EXISTS db.l LIKE db.t TBLPROPERTIES ('a' = 'other')")
    made, source = lake.table("l"), lake.table()
    assert [field.name for field in made.schema().fields] == ["id", "m", "n", "s", "ts"]
    assert lake.columns("l")[0] == "1: id: required long (key)"
    assert made.schema().identifier_field_names() == {"id"}
    assert made.schema().find_field("m").write_default == (7 if version == 3 else None)
    assert lake.partitioning("l") == ["1000: id_bucket: bucket[4](1)", "1001: ts_day: day(5)"]
    assert [str(field) for field in made.sort_order().fields] == [
        f"{made.schema().find_field('s.a').field_id} DESC NULLS LAST",
        "truncate[2](1) ASC NULLS FIRST",
    ]
    assert (made.metadata.format_version, made.location()) == (version, f"file://{tmp_path}/like")
    assert dict(made.properties) == {"a": "b", "write.parquet.compression-codec": "zstd"}
    assert made.metadata.table_uuid != source.metadata.table_uuid
    lake.run("CREATE TABLE db.m LIKE db.l TBLPROPERTIES ('format-version' = '3')")
    assert lake.table("m").metadata.format_version == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("db.t LIKE db.t", AlreadyExistsError),
        ("db.x LIKE db.nope", NotFoundError),
        ("nodb.x LIKE db.t", NotFoundError),
        ("db.x LIKE db.t USING parquet", NotSupportedError),
        ("db.x LIKE db.t TBLPROPERTIES ('write.delete.mode' = 'x')", AnalysisError),
        ("db.x LIKE db.t TBLPROPERTIES ('format-version' = '2')", AnalysisError),
        ("db.x LIKE db.t LOCATION 'relative'", AnalysisError),
    ],
)
def test_what_like_cannot_do_is_refused_and_nothing_is_made(
    lake: DdlCatalog, text: str, error: type[Exception]
) -> None:
    lake.run("CREATE TABLE db.t (id INT DEFAULT 1) TBLPROPERTIES ('format-version' = '3')")
    with pytest.raises(error):
        lake.run(f"CREATE TABLE {text}")
    assert lake.run("SHOW TABLES IN db").rows == (("db", "t", False),)


def test_as_select_takes_its_columns_from_the_query(lake: DdlCatalog) -> None:
    statement = parse("CREATE TABLE db.t PARTITIONED BY (dep) AS SELECT 1 id, 'x' dep")
    columns = (NestedField(1, "id", IntegerType(), required=False), NestedField(2, "dep", StringType(), required=False))
    table = create_table(statement, lake.catalog, ("db", "t"), Schema(*columns))
    assert [field.name for field in table.schema().fields] == ["id", "dep"]
    assert lake.partitioning() == ["1000: dep: identity(2)"]


def test_as_select_without_an_engine_is_refused(lake: DdlCatalog) -> None:
    with pytest.raises(NotSupportedError):
        lake.run("CREATE TABLE db.t AS SELECT 1 id")


def test_replace_keeps_history_and_ids_and_starts_empty(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT, dep STRING", version, "PARTITIONED BY (bucket(4, id))")
    if version < 3:
        lake.table().append(pa.table({"id": pa.array([1], pa.int32()), "dep": ["x"]}))
    snapshots = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots]
    uuid = lake.table().metadata.table_uuid
    lake.run("ALTER TABLE db.t WRITE ORDERED BY id")
    lake.run("CREATE OR REPLACE TABLE db.t (nw DOUBLE, id BIGINT) PARTITIONED BY (bucket(8, id)) COMMENT 'new'")
    table = lake.table()
    assert lake.columns() == ["3: nw: optional double", "1: id: optional long"]
    assert table.current_snapshot() is None
    assert [snapshot.snapshot_id for snapshot in table.metadata.snapshots] == snapshots
    assert table.metadata.table_uuid == uuid
    assert table.sort_order().is_unsorted
    assert table.properties["comment"] == "new"
    if version < 3:
        assert table.scan().to_arrow().num_rows == 0
        if snapshots:
            assert table.scan(snapshot_id=snapshots[0]).to_arrow().to_pylist() == [{"id": 1, "dep": "x"}]
    names = [field.name for spec in table.metadata.partition_specs for field in spec.fields]
    ids = {(field.name, field.field_id) for spec in table.metadata.partition_specs for field in spec.fields}
    assert len({name for name, _ in ids}) == len(ids) or version == 1, names


def test_replace_with_the_same_definition_makes_no_new_schema(new_table: NewTable) -> None:
    lake = new_table("id INT, dep STRING", 2, "PARTITIONED BY (dep)")
    lake.run("REPLACE TABLE db.t (id INT, dep STRING) PARTITIONED BY (dep)")
    metadata = lake.table().metadata
    assert (len(metadata.schemas), len(metadata.partition_specs), metadata.current_schema_id) == (1, 1, 0)


def test_replace_can_upgrade_but_not_downgrade(new_table: NewTable) -> None:
    lake = new_table("id INT", 2)
    lake.run("REPLACE TABLE db.t (id INT DEFAULT 4) TBLPROPERTIES ('format-version' = '3')")
    assert lake.table().metadata.format_version == 3
    assert lake.table().schema().find_field("id").write_default == 4
    with pytest.raises(NotSupportedError, match="cannot go back"):
        lake.run("REPLACE TABLE db.t (id INT) TBLPROPERTIES ('format-version' = '2')")


def test_a_version_1_table_is_not_replaced_without_its_partition_columns(new_table: NewTable) -> None:
    lake = new_table("id INT, dep STRING", 1, "PARTITIONED BY (dep)")
    with pytest.raises(NotSupportedError, match="'format-version' = '2'"):
        lake.run("REPLACE TABLE db.t (id INT)")
    lake.run("REPLACE TABLE db.t (dep STRING, id INT) PARTITIONED BY (id)")
    assert lake.partitioning() == ["1000: dep: void(2)", "1001: id: identity(1)"]


def test_drop_removes_the_table_and_purge_its_files(new_table: NewTable, lake: DdlCatalog) -> None:
    new_table("id BIGINT")
    table = lake.table()
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    assert table.schema().find_type("id") == LongType()
    folder = Path(table.location().removeprefix("file://"))
    lake.run("ALTER TABLE db.t SET TBLPROPERTIES ('gc.enabled' = 'false')")
    with pytest.raises(NotSupportedError, match="without PURGE"):
        lake.run("DROP TABLE db.t PURGE")
    lake.run("ALTER TABLE db.t UNSET TBLPROPERTIES ('gc.enabled')")
    lake.run("DROP TABLE db.t PURGE")
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_drop_keeps_the_files_without_purge(new_table: NewTable, lake: DdlCatalog) -> None:
    new_table("id INT")
    folder = Path(lake.table().location().removeprefix("file://"))
    lake.run("DROP TABLE lake.db.t")
    assert list(folder.rglob("*.json"))
    assert not lake.catalog.table_exists("db.t")


def test_dropping_what_is_not_there_names_what_is(new_table: NewTable, lake: DdlCatalog) -> None:
    new_table("id INT")
    lake.run("DROP TABLE IF EXISTS db.tt")
    lake.run("DROP TABLE IF EXISTS db.tt PURGE")
    for sql in ("DROP TABLE db.tt", "DROP TABLE db.tt PURGE", "DESCRIBE db.tt", "ALTER TABLE db.tt ADD COLUMN a INT"):
        with pytest.raises(NotFoundError, match="Did you mean 't'"):
            lake.run(sql)
    with pytest.raises(NotFoundError, match="There is no namespace 'dc'"):
        lake.run("DROP TABLE dc.t")
