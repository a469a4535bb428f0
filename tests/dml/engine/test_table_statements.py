"""TRUNCATE of partitions, and statements on tables by `lake.sql` and `spark.sql`."""

import pytest

from dml.errors import AnalysisError, DmlError, ErrorKind, NotFoundError, NotSupportedError
from tests.lake import Lake

pytestmark = pytest.mark.spark


def test_truncate_deletes_the_files_of_partitions(lake: Lake) -> None:
    name = lake.create("id INT, dep STRING, k INT", "PARTITIONED BY (dep, k, bucket(2, id))")
    sql = lake.session.sql
    sql(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1), (4, NULL, 1), (5, 'it''s', 3), (6, 'b', 2)")
    sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    result = sql(f"TRUNCATE TABLE {name} PARTITION (Dep = 'a')")
    assert (result.mode, result.command, result.rows_deleted, result.data_files_removed) == (
        "metadata",
        "TRUNCATE",
        2,
        2,
    )
    assert lake.table(name).current_snapshot().summary.operation.value == "delete"
    for partition, left in (
        ("k = 1, dep = 'b'", [4, 5, 6]),
        ("dep = NULL", [5, 6]),
        ("dep = 'it''s', k = 3", [6]),
    ):
        assert sql(f"TRUNCATE TABLE lake.{name} PARTITION ({partition})").rows_deleted == 1
        assert lake.rows(f"SELECT id FROM {name}") == [(number,) for number in left]
    before = lake.state(name)
    assert not sql(f"TRUNCATE TABLE {name} PARTITION (dep = 'none')").changed
    for partition, error, message in (
        ("id = 6", AnalysisError, "not partitioned by the values of a column 'id'"),
        ("dept = 'b'", AnalysisError, "'dep'"),
        ("dep = 'b', k = rand()", NotSupportedError, "comparisons of columns with constants"),
    ):
        with pytest.raises(error, match=message) as caught:
            sql(f"TRUNCATE TABLE {name} PARTITION ({partition})")
        assert caught.value.position is not None
    assert lake.state(name) == before
    lake.session.spark.sql(f"TRUNCATE TABLE lake.{name}.branch_audit PARTITION (k = 1)")
    assert lake.rows(f"SELECT id FROM {name}.branch_audit") == [(2,), (5,), (6,)]
    assert lake.rows(f"SELECT id FROM {name}") == [(6,)]


def test_files_of_another_spec_that_hold_other_rows_too_are_not_truncated(lake: Lake) -> None:
    name = lake.create("id INT, dep STRING")
    sql = lake.session.sql
    sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b')")
    sql(f"ALTER TABLE {name} ADD PARTITION FIELD dep")
    before = lake.state(name)
    with pytest.raises(NotSupportedError, match="another partition spec"):
        sql(f"TRUNCATE TABLE {name} PARTITION (dep = 'a')")
    assert lake.state(name) == before


def test_statements_on_tables_need_no_full_name_and_work_in_spark_sql(lake: Lake) -> None:
    name = lake.create("id INT NOT NULL, dep STRING", "PARTITIONED BY (dep)")
    like = f"{name}_like"
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b c')")
    namespace, _, table = name.partition(".")
    for run, prefix in ((lake.session.sql, ""), (lake.session.spark.sql, "lake.")):
        full = prefix + name

        def rows(text: str) -> list[tuple]:
            return [tuple(row) for row in run(text).collect()]  # noqa: B023  called in this round

        assert rows(f"SHOW COLUMNS IN {full}") == rows(f"SHOW COLUMNS IN {table} IN {prefix}{namespace}")
        assert rows(f"SHOW COLUMNS IN {full}") == [("id",), ("dep",)]
        assert rows(f"SHOW PARTITIONS {full}") == [("dep=a",), ("dep=b c",)]
        assert rows(f"SHOW PARTITIONS {full} PARTITION (dep = 'a')") == [("dep=a",)]
        assert rows(f"COMMENT ON TABLE {full} IS 'of {prefix}'") == []
        assert lake.table(name).properties["comment"] == f"of {prefix}"
        assert rows(f"COMMENT ON COLUMN {full}.dep IS 'of {prefix}'") == []
        assert rows(f"DESCRIBE TABLE {full}")[1] == ("dep", "string", f"of {prefix}")
        assert rows(f"COMMENT ON NAMESPACE {prefix}{namespace} IS 'of {prefix}'") == []
        assert ("Comment", f"of {prefix}") in rows(f"DESCRIBE NAMESPACE {prefix}{namespace}")
        assert rows(f"ALTER TABLE {full} SET IDENTIFIER FIELDS id") == []
        assert rows(f"CREATE TABLE {prefix}{like} LIKE {full}") == []
        assert lake.table(like).schema().identifier_field_names() == {"id"}
        assert rows(f"DROP TABLE {prefix}{like}") == []
        assert rows(f"REFRESH TABLE {full}") == []
        for text in (f"REFRESH TABLE {prefix}{namespace}.nope", f"SHOW COLUMNS IN {prefix}{namespace}.nope"):
            with pytest.raises(NotFoundError):
                run(text)


def test_refresh_table_ends_what_spark_has_cached(lake: Lake) -> None:
    name = lake.create("id INT")
    spark = lake.session.spark
    spark.sql(f"CACHE TABLE cached AS SELECT * FROM lake.{name}")
    other = lake.table(name)
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    assert other.metadata_location != lake.table(name).metadata_location
    lake.session.sql(f"REFRESH TABLE {name}")
    assert [tuple(row) for row in spark.sql("SELECT * FROM cached").collect()] == [(1,)]
    spark.catalog.dropTempView("cached")


def test_a_tag_that_is_there_is_an_error_of_the_same_kind_in_spark_sql(lake: Lake) -> None:
    name = lake.create("id INT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    snapshot_id = lake.table(name).metadata.current_snapshot_id
    lake.session.sql(f"ALTER TABLE {name} CREATE TAG v1 AS OF VERSION :id RETAIN 1 DAYS", args={"id": snapshot_id})
    for run, full in ((lake.session.sql, name), (lake.session.spark.sql, f"lake.{name}")):
        with pytest.raises(DmlError, match="Ref v1 already exists") as caught:
            run(f"ALTER TABLE {full} CREATE TAG v1")
        assert (caught.value.kind, caught.value.position) == (
            ErrorKind.ALREADY_EXISTS,
            len(f"ALTER TABLE {full} CREATE TAG "),
        )
