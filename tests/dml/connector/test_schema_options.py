"""Rows whose columns are not the table's: merged into its schema, replacing it, or refused with nothing written."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.table.update import AddSchemaUpdate
from pyspark.errors import AnalysisException
from pyspark.sql.functions import expr, lit, struct

from dml.commit import publish
from dml.errors import AnalysisError, CommitConflictError, DataError, DmlError, NotFoundError, NotSupportedError
from tests.dml.connector.streams import Stream

pytestmark = pytest.mark.spark

ANY = {"write.spark.accept-any-schema": "true"}
BY_SPARK = "_jwriter.overwritePartitions"
SETTING = "spark.sql.iceberg."


def columns(lake, name):
    schema = lake.table(name).schema()
    return [f"{f.field_id} {f.name} {f.field_type}{' required' if f.required else ''}" for f in schema.fields]


def by_pyiceberg(lake, name):
    """What PyIceberg reads, in order of the ids."""
    return lake.table(name).scan().to_arrow().sort_by("id").to_pylist()


def rows(spark, *columns):
    return spark.range(1).selectExpr(*columns)


def refused(lake, name, error, says, write):
    """A write that fails and changes nothing: no metadata, no schema, no file."""
    before = lake.state(name)
    with pytest.raises(error, match=says):
        write()
    assert lake.state(name) == before


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.nightly), "3"])
def test_new_columns_come_with_their_rows(lake, spark, monkeypatch, version):
    """At the end, in one commit, with the comment of the source; by either name of the option, and by the setting."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)", **ANY, **{"format-version": version})
    requests: list[Any] = []
    real: Callable[..., Any] = publish.commit_table

    def commit_table(*given: Any) -> Any:
        requests.append(given[3])
        return real(*given)

    monkeypatch.setattr(publish, "commit_table", commit_table)
    rows(spark, "1L AS id", "'a' AS k").writeTo(f"lake.{name}").append()
    more = rows(spark, "2L AS id", "'b' AS k", "7 AS n").withColumn(
        "n", expr("n").alias("n", metadata={"comment": "x"})
    )
    more.writeTo(f"lake.{name}").option("mergeSchema", "true").append()
    rows(spark, "3L AS id", "'b' AS k", "8 AS n", "'z' AS w").writeTo(f"lake.{name}").option(
        "merge-schema", "true"
    ).append()
    spark.conf.set(SETTING + "merge-schema", "true")
    try:
        rows(spark, "4L AS id", "true AS flag").write.mode("append").insertInto(f"lake.{name}")
        rows(spark, "5L AS id").writeTo(f"lake.{name}").option("merge-schema", "false").append()
    finally:
        spark.conf.unset(SETTING + "merge-schema")
    assert columns(lake, name) == ["1 id long", "2 k string", "3 n int", "4 w string", "5 flag boolean"]
    assert lake.table(name).schema().find_field("n").doc == "x"
    assert [tuple(row.values()) for row in by_pyiceberg(lake, name)] == [
        (1, "a", None, None, None),
        (2, "b", 7, None, None),
        (3, "b", 8, "z", None),
        (4, None, None, None, True),
        (5, None, None, None, None),
    ]
    added = [sum(isinstance(update, AddSchemaUpdate) for update in updates) for updates in requests]
    assert added == [0, 1, 1, 1, 0]


def test_types_are_widened_and_never_narrowed(lake, spark):
    """What Iceberg can widen in place becomes the table's type; a narrower value goes into the wider column."""
    name = lake.create("id int, f float, d decimal(4, 1), l bigint", **ANY)
    wide = rows(spark, "5000000000 AS id", "1e300D AS f", "12345.5BD AS d", "1 AS l").withColumn(
        "d", expr("CAST(d AS decimal(9, 1))")
    )
    refused(lake, name, AnalysisError, "'id'", lambda: wide.writeTo(f"lake.{name}").append())
    wide.writeTo(f"lake.{name}").option("merge-schema", "true").append()
    assert columns(lake, name) == ["1 id long", "2 f double", "3 d decimal(9, 1)", "4 l long"]
    assert by_pyiceberg(lake, name) == [{"id": 5000000000, "f": 1e300, "d": Decimal("12345.5"), "l": 1}]
    for narrow in ("1.5D AS l", "'7' AS l", "12345678901BD AS l", "array(1) AS l"):
        write = rows(spark, "1L AS id", narrow).writeTo(f"lake.{name}").option("merge-schema", "true")
        refused(lake, name, AnalysisError, "'l'", write.append)


def test_fields_of_structs_are_merged_by_name(lake, spark):
    """In arrays and maps too; a struct of the rows may lack fields."""
    name = lake.create(
        "id bigint, s struct<a: int, b: struct<x: int>>, l array<struct<p: int>>, m map<string, struct<q: int>>", **ANY
    )
    frame = rows(
        spark,
        "1L AS id",
        "named_struct('b', named_struct('x', 1L, 'y', 'n'), 'c', 2) AS s",
        "array(named_struct('p', 1, 'r', 2)) AS l",
        "map('k', named_struct('t', 3)) AS m",
    )
    frame.writeTo(f"lake.{name}").option("merge-schema", "true").append()
    (row,) = by_pyiceberg(lake, name)
    assert row["s"] == {"a": None, "b": {"x": 1, "y": "n"}, "c": 2}
    assert row["l"] == [{"p": 1, "r": 2}]
    assert row["m"] == [("k", {"q": None, "t": 3})]
    assert (
        lake.table(name).schema().find_field("s.b.x").field_type
        == lake.table(name).schema().find_field("id").field_type
    )
    extra = frame.withColumn("s", struct(lit(1).alias("a"), lit(2).alias("unknown")))
    refused(lake, name, AnalysisError, "unknown field 'unknown'", lambda: extra.writeTo(f"lake.{name}").append())


def test_columns_in_another_order(lake, spark):
    """Refused as in the reference unless that is meant; they always go by name."""
    name = lake.create("id bigint, k string", **ANY)
    frame = rows(spark, "'a' AS k", "1L AS id")
    refused(lake, name, AnalysisError, "'id' is out of order", lambda: frame.writeTo(f"lake.{name}").append())
    frame.writeTo(f"lake.{name}").option("check-ordering", "false").append()
    spark.conf.set(SETTING + "check-ordering", "false")
    try:
        rows(spark, "'b' AS K", "2L AS ID").writeTo(f"lake.{name}").option("merge-schema", "true").append()
    finally:
        spark.conf.unset(SETTING + "check-ordering")
    assert lake.rows(name) == [(1, "a"), (2, "b")]
    assert columns(lake, name) == ["1 id long", "2 k string"]


def test_required_columns(lake, spark):
    """They stay required: NULL is refused where it is met, or by declaration where that is asked for."""
    name = lake.create("id bigint NOT NULL, k string NOT NULL, n int DEFAULT 7", **ANY, **{"format-version": "3"})
    merging = lambda *columns: rows(spark, *columns).writeTo(f"lake.{name}").option("merge-schema", "true")  # noqa: E731
    refused(lake, name, AnalysisError, "No value for 'k'", merging("1L AS id", "1 AS extra").append)
    maybe = ("IF(id > 0, NULL, 1L) AS id", "'a' AS k", "1 AS extra")
    refused(lake, name, AnalysisError, "is nullable", merging(*maybe).option("check-nullability", "true").append)
    nulls = ("IF(id < 1, NULL, 1L) AS id", "'a' AS k", "1 AS extra")
    refused(lake, name, DataError, "The column 'id' requires a value", merging(*nulls).append)
    merging(*maybe).append()
    assert columns(lake, name)[:2] == ["1 id long required", "2 k string required"]
    assert by_pyiceberg(lake, name) == [{"id": 1, "k": "a", "n": 7, "extra": 1}]


@pytest.mark.nightly
def test_a_table_that_accepts_its_own_columns_alone(lake, spark):
    """Spark fits the rows to the table as ever, whatever the option says."""
    name = lake.create("id bigint, k string")
    rows(spark, "'a' AS k", "1 AS id").writeTo(f"lake.{name}").option("merge-schema", "true").append()
    assert lake.rows(name) == [(1, "a")]
    more = rows(spark, "1L AS id", "'a' AS k", "1 AS n").writeTo(f"lake.{name}")
    refused(lake, name, AnalysisException, "too many data columns", more.option("merge-schema", "true").append)
    fits = rows(spark, "1L AS id", "'a' AS k").writeTo(f"lake.{name}").option("overwriteSchema", "true")
    refused(lake, name, NotSupportedError, "does not accept other columns", lambda: fits.overwrite(lit(True)))


def test_the_columns_of_main_do_not_go_by_a_write_to_a_branch(lake, spark):
    """A table has one schema: rows of main would lose columns that only the branch was to lose."""
    name = lake.create("id bigint, k string", **{"write.spark.accept-any-schema": "true"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    snapshot = lake.table(name).current_snapshot().snapshot_id
    lake.table(name).manage_snapshots().create_branch(snapshot_id=snapshot, branch_name="audit").commit()
    writer = rows(spark, "2L AS id").writeTo(f"lake.{name}.branch_audit").option("overwrite-schema", "true")
    refused(lake, name, NotSupportedError, "all branches share one schema", lambda: writer.overwrite(lit(True)))


BAD = {
    "an unknown column": (("1L AS id", "'a' AS k", "1 AS n"), {}, AnalysisError, "no column 'n'"),
    "a missing required column": (("'a' AS k",), {}, AnalysisError, "No value for 'id'"),
    "a type that does not fit": (("'x' AS id", "'a' AS k"), {}, AnalysisError, "cannot be stored in the column 'id'"),
    "two columns of a name": (("1L AS id", "2L AS ID"), {}, AnalysisError, "two columns"),
    "a reserved name": (("1L AS id", "1 AS _pos"), {"merge-schema": "true"}, NotSupportedError, "reserved"),
    "a type without a name": (("1L AS id", "NULL AS n"), {"merge-schema": "true"}, DmlError, "no type 'void'"),
    "a branch that is not there": (
        ("1L AS id",),
        {"branch": "b", "merge-schema": "true"},
        NotFoundError,
        "does not exist",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_written_changes_nothing(lake, spark, case):
    name = lake.create("id bigint NOT NULL, k string", **ANY)
    given, options, error, says = BAD[case]
    refused(lake, name, error, says, rows(spark, *given).writeTo(f"lake.{name}").options(**options).append)


def test_partitions_that_rows_replace(lake, spark):
    """By PySpark, and by Spark's own job; a new column may come with them."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)", **ANY)
    rows(spark, "explode(array(1L, 2L)) AS id", "IF(id < 0, 'z', 'a') AS k").writeTo(f"lake.{name}").append()
    writer = rows(spark, "3L AS id", "'a' AS k", "'n' AS n").writeTo(f"lake.{name}").option("merge-schema", "true")
    writer.overwritePartitions()
    assert lake.rows(name) == [(3, "a", "n")]
    other = rows(spark, "4 AS id", "'a' AS k", "1 AS m").write.mode("overwrite").option("merge-schema", "true")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        other.insertInto(f"lake.{name}")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert by_pyiceberg(lake, name) == [{"id": 4, "k": "a", "n": None, "m": 1}]


def test_rows_replace_the_columns_too(lake, spark):
    """A column of the name keeps its id where its type is the same or wider; others are new, or gone."""
    name = lake.create("id int, k string COMMENT 'key', gone int, n bigint", "PARTITIONED BY (k)", **ANY)
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a', 1, 1)")
    first = lake.table(name).current_snapshot().snapshot_id
    frame = rows(spark, "'b' AS k", "5L AS id", "'text' AS n", "true AS new")
    writer = frame.writeTo(f"lake.{name}").option("overwrite-schema", "true")
    refused(lake, name, NotSupportedError, "replaces all rows", writer.append)
    refused(lake, name, NotSupportedError, "replaces all rows", lambda: writer.overwrite(expr("k = 'b'")))
    refused(lake, name, NotSupportedError, "replaces all rows", writer.overwritePartitions)
    unpartitioned = rows(spark, "5L AS id").writeTo(f"lake.{name}").option("overwriteSchema", "true")
    refused(lake, name, NotSupportedError, "partitions the table", lambda: unpartitioned.overwrite(lit(True)))
    writer.overwrite(lit(True))
    assert columns(lake, name) == ["2 k string", "1 id long", "5 n string", "6 new boolean"]
    assert lake.table(name).schema().find_field("k").doc == "key"
    assert by_pyiceberg(lake, name) == [{"k": "b", "id": 5, "n": "text", "new": True}]
    assert lake.rows(f"SELECT * FROM {name} VERSION AS OF {first}") == [(1, "a", 1, 1)]


@pytest.mark.nightly
def test_identifier_and_sort_columns_stay(lake, spark):
    name = lake.create("id bigint NOT NULL, s string, v int", **ANY)
    lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY s")
    with lake.table(name).update_schema() as update:
        update.set_identifier_fields("id")
    without = {"id": "'a' AS s", "s": "1L AS id"}
    for column, left in without.items():
        writer = rows(spark, left).writeTo(f"lake.{name}").option("overwrite-schema", "true")
        says = "identifier field" if column == "id" else "sort order"
        refused(lake, name, NotSupportedError, says, lambda writer=writer: writer.overwrite(lit(True)))
    rows(spark, "1L AS id", "'a' AS s").writeTo(f"lake.{name}").option("overwrite-schema", "true").overwrite(lit(True))
    assert columns(lake, name) == ["1 id long required", "2 s string"]


def test_no_rows_and_new_columns(lake, spark):
    """The schema changes; there is no snapshot of nothing."""
    name = lake.create("id bigint", **ANY)
    rows(spark, "1L AS id", "1 AS n").limit(0).writeTo(f"lake.{name}").option("merge-schema", "true").append()
    assert columns(lake, name) == ["1 id long", "2 n int"]
    assert lake.table(name).current_snapshot() is None


def test_a_branch_has_the_columns_of_the_table(lake, spark):
    name = lake.create("id bigint", **ANY)
    rows(spark, "1L AS id").writeTo(f"lake.{name}").append()
    lake.table(name).manage_snapshots().create_branch(lake.table(name).current_snapshot().snapshot_id, "b").commit()
    writer = rows(spark, "2L AS id", "1 AS n").writeTo(f"lake.{name}").option("merge-schema", "true")
    writer.option("branch", "b").append()
    assert lake.rows(f"SELECT * FROM {name}.branch_b") == [(1, None), (2, 1)]
    assert lake.rows(name) == [(1, None)]


@pytest.mark.nightly
def test_another_writer_adds_a_column_meanwhile(lake, spark, monkeypatch):
    """The same one: both stand. Another one: the ids of the rows mean something else, and they are not published."""
    for other, fits in (("n int", True), ("other int", False)):
        name = lake.create("id bigint", **ANY)
        real, waiting = publish.commit_table, [f"ALTER TABLE {name} ADD COLUMNS {other}"]

        def commit_table(*given, real=real, waiting=waiting):
            if waiting:
                lake.session.sql(waiting.pop())
            return real(*given)

        monkeypatch.setattr(publish, "commit_table", commit_table)
        writer = rows(spark, "2L AS id", "1 AS n").writeTo(f"lake.{name}").option("merge-schema", "true")
        if fits:
            writer.append()
            assert lake.rows(name) == [(2, 1)]
        else:
            with pytest.raises(CommitConflictError, match="changed by another commit"):
                writer.append()
            assert columns(lake, name) == ["1 id long", "2 other int"]
            assert not list(lake.folder(name).rglob("*.parquet"))
        monkeypatch.setattr(publish, "commit_table", real)


@pytest.mark.nightly
def test_tables_that_are_made_of_rows_have_their_columns(lake, spark):
    """Also where they will accept any, and whatever the options say of columns."""
    name = f"lake.{lake.new_name()}"
    made = rows(spark, "CAST(1 AS smallint) AS id", "'a' AS k").writeTo(name).option("merge-schema", "true")
    for key, value in ANY.items():
        made = made.tableProperty(key, value)
    made.create()
    rows(spark, "2 AS id").write.mode("overwrite").option("overwriteSchema", "true").saveAsTable(name)
    assert columns(lake, name.removeprefix("lake."))[0].endswith("id int")
    assert lake.rows(name) == [(2,)]


def test_statements_in_sql(lake, spark):
    """WITH SCHEMA EVOLUTION needs no property; else the option or setting and the property. Places stay places."""
    sql, name = lake.session.sql, lake.create("id int, k string")
    sql(f"INSERT WITH SCHEMA EVOLUTION INTO {name} SELECT 5000000000 AS x, 'a' AS y, 7 AS n")
    sql(f"INSERT WITH SCHEMA EVOLUTION INTO {name} BY NAME SELECT 'w' AS w, 2 AS id")
    assert columns(lake, name) == ["1 id long", "2 k string", "3 n int", "4 w string"]
    assert lake.rows(name) == [(2, None, None, "w"), (5000000000, "a", 7, None)]
    again = f"INSERT WITH SCHEMA EVOLUTION INTO {name} SELECT 1, 'a', 2, 'b', 3 AS id"
    refused(lake, name, AnalysisError, "too many columns", lambda: sql(again))
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.spark.auto-schema-evolution.enabled' = 'false')")
    text = f"INSERT WITH SCHEMA EVOLUTION INTO {name} BY NAME SELECT 1 AS id, 1 AS more"
    refused(lake, name, AnalysisError, r"(?s)no column 'more'.*[.?] The option 'merge-schema' adds", lambda: sql(text))
    option = f"INSERT INTO {name} WITH ('merge-schema' = 'true') BY NAME SELECT 1 AS id, 1 AS more"
    refused(lake, name, AnalysisError, "no column 'more'", lambda: sql(option))
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')")
    sql(option)
    spark.conf.set(SETTING + "merge-schema", "true")
    try:
        text = f"INSERT INTO {name} VALUES (7, 'k', 1, 'w', 2, 'of no name')"
        refused(lake, name, AnalysisError, "too many columns", lambda: sql(text))
        sql(f"INSERT INTO {name} BY NAME SELECT 8 AS id, 9 AS nine")
    finally:
        spark.conf.unset(SETTING + "merge-schema")
    sql(f"ALTER TABLE {name} DROP COLUMN nine")
    sql(f"INSERT INTO {name} SELECT 6, 'k', 1, 'w', 2")
    assert columns(lake, name)[-1] == "5 more int"
    assert (6, "k", 1, "w", 2) in lake.rows(name)
    sql(f"INSERT OVERWRITE {name} WITH ('overwrite-schema' = 'true') SELECT 1 AS id, 'a' AS k")
    assert columns(lake, name) == ["7 id int", "2 k string"]
    assert lake.rows(name) == [(1, "a")]


def test_a_stream_brings_new_columns(lake, spark, tmp_path):
    """By its option, in the commit of the micro-batch that has them; without it the query fails as before."""
    name = lake.create("id int, k string")
    stream = Stream(spark, tmp_path, schema="k string, id bigint, n bigint")
    stream.add(k=["a", "b"], id=[1, 5000000000], n=[None, 7])
    stream.run(f"lake.{name}", **{"merge-schema": "true"})
    assert columns(lake, name) == ["1 id long", "2 k string", "3 n long"]
    assert lake.rows(name) == [(1, "a", None), (5000000000, "b", 7)]
    assert lake.table(name).current_snapshot().schema_id == lake.table(name).metadata.current_schema_id
