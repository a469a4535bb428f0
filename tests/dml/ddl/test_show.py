"""SHOW, DESCRIBE and namespaces."""

from collections.abc import Callable

import pytest

from dml.errors import AlreadyExistsError, AnalysisError, NotFoundError, SqlError
from tests.dml.ddl.conftest import DdlCatalog

NewTable = Callable[..., DdlCatalog]

COLUMNS = (
    "id BIGINT NOT NULL COMMENT 'the \\\\ key''s', `odd ``name` STRING, "
    "s STRUCT<a: INT NOT NULL COMMENT 'x', `b c`: DATE>, "
    "l ARRAY<MAP<STRING, DECIMAL(9, 2)>>, ts TIMESTAMP, n TIMESTAMP_NTZ, u uuid, f fixed(3), t time(6)"
)
DEFAULTS = (
    ", d DECIMAL(9, 2) DEFAULT -1.5, w TIMESTAMP DEFAULT TIMESTAMP '2020-07-01 00:00:00', b BINARY DEFAULT X'00FF', "
    "x DOUBLE NOT NULL DEFAULT 1e300, o BOOLEAN DEFAULT TRUE, z STRING DEFAULT 'a\\n''b', ns timestamp_ns"
)


def test_the_text_of_show_create_table_makes_the_same_table(lake: DdlCatalog, version: int) -> None:
    lake.run(
        f"CREATE TABLE db.t ({COLUMNS}{DEFAULTS if version == 3 else ''}) "
        "PARTITIONED BY (bucket(4, id), days(ts), `odd ``name`, truncate(2, s.a)) COMMENT 'it''s' "
        f"TBLPROPERTIES ('format-version' = '{version}', 'k' = 'a\\\\b''c')"
    )
    lake.run("ALTER TABLE db.t WRITE ORDERED BY id")
    ((text,),) = lake.run("SHOW CREATE TABLE db.t").rows
    before = lake.table().metadata
    lake.run("DROP TABLE db.t")
    lake.run(text)
    after = lake.table().metadata
    assert after.schema() == before.schema()
    assert [f.initial_default for f in after.schema().fields] == [f.initial_default for f in before.schema().fields]
    assert after.spec() == before.spec()
    assert after.format_version == version
    assert {**after.properties, "write.distribution-mode": "range"} == before.properties


def test_describe_shows_columns_and_identity_partitions(new_table: NewTable) -> None:
    lake = new_table("id INT COMMENT 'key', dep STRING", 2, "PARTITIONED BY (dep)")
    result = lake.run("DESCRIBE TABLE db.t")
    assert [name for name, _ in result.columns] == ["col_name", "data_type", "comment"]
    assert result.rows == (
        ("id", "int", "key"),
        ("dep", "string", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("dep", "string", None),
    )


def test_describe_shows_transforms_as_parts_and_no_void_ones(new_table: NewTable) -> None:
    lake = new_table("id INT, dep STRING, ts TIMESTAMP", 1, "PARTITIONED BY (dep, bucket(4, id), days(ts))")
    lake.run("ALTER TABLE db.t DROP PARTITION FIELD dep")
    rows = lake.run("DESCRIBE db.t").rows
    assert rows[3:] == (
        ("", "", ""),
        ("# Partitioning", "", ""),
        ("Part 0", "bucket(4, id)", ""),
        ("Part 1", "days(ts)", ""),
    )


def test_describe_extended_adds_defaults_metadata_columns_and_details(new_table: NewTable) -> None:
    lake = new_table("id INT DEFAULT 3", 3, "COMMENT 'about'")
    rows = {row[0]: row[1] for row in lake.run("DESCRIBE EXTENDED lake.db.t").rows if row[0] != "id"}
    assert rows["Name"] == "lake.db.t"
    assert rows["Provider"] == "iceberg"
    assert rows["Comment"] == "about"
    assert rows["_row_id"] == "bigint"
    assert "format-version=3" in (rows["Table Properties"] or "")
    assert ("id", "int", "3") in lake.run("DESCRIBE EXTENDED db.t").rows


def test_show_tblproperties_shows_all_or_one_and_suggests(new_table: NewTable) -> None:
    lake = new_table("id INT")
    lake.run("ALTER TABLE db.t SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    shown = dict(lake.run("SHOW TBLPROPERTIES db.t").rows)
    assert shown["current-snapshot-id"] == "none"
    assert shown["format-version"] == "2"
    assert lake.run("SHOW TBLPROPERTIES db.t ('write.delete.mode')").rows == (("write.delete.mode", "merge-on-read"),)
    with pytest.raises(AnalysisError, match=r"Did you mean 'write\.delete\.mode'"):
        lake.run("SHOW TBLPROPERTIES db.t ('write.delete.mod')")


def test_show_tables_filters_by_sparks_patterns(lake: DdlCatalog) -> None:
    for name in ("orders", "orders_old", "users"):
        lake.run(f"CREATE TABLE db.{name} (id INT)")
    result = lake.run("SHOW TABLES IN db")
    assert result.columns == (("namespace", "string"), ("tableName", "string"), ("isTemporary", "boolean"))
    assert result.rows[0] == ("db", "orders", False)
    for pattern, names in (
        ("ORDERS*", ["orders", "orders_old"]),
        ("users|*old", ["orders_old", "users"]),
        ("order", []),
    ):
        assert [row[1] for row in lake.run(f"SHOW TABLES LIKE '{pattern}'").rows] == names
    with pytest.raises(NotFoundError, match="Did you mean 'db'"):
        lake.run("SHOW TABLES IN dbb")


def test_namespaces_are_made_shown_described_and_dropped(lake: DdlCatalog) -> None:
    lake.run("CREATE NAMESPACE lake.sales COMMENT 'money' LOCATION 'file:///x' WITH PROPERTIES ('k' = 'v')")
    lake.run("CREATE NAMESPACE IF NOT EXISTS sales")
    with pytest.raises(AlreadyExistsError, match="IF NOT EXISTS"):
        lake.run("CREATE NAMESPACE sales")
    assert [row[0] for row in lake.run("SHOW NAMESPACES").rows] == ["db", "sales"]
    assert [row[0] for row in lake.run("SHOW NAMESPACES LIKE 's*'").rows] == ["sales"]
    described = dict(lake.run("DESCRIBE NAMESPACE EXTENDED sales").rows)
    assert described["Catalog Name"] == "lake"
    assert described["Comment"] == "money"
    assert described["Location"] == "file:///x"
    assert "(k,v)" in described["Properties"]
    lake.run("DROP NAMESPACE sales")
    lake.run("DROP NAMESPACE IF EXISTS sales")
    for sql in ("DROP NAMESPACE sales", "DESCRIBE NAMESPACE sales"):
        with pytest.raises(NotFoundError):
            lake.run(sql)


def test_a_namespace_with_something_in_it_is_dropped_by_cascade_alone(lake: DdlCatalog) -> None:
    lake.run("CREATE NAMESPACE a")
    lake.run("CREATE NAMESPACE a.b")
    lake.run("CREATE TABLE a.b.t (id INT)")
    with pytest.raises(AnalysisError, match="CASCADE"):
        lake.run("DROP NAMESPACE a")
    with pytest.raises(AnalysisError, match=r"holds a\.b\.t"):
        lake.run("DROP NAMESPACE a.b")
    lake.run("DROP NAMESPACE a CASCADE")
    assert [row[0] for row in lake.run("SHOW NAMESPACES").rows] == ["db"]


def test_show_columns_names_the_columns_and_takes_the_namespace_apart(new_table: NewTable) -> None:
    lake = new_table("id INT, `a b` STRING, s STRUCT<x: INT>")
    for text in ("IN db.t", "FROM t FROM lake.db", "IN lake.db.t IN db", "FROM t"):
        shown = lake.run(f"SHOW COLUMNS {text}")
        assert (shown.columns, shown.rows) == ((("col_name", "string"),), (("id",), ("a b",), ("s",)))
    with pytest.raises(NotFoundError):
        lake.run("SHOW COLUMNS IN nope IN db")


def test_comments_of_columns_are_set_and_removed(new_table: NewTable) -> None:
    lake = new_table("id INT, `a b` STRING COMMENT 'first', s STRUCT<x: INT>")
    for name, column in (("lake.db.t.`a b`", "a b"), ("db.t.s", "s"), ("`db`.t.ID", "id")):
        for text, comment in (("'it''s' ' it'", "it's it"), ("''", ""), ("NULL", None), ("NULL", None)):
            lake.run(f"COMMENT ON COLUMN {name} IS {text}")
            assert lake.table().schema().find_field(column).doc == comment
    for name, error in (("id", SqlError), ("db.nope.id", NotFoundError), ("db.t.s.x", NotFoundError)):
        with pytest.raises(error):
            lake.run(f"COMMENT ON COLUMN {name} IS 'x'")


def test_comments_are_set_and_removed(new_table: NewTable) -> None:
    lake = new_table("id INT")
    for text, comment in (("'it''s'", "it's"), ("''", ""), ("NULL", None), ("NULL", None)):
        lake.run(f"COMMENT ON TABLE lake.db.t IS {text}")
        assert lake.table().properties.get("comment") == comment
        for word in ("NAMESPACE", "SCHEMA", "DATABASE"):
            lake.run(f"COMMENT ON {word} db IS {text}")
            assert lake.catalog.load_namespace_properties(("db",)).get("comment") == comment
    for text in ("TABLE db.nope", "NAMESPACE nodb"):
        for comment in ("'x'", "NULL"):
            with pytest.raises(NotFoundError):
                lake.run(f"COMMENT ON {text} IS {comment}")
