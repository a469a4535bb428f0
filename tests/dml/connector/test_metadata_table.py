"""`spark.table` of metadata tables: the rows that queries have of them."""

import pytest

from dml.errors import AnalysisError, NotSupportedError
from dml.metadata_tables.tables import MetadataTable

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def name(connector_lake):
    made = connector_lake.create("id bigint, p int", "PARTITIONED BY (p)", **{"write.delete.mode": "merge-on-read"})
    connector_lake.session.sql(f"INSERT INTO {made} SELECT id, id % 2 FROM range(10)")
    connector_lake.session.sql(f"DELETE FROM {made} WHERE id = 3")
    return made


@pytest.mark.parametrize("kind", list(MetadataTable))
def test_every_metadata_table_is_read(lake, spark, name, kind):
    """All columns, and some; counted without the table's own rows."""
    shown, expected = spark.table(f"lake.{name}.{kind}"), lake.session.sql(f"SELECT * FROM {name}.{kind}")
    assert shown.columns == expected.columns
    assert sorted(map(repr, shown.collect())) == sorted(map(repr, expected.collect()))
    assert shown.count() == expected.count()
    last = shown.columns[-1]
    assert sorted(map(repr, shown.select(last).collect())) == sorted(map(repr, expected.select(last).collect()))


def test_conditions_and_time_travel(lake, spark, name):
    files = spark.table(f"lake.{name}.files")
    assert files.where("content = 1").count() == 1
    first = spark.table(f"lake.{name}.snapshots").orderBy("committed_at").first().snapshot_id
    assert spark.read.option("versionAsOf", first).table(f"lake.{name}.files").count() == 2
    assert spark.read.option("snapshot-id", first).table(f"lake.{name}.files").count() == 2
    with pytest.raises(NotSupportedError, match="does not support time travel"):
        spark.read.option("versionAsOf", first).table(f"lake.{name}.history").count()
    with pytest.raises(NotSupportedError, match="does not support time travel"):
        spark.read.option("snapshot-id", first).table(f"lake.{name}.history").count()
    with pytest.raises(AnalysisError, match="more than one state"):
        spark.read.option("snapshot-id", first).table(f"lake.{name}.files.branch_main").count()
