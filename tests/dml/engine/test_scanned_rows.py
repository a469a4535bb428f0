"""INSERT of rows that a table of ours has: tasks read and write them, and the rows are those that Spark would give."""

from pathlib import Path

import pytest

from dml.errors import CorruptFileError, DataError
from tests.dml.engine.conftest import Lake

pytestmark = pytest.mark.spark

PAST_SPARK = "do not go through Spark"


def explained(lake: Lake, statement: str) -> bool:
    """Whether the rows of an INSERT do not go through Spark."""
    return PAST_SPARK in lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]


@pytest.fixture(scope="module")
def source(engine_lake: Lake) -> str:
    """A table of three formats and two specs, with deleted rows, a renamed column and one that older files lack."""
    sql = engine_lake.session.sql
    name = engine_lake.create(
        "id BIGINT, d DOUBLE, n STRING, day DATE, s STRUCT<a: INT, b: ARRAY<STRING>>, ts TIMESTAMP",
        "PARTITIONED BY (bucket(2, id))",
        **{"format-version": "3", "write.delete.mode": "merge-on-read", "write.distribution-mode": "none"},
    )
    rows = """
        SELECT id, CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN NULL ELSE id / 3 END,
          nullif(concat('n', id % 7), 'n3'), date_add(DATE '2026-01-01', int(id % 50)),
          CASE WHEN id % 4 > 0 THEN named_struct('a', int(id), 'b', array('x', NULL)) END,
          timestamp_seconds(id * 10000)
        FROM range({start}, {end})"""
    for number, data_format in enumerate(("parquet", "orc", "avro")):
        sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = '{data_format}')")
        sql(f"INSERT INTO {name} {rows.format(start=number * 100, end=number * 100 + 100)}")
    sql(f"DELETE FROM {name} WHERE id % 9 = 0")
    sql(f"ALTER TABLE {name} RENAME COLUMN n TO name")
    sql(f"ALTER TABLE {name} ADD COLUMN later INT")
    sql(f"ALTER TABLE {name} DROP PARTITION FIELD bucket(2, id)")
    sql(f"INSERT INTO {name} VALUES (1000, 1.5, 'last', DATE '2026-03-01', NULL, NULL, 7)")
    return name


CONDITIONS = (
    "",
    "WHERE d > 20 AND day >= '2026-01-10'",
    "WHERE NOT (d <= 20) OR name IS NULL OR later = 7",
    "WHERE name LIKE 'n1%' OR (d = 0 AND ts < TIMESTAMP '1970-01-10 00:00:00')",
    "WHERE id IN (1, 2, 1000) AND name <> 'n2'",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_rows_are_those_of_the_query(lake: Lake, source: str, condition: str) -> None:
    columns = "id BIGINT, d DOUBLE, name STRING, day DATE, s STRUCT<a: INT, b: ARRAY<STRING>>, ts TIMESTAMP, later INT"
    target = lake.create(columns)
    statement = f"INSERT INTO {target} SELECT * FROM {source} {condition}"
    assert explained(lake, statement)
    result = lake.session.sql(statement)
    expected = lake.rows(f"SELECT * FROM {source} {condition}")
    assert expected
    assert repr(lake.rows(target)) == repr(expected)  # NaN is not equal to itself
    assert result.rows_inserted == len(expected)


def test_columns_by_list_and_by_name_and_twice(lake: Lake, source: str) -> None:
    target = lake.create("x BIGINT, y STRING, z BIGINT NOT NULL, later INT")
    for statement in (
        f"INSERT INTO {target} (z, y, x) SELECT id, name, id FROM {source}",
        f"INSERT INTO {target} BY NAME SELECT id AS z, name AS y, id AS x FROM {source}",
    ):
        assert explained(lake, statement)
        lake.session.sql(statement)
        assert lake.rows(target) == lake.rows(f"SELECT id, name, id, CAST(NULL AS INT) FROM {source}")
        lake.session.sql(f"TRUNCATE TABLE {target}")


def test_a_table_is_made_of_another_ones_older_state(lake: Lake, source: str) -> None:
    table, name = lake.table(source), lake.new_name()
    first = table.history()[0].snapshot_id
    lake.session.sql(f"CREATE TABLE {name} AS SELECT day, id FROM {source} VERSION AS OF {first} WHERE id < 50")
    assert lake.rows(f"SELECT count(*), sum(id), count(day) FROM {name}") == [(50, 1225, 50)]
    assert len(lake.data_files(name)) == 1


def test_a_partitioned_table_gets_a_file_a_partition_and_is_compacted_by_itself(lake: Lake) -> None:
    sql = lake.session.sql
    name = lake.create("id BIGINT, k INT, day DATE", "PARTITIONED BY (k, days(day))")
    for start in (0, 40, 80):
        query = f"SELECT id, int(id % 3), date_add(DATE '2026-01-01', int(id % 2)) FROM range({start}, {start + 40})"
        sql(f"INSERT INTO {name} {query}")
    assert len(lake.data_files(name)) == 18
    before = lake.rows(name)
    other = lake.create("day DATE, n BIGINT, k INT", "PARTITIONED BY (days(day))")
    for target, statement in (
        (name, f"INSERT OVERWRITE {name} SELECT * FROM {name}"),
        (other, f"INSERT INTO {other} SELECT day, id, k FROM {name}"),
    ):
        assert explained(lake, statement)
        sql(statement)
        assert len(lake.data_files(target)) == (6 if target == name else 2)
    assert lake.rows(name) == before
    assert lake.rows(f"SELECT n, k, day FROM {other}") == before


@pytest.mark.parametrize(
    ("columns", "clauses", "properties", "query"),
    [
        ("id BIGINT, name STRING", "PARTITIONED BY (name)", {}, "id, name"),
        ("id BIGINT, name STRING", "PARTITIONED BY (name)", {"write.distribution-mode": "range"}, "id, name"),
        (
            "id BIGINT, name STRING",
            "PARTITIONED BY (truncate(1, name))",
            {"write.spark.fanout.enabled": "false"},
            "id, name",
        ),
        ("id BIGINT, name STRING", "SORTED", {}, "id, name"),
        ("id BIGINT, name STRING", "", {}, "id, upper(name)"),
        ("id INT, name STRING", "", {}, "id, name"),
        ("id STRING, name STRING", "", {}, "id, name"),
    ],
    ids=["partitions", "ranges", "one partition after the other", "sorted", "expression", "narrower", "text"],
)
def test_rows_that_have_to_change_or_move_go_through_spark(
    lake: Lake, source: str, columns, clauses, properties, query
):
    target = lake.create(columns, "" if clauses == "SORTED" else clauses, **properties)
    if clauses == "SORTED":
        lake.session.sql(f"ALTER TABLE {target} WRITE ORDERED BY name")
    statement = f"INSERT INTO {target} SELECT {query} FROM {source}"
    assert not explained(lake, statement)
    lake.session.sql(statement)
    assert lake.rows(f"SELECT count(*) FROM {target}") == lake.rows(f"SELECT count(*) FROM {source}")


def test_what_fails_leaves_nothing(lake: Lake, source: str) -> None:
    target = lake.create("id BIGINT, name STRING NOT NULL")
    before = lake.state(target)
    with pytest.raises(DataError, match="'name' requires a value"):
        lake.session.sql(f"INSERT INTO {target} SELECT id, name FROM {source}")
    assert lake.state(target) == before
    damaged = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {damaged} SELECT id FROM range(10)")
    Path(lake.data_files(damaged)[0].path.removeprefix("file://")).write_bytes(b"PAR1 nothing PAR1")
    target = lake.create("id BIGINT")
    before = lake.state(target)
    with pytest.raises(CorruptFileError):
        lake.session.sql(f"INSERT INTO {target} SELECT id FROM {damaged}")
    assert lake.state(target) == before


def test_an_empty_table_and_a_condition_that_meets_nothing(lake: Lake, source: str) -> None:
    target = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {target} SELECT id FROM {target}")
    lake.session.sql(f"INSERT INTO {target} SELECT id FROM {source} WHERE id < -5")
    assert lake.table(target).current_snapshot() is None
    lake.session.sql(f"INSERT INTO {target} SELECT id FROM {source} WHERE id = 1")
    lake.session.sql(f"INSERT OVERWRITE {target} SELECT id FROM {source} WHERE id < -5")
    assert lake.rows(target) == []
