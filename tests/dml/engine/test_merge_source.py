"""The source of a MERGE: evaluated once, and left as the user has it."""

import secrets

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from dml import limits
from dml.engine import row_level
from dml.engine.merge_source import MergeSourceFrame, SourceKeys
from tests.lake import Lake

pytestmark = pytest.mark.spark

DRAWN_FROM = 1_000

FAR_KEYS = "SELECT id * 1000 AS id, concat('n', id) AS name, 1 AS k FROM range(40)"


def test_the_source_of_a_merge_is_evaluated_once(lake: Lake, spark: SparkSession) -> None:
    """Its keys narrow the scan of the target: were it evaluated again, other rows would find no partner there."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 0 FROM range({DRAWN_FROM})")
    drawn = udf(lambda _: secrets.randbelow(DRAWN_FROM), LongType()).asNondeterministic()
    source = spark.range(1).select(drawn("id").alias("id"))
    merge = lake.session.merge_into(source, f"{name} t", "t.id = source.id")
    result = merge.whenMatched().update({"k": "1"}).whenNotMatched().insert({"id": "source.id", "k": "2"}).merge()
    assert (result.rows_updated, result.rows_inserted) == (1, 0)


def test_a_statement_leaves_what_the_user_has_cached(lake: Lake, spark: SparkSession) -> None:
    """The views of a statement's DataFrames go without the rows that Spark keeps of them."""
    name = lake.create("id BIGINT, k INT")
    cached = spark.range(5).selectExpr("id", "1 AS k").cache()
    cached.count()
    cached.createOrReplaceTempView("kept_rows")
    lake.session.merge_into(cached, f"{name} t", "t.id = source.id").whenNotMatched().insertAll().merge()
    lake.session.sql(f"INSERT INTO {name} SELECT * FROM kept_rows")
    assert cached.storageLevel.useMemory
    cached.unpersist()


@pytest.mark.parametrize(("key", "most", "pushed"), [("id", 40, True), ("id", 39, False), ("name", 40, False)])
def test_many_keys_reach_the_scan_where_they_are_numbers(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: str, most: int, *, pushed: bool
) -> None:
    """Of the target's files only those are opened, and of their rows those leave the worker, that may match.

    Keys that are too many for that prune files by the least and the greatest of them.
    """
    monkeypatch.setattr(limits, "MAX_SOURCE_KEYS", 10)
    monkeypatch.setattr(limits, "MAX_INTEGER_SOURCE_KEYS", most)
    monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    seen: list[SourceKeys | None] = []
    collected = MergeSourceFrame.keys

    def noted(source: MergeSourceFrame) -> SourceKeys | None:
        seen.append(collected(source))
        return seen[-1]

    monkeypatch.setattr(MergeSourceFrame, "keys", noted)
    name = lake.create("id BIGINT, name STRING, k INT")
    for first in (0, 100_000):
        lake.session.sql(
            f"INSERT INTO {name} SELECT id, concat('n', id DIV 1000), 0 FROM range({first}, {first + 50_000}, 500)"
        )
    result = lake.session.sql(
        f"MERGE INTO {name} t USING ({FAR_KEYS}) s ON t.{key} = s.{key} AND t.id % 1000 = 0 "
        "WHEN MATCHED THEN UPDATE SET k = s.k WHEN NOT MATCHED THEN INSERT *"
    )
    assert (result.rows_updated, result.rows_inserted) == (40, 0)
    assert [keys is not None and keys.rows for keys in seen] == [40]
    assert [keys is not None and keys.key_filter is not None for keys in seen] == [pushed]
    counts = lake.session.sql(f"SELECT k, count(*), sum(id) FROM {name} GROUP BY k ORDER BY k").collect()
    assert [tuple(row) for row in counts] == [(0, 160, 14_170_000), (1, 40, 780_000)]
