"""Internals that another release of Spark or PySpark lacks: statements are slower, or an error names what is gone."""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.types import StructType

from dml import limits
from dml.connector import stream
from dml.connector.install import install
from dml.errors import SetupError, SqlError
from dml.session import Session
from dml.spark import extension, task_frames
from dml.spark.bridge import internals, sessions, writers
from dml.spark.bridge.internals import Internal, JavaField, PrivateField, SparkClass
from dml.spark.bridge.names import (
    BATCH_WRITER_FACTORY,
    INTERNALS,
    LOGICAL_RDD,
    PARQUET_SCAN,
    READER_FACTORY,
    STREAM_WRITER_FACTORY,
)
from dml.spark.bridge.values import struct_type
from dml.spark.handlers import check_not_stopped
from dml.spark.versions import Feature
from dml.spark.workers import scratch_folder
from dml.spark_scan import expressions, running_query, workers
from dml.sql_values import column_sql
from tests.lake import Lake

pytestmark = [
    pytest.mark.spark,
    pytest.mark.needs(Feature.DATA_SOURCE_V2),
    pytest.mark.usefixtures("compiled"),
]

EXPECTED = [(number, f"p{number % 2}") for number in range(20)]
UNKNOWN = "org.apache.spark.sql.OfLater"
Lose = Callable[[Internal], None]
Change = Callable[..., None]


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget all trials, warnings and objects of this JVM."""
    monkeypatch.setattr(internals, "TRIED", {})
    monkeypatch.setattr(internals, "WARNED", set())
    monkeypatch.setattr(task_frames, "LEAVES", type(task_frames.LEAVES)())
    monkeypatch.setattr(expressions, "MARKED", set())
    monkeypatch.setattr(limits, "MIN_SPARK_READER_BYTES", 0)
    expressions.call_tag.cache_clear()
    constructors_of = internals.constructor_types  # a test may replace it
    constructors_of.cache_clear()
    yield
    constructors_of.cache_clear()


@pytest.fixture
def lose() -> Iterator[Lose]:
    """A function that takes an internal away, as a newer Spark may."""
    changes = pytest.MonkeyPatch()

    def take(one: Internal) -> None:
        internals.TRIED.clear()  # the fixture `lake` has tried some
        match one:
            case SparkClass():
                for function in ("companion", "java_class", "static_method"):
                    changes.setattr(internals, function, renamed(getattr(internals, function), one.name))
                changes.setattr(internals, "find_class", not_found(internals.find_class, one.name))
            case PrivateField() | JavaField():
                changes.setattr(type(one), "read", without(type(one).read, one))

    yield take
    changes.undo()


def renamed(function: Callable[..., Any], missing: str) -> Callable[..., Any]:
    """Return a function that looks up another class in the place of one."""
    return lambda name, *rest: function(UNKNOWN if name == missing else name, *rest)


def not_found(function: Callable[[str], Any], missing: str) -> Callable[[str], Any]:
    """Return a function that finds all classes but one."""

    def find(name: str) -> Any:
        if name == missing:
            raise internals.unknown_internals(name, "the class does not exist")
        return function(name)

    return find


def without(read: Callable[[Any, Any], Any], missing: Internal) -> Callable[[Any, Any], Any]:
    """Return a function that reads all fields but one."""

    def reading(one: Any, value: Any) -> Any:
        if one == missing:
            raise AttributeError(one.name)
        return read(one, value)

    return reading


@pytest.fixture
def constructors(monkeypatch: pytest.MonkeyPatch) -> Change:
    """A function that gives a class of Spark another constructor."""
    original = internals.constructor_types

    def change(name: str, *added: str) -> None:
        def types(gateway: object, asked: str) -> tuple[str, ...]:
            return (*original(gateway, asked), *added) if asked == name else original(gateway, asked)

        monkeypatch.setattr(internals, "constructor_types", types)
        internals.TRIED.clear()

    return change


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Calls on files of Spark's own."""
    folder = str(tmp_path_factory.mktemp("theirs") / "rows")
    spark.range(3).write.parquet(folder)

    def calls() -> None:
        assert spark.read.format("parquet").load(folder).count() == 3
        spark.range(2).write.format("noop").mode("overwrite").save()
        assert spark.sql("SELECT 1").collect() == [(1,)]

    return calls


@pytest.fixture
def table(lake: Lake) -> str:
    def make() -> str:
        name = lake.create("id BIGINT, s STRING", "PARTITIONED BY (s)")
        lake.session.sql(f"INSERT INTO {name} SELECT id, concat('p', id % 2) FROM range(20)")
        return name

    return lake.copy_of("table of test_internals", make)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == internals.__name__]


def read_table(lake: Lake, name: str) -> None:
    assert sorted(map(tuple, lake.session.spark.table(f"lake.{name}").collect())) == EXPECTED


def read_in_sql(lake: Lake, name: str) -> None:
    # A new one, because a session asks once whether Spark plans scans.
    session = Session(lake.session.spark, lake.session.registry, progress=False)
    assert sorted(map(tuple, session.table(name).collect())) == EXPECTED
    assert sorted(map(tuple, session.sql(f"SELECT * FROM {name}").collect())) == EXPECTED


def read_without_catalogs(lake: Lake, name: str) -> None:
    assert not install(lake.engine)
    read_in_sql(lake, name)
    assert lake.session.sql(f"UPDATE {name} SET id = id + 1 WHERE id = 3").rows_updated == 1


def read_known_values(lake: Lake, name: str) -> None:
    assert lake.session.spark.sql(f"SELECT count(*), max(id) FROM lake.{name}").collect() == [(20, 19)]


def make_numbers(lake: Lake, _: str) -> None:
    numbers = [task_frames.known_numbers(lake.session.spark, 3, 1000) for _ in range(2)]
    assert [sorted(row.id for row in frame.collect()) for frame in numbers] == [[0, 1, 2]] * 2


def rebalance(lake: Lake, _: str) -> None:
    given = lake.session.spark.range(5).repartition(2)
    assert [task_frames.rebalance(given, 100) for _ in range(2)] == [given] * 2


def size_literals(lake: Lake, _: str) -> None:
    assert task_frames.literal_row_limit(lake.session.spark.range(3)) is None


def ask_for_distinct(lake: Lake, _: str) -> None:
    assert not running_query.counts_no_values(lake.session.spark)


def find_query(lake: Lake, _: str) -> None:
    running_query.running_plan(lake.session.spark)


def call_function(lake: Lake, name: str) -> None:
    found = lake.session.spark.table(f"lake.{name}").selectExpr("lake.system.bucket(4, id) AS b").collect()
    assert {row.b for row in found} <= {0, 1, 2, 3}


def compare_function(lake: Lake, name: str) -> None:
    found = lake.session.spark.table(f"lake.{name}").where("lake.system.truncate(10, id) = 10").collect()
    assert sorted(row.id for row in found) == list(range(10, 20))


def refuse_in_parser(_: Lake, __: str) -> None:
    assert extension.stand_in(SqlError("wrong", sql="", position=0)) is None


def make_folder(lake: Lake, _: str) -> None:
    with scratch_folder(lake.session.spark.sparkContext) as folder:
        assert Path(folder).is_dir()


def write_factory(make: Callable[..., Any]) -> Callable[[Lake, str], None]:
    return lambda *_: make(iter, struct_type(StructType([])))


def explain_query(lake: Lake, table: str) -> None:
    lake.session.sql(f"EXPLAIN SELECT * FROM {table}")


def offset(_: Lake, __: str) -> None:
    stream.java_offset(stream.StreamOffset(snapshot_id=1))


def read_literal(_: Lake, __: str) -> None:
    column_sql(lit(date(2026, 1, 1)))


def missing_table(lake: Lake, name: str) -> None:
    lake.session.spark.table(f"lake.{name}_missing")


def raised(one: SparkClass) -> Callable[[Lake, str], object]:
    return lambda *_: one.error("missing")


def find_stop(lake: Lake, _: str) -> None:
    check_not_stopped(lake.session.spark)


def analyzed(lake: Lake, _: str) -> None:
    sessions.analyzed_plan(lake.session.spark.range(1))


def session_of_java(lake: Lake, _: str) -> None:
    sessions.session_state(lake.session.spark)


def read_by_format(lake: Lake, _: str) -> None:
    writers.state_of_reader(lake.session.spark.read)


def save_by_format(lake: Lake, _: str) -> None:
    writers.state_of_writer(lake.session.spark.range(1).write)


def read_stream(lake: Lake, _: str) -> None:
    writers.state_of_reader(lake.session.spark.readStream)


def write_stream(lake: Lake, _: str) -> None:
    writer = lake.session.spark.readStream.format("rate").load().writeStream
    writers.state_of_stream_writer(writer)
    writers.mode_of_stream_writer(writer)


Statement = Callable[[Lake, str], object]
STATEMENTS: dict[str, Statement] = {
    **dict.fromkeys(
        ("PARQUET_SCAN", "PARTITIONED_FILE", "FILE_PARTITION", "SPARK_PATH", "UTF8_STRING", "INTERNAL_ROW"), read_table
    ),
    "ROW_TYPE": read_known_values,
    **dict.fromkeys(("PYTHON_SOURCE", "PYTHON_PARTITION", "READER_FACTORY", "CATALOGS"), read_without_catalogs),
    "BATCH_WRITER_FACTORY": write_factory(workers.writer_factory),
    "STREAM_WRITER_FACTORY": write_factory(workers.stream_writer_factory),
    "STREAM_OFFSET": offset,
    **dict.fromkeys(("SUBQUERY_ALIAS", "ALIAS_IDENTIFIER", "TABLE_RELATION", "DATASET"), read_in_sql),
    "REBALANCE": rebalance,
    **dict.fromkeys(("LOGICAL_RDD", "RANGE"), make_numbers),
    "TREE_PATTERN": size_literals,
    "SQL_EXECUTION": find_query,
    "PLANNING_TRACKER": ask_for_distinct,
    "EXPLAINED_PLAN": explain_query,
    **dict.fromkeys(("CATALYST_FILTERS", "TREE_NODE_TAG", "KNOWN_NULLABLE", "STRATEGY"), compare_function),
    **dict.fromkeys(("V1_FUNCTION", "EXPRESSION_INFO", "ATTRIBUTE_MAP", "REPLACING_RULE"), call_function),
    "NO_SUCH_TABLE": missing_table,
    **{
        name: raised(cast("SparkClass", INTERNALS[name]))
        for name in ("NO_SUCH_FUNCTION", "NO_SUCH_NAMESPACE", "NO_SUCH_VIEW", "NAMESPACE_EXISTS", "NAMESPACE_NOT_EMPTY")
    },
    **{name: raised(cast("SparkClass", INTERNALS[name])) for name in ("TABLE_EXISTS", "VIEW_EXISTS")},
    **dict.fromkeys(("PARSE_EXCEPTION", "CURRENT_ORIGIN", "PYTHON_UTILS"), refuse_in_parser),
    "UTILS": make_folder,
    "NODE_CONVERTER": read_literal,
    "COLUMN": read_literal,
    "FRAME": analyzed,
    "SESSION": session_of_java,
    "CONTEXT": find_stop,
    "JAVA_READER": read_by_format,
    "JAVA_WRITER": save_by_format,
    "ROWS": save_by_format,
    **dict.fromkeys(("STREAM_READER_FORMAT", "STREAM_READER_SCHEMA"), read_stream),
    **dict.fromkeys(("STREAM_WRITER_FORMAT", "STREAM_WRITER_MODE", "STREAM_WRITER_OPTIONS"), write_stream),
}
"""What is run without each of them."""

ELSEWHERE = {
    "CLASSIC_SESSION": "a session is made with it, before there is one: tests/dml/spark/test_extension.py",
    "COMMAND_RESULT": "tests/dml/spark/test_extension.py",
    "CONNECT_PLANNER": "a text in Java's stack traces",
    "PARSER_INTERFACE": "an interface, by its name: without it no session has the parser",
    "BUILDER_OPTIONS": "of PySpark's builder, before there is a session",
    "FORMATTER_VIEWS": "its parent is PySpark's formatter of statements: tests/dml/spark/test_interception.py",
    **dict.fromkeys(("CONNECT_SERVICE", "TOKEN_CHECK", "THRIFT_SERVER"), "tests/serve"),
    **dict.fromkeys(
        (
            "READER_FORMAT",
            "READER_OPTIONS",
            "READER_SCHEMA",
            "CONNECT_WRITE",
            "WRITER_TABLE",
            "CONNECT_STREAM",
            "STREAM_PLAN",
            "PLAN",
            "PLAN_CHILD",
            "PLAN_ID",
        ),
        "questions of replaced methods: tests/dml/spark/test_replaced_methods.py",
    ),
}


def test_every_internal_is_taken_away_here_or_elsewhere() -> None:
    assert {name for name, one in INTERNALS.items() if one.is_used} == {
        name for name in (*STATEMENTS, *ELSEWHERE) if INTERNALS[name].is_used
    }


@pytest.mark.parametrize("name", [name for name in STATEMENTS if INTERNALS[name].is_used])
def test_without_an_internal_statements_are_slower_or_refused(lake, table, lose, filled, caplog, name):
    """With one line in the log that says how, or an error that names it; calls on Spark's own data work."""
    one = INTERNALS[name]
    lose(one)
    if one.fallback:
        STATEMENTS[name](lake, table)
        warnings = warnings_of(caplog)
        assert warnings
        assert len(set(warnings)) == len(warnings)
        for warning in warnings:
            assert any(fallback in warning for fallback in one.fallback.split("; ")), warning
    else:
        with pytest.raises(SetupError) as refused:
            STATEMENTS[name](lake, table)
        assert one.name in str(refused.value)
    filled()


@pytest.mark.parametrize(
    ("one", "statement"),
    [(PARQUET_SCAN, read_table), (READER_FACTORY, read_without_catalogs), (LOGICAL_RDD, make_numbers)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_constructor_with_one_more_argument_is_not_called(lake, table, constructors, caplog, one, statement):
    constructors(one.name, "Wish")
    statement(lake, table)
    (warning,) = warnings_of(caplog)
    assert one.fallback.split("; ")[0] in warning


def test_sparks_reader_is_used_as_long_as_it_is_known(lake, table, caplog):
    assert "ColumnarToRow" in lake.session.spark.table(f"lake.{table}")._jdf.queryExecution().toString()
    read_table(lake, table)
    assert warnings_of(caplog) == []


def test_without_sparks_reader_python_reads(lake, table, lose):
    lose(PARQUET_SCAN)
    assert "ColumnarToRow" not in lake.session.spark.table(f"lake.{table}")._jdf.queryExecution().toString()


def test_further_options_of_later_factories_are_left_empty(spark, constructors):
    arguments = READER_FACTORY.further_arguments(workers.FACTORY_PARAMETERS, {"Option": lambda: None})
    assert arguments
    assert set(arguments) == {None}


@pytest.mark.parametrize(
    ("make", "one"),
    [(workers.writer_factory, BATCH_WRITER_FACTORY), (workers.stream_writer_factory, STREAM_WRITER_FACTORY)],
    ids=["batch", "stream"],
)
def test_an_unknown_writer_is_named_with_the_version_of_pyspark(spark, constructors, make, one):
    constructors(one.name, "int")
    with pytest.raises(SetupError, match=rf"{one.name} .* in PySpark \d.*takes \(.*int\)"):
        make(iter, struct_type(StructType([])))


def test_what_spark_raises_when_it_runs_a_method_passes(spark):
    with pytest.raises(PySparkException, match="For input string"), internals.internals("a.Class"):
        spark._jvm.java.lang.Integer.parseInt("x")
