"""Statements that need no Spark do the same as with it, before and after it has started; those in doubt start it."""

import re
import threading
from contextlib import contextmanager
from dataclasses import fields
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dml import limits
from dml.engine import insert, row_level_plan
from dml.engine.row_level_plan import plan_statement
from dml.errors import DmlError
from dml.plan.row_delta_plan import ThroughSpark
from dml.session import Session, runner_of
from dml.spark import lazy_session
from dml.spark.lazy_session import LazySession, known_settings, machine_time_zone
from dml.sqlparse import parse
from dml.views import StatementViews
from tests.marks import by_night

COLUMNS = "id INT, name STRING, amount DOUBLE, big BIGINT, day DATE, at TIMESTAMP, price DECIMAL(10,2)"
ROWS = (
    "SELECT CAST(id AS INT), IF(id % 7 = 0, NULL, concat('n', id)), id * 1.5D, id * 10, DATE'2024-01-01' + CAST(id AS "
    "INT), TIMESTAMP'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, CAST(id AS INT)), CAST(id AS DECIMAL(10,2)) "
    "FROM range(40)"
)
KINDS = ((2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read"))

RUN_HERE = (
    "DELETE FROM {t} WHERE id < 10",
    "DELETE FROM {t} WHERE name IS NULL OR name LIKE 'n1%'",
    "DELETE FROM {t} WHERE at < TIMESTAMP '2024-01-01 05:00:00' AND day <> DATE '2024-01-03'",
    "DELETE FROM {t} WHERE price IN (3.00, 4.5) OR NOT amount > 3",
    "DELETE FROM {t} WHERE id > 1000",
    "DELETE FROM {t} WHERE id >= 0",
    "DELETE FROM {t}",
    "UPDATE {t} SET amount = amount * 2, name = 'x' WHERE id % 10 = 3",
    "UPDATE {t} SET big = id + 1, name = upper(name) WHERE year(day) = 2024 AND id BETWEEN 5 AND 14",
    "UPDATE {t} SET name = CASE WHEN id > 20 THEN 'high' ELSE name END, at = TIMESTAMP '2024-06-01 12:00:00'",
    "UPDATE {t} AS a SET a.price = 7, day = NULL WHERE a.name = 'n5'",
    (
        "INSERT INTO {t} VALUES (50, 'x', 1.5, 5000000000, DATE '2024-02-01', TIMESTAMP '2024-02-01 10:00:00', 3.25), "
        "(51, NULL, 2, 7, NULL, TIMESTAMP '2024-02-01 10:00:00Z', -7), (-52, 'it''s', -7.25, NULL, NULL, NULL, NULL)"
    ),
    "INSERT INTO {t} (name, id) VALUES ('y', 60), ('z', 61)",
    "INSERT INTO {t} (id, amount) SELECT 70, 5",
    (
        "MERGE INTO {t} USING (VALUES (5, 'a', NULL), (200, 'b', DATE '2024-05-01'), (NULL, 'c', NULL)) "
        "AS s(id, name, day) ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name, day = s.day "
        "WHEN NOT MATCHED THEN INSERT (id, name, day) VALUES (s.id, s.name, s.day)"
    ),
    (
        "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id WHEN MATCHED AND t.id < 25 THEN DELETE "
        "WHEN MATCHED AND s.amount > 40 THEN UPDATE SET amount = s.amount + t.amount, name = upper(s.name) "
        "WHEN NOT MATCHED AND s.id <> 45 THEN INSERT *"
    ),
    (
        "MERGE INTO {t} AS t USING {s} AS s ON t.id <=> s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN DELETE"
    ),
    "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, at) VALUES (s.id + 1, s.at)",
    "MERGE INTO {t} AS t USING (SELECT 3 AS id) AS s(id) ON t.id = s.id WHEN MATCHED THEN DELETE",
)

IN_DOUBT = (
    "DELETE FROM {t} WHERE nope = 1",
    "DELETE FROM {t} WHERE FALSE AND nope(id)",
    "DELETE FROM {t} WHERE id = 1 AND nope(id) > 0",
    "DELETE FROM {t} WHERE TRUE OR nope(id)",
    "DELETE FROM {t} WHERE (TRUE OR nope(id)) AND id = 1",
    "DELETE FROM {t} WHERE NOT (FALSE AND nope(id)) AND id = 1",
    "DELETE FROM {t} WHERE NULL AND nope(id)",
    "DELETE FROM {t} WHERE nope(id) = NULL",
    "DELETE FROM {t} WHERE nope(id) BETWEEN NULL AND 5",
    "UPDATE {t} SET name = CASE WHEN TRUE OR nope(id) THEN 'x' END WHERE id = 1",
    "UPDATE {t} SET name = IF(TRUE, 'x', nope(id)) WHERE id = 1",
    "UPDATE {t} SET name = coalesce('x', nope(id)) WHERE id = 1",
    "DELETE FROM {t} WHERE id",
    "DELETE FROM {t} WHERE id = 'abc'",
    "DELETE FROM {t} WHERE max(id) = 1",
    "DELETE FROM {t} WHERE day = DATE 'never'",
    "UPDATE {t} SET id = 'x'",
    "UPDATE {t} SET nope = 1",
    "UPDATE {t} SET id = nope",
    "UPDATE {t} SET id = id + 2147483647 WHERE id > 5",
    "UPDATE {t} SET price = 123456789.5",
    "UPDATE {t} SET id = 5000000000",
    "UPDATE {t} SET id = 1, id = 2",
    "UPDATE {t} SET name = 'x' WHERE at = current_timestamp() AND 1 / 0 = 1",
    "MERGE INTO {t} t USING (VALUES (5, 1), (5, 2)) AS s(id, n) ON t.id = s.id WHEN MATCHED THEN UPDATE SET big = n",
    "MERGE INTO {t} t USING (VALUES (5, 'a')) AS s(id, name) ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.name",
    "MERGE INTO {t} t USING (VALUES (5, 'a')) AS s(id) ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id WHEN MATCHED AND nope(t.id) THEN DELETE",
    "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.nope",
    "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id AND (TRUE OR nope(s.id)) WHEN MATCHED THEN DELETE",
    "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON id = s.id WHEN MATCHED THEN DELETE",
    (
        "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND (FALSE AND s.nope = 1) THEN INSERT (id) VALUES (s.id)"
    ),
    (
        "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND (FALSE AND s.id) THEN INSERT (id) VALUES (s.id)"
    ),
    (
        "MERGE INTO {t} t USING (VALUES (5)) AS s(id) ON t.id = s.id "
        "WHEN MATCHED AND (s.id = 5 OR TRUE OR s.id) THEN DELETE"
    ),
    "MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = s.id",
    "MERGE INTO {t} t USING db.nowhere s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "INSERT INTO {t} (id) VALUES ('x')",
    "INSERT INTO {t} (id) VALUES (1, 2)",
    "INSERT INTO {t} (id, name) VALUES (1)",
    "INSERT INTO {t} (id) VALUES (5000000000)",
    "INSERT INTO {t} (id, nope) VALUES (1, 2)",
    "INSERT INTO {t} (price) VALUES (123456789.5)",
    "INSERT INTO {t} (id) VALUES (1), (2, 3)",
    "INSERT INTO {t} (id) VALUES (CAST(NULL AS DATE))",
    "INSERT INTO {t} (at) VALUES ('2024-01-01')",
    "DELETE FROM db.nowhere WHERE id = 1",
    "DELETE FROM {t}.files WHERE id = 1",
    "UPDATE {t} SET name = 'x' WHERE",
    "DELETE FROM {t} WHERE id IN (1, 2,)",
    "DELETE FROM {t} WHERE id NOTNULL",
    "DELETE FROM {t} WHERE amount < 1e400",
    "DELETE FROM {t} WHERE id = SAFE_CAST('1' AS INT)",
    "DELETE FROM {t} WHERE day = CAST('2024-01-05' AS DATE FORMAT 'yyyy')",
    "UPDATE {t} SET name = STRING 'x'",
    "UPDATE {t} SET amount = 1e400",
    "INSERT INTO {t} (amount) VALUES (1e400)",
    "INSERT INTO {t} (name) VALUES (CAST('x' AS TEXT))",
    "INSERT INTO {t} (id) VALUES (1,)",
    "INSERT INTO {t} (id) VALUES ()",
    "MERGE INTO {t} USING (VALUES (5,)) AS s(id) ON {t}.id = s.id WHEN MATCHED THEN DELETE",
)


class SparkStartsError(Exception):
    """A statement needs Spark."""


def refuse(**_):
    raise SparkStartsError


@pytest.fixture
def cold(lake, spark, monkeypatch):
    """A session on the tables of the lake, for which Spark has not started and does not start."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    monkeypatch.setattr(lazy_session, "active_session", lambda: None)
    monkeypatch.setattr(lazy_session, "active_context", lambda: None)
    monkeypatch.setattr(lazy_session, "spark_session", refuse)
    chosen = {"spark.sql.session.timeZone": zone, "spark.master": spark.sparkContext.master}
    return Session(LazySession(settings=chosen), lake.session.registry, progress=False)


def filled(lake, version, mode):
    """A table of forty rows."""

    def make():
        modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        name = lake.create(COLUMNS, **{"format-version": str(version)}, **modes)
        lake.session.sql(f"INSERT INTO {name} {ROWS}")
        return name

    return lake.copy_of((__name__, version, mode), make)


def source(lake):
    """A table of thirty rows, of which half have an id of `filled`."""

    def make():
        name = lake.create(COLUMNS)
        lake.session.sql(f"INSERT INTO {name} {ROWS.replace('range(40)', 'range(20, 50)')}")
        return name

    return lake.once((__name__, "source"), make)


def facts(result):
    """What a result tells, but for its table, its snapshot, times, and sizes of files."""
    left_out = {"table", "snapshot_id", "seconds", "bytes_added", "bytes_removed", "summary"}
    return {one.name: getattr(result, one.name) for one in fields(result) if one.name not in left_out}


def summary(table):
    """The summary of the current snapshot, but for the application and the sizes of files."""
    found = table.current_snapshot().summary
    left_out = ("app-id", "spark.app.id", "app-name", "size")
    return {key: value for key, value in found.additional_properties.items() if not any(one in key for one in left_out)}


@contextmanager
def rows_through_spark():
    """Let Spark evaluate all sources and inserted rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_level_plan, "driver_source", lambda *_: None)
        patch.setattr(insert, "plan_driver_insert", lambda *_: None)
        yield


DATA = pa.table(
    {
        "id": pa.array([5, 7, 210, None, 9], pa.int32()),
        "name": pa.array(["p", None, "ü", "", "q"]).dictionary_encode(),
        "amount": pa.array([1.5, float("nan"), None, -0.0, float("inf")], pa.float32()),
        "big": pa.array([1, 2**32 - 1, None, 0, 2**40], pa.int64()),
        "day": pa.array([0, None, -1, 19_000, 5], pa.date32()),
        "at": pa.array([0, 1_700_000_000, None, 5, -1], pa.timestamp("ms", "Europe/Berlin")),
        "price": pa.array([Decimal("1.5"), None, Decimal("-7.2"), Decimal("99999.9"), Decimal(0)], pa.decimal128(7, 1)),
        "tags": pa.array([["a"], [], None, ["b", None], ["c"]]),
    }
)
FITS = DATA.slice(0, 4)
CALLS = {
    "upsert": lambda session, name: session.upsert(name, FITS.drop(["tags"]), on="id"),
    "upsert by two": lambda session, name: session.upsert(name, FITS.drop(["tags"]), on=["id", "name"]),
    "insert": lambda session, name: session.insert(name, FITS.drop(["tags"])),
    "insert narrowed": lambda session, name: session.insert(name, FITS.select(["big"]).rename_columns(["id"]).slice(2)),
    "insert some": lambda session, name: session.insert(name, FITS.select(["price", "id"])),
    "insert none": lambda session, name: session.insert(name, FITS.select(["id"]).slice(0, 0)),
    "insert in order": lambda session, name: session.sql(
        f"INSERT INTO {name} SELECT * FROM {{r}}", r=FITS.drop(["tags"])
    ),
    "insert list": lambda session, name: session.sql(
        f"INSERT INTO {name} (big, name) TABLE {{r}}", r=FITS.select(["id", "name"])
    ),
    "merge": lambda session, name: session.sql(
        f"MERGE INTO {name} t USING {{r}} r ON t.id = r.id WHEN MATCHED AND r.big > 5 THEN DELETE WHEN MATCHED THEN "
        "UPDATE SET name = r.name, big = r.big + 1 WHEN NOT MATCHED AND r.id IS NOT NULL THEN INSERT (id, at) "
        "VALUES (r.id, r.at)",
        r=FITS,
    ),
    "merge a query": lambda session, name: session.sql(
        f"MERGE INTO {name} t USING (SELECT * FROM {{r}}) AS r ON t.id <=> r.id WHEN MATCHED THEN DELETE", r=FITS
    ),
    "merge builder": lambda session, name: (
        session.merge_into(DATA, f"{name} t", "t.big = source.id * 2")
        .whenMatched()
        .update({"name": "source.name"})
        .merge()
    ),
}
NEED_SPARK = {"merge builder"}
"""Calls with a computed key, which need Spark."""
GENERATED = re.compile("__rowdelta_source_[0-9a-f]+")


@pytest.mark.spark
@pytest.mark.parametrize(("version", "mode"), by_night(KINDS, lambda kind: kind[0] == 3))
def test_a_statement_without_spark_does_the_same_as_with_it(lake, cold, version, mode):
    other = source(lake)
    runs = {text: lambda session, name, text=text: session.sql(text.format(t=name, s=other)) for text in RUN_HERE}
    for what, run in {**runs, **CALLS}.items():
        with rows_through_spark():
            there = filled(lake, version, mode)
            wanted = run(lake.session, there)
        for session in (cold, lake.session) if version == 3 else (cold,):
            here = filled(lake, version, mode)
            with mock.patch.object(StatementViews, "frame", autospec=True, side_effect=StatementViews.frame) as asked:
                try:
                    found = run(session, here)
                except SparkStartsError:
                    assert what in NEED_SPARK, what
                    continue
            assert asked.called == (what in NEED_SPARK), what
            assert facts(found) == facts(wanted), what
            assert repr(lake.rows(here)) == repr(lake.rows(there)), what
            assert summary(lake.table(here)) == summary(lake.table(there)), what
            assert len(lake.data_files(here)) == len(lake.data_files(there)), what
        assert not runner_of(cold).engine.lazy_session.is_started


DOUBTFUL_CALLS = {
    "no such column": lambda session, name: session.insert(name, pa.table({"nope": [1]})),
    "a number too large": lambda session, name: session.insert(name, pa.table({"id": [2**40]})),
    "text for a number": lambda session, name: session.insert(name, pa.table({"big": ["1"]})),
    "a list for text": lambda session, name: session.insert(name, pa.table({"name": [["a"]]})),
    "missing columns": lambda session, name: session.upsert(name, FITS.select(["id"]), on="id"),
    "a key twice": lambda session, name: session.sql(
        f"MERGE INTO {name} t USING {{r}} r ON t.id = r.id WHEN MATCHED THEN UPDATE SET name = r.s",
        r=pa.table({"id": [5, 5], "s": ["a", "b"]}),
    ),
    "time travel of a source": lambda session, name: session.sql(
        f"MERGE INTO {name} t USING {{r}} VERSION AS OF 5 AS s ON t.id = s.id WHEN MATCHED THEN DELETE", r=FITS
    ),
    "time travel of rows": lambda session, name: session.sql(
        f"INSERT INTO {name} BY NAME SELECT * FROM {{r}} TIMESTAMP AS OF '2020-01-01'", r=FITS.drop(["tags"])
    ),
    "a comma too many": lambda session, name: session.sql(
        f"INSERT INTO {name} SELECT *, FROM {{r}}", r=FITS.drop(["tags"])
    ),
    "too many columns": lambda session, name: session.sql(f"INSERT INTO {name} SELECT * FROM {{r}}", r=DATA),
}


@pytest.mark.spark
def test_a_statement_in_doubt_starts_spark_or_has_its_error(lake, cold):
    """An error without Spark is the same error; no statement that Spark refuses ends well without it."""
    name, other = filled(lake, *KINDS[0]), source(lake)
    before = lake.state(name)
    runs = {text: lambda session, name, text=text: session.sql(text.format(t=name, s=other)) for text in IN_DOUBT}
    for what, run in {**runs, **DOUBTFUL_CALLS}.items():
        with rows_through_spark(), pytest.raises(DmlError) as wanted:
            run(lake.session, name)
        has_rows = what in DOUBTFUL_CALLS or what.startswith(("MERGE", "INSERT"))
        for session in (cold, lake.session) if has_rows else (cold,):
            with pytest.raises((DmlError, SparkStartsError)) as found:
                run(session, name)
            if found.type is not SparkStartsError:
                assert GENERATED.sub("r", str(found.value)) == GENERATED.sub("r", str(wanted.value)), what
        assert lake.state(name) == before, what


CONSTANTS = (
    "NULL",
    "1",
    "-3",
    "5000000000",
    "1.5",
    "2e0",
    "'x'",
    "'7'",
    "TRUE",
    "DATE '2024-01-05'",
    "TIMESTAMP '2024-01-05 00:00:00'",
    "X'0A'",
    "id",
    "name",
    "day",
)
TESTS = (
    "{c} = {v}",
    "{c} > {v}",
    "NOT {c} <=> {v}",
    "{c} IN ({v}, {v})",
    "{c} BETWEEN {v} AND {v}",
    "{c} LIKE {v}",
    "{c}",
)


@pytest.mark.spark
def test_conditions_and_values_that_tasks_compute_are_valid_in_spark(lake, cold, spark):
    """Spark does not analyze them before it starts. It accepts each one that would run."""
    name = filled(lake, *KINDS[0])
    columns = [one.partition(" ")[0] for one in COLUMNS.replace("DECIMAL(10,2)", "DECIMAL").split(", ")]
    pairs = [(column, value) for column in columns for value in CONSTANTS]
    tests = {test.format(c=column, v=value) for column, value in pairs for test in TESTS}
    here = 0
    spark.table(f"lake.{name}").limit(0).createOrReplaceTempView("valid")
    for test in sorted(tests):
        plan = plan_statement(runner_of(cold).engine, parse(text := f"DELETE FROM {name} WHERE {test}"), text).plan
        if not isinstance(plan.tasks, ThroughSpark) and not plan.condition.skips:
            here += 1
            spark.sql(f"SELECT 1 FROM valid WHERE {test}")
    assert here > 100
    assert here < len(tests)
    for column, value in pairs:
        text = f"UPDATE {name} SET {column} = {value}"
        if not isinstance(plan_statement(runner_of(cold).engine, parse(text), text).plan.tasks, ThroughSpark):
            lake.session.sql(f"EXPLAIN {text}")


@pytest.mark.spark
def test_a_context_that_the_program_has_started_decides_the_settings(cold, monkeypatch, spark):
    assert runner_of(cold).engine.lazy_session.is_deferred
    monkeypatch.setattr(lazy_session, "active_context", lambda: spark.sparkContext)
    assert not runner_of(cold).engine.lazy_session.is_deferred


@pytest.mark.spark
def test_settings_that_decide_a_statement_count_before_spark_starts(lake, cold, monkeypatch):
    name = filled(lake, *KINDS[0])
    spoken = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.caseSensitive": "true"}
    other = Session(LazySession(settings=spoken), lake.session.registry, progress=False)
    gone = other.sql(f"DELETE FROM {name} WHERE at < TIMESTAMP '2024-01-01 12:00:00'")
    assert gone.rows_deleted == 3  # 03:00 in UTC
    with pytest.raises(SparkStartsError):
        other.sql(f"DELETE FROM {name} WHERE ID = 5")
    unknown = Session(LazySession(settings={"spark.sql.extensions": "a.B"}), lake.session.registry, progress=False)
    with pytest.raises(SparkStartsError):
        unknown.sql(f"DELETE FROM {name} WHERE id = 5")
    monkeypatch.setattr("dml.limits.MAX_DRIVER_BYTES", 100)
    with pytest.raises(SparkStartsError):
        cold.sql(f"DELETE FROM {name} WHERE id = 5")


def test_settings_are_known_only_if_nothing_else_can_set_them(monkeypatch, tmp_path):
    for chosen, key, value in (
        ({}, "spark.master", "local[*]"),
        ({"spark.wap.branch": "audit"}, "spark.wap.branch", "audit"),
    ):
        known = known_settings({"TZ": "UTC"}, chosen)
        assert known is not None
        assert known[key] == value
    for policy in ("ansi", "STRICT"):
        settings = known_settings({"TZ": "UTC"}, {"spark.sql.storeAssignmentPolicy": policy})
        assert (settings is None) == (policy == "STRICT")  # which refuses NULL, for example
    assert known_settings({"TZ": "Nowhere/Never"}, {}) is None
    assert known_settings({}, {"spark.sql.session.timeZone": "Asia/Tokyo"}) is not None
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        assert known_settings({"TZ": "UTC", variable: ""}, {}) is None
    assert known_settings({"TZ": "UTC", "JAVA_TOOL_OPTIONS": "-Dspark.sql.ansi.enabled=false"}, {}) is None
    assert known_settings({"TZ": "UTC", "JAVA_TOOL_OPTIONS": "-Xmx1g"}, {}) is not None
    assert known_settings({"TZ": "UTC", "MASTER": "spark://a:7077"}, {}) is None
    assert known_settings({"TZ": "UTC"}, {"spark.sql.catalog.lake": "a.B"}) is None
    (tmp_path / "conf").mkdir()
    monkeypatch.setattr(lazy_session.pyspark, "__file__", str(tmp_path / "__init__.py"))
    assert known_settings({"TZ": "UTC"}, {}) is not None
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert known_settings({"TZ": "UTC"}, {}) is None


def test_the_machine_names_its_time_zone(monkeypatch, tmp_path):
    link, named = tmp_path / "localtime", tmp_path / "timezone"
    monkeypatch.setattr(lazy_session, "LOCAL_TIME", link)
    monkeypatch.setattr(lazy_session, "NAMED_ZONE", named)
    assert machine_time_zone({}) is None
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert machine_time_zone({}) == "Europe/Berlin"
    assert machine_time_zone({"TZ": "Asia/Tokyo"}) == "Asia/Tokyo"
    assert machine_time_zone({"TZ": ":/etc/localtime"}) is None
    named.write_text("Etc/UTC\n", encoding="utf-8")
    assert machine_time_zone({}) is None


def test_builders_of_other_threads_wait_while_a_session_starts(monkeypatch):
    """A builder that did not wait would make a session with its own settings, which the first would then get."""
    is_starting, goes_on, calls = threading.Event(), threading.Event(), []

    def slow(**_):
        is_starting.set()
        assert goes_on.wait(10)
        assert lazy_session.get_or_create(SparkSession.builder) == "created"  # by the thread that starts it
        calls.append("started")
        return "session"

    monkeypatch.setattr(lazy_session, "spark_session", slow)

    def create(_):
        calls.append("created")
        return "created"

    monkeypatch.setattr(lazy_session, "ORIGINAL", [create])
    monkeypatch.setattr(lazy_session, "PENDING", [pending := LazySession()])
    first = threading.Thread(target=lambda: pending.spark)
    other = threading.Thread(target=lambda: lazy_session.get_or_create(SparkSession.builder))
    first.start()
    assert is_starting.wait(10)
    other.start()
    other.join(0.2)
    goes_on.set()
    first.join(10)
    other.join(10)
    assert calls == ["created", "started", "created"]


@pytest.mark.spark
def test_larger_rows_of_the_driver_reach_the_tasks_of_a_job(lake, in_workers):
    """Above the size that the function of the tasks carries, they travel in a file; EXPLAIN tells who holds them."""
    name, count = filled(lake, 3, "merge-on-read"), 100_000
    rows = pa.table({"id": pa.array(range(count), pa.int32()), "big": pa.array(range(count), pa.int64())})
    merge = (
        f"MERGE INTO {name} t USING {{r}} r ON t.id = r.id WHEN MATCHED THEN UPDATE SET big = r.big "
        "WHEN NOT MATCHED THEN INSERT (id, big) VALUES (r.id, r.big)"
    )
    assert rows.nbytes > limits.MAX_INLINE_SOURCE_BYTES
    plan = lake.session.sql(f"EXPLAIN {merge}", r=rows).first().plan
    assert "source: held by the driver" in plan
    result = lake.session.sql(merge, r=rows)
    assert (result.rows_updated, result.rows_inserted) == (40, count - 40)
    assert lake.rows(f"SELECT count(*), sum(big), sum(id) FROM {name}") == [
        (count, sum(range(count)), sum(range(count)))
    ]


@pytest.mark.spark
def test_explain_tells_that_the_driver_writes_rows_that_it_holds(lake):
    name = filled(lake, 3, "merge-on-read")
    for text in (f"INSERT INTO {name} (id) VALUES (1)", f"INSERT INTO {name} (id) SELECT * FROM {{r}}"):
        values = {"r": FITS.select(["id"])} if "{r}" in text else {}
        plan = lake.session.sql(f"EXPLAIN {text}", **values).first().plan
        assert "rows: written by the driver, which holds them" in plan
