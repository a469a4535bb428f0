"""Statements on a Spark Connect session, for `connect_engine.py`."""

import tempfile

from connect_port import another_session

import dml
from dml.errors import AnalysisError, DataError, DmlError, ErrorKind
from dml.result import Result
from dml.spark import interception
from dml.spark.errors import translate
from dml.spark.handlers import StatementHandler, has_handlers
from dml.spark.launch import active_session, spark_session

__all__ = ["run"]


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


def failure(spark, text):
    """The translated error of a statement."""
    try:
        spark.sql(text).collect()
    except Exception as error:  # noqa: BLE001
        return translate(error)
    raise AssertionError(text)


def run(spark):
    """All of them."""

    def broken(batches):
        """Fails in the worker."""
        for _ in batches:
            raise DataError("A row breaks a rule")
        yield from ()

    assert spark_session() is active_session()
    handler = Handler(spark)
    registered: StatementHandler = StatementHandler(
        handles=handler.handles,
        run=handler.run,
        is_query=lambda text: text.startswith("SELECT"),
        bequeath=lambda: lambda _: registered,
    )
    interception.enable(spark, registered)
    assert isinstance(another_session().sql("UPDATE lake.t SET a = 1"), Result)
    assert isinstance(spark.sql("UPDATE lake.t SET a = 1"), Result)
    assert isinstance(active_session().sql("UPDATE lake.t SET a = 1", {"a": 1}), Result)
    assert handler.calls[-1][1] == {"a": 1}
    assert spark.sql("SELECT * FROM lake.t").count() == 3
    assert spark.sql("SELECT * FROM lake.t JOIN {frame}", frame=spark.range(2)).count() == 6
    assert spark.sql("SELECT 1 AS a").collect() == [(1,)]
    assert isinstance(failure(spark, "DELETE FROM lake.fail"), AnalysisError)
    error = failure(spark, "SELECT nope FROM range(3)")
    assert (error.kind, error.context["proposals"]) == (ErrorKind.UNRESOLVED_COLUMN, ("id",)), repr(error)
    for text, kind in [
        ("SELECT 1 / id FROM range(3)", ErrorKind.INVALID_VALUE),
        ("SELECT (SELECT id FROM range(3))", ErrorKind.CARDINALITY_VIOLATION),
        ("SELECT raise_error('[rowdelta:overflow]a|BIGINT|INT|9') FROM range(1)", ErrorKind.OVERFLOW),
    ]:
        error = failure(spark, text)
        assert type(error) is DataError, repr(error)
        assert error.kind is kind, repr(error)
        assert "\tat " not in str(error), str(error)

    try:
        spark.range(1).mapInArrow(broken, "a INT").collect()
    except Exception as raised:  # noqa: BLE001
        error = translate(raised)
    assert type(error) is DataError, repr(error)
    assert str(error) == "A row breaks a rule", str(error)
    assert isinstance(error, DmlError)
    interception.disable(spark)
    assert not has_handlers()

    # The engine itself: a table is made, changed and read, a mistake is shown at its place.
    with tempfile.TemporaryDirectory() as warehouse:
        lake = dml.connect(warehouse, spark=spark, progress=False)
        lake.sql("CREATE NAMESPACE db")
        lake.sql("CREATE TABLE db.t (id BIGINT, s STRING) TBLPROPERTIES ('write.update.mode' = 'merge-on-read')")
        lake.sql("INSERT INTO db.t SELECT id, 'a' FROM range(4)")
        lake.sql("MERGE INTO db.t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
        assert lake.sql("UPDATE db.t SET s = upper(s) WHERE id = 1").rows_updated == 1
        assert sorted(map(tuple, spark.sql("SELECT * FROM lake.db.t").collect())) == [(0, "a"), (1, "A"), (2, "a")]
        for marked in ("DELETE FROM db.t WHERE ^uper^(s) = 'A'", "SELECT * FROM db.t WHERE id = ^=^ 1"):
            try:
                lake.sql(marked.replace("^", ""))
            except DmlError as raised:
                error = raised
            assert error.position == marked.index("^"), repr(error)
        lake.disable()
