"""Changed private classes of Spark: reads and writes fall back, or name what is missing."""

import importlib
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from dml import limits
from dml.connector import catalog, install, stream
from dml.errors import SetupError
from dml.spark import task_frames
from dml.spark.bridge import internals
from dml.spark.bridge.values import struct_type
from dml.spark.versions import Feature
from dml.spark_scan import frames, known_values, scan_builder, vectorized, workers
from dml.spark_scan.workers import PYTHON_SOURCES, has_python_readers
from tests.dml.engine.conftest import Lake

pytestmark = [
    pytest.mark.spark,
    pytest.mark.needs(Feature.DATA_SOURCE_V2),
    pytest.mark.usefixtures("compiled"),
]

Change = Callable[..., None]
UNKNOWN = "org.apache.spark.sql.OfLater"


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all trials and warnings in this JVM."""
    monkeypatch.setattr(internals, "TRIED", {})
    monkeypatch.setattr(internals, "WARNED", set())
    monkeypatch.setattr(limits, "MIN_SPARK_READER_BYTES", 0)


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


@pytest.fixture
def table(lake: Lake) -> str:
    name = lake.create("id BIGINT, s STRING", "PARTITIONED BY (s)")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('p', id % 2) FROM range(20)")
    return name


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == internals.__name__]


def rows(lake: Lake, name: str) -> list[tuple[int, str]]:
    """Return the rows of a table, which are the same in SQL and by `spark.table`."""
    first = sorted(map(tuple, lake.session.spark.table(f"lake.{name}").collect()))
    assert sorted(map(tuple, lake.session.query(f"SELECT * FROM {name}").collect())) == first
    assert sorted(map(tuple, lake.session.table(name).collect())) == first
    return first


EXPECTED = [(number, f"p{number % 2}") for number in range(20)]


def break_parquet_scan(constructors: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    constructors(vectorized.PARQUET_SCAN, "Wish")


def remove_parquet_scan(constructors: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized, "PARQUET_SCAN", UNKNOWN)


def remove_partitioned_file(constructors: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized, "PARTITIONED_FILE", UNKNOWN)


def replace_partitioned_file(constructors: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized, "PARTITIONED_FILE", vectorized.PARQUET_SCAN)


@pytest.mark.parametrize(
    "change", [break_parquet_scan, remove_parquet_scan, remove_partitioned_file, replace_partitioned_file]
)
def test_python_reads_where_sparks_reader_is_another(lake, table, constructors, monkeypatch, caplog, change):
    change(constructors, monkeypatch)
    assert rows(lake, table) == EXPECTED
    assert "ColumnarToRow" not in lake.session.spark.table(f"lake.{table}")._jdf.queryExecution().toString()
    (warning,) = warnings_of(caplog)
    assert "vectorized Parquet reader" in warning
    assert "Python workers read all data files" in warning


def test_sparks_reader_is_used_as_long_as_it_is_known(lake, table, caplog):
    assert "ColumnarToRow" in lake.session.spark.table(f"lake.{table}")._jdf.queryExecution().toString()
    assert rows(lake, table) == EXPECTED
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(
    "kind", ["PythonPartitionReaderFactory", "UserDefinedPythonDataSource", "PythonInputPartition"]
)
def test_without_readers_of_python_spark_gets_no_catalogs_and_sql_reads(
    lake, table, constructors, monkeypatch, caplog, kind
):
    if kind == "PythonPartitionReaderFactory":
        constructors(PYTHON_SOURCES + kind, "int")
    else:
        original = workers.java_class
        monkeypatch.setattr(workers, "java_class", lambda name: original(UNKNOWN if name.endswith(kind) else name))
    internals.TRIED.clear()
    assert not has_python_readers()
    assert not install(lake.session.engine)
    session = lake.session.on(lake.session.spark)
    assert sorted(map(tuple, session.query(f"SELECT * FROM {table}").collect())) == EXPECTED
    assert sorted(map(tuple, session.table(table).collect())) == EXPECTED
    assert session.sql(f"UPDATE {table} SET id = id + 1 WHERE id = 3").rows_updated == 1
    (warning,) = warnings_of(caplog)
    assert "without RowDelta's catalogs" in warning


def test_further_options_of_later_factories_are_left_empty(constructors):
    constructors(PYTHON_SOURCES + "PythonPartitionReaderFactory")
    arguments = internals.further_arguments(
        PYTHON_SOURCES + "PythonPartitionReaderFactory", workers.FACTORY_PARAMETERS, {"Option": lambda: None}
    )
    assert arguments
    assert set(arguments) == {None}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (workers.writer_factory, "PythonBatchWriterFactory"),
        (workers.stream_writer_factory, "PythonStreamingWriterFactory"),
    ],
)
def test_an_unknown_writer_is_named_with_the_version_of_pyspark(spark, constructors, make, kind):
    constructors(PYTHON_SOURCES + kind, "int")
    with pytest.raises(SetupError, match=rf"{kind} .* in PySpark \d.*takes \(.*int\)"):
        make(iter, struct_type(StructType([])))


@pytest.mark.parametrize("constant", ["SUBQUERY_ALIAS", "ALIAS", "TABLE_RELATION", "DATASET"])
def test_python_functions_read_where_plans_of_tables_are_others(lake, table, monkeypatch, caplog, constant):
    monkeypatch.setattr(frames, constant, UNKNOWN)
    session = lake.session.on(lake.session.spark)
    assert sorted(map(tuple, session.table(table).collect())) == EXPECTED
    assert not frames.can_plan_scans(session.spark)
    (warning,) = warnings_of(caplog)
    assert "logical plans of tables" in warning


def test_a_registry_of_catalogs_that_is_elsewhere(lake, monkeypatch, caplog):
    internals.TRIED.clear()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(importlib.import_module("dml.connector.install"), "field_of", lambda *_: object().catalogs)
        assert [install(lake.session.engine) for _ in range(2)] == [False] * 2
    (warning,) = warnings_of(caplog)
    assert "registry of catalogs" in warning


def test_rows_of_constants_that_cannot_be_made(lake, table, spark, monkeypatch, caplog):
    monkeypatch.setattr(known_values, "ROW", UNKNOWN)
    assert spark.sql(f"SELECT count(*), max(id) FROM lake.{table}").collect() == [(20, 19)]
    assert len(warnings_of(caplog)) == 1


def test_builders_of_scans_that_take_no_expressions_of_sparks(lake, table, spark, monkeypatch, caplog):
    monkeypatch.setattr(scan_builder, "CATALYST_FILTERS", UNKNOWN)
    monkeypatch.setattr(scan_builder, "has_marked_calls", lambda: True)
    assert sorted(map(tuple, spark.table(f"lake.{table}").where("id >= 0").collect())) == EXPECTED
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("is_numbered", [True, False])
def test_plans_that_cannot_be_made_leave_rows_as_they_are(lake, table, spark, monkeypatch, caplog, is_numbered):
    """Even if the class does not exist: a `JavaPackage` cannot be called."""
    if is_numbered:
        monkeypatch.setattr(task_frames, "LEAVES", type(task_frames.LEAVES)())
        monkeypatch.setattr(task_frames, "RANGE", UNKNOWN)
        numbers = [task_frames.known_numbers(spark, 3, 1000) for _ in range(2)]
        assert [sorted(row.id for row in frame.collect()) for frame in numbers] == [[0, 1, 2]] * 2
    else:
        monkeypatch.setattr(task_frames, "PLANS", UNKNOWN)
        given = spark.range(5).repartition(2)
        assert [task_frames.rebalance(given, 100) for _ in range(2)] == [given] * 2
    assert len(warnings_of(caplog)) == 1


@pytest.mark.needs(Feature.CATALOG_FUNCTIONS)
@pytest.mark.parametrize("constant", ["FUNCTION", "REPLACING_RULE"])
def test_functions_of_iceberg_name_what_is_missing(lake, table, spark, monkeypatch, constant):
    monkeypatch.setattr(catalog, constant, UNKNOWN)
    with pytest.raises(SetupError, match=UNKNOWN):
        spark.table(f"lake.{table}").selectExpr("lake.system.bucket(4, id)").collect()


def test_an_offset_of_streams_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(stream, "PYTHON_SOURCES", "org.apache.spark.later.")
    with pytest.raises(SetupError, match=r"later\.PythonStreamingSourceOffset"):
        stream.java_offset(stream.StreamOffset(snapshot_id=1))


def test_what_spark_raises_when_it_runs_a_method_passes(spark):
    with pytest.raises(PySparkException, match="For input string"), internals.internals("a.Class"):
        spark._jvm.java.lang.Integer.parseInt("x")
