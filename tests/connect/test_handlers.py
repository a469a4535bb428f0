"""Statement handlers on Spark Connect, and translation of Spark's errors."""

import pytest

from dml.errors import AnalysisError, DataError, ErrorKind
from dml.result import Result
from dml.spark import interception
from dml.spark.errors import translate
from dml.spark.handlers import StatementHandler, has_handlers
from dml.spark.launch import active_session, spark_session
from tests.connect.sessions import another_session

pytestmark = pytest.mark.spark


class Handler:
    """Takes statements that name `lake`."""

    def __init__(self, spark):
        self.spark = spark
        self.calls = []

    def handles(self, text):
        return "lake" in text

    def run(self, text, args):
        self.calls.append((text, args))
        if "fail" in text:
            raise AnalysisError("There is no such table", sql=text)
        if text.startswith("SELECT"):
            return self.spark.sql(text.replace("lake.t", "range(3)"))
        return Result(command="UPDATE", table="lake.t", mode="none", rows_updated=7)


@pytest.fixture
def handler(spark):
    """A handler of the session's statements."""
    made = Handler(spark)
    registered: StatementHandler = StatementHandler(
        handles=made.handles,
        run=made.run,
        is_query=lambda text: text.startswith("SELECT"),
        bequeath=lambda: lambda _: registered,
    )
    interception.enable(spark, registered)
    yield made
    interception.disable(spark)
    assert not has_handlers()


def translated_error(run):
    """Return the translated error that a call raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  of any kind
        run()
    return translate(caught.value)


def test_a_handler_runs_statements_of_all_sessions(spark, handler):
    assert spark_session() is active_session()
    for session in (another_session(), spark):
        assert isinstance(session.sql("UPDATE lake.t SET a = 1"), Result)
    assert isinstance(active_session().sql("UPDATE lake.t SET a = 1", {"a": 1}), Result)
    assert handler.calls[-1][1] == {"a": 1}
    assert spark.sql("SELECT * FROM lake.t").count() == 3
    assert spark.sql("SELECT * FROM lake.t JOIN {frame}", frame=spark.range(2)).count() == 6
    assert spark.sql("SELECT 1 AS a").collect() == [(1,)]
    with pytest.raises(AnalysisError, match="no such table"):
        spark.sql("DELETE FROM lake.fail")


def test_unresolved_columns_have_proposals(spark):
    error = translated_error(lambda: spark.sql("SELECT nope FROM range(3)").collect())
    assert (error.kind, error.context["proposals"]) == (ErrorKind.UNRESOLVED_COLUMN, ("id",))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1 / id FROM range(3)", ErrorKind.INVALID_VALUE),
        ("SELECT (SELECT id FROM range(3))", ErrorKind.CARDINALITY_VIOLATION),
        ("SELECT raise_error('[rowdelta:overflow]a|BIGINT|INT|9') FROM range(1)", ErrorKind.OVERFLOW),
    ],
)
def test_data_errors_have_a_kind_and_no_stack_trace(spark, text, kind):
    error = translated_error(lambda: spark.sql(text).collect())
    assert type(error) is DataError
    assert error.kind is kind
    assert "\tat " not in str(error)


def test_worker_errors_keep_their_type_and_message(spark):
    def broken(batches):
        for _ in batches:
            raise DataError("A row breaks a rule")
        yield from ()

    error = translated_error(spark.range(1).mapInArrow(broken, "a INT").collect)
    assert type(error) is DataError
    assert str(error) == "A row breaks a rule"
