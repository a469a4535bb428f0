"""SHOW PARTITIONS."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from dml.errors import AnalysisError
from tests.dml.ddl.conftest import DdlCatalog

NewTable = Callable[..., DdlCatalog]


def test_partitions_are_shown_as_spark_shows_them(new_table: NewTable) -> None:
    """Sorted, with escaped names and values; those of earlier specs too, and none without live files."""
    lake = new_table("id INT, `a b` STRING, d DATE", 2, "PARTITIONED BY (`a b`, months(d))")
    assert lake.run("SHOW PARTITIONS db.t").rows == ()
    days = pa.array([19_700, 19_701, None], pa.int32()).cast(pa.date32())
    rows = {"id": pa.array([1, 2, 3], pa.int32()), "a b": ["x=1/2", "é f", None], "d": days}
    lake.table().append(pa.table(rows))
    shown = lake.run("SHOW PARTITIONS lake.db.t")
    assert shown.columns == (("partition", "string"),)
    assert [row[0] for row in shown.rows] == [
        "a b=null/d_month=null",
        "a b=x%3D1%2F2/d_month=2023-12",
        "a b=é f/d_month=2023-12",
    ]
    for partition, expected in (
        ("`A B` = 'x=1/2', d_month = '2023-12'", ["a b=x%3D1%2F2/d_month=2023-12"]),
        ("d_month = NULL", ["a b=null/d_month=null"]),
        ("`a b` = 'none'", []),
    ):
        assert [row[0] for row in lake.run(f"SHOW PARTITIONS db.t PARTITION ({partition})").rows] == expected
    lake.run("ALTER TABLE db.t REPLACE PARTITION FIELD `a b` WITH id")
    lake.table().append(pa.table(rows).slice(0, 1))
    assert "d_month=2023-12/id=1" in [row[0] for row in lake.run("SHOW PARTITIONS db.t").rows]
    assert len(lake.run("SHOW PARTITIONS db.t PARTITION (`a b` = 'é f')").rows) == 1
    lake.table().delete()
    assert lake.run("SHOW PARTITIONS db.t").rows == ()


def test_only_partitions_can_be_asked_for(new_table: NewTable) -> None:
    lake = new_table("id INT, dep STRING, day DATE", 2, "PARTITIONED BY (dep)")
    with pytest.raises(AnalysisError, match=r"no partition field 'deb'.*'dep'"):
        lake.run("SHOW PARTITIONS db.t PARTITION (deb = 'a')")
    lake.run("ALTER TABLE db.t DROP PARTITION FIELD dep")
    with pytest.raises(AnalysisError, match="not partitioned"):
        lake.run("SHOW PARTITIONS db.t")
