"""`df.mergeInto`, PySpark's own chain, runs our MERGE on tables of ours."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import col, concat, expr, lit

from dml.errors import AnalysisError, NotSupportedError
from dml.result import Result
from tests.dml.connector.conftest import connector_lake, lake  # noqa: F401

pytestmark = pytest.mark.spark


@pytest.fixture
def target(lake):  # noqa: F811
    """A table of the ids 0 to 3."""
    name = lake.create("id bigint, s string")
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('s', id) FROM range(4)")
    return name


@pytest.fixture
def changes(spark):
    """An id that is there, and one that is not."""
    return spark.createDataFrame([(1, "new"), (9, "nine")], "id bigint, s string")


def test_rows_are_updated_inserted_and_deleted(lake, target, changes):  # noqa: F811
    """With an alias, in PySpark's words; what it did is the result."""
    result = (
        changes.alias("c")
        .mergeInto(f"lake.{target}", expr(f"{target.split('.')[1]}.id = c.id"))
        .whenMatched()
        .updateAll()
        .whenNotMatched()
        .insertAll()
        .whenNotMatchedBySource(col(f"{target.split('.')[1]}.id") > 2)
        .delete()
        .merge()
    )
    assert lake.rows(target) == [(0, "s0"), (1, "new"), (2, "s2"), (9, "nine")]
    assert isinstance(result, Result)
    assert (result.rows_updated, result.rows_inserted, result.rows_deleted) == (1, 1, 1)


def test_columns_may_be_bound_to_the_source(lake, target, changes):  # noqa: F811
    """As PySpark's documentation writes them."""
    short = target.split(".")[1]
    (
        changes.mergeInto(f"lake.{target}", changes.id == col(f"{short}.id"))
        .whenMatched(changes["id"] > 0)
        .update({"s": concat(changes.s, lit("!")), f"{short}.id": changes.id})
        .whenNotMatched(changes.id > 5)
        .insert({"id": changes.id, "s": col("source.s")})
        .merge()
    )
    assert lake.rows(target) == [(0, "s0"), (1, "new!"), (2, "s2"), (3, "s3"), (9, "nine")]


def test_a_view_is_called_by_its_name(lake, target, changes, spark):  # noqa: F811
    """Its columns are known by it."""
    changes.createOrReplaceTempView("changes_of_today")
    source = spark.table("changes_of_today")
    source.mergeInto(
        f"lake.{target}", col("changes_of_today.id") == col(f"lake.{target}.id")
    ).whenMatched().delete().merge()
    assert [row[0] for row in lake.rows(target)] == [0, 2, 3]


def test_new_columns_come_with_schema_evolution(lake, target, spark):  # noqa: F811
    """Only where it is asked for."""
    source = spark.createDataFrame([(1, "new", 5)], "id bigint, s string, extra int").alias("c")
    writer = source.mergeInto(f"lake.{target}", expr(f"{target.split('.')[1]}.id = c.id"))
    writer.withSchemaEvolution().whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert (1, "new", 5) in lake.rows(target)


def test_errors_are_those_of_the_statement(lake, target, changes, spark):  # noqa: F811
    """A column that is not there, and one of another DataFrame, which no SQL text can say."""
    short = target.split(".")[1]
    with pytest.raises(AnalysisError, match="missing"):
        changes.alias("c").mergeInto(f"lake.{target}", expr(f"{short}.id = c.missing")).whenMatched().delete().merge()
    other = spark.range(1)
    with pytest.raises(NotSupportedError, match="belongs to a DataFrame"):
        changes.mergeInto(f"lake.{target}", other.id == changes.id)
    assert len(lake.rows(target)) == 4


def test_tables_of_others_keep_pysparks_writer(lake, changes):  # noqa: F811
    """Its errors too; and a session that is left has the method as it was."""
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        changes.mergeInto("nobody.knows", expr("true")).whenMatched().delete().merge()
    owner = type(changes)
    taken = owner.mergeInto
    lake.session.disable()
    assert owner.mergeInto is not taken
    lake.session.enable()
