"""INSERT ... SELECT from a table in scan tasks: the rows are those that Spark computes."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dml.engine import create_as_select, insert
from dml.errors import AnalysisError, CorruptFileError, DataError, ErrorKind
from dml.plan.row_delta_plan import ThroughSpark
from tests.lake import Lake

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
        ("id BIGINT, name STRING", "PARTITIONED BY (bucket(2, id))", {}, "id + 1, name"),
        ("id BIGINT, name STRING", "PARTITIONED BY (bucket(2, id))", {}, "7, name"),
        ("id BIGINT, name STRING", "", {}, "id, initcap(name)"),
        ("id STRING, name STRING", "", {}, "id, name"),
        ("id INT, name STRING", "", {}, "ceil(id / 2), name"),
        ("id BIGINT, name STRING", "", {}, "id, name COLLATE UTF8_LCASE"),
        ("id BIGINT, name STRING", "", {}, "id, concat(name, rand())"),
    ],
    ids=[
        "partitions",
        "ranges",
        "one partition after the other",
        "sorted",
        "computed partition",
        "constant partition",
        "expression",
        "text",
        "function",
        "collation",
        "random",
    ],
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


@contextmanager
def by_spark() -> Iterator[None]:
    """Let Spark compute all rows."""
    with pytest.MonkeyPatch.context() as patch:
        through_spark = ThroughSpark(reason="a twin is compared")
        patch.setattr(insert, "rows_of_query", lambda *_: through_spark)
        patch.setattr(create_as_select, "scanned_rows", lambda *_: through_spark)
        yield


def check_twins(lake: Lake, columns: str, insert_into: str, *, in_tasks: bool = True, **properties: str) -> None:
    """Insert the same rows by tasks and by Spark.

    Args:
        lake: The lake.
        columns: Those of the target.
        insert_into: The statement from the target's name on.
        in_tasks: Whether tasks can compute the rows.
        properties: Those of the target.
    """
    one, other = (lake.create(columns, **properties) for _ in range(2))
    assert explained(lake, f"INSERT INTO {one} {insert_into}") == in_tasks, insert_into
    result = lake.session.sql(f"INSERT INTO {one} {insert_into}")
    with by_spark():
        expected = lake.session.sql(f"INSERT INTO {other} {insert_into}")
    assert repr(lake.rows(one)) == repr(lake.rows(other)), insert_into
    assert result.rows_inserted == expected.rows_inserted


TYPES = {
    "i": "INT",
    "l": "BIGINT",
    "d": "DOUBLE",
    "s": "STRING",
    "day": "DATE",
    "n": "DECIMAL(12, 2)",
    "f": "FLOAT",
}
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
VALUES = {
    "i": ["later", "int(7)", "later + 1", "-later", "id", "id % 100", "7", "-7", "NULL", "CAST(NULL AS BIGINT)"],
    "l": ["id", "id * 2 - 5", "later", "later * 3", "id % 7", "id + later", "2147483648", "3L", "NULL"],
    "d": ["d", "d * 2 + 1", "id / 3", "id", "later", "1.5", "1e3", "d - id", "9007199254740993", "0", "f"],
    "s": ["name", "'x'", "''", "NULL", "'it''s'", "CAST(NULL AS STRING)", '"double"'],
    "day": ["day", "DATE '1969-12-31'", "NULL", "to_date('2026-02-28')"],
    "n": ["n", "id", "later", "0", "-12.5", "12.50", "NULL", "1e2"],
    "f": ["f", "id", "later", "NULL", "7"],
}
FILTERS = (
    "",
    "WHERE id % 10 = 3",
    "WHERE id % 10 IN (1, 2) AND d * 2 > 20",
    "WHERE NOT (id % 3 = 1 OR later + 1 > 5)",
    "WHERE id > 100 AND id % 2 = 0",
    "WHERE d / 2 > id - 50 OR name < 'n3'",
    "WHERE id % 10 = 12",
    "WHERE later IS NULL AND id * id BETWEEN 100 AND 90000",
)


@pytest.fixture(scope="module")
def numbers(engine_lake: Lake) -> str:
    """The rows of a table of two formats, with NULLs, NaN and the ends of types."""
    engine_lake.session.enable()
    name = engine_lake.create(
        "id BIGINT, d DOUBLE, name STRING, day DATE, n DECIMAL(9, 1), f FLOAT",
        **{"format-version": "3", "write.delete.mode": "merge-on-read"},
    )
    sql = engine_lake.session.sql
    rows = """
        SELECT id, CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN NULL ELSE id / 3 END,
          nullif(concat('n', id % 7), 'n3'), date_add(DATE '1969-12-20', int(id % 50)), id / 10,
          CASE id % 4 WHEN 0 THEN float('-Infinity') WHEN 1 THEN NULL ELSE float(id) / 7 END
        FROM range({start}, {end})"""
    sql(f"INSERT INTO {name} {rows.format(start=-20, end=100)}")
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'avro')")
    sql(f"INSERT INTO {name} {rows.format(start=100, end=200)}")
    sql(f"DELETE FROM {name} WHERE id % 9 = 0")
    sql(f"ALTER TABLE {name} ADD COLUMN later INT")
    sql(f"INSERT INTO {name} SELECT *, int(id) % 11 - 5 FROM ({rows.format(start=200, end=250)})")
    engine_lake.session.disable()
    return name


LEFT_TO_SPARK = {("i", "int(7)"), ("n", "1e2"), ("n", "id"), ("f", "7")}
IN_TASKS = {name: [text for text in texts if (name, text) not in LEFT_TO_SPARK] for name, texts in VALUES.items()}


def test_each_value_is_what_spark_stores(lake: Lake, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in LEFT_TO_SPARK:
        target = lake.create(f"c {TYPES[name]}")
        assert not explained(lake, f"INSERT INTO {target} SELECT {text} FROM {numbers}"), text
    # A value that tasks left to Spark while they run would leave it all the others.
    monkeypatch.setattr(insert, "run_or_fall_back", lambda run: run(None))
    values = [(TYPES[name], text) for name, texts in IN_TASKS.items() for text in texts]
    columns = ", ".join(f"c{place} {kind}" for place, (kind, _) in enumerate(values))
    check_twins(lake, columns, f"SELECT {', '.join(text for _, text in values)} FROM {numbers}")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_random_statements_insert_what_spark_inserts(lake: Lake, numbers: str, seed: int) -> None:
    chance = random.Random(seed)
    for condition in FILTERS:
        selected = ", ".join(chance.choice(texts) for texts in VALUES.values())
        one, other = lake.create(COLUMNS), lake.create(COLUMNS)
        statement = f"SELECT {selected} FROM {numbers} {condition}"
        lake.session.sql(f"INSERT INTO {one} {statement}")
        with by_spark():
            lake.session.sql(f"INSERT INTO {other} {statement}")
        assert repr(lake.rows(one)) == repr(lake.rows(other)), statement


@pytest.mark.parametrize("condition", FILTERS)
def test_computed_conditions_select_the_rows_that_spark_selects(lake: Lake, numbers: str, condition: str) -> None:
    """With a value for each column; those of all columns are in `test_each_value_is_what_spark_stores`."""
    chance = random.Random(condition)
    selected = ", ".join(chance.choice(texts) for texts in IN_TASKS.values())
    check_twins(lake, COLUMNS, f"SELECT {selected} FROM {numbers} {condition}")


def test_constants_alone_are_as_many_rows_as_the_table_has(lake: Lake, numbers: str) -> None:
    check_twins(lake, "a INT, b STRING", f"SELECT 1, 'x' FROM {numbers} WHERE id % 10 = 3")
    check_twins(lake, "a INT, b STRING", f"SELECT NULL, NULL FROM {numbers}")


def test_columns_that_are_left_out_get_their_default(lake: Lake, numbers: str) -> None:
    columns = "l BIGINT, i INT DEFAULT 42, s STRING DEFAULT 'new', day DATE DEFAULT DATE '2026-01-01', n DECIMAL(5, 2)"
    check_twins(lake, columns, f"(l) SELECT id * 2 FROM {numbers}", **{"format-version": "3"})
    check_twins(lake, columns, f"(n, s) SELECT 1.5, name FROM {numbers}", **{"format-version": "3"})


def test_a_table_is_made_of_computed_values(lake: Lake, numbers: str) -> None:
    one, other = lake.new_name(), lake.new_name()
    query = f"SELECT id * 2 AS a, 'x' AS b, d / 2 AS c, 1.50 AS e, day FROM {numbers} WHERE id % 3 = 1"
    lake.session.sql(f"CREATE TABLE {one} AS {query}")
    with by_spark():
        lake.session.sql(f"CREATE TABLE {other} AS {query}")
    assert repr(lake.rows(one)) == repr(lake.rows(other))
    assert lake.table(one).schema() == lake.table(other).schema()


def test_a_partitioned_table_gets_computed_values_beside_its_partitions(lake: Lake, numbers: str) -> None:
    source = lake.create("id BIGINT, k INT", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {source} SELECT id, int(abs(id % 3)) FROM {numbers}")
    target = lake.create("k INT, double BIGINT, missing STRING", "PARTITIONED BY (k)")
    statement = f"INSERT INTO {target} SELECT k, id * 2, NULL FROM {source} WHERE id % 2 = 0"
    assert explained(lake, statement)
    lake.session.sql(statement)
    assert lake.rows(target) == lake.rows(f"SELECT k, id * 2, CAST(NULL AS STRING) FROM {source} WHERE id % 2 = 0")
    assert len(lake.data_files(target)) == 3


@pytest.mark.parametrize(
    ("columns", "query", "wraps"),
    [
        ("v INT", "k + 1 FROM {t}", True),
        pytest.param("v BIGINT", "k FROM {t} WHERE k + 1 > 0", True, marks=pytest.mark.nightly),
        ("v INT", "big FROM {t}", False),
        ("v INT", "id FROM {t} WHERE big * 2 > id", True),
    ],
    ids=["value", "condition", "stored", "condition of a bigint"],
)
def test_numbers_that_do_not_fit_are_sparks_to_judge(
    lake: Lake, spark: SparkSession, columns: str, query: str, wraps: bool
) -> None:
    source = lake.create("id BIGINT, k INT, big BIGINT")
    lake.session.sql(f"INSERT INTO {source} SELECT id, 2147483640 + int(id), 9223372036854775800 + id FROM range(8)")
    target = lake.create(columns)
    before = lake.state(target)
    statement = f"INSERT INTO {target} SELECT {query.format(t=source)}"
    assert explained(lake, statement)
    with pytest.raises(DataError) as caught:
        lake.session.sql(statement)
    assert caught.value.kind is ErrorKind.OVERFLOW
    assert lake.state(target) == before
    with by_spark(), pytest.raises(DataError) as expected:
        lake.session.sql(statement)
    assert (caught.value.message, caught.value.position) == (expected.value.message, expected.value.position)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        if wraps:
            check_twins(lake, columns, f"SELECT {query.format(t=source)}")
        else:
            with pytest.raises(DataError):
                lake.session.sql(statement)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_an_overflow_in_rows_that_the_condition_leaves_out_is_none(lake: Lake) -> None:
    source = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {source} SELECT id, 2147483640 + int(id) FROM range(8)")
    check_twins(lake, "v INT", f"SELECT k + 1 FROM {source} WHERE k < 2147483647")


def test_the_policy_of_store_assignment_decides_what_is_stored(lake: Lake, numbers: str, spark: SparkSession) -> None:
    target = lake.create("v INT")
    statement = f"INSERT INTO {target} SELECT id FROM {numbers}"
    spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    try:
        with pytest.raises(AnalysisError) as caught:
            lake.session.sql(statement)
        assert caught.value.kind is ErrorKind.TYPE_MISMATCH
        check_twins(lake, "l BIGINT, d DOUBLE", f"SELECT later, id + 1 FROM {numbers}")
    finally:
        spark.conf.unset("spark.sql.storeAssignmentPolicy")
    lake.session.sql(statement)
    assert lake.rows(target) == lake.rows(f"SELECT id FROM {numbers}")
