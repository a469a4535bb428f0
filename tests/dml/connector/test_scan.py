"""Reading our tables through Spark's connector API: which columns, which rows, which files, how much."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField
from pyspark.errors import AnalysisException
from pyspark.sql import functions

from dml.errors import AnalysisError, NotFoundError, NotSupportedError
from dml.spark.handlers import run_as_handler
from dml.spark_scan.scan import SparkBatch
from tests.marks import by_night

pytestmark = pytest.mark.spark


def plan_of(frame):
    """The physical plan as text."""
    return frame._jdf.queryExecution().executedPlan().toString()


def plan_of_run(frame):
    """The same of a query that has run: before, nobody knows that it counts rows."""
    frame.collect()
    return frame._jdf.queryExecution().sparkPlan().toString()


def optimized(frame):
    return frame._jdf.queryExecution().optimizedPlan()


def filter_of(frame):
    """The filter that our scan has."""
    found = re.search(
        r"RowDelta \S+ \(snapshot \w+, \d+ of \d+ data files(?:, filter (.*?))?\), rows: ", plan_of(frame)
    )
    assert found is not None
    return found[1]


def partitions_of(frame):
    return frame.rdd.getNumPartitions()


def same(frame, other):
    return sorted(map(repr, frame.collect())) == sorted(map(repr, other.collect()))


def test_a_table_is_read(lake, spark):
    """By `spark.table`, `read.table`; empty and without a snapshot too."""
    name = lake.create("id bigint, v string, d decimal(9,2)", "PARTITIONED BY (bucket(3, id))")
    assert spark.table(f"lake.{name}").collect() == []
    assert spark.table(f"lake.{name}").count() == 0
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('v', id), id FROM range(100)")
    table = spark.table(f"lake.{name}")
    assert table.count() == 100
    assert spark.read.table(f"lake.{name}").where("id = 7").collect() == [(7, "v7", 7)]
    assert table.agg({"d": "sum"}).first()[0] == 4950
    assert table.select("v", "id").where("id < 2").orderBy("id").collect() == [("v0", 0), ("v1", 1)]
    assert table.where("v LIKE '%9'").count() == 10
    assert table.selectExpr("1 AS one").where("rand() >= 0").count() == 100


def test_deleted_rows_are_not_read_nor_counted(lake, spark):
    for version, mode in (("2", "merge-on-read"), ("3", "merge-on-read"), ("2", "copy-on-write")):
        name = lake.create("id bigint", **{"format-version": version, "write.delete.mode": mode})
        lake.session.sql(f"INSERT INTO {name} SELECT id FROM range(50)")
        lake.session.sql(f"DELETE FROM {name} WHERE id % 2 = 0")
        table = spark.table(f"lake.{name}")
        assert table.count() == 25
        assert table.agg(functions.sum("id")).first()[0] == 625


ROWS = r"""
    SELECT * FROM VALUES
    (1, true, 1Y, 10, 100L, 1.5F, 1.5D, 1.50, 'a', X'00FF', DATE'2020-01-01', TIMESTAMP'2020-01-01 00:00:00',
     TIMESTAMP_NTZ'2020-01-01 12:00:00', named_struct('x', 1, 'y.z', 'p'), array(1, 2), map('k', 1)),
    (2, false, -1Y, -10, -100L, -0.0F, -0.0D, -1.50, 'it''s', X'', DATE'1969-12-31',
     TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP_NTZ'1969-12-31 23:59:59',
     named_struct('x', 2, 'y.z', 'q'), array(), map()),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, true, 127Y, 2147483647, 9223372036854775807L, float('NaN'), double('NaN'), 99999.99, 'ä\\"`%_', X'27',
     DATE'9999-12-31', TIMESTAMP'2024-02-29 12:34:56.123456', TIMESTAMP_NTZ'2024-02-29 12:34:56.123456',
     named_struct('x', NULL, 'y.z', NULL), array(NULL), map('k', NULL)),
    (5, false, 0Y, 0, 0L, float('Infinity'), double('-Infinity'), 0.00, '', X'C328', DATE'0001-01-01',
     TIMESTAMP'1900-01-01 00:00:00', TIMESTAMP_NTZ'0001-01-01 00:00:00', named_struct('x', 5, 'y.z', ''), array(5),
     map('', 5)),
    (6, true, 6Y, 6, 6L, 1e-20F, 1e300D, 6.25, 'abc', X'616263', DATE'2020-06-15', TIMESTAMP'2020-06-15 06:00:00',
     TIMESTAMP_NTZ'2020-06-15 06:00:00', named_struct('x', 6, 'y.z', 'abc'), array(6), map('abc', 6))
    AS t(id, b, y, i, l, f, d, n, s, x, dt, ts, tn, st, ar, ma)
"""
COLUMNS = (
    "id int, b boolean, y int, i int, l bigint, f float, d double, n decimal(9,2), s string, x binary, dt date,"
    " ts timestamp, tn timestamp_ntz, st struct<x: int, `y.z`: string>, ar array<int>, ma map<string, int>"
)
CONDITIONS = (
    ("b", True),
    ("NOT b", True),
    ("b IS NULL", True),
    ("b <=> NULL", True),
    ("i = 10", True),
    ("i <> 10", True),
    ("i < 0 OR i > 9", True),
    ("NOT (i < 0 OR i > 9)", True),
    ("i IN (10, -10, 7)", True),
    ("i NOT IN (10, -10)", True),
    ("i IN (1,2,3,4,5,6,7,8,9,10,11,12,-10)", True),
    ("i <=> 10", True),
    ("l = 9223372036854775807", True),
    ("l >= -100 AND l < 100", True),
    ("f > 1", None),
    ("f = float('NaN')", None),
    ("f = float('Infinity')", None),
    ("d = double('NaN')", None),
    ("d > 1e299", True),
    ("d >= 1.5", True),
    ("d < 0.5", True),
    ("d = 0.0", True),
    ("isnan(d)", False),
    ("n = 1.50", True),
    ("n BETWEEN -1.5 AND 1.5", True),
    ("n > 99999.98", True),
    ("s = 'it''s'", True),
    ("s = ''", True),
    ("s > 'a'", True),
    ("s LIKE 'a%'", True),
    ("s LIKE '%c'", None),
    ("s NOT LIKE 'a%'", True),
    ("startswith(s, 'ä')", True),
    ("s IN ('abc', 'ä\\\\\\\\\"`%_', NULL)", None),
    ("length(s) = 3", None),
    ("abs(i) > 9 AND i < 11", None),
    ("abs(l) = 100", None),
    ("-i > 5", None),
    ("i - 1 < l - 5", None),
    ("i * 2.5D > 20 OR d / 2 > 1", None),
    ("i % 4 = 2", None),
    ("coalesce(i, 0) = 0", None),
    ("CASE WHEN b THEN i WHEN s = '' THEN 7 ELSE 0 END > 5", None),
    ("if(b, l, -100L) = -100L", None),
    ("upper(s) = 'ABC' OR lower(s) = 'a'", None),
    ("concat(s, '-', i) = 'abc-6'", None),
    ("substring(s, 1, 1) = 'a'", None),
    ("year(dt) = 2020 AND month(dt) < 6 AND day(dt) = 1", None),
    ("CAST(i AS BIGINT) + id = 12L", None),
    ("CAST(l AS STRING) = '6'", None),
    ("x = X'27'", True),
    ("x > X'61'", None),
    ("dt = DATE'2020-01-01'", True),
    ("dt < DATE'1970-01-01'", True),
    ("dt IN (DATE'9999-12-31', DATE'0001-01-01')", True),
    ("ts >= TIMESTAMP'2020-01-01 00:00:00'", True),
    ("ts = TIMESTAMP'1969-12-31 23:59:59.999999'", True),
    ("tn = TIMESTAMP_NTZ'2024-02-29 12:34:56.123456'", True),
    ("tn < TIMESTAMP_NTZ'1970-01-01 00:00:00'", True),
    ("cast(ts as date) = DATE'2020-06-15'", None),
    ("st.x = 5", True),
    ("st.`y.z` = 'p'", True),
    ("st IS NULL", True),
    ("get(ar, 0) = 6", None),
    ("ma['k'] = 1", None),
    ("i = 10 AND length(s) = 1", None),
    ("try_add(i, 1) = 11", None),
    ("i = y + 9", None),
    ("false", None),
    ("i = NULL", None),
)


@pytest.fixture(scope="module")
def typed(spark, connector_lake):
    """A table of all types, one file a row, and the same rows as Spark alone has them."""
    lake = connector_lake
    name = lake.create(COLUMNS)
    for number in range(1, 7):
        lake.session.sql(f"INSERT INTO {name} SELECT * FROM ({ROWS}) WHERE id = {number}")
    rows = lake.session.sql(f"SELECT * FROM {name}")
    return name, spark.createDataFrame(rows.collect(), rows.schema)  # a cache of it would lose rows with NaN


@pytest.fixture(scope="module")
def kept(typed):
    """The rows that Spark alone keeps of its own ones, by condition."""
    _, plain = typed
    answers = plain.select(*(functions.expr(condition) for condition, _ in CONDITIONS)).collect()
    rows = plain.collect()
    return {
        condition: [row for row, answer in zip(rows, answers, strict=True) if answer[number]]
        for number, (condition, _) in enumerate(CONDITIONS)
    }


READS = ("all columns", "some columns", "count")


@pytest.mark.parametrize(
    ("condition", "pushed", "read"),
    by_night(
        [(*condition, read) for condition in CONDITIONS for read in READS],
        lambda case: CONDITIONS.index(case[:2]) % 3 == READS.index(case[2]),
    ),
)
def test_conditions_give_the_rows_that_spark_gives(lake, spark, typed, kept, condition, pushed, read):
    """And are pushed down where Iceberg can decide them."""
    name, _ = typed
    frame, expected = spark.table(f"lake.{name}").where(condition), kept[condition]
    some = frame.select("id", "st", "ar")
    match read:
        case "all columns":
            assert sorted(map(repr, frame.collect())) == sorted(map(repr, expected)), plan_of(frame)
        case "some columns":
            assert sorted((row.id, repr(row.st), repr(row.ar)) for row in some.collect()) == sorted(
                (row.id, repr(row.st), repr(row.ar)) for row in expected
            ), plan_of(some)
        case "count":
            assert frame.count() == len(expected)
    if pushed is not None:
        assert (filter_of(some) is not None) is pushed or not expected


def test_tasks_compute_conditions_of_frames(lake, spark, typed):
    """The filter that Spark keeps sees only the rows that satisfy the computed condition."""
    name, _ = typed
    table = spark.table(f"lake.{name}")
    for condition, rows in (
        ("abs(i) = 10", 2),
        ("coalesce(i, 0) = 0", 2),
        ("CASE WHEN b THEN i ELSE l END > 5", 3),
        ("length(s) - i = -9", 1),
        ("CAST(l AS STRING) = '6' AND id + 0 < 7", 1),
        ("year(dt) = 2020", 2),
        ("-9223372036854775807L > l * -1L", 0),
        ("initcap(s) = 'Abc'", 5),  # only Spark computes it; NULL is left out
    ):
        frame = table.where(condition).select("id")
        plan = frame._jdf.queryExecution().executedPlan()
        frame.collect()
        assert plan.collectLeaves().head().metrics().apply("numOutputRows").value() == rows, condition


def test_conditions_of_any_size(lake, spark):
    """A program may put together thousands of keys; what is too much for pruning is left to Spark."""
    name = lake.create("id bigint, k string, n decimal(20,7)")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('k', id), 0.0000001 * id FROM range(10)")
    table, col = spark.table(f"lake.{name}"), functions.col
    pairs = " OR ".join(f"(id = {number} AND k = 'k{number}')" for number in range(5, 200))
    others = " AND ".join(f"id <> {number}" for number in range(5, 500))
    for condition in (pairs, others):
        assert table.where(condition).count() == 5
        assert lake.session.sql(f"SELECT id FROM {name} WHERE {condition}").count() == 5
    keys = table.where(col("k").isin([f"k{number}" for number in range(8, 1000)]))
    assert keys.count() == 2
    assert filter_of(keys) is not None
    assert table.where(col("k").isin(["it's", "', '", *(f"k{number}" for number in range(9, 30))])).count() == 1
    small = table.where("n = 0.0000001")
    assert small.count() == 1
    assert filter_of(small) is not None


def test_conditions_leave_out_files(lake, spark, typed):
    """Each row has a file of its own."""
    name, _ = typed
    table = spark.table(f"lake.{name}")
    for condition, files in (
        ("id = 3", 1),
        ("id < 3", 2),
        ("s = 'abc'", 1),
        ("dt > DATE'2020-03-01'", 2),
        ("i IS NULL", 1),
    ):
        frame = table.where(condition)
        assert len({row[0] for row in frame.select("_file").collect()}) == files


def test_columns_are_pruned(lake, spark, typed):
    name, _ = typed
    table = spark.table(f"lake.{name}")
    assert re.search(r"BatchScan lake\.\S+\[s#\d+\]", plan_of(table.select("s")))
    assert re.search(r"BatchScan lake\.\S+\[i#\d+, s#\d+\]", plan_of(table.where("i % 2 = 0").select("s")))
    assert table.select("st.x").where("x > 1").orderBy("x").collect() == [(2,), (5,), (6,)]


def test_names_with_dots_quotes_and_cases(lake, spark):
    name = lake.create("`a.b` int, `c``d` int, `E f` struct<`g.h`: int, I: string>, `select` int")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 2, struct(3, 'x'), 4), (5, 6, struct(7, 'y'), 8)")
    table = spark.table(f"lake.{name}")
    for condition in ("`a.b` = 1", "`c``d` = 2", "`E f`.`g.h` = 3", "`e F`.i = 'x'", "`SELECT` = 4", "`A.B` < 5"):
        frame = table.where(condition)
        assert frame.select("`a.b`").collect() == [(1,)], condition
        assert filter_of(frame) is not None, condition
    assert table.select("`E f`.`g.h`").orderBy("`g.h`").collect() == [(3,), (7,)]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        twins = lake.new_name()
        fields = [NestedField(number, name, IntegerType(), required=False) for number, name in ((1, "a"), (2, "A"))]
        lake.session.registry.catalogs["lake"].create_table(tuple(twins.split(".")), Schema(*fields))
        lake.session.sql(f"INSERT INTO {twins} VALUES (1, 2), (2, 1)")
        frame = spark.table(f"lake.{twins}").where("A = 1").select("a")
        assert frame.collect() == [(2,)]
        assert filter_of(frame) is not None
        with pytest.raises(AnalysisException):
            spark.table(f"lake.{name}").where("`SELECT` = 4").collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_counts_of_whole_files_need_no_job(lake, spark):
    """Of a partition too; not where rows are deleted or a condition cuts through files."""
    name = lake.create("id bigint, day date", "PARTITIONED BY (day)", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, date_add(DATE'2020-01-01', CAST(id % 3 AS INT)) FROM range(30)")
    table = spark.table(f"lake.{name}")

    def count_plan(frame):
        return plan_of_run(frame.groupBy().count())

    assert "LocalTableScan" in count_plan(table)
    assert "LocalTableScan" in count_plan(table.where("day = DATE'2020-01-02'"))
    assert table.where("day = DATE'2020-01-02'").count() == 10
    assert "Filter (" not in plan_of(table.where("day = DATE'2020-01-02'").select("id"))
    assert "BatchScan" in count_plan(table.where("id < 10"))
    assert table.where("id < 10").count() == 10
    assert table.where("day > DATE'2020-01-01' AND id < 10").count() == 6
    assert table.selectExpr("count(1)", "count(*)", "count(id)").first()[:] == (30, 30, 30)
    assert table.groupBy("day").count().orderBy("day").first()[1] == 10
    lake.session.sql(f"DELETE FROM {name} WHERE id = 1")
    table = spark.table(f"lake.{name}")
    assert "BatchScan" in count_plan(table), "a position delete file may say a row twice"
    assert table.count() == 29


def test_a_count_of_rows_reads_no_file(lake, spark, monkeypatch):
    """However it is written: by PySpark's method, in SQL of ours and of Spark's, of a view."""
    name = lake.create("id bigint, s string")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 'x' FROM range(30)")
    spark.table(f"lake.{name}").createOrReplaceTempView("counted_rows")

    def in_spark():
        with run_as_handler():
            return spark.sql(f"SELECT count(*) FROM lake.{name}").collect()[0][0]

    read: list[object] = []
    monkeypatch.setattr(SparkBatch, "planInputPartitions", read.append)
    for count in (
        spark.table(f"lake.{name}").count,
        spark.table(f"lake.{name}").select("s").count,
        lake.session.table(name).count,
        lake.session.sql(f"SELECT * FROM {name}").count,
        lambda: lake.session.sql(f"SELECT count(*) FROM {name}").collect()[0][0],
        lambda: spark.sql("SELECT count(*) FROM counted_rows").collect()[0][0],
        lambda: spark.table("counted_rows").groupBy().count().toPandas()["count"][0],
        in_spark,
    ):
        assert count() == 30
    assert not read


def test_rows_that_vectors_delete_are_not_counted(lake, spark):
    """Their entries say how many they are: by DataFrames and in SQL, whole and by a filter that covers whole files."""
    name = lake.create(
        "id bigint, day date",
        "PARTITIONED BY (day)",
        **{"format-version": "3", "write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"},
    )
    lake.session.sql(f"INSERT INTO {name} SELECT id, date_add(DATE'2020-01-01', CAST(id % 3 AS INT)) FROM range(30)")
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (1, 4, 5)")
    table = spark.table(f"lake.{name}")
    for frame, rows in (
        (table, 27),
        (table.where("day = DATE'2020-01-02'"), 8),
        (lake.session.sql(f"SELECT * FROM {name} WHERE day >= DATE'2020-01-02'"), 17),
    ):
        assert frame.count() == rows
    assert "LocalTableScan" in plan_of_run(table.groupBy().count())
    for query, expected in (
        (f"SELECT count(*) FROM {name}", 27),
        (f"SELECT count(*) FROM {name} WHERE day = DATE'2020-01-02'", 8),
    ):
        counted = lake.session.sql(query)
        assert counted.collect() == [(expected,)]
        assert "LocalTableScan" in plan_of_run(counted), query
    assert lake.session.sql(f"SELECT count(*) FROM {name} WHERE id < 6").collect() == [(3,)]
    assert lake.session.sql(f"SELECT 1 FROM {name} WHERE day = DATE'2020-01-03'").collect() == [(1,)] * 9


EXTREMES = "count(*); count(i); count(v); " + "; ".join(f"min({name}); max({name})" for name in "ildtn")


def is_known(spark, table, asked, condition="true"):
    """Whether metadata answers; an answer is compared with what reading gives."""

    def frame():
        return spark.table(table).where(condition).selectExpr(*asked.split("; "))

    known = frame()
    found = known.collect()
    if "LocalTableScan" not in plan_of_run(known):
        return False
    spark.conf.set("spark.sql.iceberg.aggregate-push-down.enabled", "false")
    try:
        read = frame()
        assert found == read.collect(), asked
        assert "LocalTableScan" not in plan_of_run(read)
    finally:
        spark.conf.unset("spark.sql.iceberg.aggregate-push-down.enabled")
    return True


def test_least_and_greatest_values_are_known_by_metadata(lake, spark):
    """All values of integers, dates and timestamps, NULLs, nothing but NULLs, no rows; what reading says too."""
    columns = "p int, i int, l bigint, d date, t timestamp, n timestamp_ntz, v string, f double, nothing int"
    name = lake.create(columns, "PARTITIONED BY (p)")
    table = f"lake.{name}"
    assert spark.table(table).selectExpr("min(i)", "count(v)").collect() == [(None, 0)]
    lake.session.sql(
        f"INSERT INTO {name} VALUES "
        "(1, -2147483648, -9223372036854775808, DATE'0001-01-01', TIMESTAMP'0001-01-02 00:00:00.000001', "
        "TIMESTAMP_NTZ'1582-10-05 00:00:00.1', 'a', double('nan'), NULL), "
        "(1, NULL, 5000000000, DATE'9999-12-31', TIMESTAMP'9999-12-30 23:59:59.999999', NULL, NULL, 1, NULL), "
        "(2, 2147483647, 9223372036854775807, NULL, NULL, TIMESTAMP_NTZ'2020-01-01 00:00:00.000001', 'b', 0, NULL), "
        "(3, NULL, NULL, NULL, NULL, NULL, repeat('c', 50), NULL, NULL)"
    )
    assert is_known(spark, table, f"{EXTREMES}; max(nothing); count(nothing)")
    assert is_known(spark, table, EXTREMES, "p = 2")
    assert is_known(spark, table, "min(l); max(i); count(v)", "p > 3")
    for asked in ("max(v)", "max(f)", "min(f)", "min(p + 1)", "count(DISTINCT i)", "max(i) FILTER (WHERE l > 0)"):
        assert not is_known(spark, table, asked), asked
    assert not is_known(spark, table, "max(i)", "l > 0")
    assert "LocalTableScan" not in plan_of(spark.table(table).groupBy("p").agg({"i": "max"}))
    asked = lake.session.sql(f"SELECT max(i) AS most, min(l), count(*) FROM {name}")
    assert asked.collect() == [(2**31 - 1, -(2**63), 4)]
    assert "LocalTableScan" in plan_of_run(asked)
    assert "in each task" in plan_of(lake.session.sql(f"SELECT max(v) FROM {name}"))


def test_least_and_greatest_decimals_and_floats_are_known_by_metadata(lake, spark):
    """Decimals that fit 32 and 64 bits and none; floats where no file has NaN and no zero is the answer."""
    decimals = "s decimal(9, 2), m decimal(18, 0), w decimal(38, 10)"
    name = lake.create(f"p int, {decimals}, f float, d double", "PARTITIONED BY (p)")
    table, exact = f"lake.{name}", "min(s); max(s); min(m); max(m); min(w); max(w)"
    assert spark.table(table).selectExpr("min(s)", "max(d)").collect() == [(None, None)]
    lake.session.sql(
        f"INSERT INTO {name} VALUES "
        "(1, -9999999.99, -999999999999999999, -9999999999999999999999999999.9999999999, float('-infinity'), 1e-320D), "
        "(1, 0.01, NULL, 0.0000000001, CAST(3.4028235e38 AS FLOAT), -1.7976931348623157E308D), "
        "(2, 9999999.99, 999999999999999999, 9999999999999999999999999999.9999999999, 0.1F, double('infinity')), "
        "(3, NULL, 0, NULL, NULL, NULL), "
        "(4, 1, 1, 1, float('nan'), double('nan')), "
        "(5, -1, -1, -1, 0, -0.0D), (5, 0, 0, 0, 2, -3)"
    )
    assert is_known(spark, table, f"{exact}; min(f); max(f); min(d); max(d)", "p < 4")
    assert is_known(spark, table, exact)
    assert is_known(spark, table, "max(f); min(d)", "p = 5")
    for asked in ("min(f)", "max(f)", "min(d)", "max(d)"):
        assert not is_known(spark, table, asked, "p = 4"), asked
    assert not is_known(spark, table, "min(f)", "p = 5")
    assert not is_known(spark, table, "max(d)", "p = 5")
    answers = lake.session.sql(f"SELECT max(s), min(w), max(f) FROM {name} WHERE p < 3").collect()
    least = Decimal("-9999999999999999999999999999.9999999999")
    assert answers == [(Decimal("9999999.99"), least, 3.4028234663852886e38)]


def test_least_and_greatest_values_are_read_where_metadata_may_not_say_them(lake, spark):
    """Rows are deleted, bounds are not kept or rounded, a column is wider than its files are."""
    name = lake.create("i int, t timestamp, w int", **{"write.delete.mode": "merge-on-read", "format-version": "3"})
    table = f"lake.{name}"
    lake.session.sql(f"INSERT INTO {name} SELECT id, timestamp_micros(id), id FROM range(9)")
    lake.session.sql(f"ALTER TABLE {name} ALTER COLUMN w TYPE bigint")
    assert is_known(spark, table, "max(i)")
    assert not is_known(spark, table, "max(w)")
    lake.session.sql(f"DELETE FROM {name} WHERE i = 8")
    assert not is_known(spark, table, "max(i)")
    assert lake.session.sql(f"SELECT max(i), min(i) FROM {name}").collect() == [(7, 0)]
    for key, value in (("write.metadata.metrics.default", "counts"), ("write.format.default", "orc")):
        other = lake.create("t timestamp", **{key: value})
        lake.session.sql(f"INSERT INTO {other} SELECT timestamp_micros(1500)")
        assert not is_known(spark, f"lake.{other}", "max(t)")
        assert is_known(spark, f"lake.{other}", "count(t)")


def test_statistics_are_true(lake, spark):
    """Rows of the files that are left; bytes of the columns that are read."""
    name = lake.create("id bigint, v string", "PARTITIONED BY (truncate(100, id))")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('v', id) FROM range(1000)")
    table = spark.table(f"lake.{name}")

    def leaf(frame):
        return optimized(frame).collectLeaves().head().stats()

    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        assert leaf(table).rowCount().get() == 1000
        assert leaf(table.where("id < 100")).rowCount().get() == 100
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
    assert leaf(table.select("id")).sizeInBytes() < leaf(table).sizeInBytes()


def test_sketches_are_statistics_of_columns(lake, spark):
    """Of the nearest ancestor that has them; never more distinct values than rows."""
    name = lake.create("id bigint NOT NULL, k string NOT NULL, v string", "PARTITIONED BY (truncate(100, id))")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('k', id % 7), concat('v', id % 5) FROM range(1000)")
    lake.session.compute_table_stats(name)
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('k', id % 7), concat('v', id % 5) FROM range(1000, 1100)")
    table = spark.table(f"lake.{name}")

    def counts(frame):
        leaf = optimized(frame).collectLeaves().head()
        found = leaf.stats().attributeStats()
        shown = {}
        for place in range(leaf.output().length()):
            one = found.get(leaf.output().apply(place))
            if one.isDefined():
                distinct, nulls = one.get().distinctCount(), one.get().nullCount()
                shown[leaf.output().apply(place).name()] = (
                    int(distinct.get()),
                    int(nulls.get()) if nulls.isDefined() else None,
                )
        return shown

    assert counts(table) == {}
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        known = counts(table.select("id", "k", "v"))
        assert known == {"id": (1000, None), "k": (7, 0), "v": (5, None)}
        assert counts(table.where("id < 100").select("id"))["id"] == (100, None)
        assert optimized(table.groupBy("k").count()).stats().rowCount().get() == 7
        joined = optimized(table.join(table.select("k"), "k")).stats().rowCount().get()
        assert joined == math.ceil(1100 * 1100 / 7)
        assert optimized(table.join(table.select("id"), "id")).stats().rowCount().get() > 0
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


def test_two_large_tables_are_not_broadcast(lake, spark):
    left, right = lake.create("id bigint, v string"), lake.create("id bigint, w string")
    for name in (left, right):
        lake.session.sql(f"INSERT INTO {name} SELECT id, repeat('x', 20) FROM range(20000)")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "100000")
    try:
        joined = spark.table(f"lake.{left}").join(spark.table(f"lake.{right}"), "id")
        assert "SortMergeJoin" in plan_of(joined)
        assert joined.count() == 20000
        small = spark.table(f"lake.{left}").join(spark.table(f"lake.{right}").where("id < 0"), "id")
        assert "BroadcastHashJoin" in plan_of(small)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_a_join_leaves_out_partitions_at_runtime(lake, spark):
    """Dynamic partition pruning: what the small side has says which files of the large one are read."""
    facts, days = lake.create("id bigint, day date", "PARTITIONED BY (day)"), lake.create("day date, name string")
    lake.session.sql(
        f"INSERT INTO {facts} SELECT id, date_add(DATE'2020-01-01', CAST(id % 10 AS INT)) FROM range(1000)"
    )
    lake.session.sql(
        f"INSERT INTO {days} SELECT date_add(DATE'2020-01-01', CAST(id AS INT)), concat('d', id) FROM range(10)"
    )
    wanted = spark.table(f"lake.{days}").where("name = 'd3'")
    joined = spark.table(f"lake.{facts}").select("*", "_file").join(wanted, "day")
    assert "dynamicpruning" in plan_of(joined), plan_of(joined)
    assert len({row["_file"] for row in joined.collect()}) == 1
    assert joined.count() == 100


def test_metadata_columns(lake, spark):
    """As with Iceberg: not part of a star."""
    name = lake.create("id bigint, p int", "PARTITIONED BY (p)", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 1), (3, 2)")
    table = spark.table(f"lake.{name}")
    assert table.columns == ["id", "p"]
    rows = table.select("id", "_file", "_pos", "_spec_id", "_partition.p", "_row_id", "_last_updated_sequence_number")
    expected = lake.session.sql(
        f"SELECT id, _file, _pos, _spec_id, _partition.p, _row_id, _last_updated_sequence_number FROM {name}"
    )
    assert same(rows, expected)
    assert table.select("_pos").where("_pos = 1").collect() == [(1,)]
    assert same(
        table.where("_partition.p = 2").select("id", "_partition"),
        spark.createDataFrame([(3, (2,))], "id long, _partition struct<p: int>"),
    )


def test_time_travel_branches_and_tags(lake, spark):
    name = lake.create("id bigint")
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    first = lake.table(name).current_snapshot()
    lake.table(name).manage_snapshots().create_tag(first.snapshot_id, "one").create_branch(
        first.snapshot_id, "audit"
    ).commit()
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN v string")
    lake.session.sql(f"INSERT INTO {name} VALUES (2, 'x')")

    def read(**options):
        return spark.read.options(**options).table(f"lake.{name}")

    assert read().count() == 2
    for options in (
        {"snapshot-id": str(first.snapshot_id)},
        {"tag": "one"},
        {"branch": "audit"},
        {"as-of-timestamp": str(first.timestamp_ms)},
    ):
        assert [row.id for row in read(**options).collect()] == [1], options
    for suffix in ("branch_audit", "tag_one", f"snapshot_id_{first.snapshot_id}", f"at_timestamp_{first.timestamp_ms}"):
        assert [row.id for row in spark.table(f"lake.{name}.{suffix}").collect()] == [1], suffix
    assert spark.read.option("versionAsOf", "one").table(f"lake.{name}").collect() == [(1,)]
    moment = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert spark.read.option("timestampAsOf", moment).table(f"lake.{name}").collect() == [(1,)]
    with pytest.raises(NotFoundError):
        read(tag="two").collect()
    with pytest.raises(AnalysisError):
        read(tag="one", branch="audit").collect()
    with pytest.raises(AnalysisError):
        read(**{"snapshot-id": "one"}).collect()
    with pytest.raises(NotSupportedError, match="the rows that snapshots have added"):
        read(**{"start-snapshot-id": str(first.snapshot_id)}).collect()  # never all rows instead


def test_schemas_and_specs_that_changed(lake, spark):
    name = lake.create("id bigint, old int, gone string", "PARTITIONED BY (old)")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 10, 'x'), (2, 20, 'y')")
    for change in (
        "RENAME COLUMN old TO new",
        "DROP COLUMN gone",
        "ADD COLUMN gone int",
        "ALTER COLUMN new TYPE bigint",
        "ADD PARTITION FIELD bucket(4, id)",
    ):
        lake.session.sql(f"ALTER TABLE {name} {change}")
    lake.session.sql(f"INSERT INTO {name} VALUES (3, 30, 5)")
    table = spark.table(f"lake.{name}")
    assert table.orderBy("id").collect() == [(1, 10, None), (2, 20, None), (3, 30, 5)]
    assert table.where("gone IS NULL").count() == 2
    assert table.where("new = 10").collect() == [(1, 10, None)]
    assert table.where("gone = 5 AND new > 10").count() == 1


def test_six_threads_read_at_once(lake, spark):
    name = lake.create("id bigint, v string", "PARTITIONED BY (bucket(4, id))")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('v', id) FROM range(600)")

    def work(number):
        table = spark.table(f"lake.{name}").where(f"id >= {number * 100} AND id < {number * 100 + 100}")
        return table.agg(functions.count("v"), functions.sum("id")).first()[:]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, [*range(6)] * 2))
    assert found == [(100, sum(range(n * 100, n * 100 + 100))) for n in [*range(6)] * 2]
