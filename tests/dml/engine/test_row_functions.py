"""Functions in scan tasks: the values are those that Spark computes, for the values at the ends of every type."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import dml
from dml.engine import insert
from dml.errors import DataError, ErrorKind
from dml.session import Session
from dml.spark.settings import ORDER
from dml.spark.versions import INSTALLED_FEATURES, Feature
from tests.dml.engine.test_scanned_rows import PAST_SPARK, by_spark, check_twins, explained
from tests.lake import Lake

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, i INT, l BIGINT, d DOUBLE, e DOUBLE, s STRING, a STRING, day DATE, b BOOLEAN, n DECIMAL(9, 2), "
    "f FLOAT, ts TIMESTAMP, local TIMESTAMP_NTZ, x BINARY"
)
INTS = ("NULL", "0", "1", "-1", "7", "2147483647", "-2147483647", "100000")
LONGS = ("NULL", "0", "1", "-9", "2147483648", "9007199254740993", "9223372036854775807", "-9223372036854775807")
DOUBLES = ("NULL", "0D", "-0D", "1.5D", "-2.5D", "double('NaN')", "double('Infinity')", "-1e300D", "9007199254740993D")
SMALL_DOUBLES = ("NULL", "0D", "-0D", "0.9999999D", "-0.9999999D", "2147483647.9D", "-2147483648.9D", "1e-300D")
TEXTS = (
    "NULL", "''", "'a'", "'aBc'", "'  x '", "'e\u0301'", "'\u00e4\u00f6\u00fc'", "'\U0001f600\U0001f601x'",
    "'\ud7ff\ue000'", "'\u200d\ufeff'", "'\u0130\u00df\u03a3'", "concat('n', char(0), 'n')", "repeat('\u20ac', 300)",
)  # fmt: skip
ASCII = ("NULL", "''", "'a'", "'aBcDeFgHiJkLmNoPqRsTuVwXyZ'", "'~{}`@[/:'", "concat(char(0), 'z', char(127))", "'1'")
DAYS = (
    "NULL", "DATE '1970-01-01'", "DATE '1969-12-31'", "DATE '2000-02-29'", "DATE '1900-02-28'", "DATE '2024-02-29'",
    "DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '1582-10-04'", "DATE '1582-10-15'", "DATE '2026-12-01'",
    "date_sub(DATE '0001-01-01', 1)", "date_add(DATE '9999-12-31', 1)",
)  # fmt: skip
BOOLEANS = ("NULL", "true", "false")
DECIMALS = ("NULL", "0", "-1234567.89", "9999999.99")
TIMES = ("NULL", "TIMESTAMP '1969-12-31 23:59:59'", "TIMESTAMP '2261-01-01 00:00:00'")
LOCAL_TIMES = ("NULL", "TIMESTAMP_NTZ '1700-01-02 00:00:00'", "TIMESTAMP_NTZ '2026-01-01 00:00:00.000001'")
BYTES = ("NULL", "X''", "X'00FF'")
FLOATS = ("NULL", "float('NaN')", "float('-0.0')", "float(0.1)", "float('-Infinity')")


@pytest.fixture(scope="module")
def ends(engine_lake: Lake) -> str:
    """Rows that combine the values of each column in different ways, in files of each format."""
    engine_lake.session.enable()
    name = engine_lake.create(COLUMNS)
    values = (
        INTS, LONGS, DOUBLES, SMALL_DOUBLES, TEXTS, ASCII, DAYS, BOOLEANS, DECIMALS, FLOATS, TIMES, LOCAL_TIMES, BYTES,
    )  # fmt: skip
    chance = random.Random(7)
    rows = [
        (str(number), *(column[number % len(column)] if number < 13 else chance.choice(column) for column in values))
        for number in range(120)
    ]
    for part, data_format in enumerate(("parquet", "orc", "avro")):
        engine_lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = '{data_format}')")
        listed = ", ".join(f"({', '.join(row)})" for row in rows[part::3])
        engine_lake.session.sql(f"INSERT INTO {name} VALUES {listed}")
    engine_lake.session.disable()
    return name


COMPUTED = {
    "INT": (
        "coalesce(i, 5)", "nvl(i, -1)", "ifnull(i, id % 2)", "coalesce(i, NULL, length(s))", "if(b, i, -i)",
        "CASE WHEN l > 5 THEN 1 WHEN d < 0 OR b THEN i ELSE abs(i) END", "CASE i WHEN 0 THEN 1 WHEN 7 THEN NULL END",
        "CASE WHEN b THEN 1 WHEN NOT b THEN 0 ELSE -1 END", "nullif(i, 0)", "nullif(i, l)", "nullif(i, d)", "abs(i)",
        "-i", "-(-i)", "CAST(e AS INT)", "int(e)", "CAST(i AS INT)", "CAST(i % 7 AS INTEGER)", "length(s)", "len(a)",
        "char_length(s)", "character_length(concat(s, a, s))", "year(day)", "month(day)", "day(day)", "dayofmonth(day)",
        "year(to_date(day)) * 10000 + month(day) * 100 + day(day)", "if(s = a, 1, 0)", "if(d = e, 1, 2)",
        "CASE WHEN s IS NULL THEN 0 WHEN s LIKE 'a%' THEN 1 WHEN s IN ('', 'x') THEN 2 WHEN s > 'z' THEN 3 END",
        "try_cast(e AS INT)",
    ),
    "BIGINT": (
        "coalesce(i, l)", "coalesce(l, i, 0)", "CASE WHEN b THEN i ELSE l END", "if(i > 5, 5, 5000000000)", "abs(l)",
        "-l", "nullif(l, i)", "CAST(i AS BIGINT) * 3", "CAST(e AS BIGINT)", "CAST(e AS LONG) + i", "CAST(l AS BIGINT)",
        "abs(CAST(i AS LONG)) * 2", "CASE WHEN i > 0 THEN 1 ELSE 2L END", "length(s) + id",
    ),
    "DOUBLE": (
        "coalesce(d, 0)", "coalesce(d, 0.5)", "coalesce(d, -0.0)", "coalesce(d, i)", "coalesce(l, d)",
        "coalesce(NULL, d, e)", "CASE WHEN d > e THEN d ELSE 0 END", "CASE WHEN b THEN l ELSE e END",
        "if(d IS NULL, 1.5, d)", "nullif(d, 0)", "nullif(d, e)", "abs(d)", "-d", "-(d * 2)", "CAST(i AS DOUBLE)",
        "CAST(l AS DOUBLE)", "double(l)", "CAST(f AS DOUBLE)", "abs(d) / 3",
        "CASE WHEN d = double('NaN') THEN 1D ELSE d END",
    ),
    "STRING": (
        "coalesce(s, a)", "coalesce(s, '')", "nvl(a, 'none')", "if(b, s, a)", "CASE WHEN i = 7 THEN 'seven' ELSE s END",
        "CASE s WHEN '' THEN 'empty' WHEN a THEN 'same' ELSE a END", "nullif(s, '')", "nullif(s, a)", "upper(a)",
        "ucase(a)", "lower(a)", "lcase(a)", "concat(s, a)", "concat(s, '-', a, '-')", "s || '/' || a", "concat(s)",
        "coalesce(upper(a), s)", "CASE WHEN i > 0 THEN lower(a) END", "CAST(i AS STRING)", "CAST(l AS STRING)",
        "string(l)", "'i' || CAST(id AS STRING)", "CAST(s AS STRING)", "CAST(s AS VARCHAR(2))",
    ),
    "DATE": (
        "coalesce(day, DATE '2026-01-01')", "if(b, day, NULL)", "CAST(day AS DATE)", "to_date(day)",
        "nullif(day, DATE '1970-01-01')",
    ),
    "BOOLEAN": ("coalesce(b, false)", "CASE WHEN i = 7 THEN true WHEN b THEN false END"),
    "DECIMAL(9, 2)": ("coalesce(n, n)", "if(b, n, NULL)"),
    "FLOAT": ("coalesce(f, f)", "CASE WHEN i = 7 THEN f END"),
    "TIMESTAMP": ("coalesce(ts, TIMESTAMP '2026-01-01 00:00:00')", "if(b, ts, NULL)"),
    "TIMESTAMP_NTZ": ("coalesce(local, TIMESTAMP_NTZ '2026-01-01 00:00:00')", "nullif(local, local)"),
    "BINARY": ("coalesce(x, X'01')", "if(b, x, NULL)"),
}  # fmt: skip
PLACES = ("0", "1", "2", "3", "-1", "-2", "-3", "-5", "300", "-300", "2147483647", "-2147483648")
LENGTHS = ("", ", 0", ", 1", ", 2", ", 301", ", -1", ", 2147483647", ", -2147483648")
SUBSTRINGS = tuple(f"substring(s, {place}{length})" for place in PLACES for length in LENGTHS)


@pytest.fixture
def no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that tasks leave to Spark while they run fails the test: Spark would compute all others too."""
    monkeypatch.setattr(insert, "run_or_fall_back", lambda run: run(None))


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.usefixtures("ansi", "no_fallback")
@pytest.mark.parametrize("dates", [False, True], ids=["other types", "dates"])
def test_each_function_gives_what_spark_gives(lake: Lake, ends: str, dates: bool) -> None:
    computed = [(kind, text) for kind, texts in COMPUTED.items() if (kind == "DATE") is dates for text in texts]
    columns = ", ".join(["id BIGINT", *(f"c{place} {kind}" for place, (kind, _) in enumerate(computed))])
    # Python has no other dates.
    condition = "WHERE day IS NULL OR year(day) BETWEEN 1 AND 9999" if dates else ""
    check_twins(lake, columns, f"SELECT id, {', '.join(text for _, text in computed)} FROM {ends} {condition}")


def test_substrings_from_every_place_of_every_length(lake: Lake, ends: str) -> None:
    columns = ", ".join(["id BIGINT", *(f"c{place} STRING" for place in range(len(SUBSTRINGS)))])
    check_twins(lake, columns, f"SELECT id, {', '.join(SUBSTRINGS)} FROM {ends}")


CONDITIONS = (
    "upper(a) = 'ABC'",
    "lower(a) <> 'abc' OR length(s) > 2",
    "NOT (length(s) > 1 AND b)",
    "substring(s, 1, 1) IN ('a', 'e', '\u00e4')",
    "substring(s, -1) NOT IN ('c', '')",
    "coalesce(s, '') = coalesce(a, '')",
    "coalesce(day, DATE '2026-01-01') BETWEEN DATE '1582-10-15' AND DATE '2026-01-01'",
    "year(day) >= 1582 AND month(day) IN (2, 12)",
    "CASE WHEN i > 0 THEN d WHEN b THEN e END >= 0",
    "abs(i) % 10 = 7",
    "-d < e",
    "abs(d) = 0",
    "CAST(e AS INT) = 0",
    "CAST(l AS DOUBLE) = 9007199254740992",
    "CAST(i AS STRING) LIKE '1%' OR CAST(i AS STRING) > '2'",
    "s || a > 'b'",
    "nullif(i, 7) = 1",
)


@pytest.mark.usefixtures("ansi")
def test_conditions_are_true_where_they_are_to_spark(lake: Lake, ends: str) -> None:
    computed = [condition for condition in CONDITIONS if "LIKE" not in condition]
    columns = ", ".join(["id BIGINT", *(f"c{place} STRING" for place in range(len(computed)))])
    values = (f"CASE WHEN {part} THEN 'yes' WHEN NOT ({part}) THEN 'no' END" for part in computed)
    check_twins(lake, columns, f"SELECT id, {', '.join(values)} FROM {ends}")


def test_rows_are_changed_where_spark_would_change_them(lake: Lake, ends: str) -> None:
    sql = lake.session.sql
    name = lake.create(COLUMNS, **{"format-version": "3", "write.update.mode": "merge-on-read"})
    sql(f"INSERT INTO {name} SELECT * FROM {ends} WHERE coalesce(year(day), 1) BETWEEN 1 AND 9999")
    new = {
        "i": "coalesce(i, length(s), -1)",
        "l": "CASE WHEN l > 0 THEN CAST(i AS BIGINT) + 1 ELSE abs(l) END",
        "d": "coalesce(-d, e, 0)",
        "s": "if(b, upper(a), concat(substring(s, 2, 2), '-', a))",
        "day": "coalesce(day, DATE '2026-01-01')",
    }
    condition = "length(coalesce(a, '')) > 1 OR year(day) < 1900"
    values = (
        f"CASE WHEN {condition} THEN {new[column]} ELSE {column} END" if column in new else column
        for column in (part.split()[0] for part in COLUMNS.replace("9, 2", "9").split(", "))
    )
    with by_spark():
        expected_name = lake.create(COLUMNS)
        sql(f"INSERT INTO {expected_name} SELECT {', '.join(values)} FROM {name}")
    expected = lake.rows(expected_name)
    statement = f"UPDATE {name} SET {', '.join(f'{key} = {value}' for key, value in new.items())} WHERE {condition}"
    assert explained(lake, statement)
    assert sql(statement).rows_updated
    assert repr(lake.rows(name)) == repr(expected)
    kept = lake.rows(f"SELECT * FROM {name} WHERE NOT coalesce(upper(a) IN ('ABC', 'A') AND CAST(e AS INT) = 0, false)")
    statement = f"DELETE FROM {name} WHERE upper(a) IN ('ABC', 'A') AND CAST(e AS INT) = 0"
    assert explained(lake, statement)
    assert sql(statement).rows_deleted == len(expected) - len(kept) > 0
    assert repr(lake.rows(name)) == repr(kept)


def test_a_merge_computes_functions_of_both_sides(lake: Lake) -> None:
    sql = lake.session.sql
    name = lake.create("id BIGINT, s STRING, k INT")
    sql(f"INSERT INTO {name} SELECT id, concat('s', id), nullif(int(id % 3), 0) FROM range(20)")
    statement = f"""
        MERGE INTO {name} t USING (SELECT id * 2 AS id, concat('n', id) AS s, 5 AS k FROM range(8)) u ON t.id = u.id
        WHEN MATCHED AND length(t.s) + u.k > 7 AND upper(t.s) > upper(u.s) THEN UPDATE SET s = u.s || '/' || upper(t.s)
        WHEN MATCHED THEN UPDATE SET k = coalesce(t.k, u.k), s = CASE WHEN u.k > t.k THEN t.s ELSE u.s END"""
    assert explained(lake, statement)
    expected: dict[int, tuple[int, str, int | None]] = {}
    for row in range(20):
        expected[row] = (row, f"s{row}", row % 3 or None)
    for row in range(0, 16, 2):
        s, k = f"s{row}", row % 3 or None
        if len(s) + 5 > 7:
            expected[row] = (row, f"n{row // 2}/{s.upper()}", k)
        else:
            expected[row] = (row, s if k else f"n{row // 2}", k or 5)
    assert sql(statement).rows_updated == 8
    assert sorted(lake.rows(name)) == sorted(expected.values())


def beyond_the_ends(lake: Lake) -> str:
    """A table of values of which functions make what no task can."""
    name = lake.create("id BIGINT, i INT, l BIGINT, d DOUBLE, s STRING")
    lake.session.sql(
        f"INSERT INTO {name} VALUES (1, 1, 1, 1.5D, 'a'), "
        "(2, -2147483648, 2147483648, 1e300D, 'Stra\u00dfe \u03a3\u0130'), "
        "(3, 2, -9223372036854775808, 9223372036854775807D, '\u03a3'), (4, 3, 3, double('NaN'), '\U00010400')"
    )
    return name


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT", "abs(i)"),
        pytest.param("INT", "-i", marks=pytest.mark.nightly),
        pytest.param("INT", "CAST(l AS INT)", marks=pytest.mark.nightly),
        pytest.param("INT", "CAST(d AS INT)", marks=pytest.mark.nightly),
        ("BIGINT", "CAST(d AS BIGINT)"),
        ("INT", "coalesce(CAST(l AS INT), 1)"),
        ("STRING", "upper(s)"),
        pytest.param("STRING", "lower(s)", marks=pytest.mark.nightly),
    ],
)
def test_what_a_task_cannot_judge_is_as_spark_says(lake: Lake, kind: str, value: str) -> None:
    source = lake.once(beyond_the_ends, lambda: beyond_the_ends(lake))
    outcomes = []
    for in_tasks in (True, False):
        target = lake.create(f"id BIGINT, v {kind}")
        statement = f"INSERT INTO {target} SELECT id, {value} FROM {source}"
        assert not in_tasks or explained(lake, statement)
        with nullcontext() if in_tasks else by_spark():
            try:
                lake.session.sql(statement)
            except DataError as error:
                outcomes.append(f"{error.kind}: {error.message}")
            else:
                outcomes.append(repr(lake.rows(target)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].startswith(("[(1, ", f"{ErrorKind.OVERFLOW}: "))


def test_text_outside_of_ascii_in_a_branch_that_is_not_taken(lake: Lake) -> None:
    source = lake.create("id BIGINT, s STRING")
    lake.session.sql(f"INSERT INTO {source} VALUES (1, 'a'), (2, '\u00df')")
    check_twins(lake, "id BIGINT, s STRING", f"SELECT id, if(id = 1, upper(s), s) FROM {source}")
    assert lake.session.sql(f"DELETE FROM {source} WHERE upper(s) = 'SS'").rows_deleted == 1


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def test_dates_have_no_time_zone(lake: Lake, ends: str, spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        check_twins(lake, "id BIGINT, y INT, m INT, d INT", f"SELECT id, year(day), month(day), day(day) FROM {ends}")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture
def own_session(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    """A session in which functions of the user replace built-in ones, as they always do before Spark 4.3."""
    own = spark.newSession()
    if Feature.FUNCTION_PATH in INSTALLED_FEATURES:
        own.conf.set(ORDER, "first")
    session = dml.connect(str(tmp_path), spark=own, progress=False)
    session.sql("CREATE NAMESPACE db")
    session.sql("CREATE TABLE db.t (id BIGINT, s STRING)")
    session.sql("INSERT INTO db.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield session
    session.disable()


@pytest.mark.parametrize(
    ("function", "statement", "rows"),
    [
        ("mod", "DELETE FROM db.t WHERE mod(id, 2) = 3", [(2, "b"), (3, "c")]),
        ("mod", "DELETE FROM db.t WHERE `MOD` -- the sum\n (id, 2) = 3", [(2, "b"), (3, "c")]),
        ("abs", "UPDATE db.t SET id = abs(id, 4) WHERE id = 1", [(2, "b"), (3, "c"), (5, "a")]),
        (
            "nvl",
            "INSERT INTO db.t SELECT nvl(id, 10), s FROM db.t WHERE id = 1",
            [(1, "a"), (11, "a"), (2, "b"), (3, "c")],
        ),
        ("iif", "DELETE FROM db.t WHERE iif(id, 1) = 3", [(1, "a"), (3, "c")]),
    ],
)
def test_a_function_that_the_user_replaced_is_the_users(
    own_session: Session, function: str, statement: str, rows: list[tuple[int, str]]
) -> None:
    own_session.spark.udf.register(function, udf(lambda left, right: left + right, "bigint"))
    plan = own_session.sql(f"EXPLAIN {statement}").collect()[0][0]
    assert PAST_SPARK not in plan
    own_session.sql(statement)
    assert sorted(tuple(row) for row in own_session.sql("SELECT * FROM db.t").collect()) == sorted(rows)
