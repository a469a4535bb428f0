"""Behaviours of docs/semantics.md that no golden script can show: they need Python, or a table beyond SQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.functions import col

from dml.errors import NotSupportedError
from dml.session import Session
from dml.spark.versions import arrow_table
from tests.golden.runner import GoldenRunner
from tests.golden.values import rendered_rows

pytestmark = [pytest.mark.spark, pytest.mark.oldest]


@pytest.fixture
def lake(golden: GoldenRunner, golden_session: Session) -> Iterator[Session]:
    """A lake with a partitioned table db.t of three rows."""
    with golden.clean():
        golden_session.sql("CREATE TABLE db.t (id INT, dep STRING) PARTITIONED BY (dep)")
        golden_session.sql("INSERT INTO db.t VALUES (1, 'hr'), (2, 'hr'), (3, 'it')")
        yield golden_session


def rows(lake: Session) -> list[str]:
    return rendered_rows(arrow_table(lake.table("db.t")))


def test_a_doubled_quote_in_a_string_means_what_it_means_to_spark(lake: Session) -> None:
    """One quote; before Spark 4.1 two strings that are joined. Files are not left out by the other meaning."""
    lake.sql('INSERT INTO db.t VALUES (4, "it\'s")')
    lake.sql("INSERT INTO db.t VALUES (5, 'its')")
    meant = lake.spark.sql("SELECT 'it''s'").collect()[0][0]
    assert lake.delete("db.t", "dep = 'it''s'").rows_deleted == 1
    left = {row.dep for row in lake.table("db.t").collect()}
    assert left == {"hr", "it", "it's", "its"} - {meant}


@pytest.mark.proves("C24")
def test_an_unknown_transform_of_the_current_spec_is_refused(golden: GoldenRunner, lake: Session) -> None:
    """C24."""
    table = golden.table()
    metadata = Path(table.metadata_location.removeprefix("file://"))
    changed = metadata.with_name("changed.metadata.json")
    changed.write_text(metadata.read_text(encoding="utf-8").replace('"identity"', '"zorder"'), encoding="utf-8")
    table.catalog.drop_table(("db", "t"))
    table.catalog.register_table(("db", "t"), f"file://{changed}")
    before = golden.state()
    for statement in ("INSERT INTO db.t VALUES (4, 'hr')", "UPDATE db.t SET dep = 'ops' WHERE id = 1"):
        with pytest.raises(NotSupportedError, match="unsupported transforms"):
            lake.sql(statement)
    assert golden.state() == before


@pytest.mark.proves("M26")
def test_merge_in_python_means_the_same_as_in_sql(lake: Session) -> None:
    """M26."""
    source = lake.spark.createDataFrame([(1, "x"), (3, "y"), (4, "z")], "id INT, dep STRING")
    result = (
        lake.merge_into(source, "db.t AS t", col("t.id") == col("s.id"), source_alias="s")
        .whenMatched("s.dep = 'x'")
        .delete()
        .whenMatched()
        .update({"dep": "concat(t.dep, s.dep)"})
        .whenNotMatched()
        .insertAll()
        .whenNotMatchedBySource(col("t.id") == 2)
        .update({"dep": "'none'"})
        .merge()
    )
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (1, 2, 1)
    assert rows(lake) == ["2 | none", "3 | ity", "4 | z"]


def test_delete_and_update_in_python_mean_the_same_as_in_sql(lake: Session) -> None:
    """M26, for the other two."""
    assert lake.update("db.t", {"dep": "upper(dep)"}, col("id") > 1).rows_updated == 2
    assert lake.delete("db.t", "dep = 'IT'").changed
    assert rows(lake) == ["1 | hr", "2 | HR"]
