"""Errors of Python calls point into the arguments of the call instead of the generated SQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

import dml
from dml.call_text import Argument, CallText
from dml.errors import AnalysisError, DmlError

CALL = CallText("DELETE FROM ", Argument("the argument 'table'", "E"), " WHERE ", Argument("the argument 'a'", "x = y"))


def reported(start: int | None, length: int, sql: str = CALL.text) -> AnalysisError:
    error = AnalysisError("It is wrong", sql=sql, position=start, length=length)
    with pytest.raises(AnalysisError), CALL.locate_errors():
        raise error
    return error


def test_an_error_in_an_argument_points_into_it() -> None:
    assert CALL.text == "DELETE FROM E WHERE x = y"
    error = reported(24, 1)
    assert str(error) == "It is wrong in the argument 'a' (line 1, column 5)\n  x = y\n      ^"
    assert error.context["argument"] == "the argument 'a'"


def test_an_error_about_a_whole_argument_or_generated_text_shows_no_text() -> None:
    for start, length, argument in ((12, 1, "the argument 'table'"), (0, 6, None), (None, 1, None)):
        error = reported(start, length)
        assert (str(error), error.sql, error.context.get("argument")) == ("It is wrong", "", argument)


def test_an_error_in_another_text_is_left_unchanged() -> None:
    assert reported(0, 6, "SELECT 1").sql == "SELECT 1"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[dml.Session]:
    with dml.connect(str(tmp_path), spark=spark, progress=False) as session:
        session.sql("CREATE NAMESPACE db; CREATE TABLE db.orders (id INT, amount INT)")
        yield session


@pytest.mark.spark
def test_no_error_of_a_call_shows_generated_sql(lake: dml.Session, spark: SparkSession) -> None:
    rows = spark.range(2).selectExpr("CAST(id AS INT) AS id")
    more = rows.withColumn("x", lit(1))
    matched = lake.merge_into(rows, "db.orders t", "t.id = source.id").whenMatched
    calls: list[tuple[str, Callable[[], Any]]] = [
        (
            "There is no column 'idd' in the argument 'where' (line 1, column 1)\n  idd = 1\n  ^^^",
            lambda: lake.update("db.orders", {"amount": 1}, "idd = 1"),
        ),
        (
            "There is no column 'amout' in the argument 'set' (line 1, column 1)\n  `amout` = 1",
            lambda: lake.update("db.orders", {"amout": 1}),
        ),
        ("There is no table 'db.order'. Did you mean", lambda: lake.delete("db.order")),
        (
            "There is no column 'x' in the table. There are 'id', 'amount'. ALTER TABLE ... ADD",
            lambda: lake.insert("db.orders", more),
        ),
        ("There is no table 'db.none'. There is only 'orders'", lambda: lake.insert("db.none", rows)),
        ("There is no table or view 'nothing'", lambda: lake.insert("db.orders", "nothing")),
        (
            "The rows lack the table's column 'amount'. Add it to the rows",
            lambda: lake.upsert("db.orders", rows, on="id"),
        ),
        (
            "There is no column 'orders.k' in the merge condition",
            lambda: lake.upsert("db.orders", rows.selectExpr("id AS k", "id AS amount", "id"), on="k"),
        ),
        (
            "There is no column 'idd' in the merge condition (line 1, column 1)\n  idd = source.id",
            lambda: lake.merge_into(rows, "db.orders t", "idd = source.id").whenMatched().delete().merge(),
        ),
        (
            "There is no column 'y' in clause 1 (line 1, column 41)\n  WHEN MATCHED THEN UPDATE SET",
            lambda: matched().update({"amount": "y"}).merge(),
        ),
        (
            "Cannot roll back to unknown snapshot id: 1. Take one",
            lambda: lake.rollback_to_snapshot("db.orders", 1),
        ),
        ("There is no table or view 'db.none'. There is only", lambda: lake.table("db.none")),
    ]
    rows.createOrReplaceTempView("__rowdelta_view_0__")  # as a statement in another thread has
    generated = ("INSERT INTO", "DELETE FROM", "MERGE INTO", "CALL system", "merge-schema", "__rowdelta")
    for message, call in calls:
        with pytest.raises(DmlError) as found:
            call()
        text = str(found.value)
        assert text.startswith(message), text
        assert not any(word in text for word in generated), text
