"""Several statements in one text: `Session.sql` runs them in order and returns the result of the last one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import dml
from dml.result import Result

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[dml.Session]:
    with dml.connect(str(tmp_path), spark=spark, progress=False) as session:
        session.sql("CREATE NAMESPACE db; CREATE TABLE db.t (id INT, name STRING)")
        yield session


def ids(lake: dml.Session) -> list[int]:
    return [row.id for row in lake.table("db.t").orderBy("id").collect()]


def test_the_last_statement_gives_the_result(lake: dml.Session) -> None:
    found = lake.sql("INSERT INTO db.t VALUES (1, 'a;b'); INSERT INTO db.t VALUES (2, 'c'), (3, 'd'); -- both\n")
    assert isinstance(found, Result)
    assert found.rows_inserted == 2
    rows = lake.sql("DELETE FROM db.t WHERE id = 2; SELECT name FROM db.t ORDER BY id")
    assert isinstance(rows, DataFrame)
    assert [row.name for row in rows.collect()] == ["a;b", "d"]


def test_a_script_returns_a_result_for_each_statement(lake: dml.Session) -> None:
    inserted, rows, deleted = lake.script("INSERT INTO db.t VALUES (1, 'a'); SELECT id FROM db.t; DELETE FROM db.t;")
    assert isinstance(inserted, Result)
    assert inserted.rows_inserted == 1
    assert isinstance(rows, DataFrame)
    assert [row.id for row in rows.collect()] == [1], "a query reads the snapshot of its turn"
    assert isinstance(deleted, Result)
    assert deleted.rows_deleted == 1
    (only,) = lake.script("SELECT 1 AS one")
    assert isinstance(only, DataFrame)
    with pytest.raises(dml.AnalysisError, match="Statement 2 of 2 failed; 1 statement ran before it"):
        lake.script("INSERT INTO db.t VALUES (3, 'c'); DELETE FROM db.absent")
    assert ids(lake) == [3]
    with pytest.raises(dml.AnalysisError, match=r"script\(\) expects a string, got int"):
        lake.script(1)  # type: ignore[arg-type]


def test_a_statement_without_rows_says_that_it_is_done(lake: dml.Session) -> None:
    """It is a DataFrame for everything else."""
    done = lake.sql("CREATE TABLE db.other (id INT)")
    assert isinstance(done, DataFrame)
    assert repr(done) == "Done (no rows)"
    assert (done.columns, done.collect(), done.count(), len(done.toPandas())) == ([], [], 0, 0)
    assert repr(lake.sql("SHOW TABLES IN db")).startswith("DataFrame[")


def test_a_result_is_read_like_the_dataframe_of_spark(lake: dml.Session, capsys: pytest.CaptureFixture[str]) -> None:
    result = lake.sql("INSERT INTO db.t VALUES (1, 'a')")
    assert isinstance(result, Result)
    assert result.count() == len(result.collect()) == 1
    assert result.toPandas().to_dict("list") == {name: [value] for name, value in result.first().asDict().items()}
    result.show(truncate=False)
    assert "num_inserted_rows" in capsys.readouterr().out
    result.show(n=0)
    assert not capsys.readouterr().out


def test_the_first_error_ends_the_run_and_says_what_has_run(lake: dml.Session) -> None:
    script = "INSERT INTO db.t VALUES (1, 'a');\nDELETE FROM db.t WHERE idd = 1;\nINSERT INTO db.t VALUES (2, 'b')"
    with pytest.raises(dml.AnalysisError) as caught:
        lake.sql(script)
    assert (caught.value.line, caught.value.column) == (2, 24)
    assert "DELETE FROM db.t WHERE idd = 1;" in str(caught.value)
    assert str(caught.value).endswith("Statement 2 of 3 failed; 1 statement ran before it")
    assert ids(lake) == [1]


def test_nothing_runs_where_a_statement_does_not_read(lake: dml.Session) -> None:
    with pytest.raises(dml.SqlError, match="Statement 2 of 2 failed; no statement ran"):
        lake.sql("INSERT INTO db.t VALUES (1, 'a'); DELETE FORM db.t")
    assert ids(lake) == []


def test_statements_of_spark_report_their_errors_too(lake: dml.Session) -> None:
    with pytest.raises(dml.SqlError, match="Statement 2 of 2 failed; 1 statement ran before it"):
        lake.sql("INSERT INTO db.t VALUES (1, 'a'); ANALYZE TABEL x")
    assert ids(lake) == [1]


def test_parameters_and_idempotency_keys_are_for_one_statement(lake: dml.Session) -> None:
    """A value that ends a statement and starts another one is possible only in the text itself."""
    script = "INSERT INTO db.t VALUES (:id, 'a'); INSERT INTO db.t VALUES (2, 'b')"
    with pytest.raises(dml.SqlError, match="several statements in one text"):
        lake.sql(script, {"id": 1})
    with pytest.raises(dml.SqlError, match="several statements in one text"):
        lake.sql("INSERT INTO db.t VALUES (1, 'a'); INSERT INTO db.t VALUES (2, 'b')", idempotency_key="k")
    assert ids(lake) == []


def test_names_and_conditions_of_methods_cannot_hold_a_statement(lake: dml.Session) -> None:
    lake.sql("INSERT INTO db.t VALUES (1, 'a')")
    for use in (
        lambda: lake.delete("db.t", "id = 1; DROP TABLE db.t"),
        lambda: lake.update("db.t", {"id": "2; DROP TABLE db.t"}),
        lambda: lake.table("db.t; DROP TABLE db.t"),
        lambda: lake.merge_into("db.t", "db.t t", "1 = 1; DROP TABLE db.t").whenMatched().delete().merge(),
    ):
        with pytest.raises(dml.SqlError, match="several statements in one text"):
            use()
    assert ids(lake) == [1]
