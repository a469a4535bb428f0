"""Spark's exceptions as ours: class, kind, words and facts."""

import pytest
from pyspark.errors import PySparkException

from dml.errors import (
    AnalysisError,
    CorruptFileError,
    DataError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    SqlError,
)
from dml.spark.errors import failure_of, parse_names, translate
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.sqlparse.quoting import quoted_parts


@pytest.fixture
def failing(spark):
    """Runs a statement that fails and gives the translated error."""
    spark.range(3).createOrReplaceTempView("__rowdelta_view_0__")
    spark.range(3).createOrReplaceTempView("s")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")  # it is not Spark's default before 4.0

    def run(text):
        with pytest.raises(Exception) as caught:  # noqa: PT011  PySpark raises several unrelated classes
            spark.sql(text).collect()
        return translate(caught.value)

    yield run
    spark.conf.set("spark.sql.ansi.enabled", before)


# Spark 3.5 does not say that it was the statement that raised an error.
USER_RAISED = (
    (DataError, ErrorKind.INVALID_VALUE)
    if Feature.CONDITIONS in INSTALLED_FEATURES
    else (ExecutionError, ErrorKind.EXECUTION)
)
CASES = [
    ("SELECT nope FROM s", AnalysisError, ErrorKind.UNRESOLVED_COLUMN, "There is no column 'nope' here"),
    ("SELECT id FROM s a JOIN s b ON a.id = b.id", AnalysisError, ErrorKind.AMBIGUOUS_COLUMN, "'id' is ambiguous"),
    ("SELECT id + array(1) FROM s", AnalysisError, ErrorKind.TYPE_MISMATCH, "data type mismatch"),
    ("SELECT * FROM s WHERE id", AnalysisError, ErrorKind.TYPE_MISMATCH, "is not a boolean"),
    ("SELECT id.x FROM s", AnalysisError, ErrorKind.TYPE_MISMATCH, "Can't extract a value"),
    ("SELECT CAST(id + 3000000000L AS INT) FROM s", DataError, ErrorKind.OVERFLOW, "due to an overflow"),
    ("SELECT CAST(12345 AS DECIMAL(3, 1)) FROM s", DataError, ErrorKind.OVERFLOW, "cannot be represented"),
    ("SELECT id + 9223372036854775807L FROM s", DataError, ErrorKind.OVERFLOW, "overflow"),
    ("SELECT 1 / id FROM s", DataError, ErrorKind.INVALID_VALUE, "Division by zero in '1 / id'"),
    ("SELECT CAST(concat('x', id * 0) AS INT) FROM s", DataError, ErrorKind.INVALID_VALUE, "'x0'"),
    ("SELECT split(CAST(id AS STRING), ',')[5] FROM s", DataError, ErrorKind.INVALID_VALUE, "out of bounds"),
    ("SELECT (SELECT id FROM s) FROM s", DataError, ErrorKind.CARDINALITY_VIOLATION, "more than one row"),
    ("SELECT * FROM nope.t", NotFoundError, ErrorKind.NOT_FOUND, "no table or view 'nope.t'"),
    ("SELECT raise_error('boom') FROM s", *USER_RAISED, "boom"),
    ("SELECT * FROM s WHERE max(id) > 1", AnalysisError, ErrorKind.INVALID_CONDITION, "WHERE condition"),
    ("SELECT nofunction(id) FROM s", AnalysisError, ErrorKind.UNRESOLVED_FUNCTION, "no function 'nofunction'"),
    ("SELECT upper() FROM s", AnalysisError, ErrorKind.ANALYSIS, "'upper' takes 1 arguments, not 0"),
    ("SELECT * FROM s JOIN s b ON b.id", AnalysisError, ErrorKind.TYPE_MISMATCH, "is not a boolean"),
    ("SELEC 1", SqlError, ErrorKind.SYNTAX, "Syntax error"),
]


@pytest.mark.oldest
@pytest.mark.spark
@pytest.mark.parametrize(("text", "error_class", "kind", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_failure_of_spark_becomes_an_error_of_ours(failing, text, error_class, kind, words):
    error = failing(text)
    assert type(error) is error_class
    assert error.kind is kind
    assert words in error.message
    for noise in ("SQLSTATE", "== SQL", "JVM stacktrace", "'Project", "org.apache", "line 1"):
        assert noise not in str(error)


@pytest.mark.spark
def test_an_unresolved_column_tells_its_parts_its_place_and_what_is_near(failing):
    error = failing("SELECT t.idd FROM __rowdelta_view_0__ t")
    assert error.context["parts"] == ("t", "idd")
    assert error.context["proposals"] == ("t.id",)
    assert error.context["fragment"] == "t.idd"
    assert error.hint == "Did you mean 't.id'?"


@pytest.mark.spark
def test_internal_names_of_views_are_left_out(failing):
    error = failing("SELECT nope FROM __rowdelta_view_0__ JOIN s ON true")
    assert "__rowdelta" not in str(error)
    assert set(error.context["proposals"]) == {"id", "s.id"}
    assert "__rowdelta" not in str(failing("SELECT id FROM __rowdelta_view_0__ JOIN s ON true"))


@pytest.mark.oldest
@pytest.mark.spark
def test_errors_that_our_sql_raises_are_told_from_the_users_own(failing):
    error = failing("SELECT raise_error('[rowdelta:overflow]s.a|BIGINT|INT|3000000000') FROM s")
    assert error.kind is ErrorKind.OVERFLOW
    assert error.message == "The value 3000000000 of type BIGINT does not fit the column 's.a' of type INT"
    error = failing("SELECT raise_error('[rowdelta:not-null-violation]The column \\'a\\' must not be NULL') FROM s")
    assert error.kind is ErrorKind.NOT_NULL_VIOLATION
    assert error.message == "The column 'a' must not be NULL"
    error = failing("SELECT raise_error('[rowdelta:mine]stop') FROM s")
    assert (type(error), error.kind) == USER_RAISED
    assert "[rowdelta:mine]stop" in error.message


@pytest.mark.spark
def test_errors_raised_in_python_workers_keep_their_class(spark):
    def corrupt(batches):
        for _ in batches:
            raise CorruptFileError("The file f.parquet has no footer", hint="Restore it")
        yield from ()

    def broken(batches):
        for batch in batches:
            yield batch.to_pandas()["no such column"]

    for function, error_class, words in [
        (corrupt, CorruptFileError, "The file f.parquet has no footer. Restore it"),
        (broken, ExecutionError, "A Python function failed in a task: KeyError: 'no such column'"),
    ]:
        with pytest.raises(PySparkException) as caught:
            spark.range(3).mapInArrow(function, "a INT").collect()
        error = translate(caught.value)
        assert type(error) is error_class
        assert str(error) == words


def test_our_own_errors_stay_as_they_are():
    error = DmlError("as it is")
    assert translate(error) is error


def test_exceptions_without_a_condition_are_execution_errors():
    raised = ConnectionError("reset by peer")
    raised.__cause__ = OSError("disk full")
    error = translate(raised)
    assert type(error) is ExecutionError
    assert error.message == "Spark failed: disk full"


def test_a_connect_exception_is_read_from_its_text():
    error = PySparkException(
        message="[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression. "
        "SQLSTATE: 21000\n== SQL (line 1, position 8) ==\nselect 1\n\nJVM stacktrace:\n\tat x"
    )
    assert failure_of(error).condition == "SCALAR_SUBQUERY_TOO_MANY_ROWS"
    assert failure_of(error).state == "21000"
    assert translate(error).kind is ErrorKind.CARDINALITY_VIOLATION


@pytest.mark.parametrize(
    ("name", "parts"),
    [("`a`", ("a",)), ("`t`.`a.b`", ("t", "a.b")), ("`a``b`.`c`", ("a`b", "c")), ("a.b", ("a", "b")), ("", ())],
)
def test_names_are_read_as_spark_quotes_them(name, parts):
    assert quoted_parts(name) == parts


def test_lists_of_names_are_read_once_each():
    assert parse_names("[`a`.`id`, `b`.`id, x`]") == ("a.id", "b.id, x")
    assert parse_names("`id`, `id`") == ("id",)
