"""Random statements on a table that chooses by file and on one that is always written anew: they hold the same rows."""

import random
from collections import Counter

import pytest

from dml.result import Result
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

COLUMNS = "id BIGINT, p STRING, v STRING, s STRUCT<a: INT, b: ARRAY<STRING>>, d DOUBLE"
ROWS = (
    "SELECT /*+ COALESCE(1) */ id, concat('p', id % 3), concat('v', id), "
    "named_struct('a', CAST(id AS INT), 'b', array('x', CAST(id AS STRING))), CAST(id AS DOUBLE) "
    "FROM range({first}, {last})"
)
ASSIGNED = (
    "v = concat(v, '+')",
    "d = d + 1",
    "s = named_struct('a', s.a + 1, 'b', array('y'))",
    "v = 'w', d = -d, s = NULL, id = id",
    "s.a = 7",
)
STATEMENTS = 80
SHARED = {"write.parquet.row-group-limit": "15", "write.splice.min-file-size-bytes": "0"}
AUTO = {"write.auto.enabled": "true"}


def statement(chance: random.Random, highest: int) -> str:
    """A statement on `{t}` of few rows, of neighbours, or of a share of all rows."""
    few = ", ".join(str(chance.randrange(highest)) for _ in range(chance.randint(1, 4)))
    start = chance.randrange(highest)
    step = chance.choice([2, 3, 7, 20, 60])
    condition = chance.choice(
        [
            f"id IN ({few})",
            f"id >= {start} AND id < {start + chance.choice([5, 40, 120])}",
            f"id % {step} = {chance.randrange(step)}",
            f"p = 'p{chance.randrange(3)}' AND id % {step} = 0",
        ]
    )
    kind = chance.choice(["DELETE", "UPDATE", "UPDATE", "MERGE", "MERGE", "INSERT"])
    if kind == "DELETE":
        return f"DELETE FROM {{t}} WHERE {condition} AND id % 5 < 4"
    if kind == "UPDATE":
        return f"UPDATE {{t}} SET {chance.choice(ASSIGNED)} WHERE {condition}"
    if kind == "INSERT":
        return "INSERT INTO {t} " + ROWS.format(first=start, last=start + chance.choice([3, 60]))
    clauses = [
        f"WHEN MATCHED AND t.id % {step} = 1 THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {chance.choice(ASSIGNED[:2])}",
        "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, concat('p', s.id % 3), 'new')",
    ]
    chosen = sorted(chance.sample(range(3), chance.randint(1, 3)))
    source = f"SELECT id FROM range({start}, {start + chance.choice([4, 50, 200])})"
    condition = "t.id = s.id"
    return f"MERGE INTO {{t}} t USING ({source}) s ON {condition} " + " ".join(clauses[place] for place in chosen)


@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (p)"])
@pytest.mark.parametrize("version", ["2", "3"])
def test_twins(lake: Lake, version: str, clause: str) -> None:
    """After each statement rows are equal; now and then other engines read them, and all files are verified."""
    chance = random.Random(f"{version}{clause}{STATEMENTS}")
    granularity = {"write.delete.granularity": "partition"} if clause and version == "2" else {}
    shared = {"format-version": version, **SHARED, **granularity}
    auto = lake.create(COLUMNS, clause, **shared, **AUTO)
    twin = lake.create(COLUMNS, clause, **shared)
    highest = 480
    for first in range(0, highest, 120):
        for name in (auto, twin):
            lake.session.sql(f"INSERT INTO {name} " + ROWS.format(first=first, last=first + 120))
    ways: Counter[str] = Counter()
    for place in range(STATEMENTS):
        text = statement(chance, highest)
        if place % 6 == 5:  # somebody else's way: marks without end
            mode = ", ".join(f"'write.{command}.mode' = 'merge-on-read'" for command in ("delete", "update", "merge"))
            lake.session.sql(f"ALTER TABLE {auto} SET TBLPROPERTIES ('write.auto.enabled' = 'false', {mode})")
        elif place % 6 == 0:
            ratio = chance.choice(["0.1", "0.1", "0.3", "0"])
            properties = f"'write.auto.enabled' = 'true', 'write.auto.max-deleted-ratio' = '{ratio}'"
            lake.session.sql(f"ALTER TABLE {auto} SET TBLPROPERTIES ({properties})")
        one, other = (lake.session.sql(text.format(t=name)) for name in (auto, twin))
        assert isinstance(one, Result)
        assert isinstance(other, Result)
        counts = [(made.rows_deleted, made.rows_updated, made.rows_inserted) for made in (one, other)]
        assert counts[0] == counts[1], text
        if one.mode == "auto":
            ways.update(
                marked=one.data_files_marked,
                spliced=one.data_files_spliced,
                rewritten=one.data_files_rewritten - one.data_files_spliced,
                removed=one.data_files_removed - one.data_files_rewritten,
            )
        assert lake.rows(auto) == lake.rows(twin), text
        if place % 10 == 9 or place == STATEMENTS - 1:
            assert lake.session.verify(auto, every_file=True).ok, text
            location, rows = lake.table(auto).metadata_location, len(lake.rows(f"SELECT * FROM {auto}"))
            assert len(read_pyiceberg(location)) == rows, text
            assert read_pyiceberg(location) == read_duckdb(location), text
            assert lake.session.sql(f"SELECT count(*) FROM {auto}").collect()[0][0] == rows, text
    assert all(ways[way] for way in ("marked", "spliced", "rewritten", "removed")), ways
