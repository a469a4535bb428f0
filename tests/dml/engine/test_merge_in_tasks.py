"""MERGE by tasks that have the source: what Spark's join would have made of the table, and what is left to that."""

from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dml import limits
from dml.engine import row_level, sent_source
from dml.errors import AnalysisError, DataError, ErrorKind
from dml.plan.row_delta_plan import ThroughSpark
from dml.result import Result
from tests.dml.engine.conftest import Kind, in_turn
from tests.lake import Lake

pytestmark = pytest.mark.spark

BROADCAST = "which receive the source"
COLUMNS = "id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP"
ROW = (
    "SELECT id, int(id % 3) AS k, CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL ELSE id / 4 END AS d, "
    "nullif(concat('n', id % 7), 'n3') AS s, timestamp_seconds(id * 3600) AS at"
)
SOURCE = f"{ROW}, element_at(array('d', 'u', 'i', NULL), int(id % 4) + 1) AS op, int(id) - 30 AS x FROM range(20, 60)"
"""Half of its ids are in the table; a row in four has no operation."""

CLAUSES = """
ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

ON s.id = t.id WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED AND op = 'u' THEN UPDATE SET s = 'new', d = s.x
WHEN NOT MATCHED AND op <> 'd' THEN INSERT (id, s, k) VALUES (s.id, upper(s.op), DEFAULT)

ON t.id = s.id AND t.k = s.k WHEN MATCHED AND s.d > t.d - 1 THEN UPDATE SET d = t.d + s.d, s = concat(s.s, '!')
WHEN MATCHED AND s.x % 3 = t.k THEN DELETE

ON t.id = s.id AND t.id > 25 AND s.op = 'u' WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.x > 20 THEN INSERT *

ON t.id = s.id WHEN NOT MATCHED AND s.k = 1 THEN INSERT *
WHEN NOT MATCHED THEN INSERT (id, d) VALUES (-s.id, s.x)

ON t.s = s.s AND t.id = s.id AND s.at <= t.at
WHEN MATCHED AND t.k IS NOT NULL AND s.op = 'u' THEN UPDATE SET at = s.at, k = t.k + 1
WHEN MATCHED AND s.x < t.k THEN UPDATE SET k = 0

ON t.id = s.x WHEN MATCHED AND s.op = 'd' OR s.k = t.k THEN UPDATE SET id = s.id, s = t.s
WHEN NOT MATCHED THEN INSERT *

ON t.id = s.id WHEN MATCHED AND s.op IS NULL THEN UPDATE SET k = CASE WHEN s.x > 0 THEN 1 ELSE s.k END

ON t.id = s.id AND t.at = s.at WHEN MATCHED AND s.op = 'u' THEN UPDATE SET * WHEN MATCHED AND s.op = 'i' THEN DELETE
WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.k = 1 THEN UPDATE SET s = 'gone', d = d + 1, k = k - 1
WHEN NOT MATCHED BY SOURCE AND k = 2 THEN DELETE

ON t.id = s.id AND t.k = s.k AND s.x > 0 WHEN NOT MATCHED BY SOURCE AND id <> 7 THEN DELETE

ON t.s <=> s.s AND t.id = s.id WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.id % 2 = 0 THEN UPDATE SET at = TIMESTAMP '2000-01-01 00:00:00', k = NULL
""".strip().split("\n\n")
PLACES = (*range(0, len(CLAUSES), 2), *range(1, len(CLAUSES), 2))
"""The clauses that all tests of them run first, so that they meet the same kind of table in each."""


def merge(lake: Lake, name: str, clauses: str, source: str = SOURCE) -> str:
    return f"MERGE INTO {name} t USING ({source}) s {clauses}"


def broadcasts(lake: Lake, statement: str) -> bool:
    """Whether tasks get the source."""
    return BROADCAST in lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]


def counts(result: Result) -> tuple[int | None, ...]:
    return result.rows_matched, result.rows_updated, result.rows_deleted, result.rows_inserted


def filled(kind: Kind) -> str:
    """Three files; some of their rows are deleted, one file has a column under its old name and lacks another.

    Other tables read the same files.
    """
    return kind.copy_of(new_table)


def new_table(kind: Kind) -> str:
    """Create the table that `filled` copies."""
    sql, name = kind.lake.session.sql, kind.create(COLUMNS.replace("s STRING, at TIMESTAMP", "old STRING"))
    sql(f"INSERT INTO {name} SELECT id, k, d, s FROM ({ROW} FROM range(0, 15))")
    sql(f"ALTER TABLE {name} RENAME COLUMN old TO s")
    sql(f"ALTER TABLE {name} ADD COLUMN at TIMESTAMP")
    for start in (15, 30):
        sql(f"INSERT INTO {name} {ROW} FROM range({start}, {start + 10})")
    sql(f"DELETE FROM {name} WHERE id % 9 = 4")
    return name


def joined_by_spark(kind: Kind, clauses: str, source: str = SOURCE) -> tuple[Result, str]:
    """Return the result of a MERGE that Spark joins, and the rows after it; one run per kind of table and statement."""

    def run() -> tuple[Result, str]:
        lake, twin = kind.lake, filled(kind)
        with mock.patch.object(row_level, "send_source", return_value=ThroughSpark(reason="the test says so")):
            result = lake.session.sql(merge(lake, twin, clauses, source))
        assert isinstance(result, Result)
        return result, repr(lake.rows(twin))

    found: tuple[Result, str] = kind.lake.once((joined_by_spark, kind.key, clauses, source), run)
    return found


@pytest.mark.parametrize(("kind", "place"), in_turn(PLACES, lambda place: place % 2 == 0), indirect=["kind"])
def test_tasks_make_of_a_table_what_sparks_join_makes(kind: Kind, place: int) -> None:
    lake, name = kind.lake, filled(kind)
    statement = merge(lake, name, CLAUSES[place])
    assert broadcasts(lake, statement)
    result = lake.session.sql(statement)
    expected, rows = joined_by_spark(kind, CLAUSES[place])
    assert counts(result) == counts(expected)
    assert any(counts(result))
    assert repr(lake.rows(name)) == rows
    assert lake.session.verify(name, every_file=True).ok


def test_sources_of_all_sorts(lake: Lake, spark: SparkSession) -> None:
    """A view of rows, a table of ours, VALUES with NULL among the keys, no row at all."""
    name = lake.create("id BIGINT, v STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (NULL, 'c')")
    spark.createDataFrame([(1, "A"), (None, "N")], "id INT, v STRING").createOrReplaceTempView("some_rows")
    other = lake.create("id BIGINT, v STRING")
    lake.session.sql(f"INSERT INTO {other} VALUES (2, 'B'), (3, 'C')")
    clauses = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    for source in (
        "some_rows",
        other,
        "(VALUES (4L, 'D'), (NULL, 'M') AS v(id, v))",
        f"(SELECT * FROM {other} LIMIT 0)",
    ):
        statement = f"MERGE INTO {name} t USING {source} s {clauses}"
        assert broadcasts(lake, statement)
        lake.session.sql(statement)
    expected = [(1, "A"), (2, "B"), (3, "C"), (4, "D"), (None, "M"), (None, "N"), (None, "c")]
    assert lake.rows(name) == expected


@pytest.mark.parametrize(
    "clauses",
    [
        "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s = initcap(t.s)",
        "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET k = DEFAULT",
        "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET k = (SELECT 1)",
        "ON t.id = s.id + 1 WHEN MATCHED THEN DELETE",
        "ON t.id = s.d WHEN MATCHED THEN DELETE",
        "ON t.id <=> s.d WHEN MATCHED THEN DELETE",
        "ON t.id = s.id AND instr(t.s, 'n') = 1 WHEN MATCHED THEN DELETE",
        "ON t.id = s.id WHEN MATCHED AND t.s LIKE '%1' THEN DELETE",
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = initcap(t.s || s.s)",
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET d = rand()",
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = (SELECT 1)",
    ],
)
def test_what_only_spark_computes_goes_through_it(lake: Lake, clauses: str) -> None:
    name = filled(Kind(lake=lake, version=2, mode="copy-on-write", partitioned=False))
    statement = merge(lake, name, clauses, SOURCE.replace("range(20, 60)", "range(31, 33)"))
    assert not broadcasts(lake, statement)
    assert lake.session.sql(statement).rows_matched


def test_a_key_that_comes_twice(lake: Lake) -> None:
    name = lake.create("id BIGINT, v STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    before = lake.state(name)
    twice = f"MERGE INTO {name} t USING (VALUES (1, 'x'), (1, 'y') AS s(id, v)) s ON t.id = s.id WHEN MATCHED"
    with pytest.raises(DataError) as caught:
        lake.session.sql(f"{twice} THEN UPDATE SET v = s.v")
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION
    assert lake.state(name) == before
    assert lake.session.sql(f"{twice} THEN DELETE").rows_deleted == 1


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_the_source_does_not_have(lake: Lake, mode: str) -> None:
    """Every row of the table counts: where the source has no row, where files hold none of its keys, and with NULL."""
    name = lake.create("id BIGINT, v STRING", **{"write.merge.mode": mode})
    clauses = (
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND v = 'old' THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'old'"
    )

    def merged(source: str) -> tuple[int | None, ...]:
        statement = merge(lake, name, clauses, source)
        assert broadcasts(lake, statement)
        return counts(lake.session.sql(statement))

    assert merged("SELECT id, 'a' AS v FROM range(4)") == (0, 0, 0, 4)
    lake.session.sql(f"INSERT INTO {name} VALUES (NULL, 'n'), (100, 'old')")
    lake.session.sql(f"INSERT INTO {name} VALUES (1000, 'b')")
    assert merged("VALUES (1L, 'A'), (NULL, 'N'), (5L, 'E') AS s(id, v)") == (1, 6, 1, 2)
    found = [(0, "old"), (1, "A"), (1000, "old"), (2, "old"), (3, "old"), (5, "E"), (None, "N"), (None, "old")]
    assert lake.rows(name) == found
    assert merged("SELECT id, 'x' AS v FROM range(0)") == (0, 3, 5, 0)
    assert lake.rows(name) == [(1, "old"), (5, "old"), (None, "old")]
    assert lake.session.verify(name, every_file=True).ok


def test_errors_of_rows_that_the_source_does_not_have(lake: Lake) -> None:
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    before = lake.state(name)
    statement = merge(lake, name, "ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND id > 3 THEN", "VALUES (7L) AS s(id)")
    with pytest.raises(DataError) as caught:
        lake.session.sql(f"{statement} UPDATE SET k = k + 2")
    assert caught.value.kind is ErrorKind.OVERFLOW
    for wrong in ("UPDATE SET k = s.id", "UPDATE SET k = nowhere"):
        with pytest.raises(AnalysisError):
            lake.session.sql(f"{statement} {wrong}")
    assert lake.state(name) == before
    assert lake.session.sql(f"{statement} UPDATE SET k = k + 1").rows_updated == 3


def test_errors_are_those_of_rows_that_count(lake: Lake, spark: SparkSession) -> None:
    """A value that cannot be computed is an error where a row gets it, and is nothing where none does."""
    name = lake.create("id BIGINT NOT NULL, k INT NOT NULL", **{"write.merge.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    source = "VALUES (1L, '1'), (2L, '2'), (70L, 'x'), (80L, NULL) AS s(id, n)"
    matched = f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id WHEN MATCHED"
    result = lake.session.sql(f"{matched} THEN UPDATE SET k = CAST(s.n AS INT)")
    assert result.rows_updated == 2
    before = lake.state(name)
    statements = {
        f"{matched} AND s.id = 2 THEN UPDATE SET k = t.k + 2147483647": ErrorKind.OVERFLOW,
        f"{matched} THEN UPDATE SET k = NULL": ErrorKind.NOT_NULL_VIOLATION,
        f"{matched} THEN DELETE WHEN NOT MATCHED AND s.n IS NULL THEN INSERT (id, k) VALUES (s.id, int(s.n))": (
            ErrorKind.NOT_NULL_VIOLATION
        ),
        f"{matched} THEN DELETE WHEN NOT MATCHED AND s.id < 80 THEN INSERT (id, k) VALUES (s.id, int(s.n))": None,
    }
    for statement, kind in statements.items():
        with pytest.raises(DataError) as caught:
            lake.session.sql(statement)
        assert caught.value.kind is kind or kind is None, statement
        assert lake.state(name) == before
    for wrong in (f"{matched} AND s.n THEN DELETE", f"{matched} AND s.nowhere = 1 THEN DELETE"):
        with pytest.raises(AnalysisError):
            lake.session.sql(wrong)
    assert lake.state(name) == before


def test_sources_that_are_too_large_or_change(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = filled(Kind(lake=lake, version=3, mode="merge-on-read", partitioned=False))
    assert broadcasts(lake, merge(lake, name, CLAUSES[0]))
    for most, sent in ((0, False), (400, False), (2**20, True)):
        monkeypatch.setattr(row_level, "most_sent", lambda *_, most=most: most)
        assert broadcasts(lake, merge(lake, name, CLAUSES[0])) is sent
    monkeypatch.undo()
    random = SOURCE.replace("FROM range", ", rand() AS r FROM range")
    assert lake.session.sql(merge(lake, name, CLAUSES[1], random)).rows_matched
    assert lake.session.verify(name, every_file=True).ok


def test_new_rows_go_along_with_files_that_are_written_anew(lake: Lake) -> None:
    """By default a MERGE leaves no more files than it found: one task knows which rows are new."""
    name = lake.create(COLUMNS)
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({ROW} FROM range(25))")
    for _ in range(3):
        assert lake.session.sql(merge(lake, name, CLAUSES[0])).rows_matched
        assert len(lake.data_files(name)) == 1
    assert lake.rows(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(60, 60)]


@pytest.mark.parametrize("place", [0, 8])
@pytest.mark.parametrize("few", [True, False])
def test_tasks_that_do_not_know_what_others_match(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, few: bool, place: int
) -> None:
    """Several tasks write files anew; new rows are found first, and few of them go along with one of the files."""
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    monkeypatch.setattr(limits, "MAX_DRIVER_INSERT_BYTES", 1 << 20 if few else 1)
    kind = Kind(lake=lake, version=2, mode="copy-on-write", partitioned=False)
    name = lake.copy_of("files that are not joined", lambda: new_table(kind))
    before = len(lake.data_files(name))
    assert before > 1
    result = lake.session.sql(merge(lake, name, CLAUSES[place]))
    expected, rows = joined_by_spark(kind, CLAUSES[place])
    assert counts(result) == counts(expected)
    assert result.rows_inserted
    assert repr(lake.rows(name)) == rows
    assert len(lake.data_files(name)) == before
    assert lake.session.verify(name, every_file=True).ok


def test_columns_with_columns_inside(kind: Kind) -> None:
    """Structs, arrays and maps come from the source as a whole."""
    lake, sql = kind.lake, kind.lake.session.sql
    columns = "id BIGINT, k INT, p STRUCT<a: INT, l: ARRAY<STRUCT<b: STRING>>>, m MAP<STRING, ARRAY<INT>>, u TIMESTAMP"
    rows = (
        "SELECT id, int(id % 3) AS k, IF(id % 5 = 0, NULL, named_struct('a', int(id), 'l', array(named_struct('b', "
        "'{0}' || id), NULL))) AS p, map('{0}', array(1, NULL), 'n', NULL) AS m, timestamp_seconds(id) AS u FROM range"
    )
    clauses = (
        "ON t.id = s.id WHEN MATCHED AND s.k = 0 THEN DELETE WHEN MATCHED AND s.k = 1 THEN UPDATE SET * "
        "WHEN MATCHED THEN UPDATE SET p = s.p, m = map(), u = s.u, id = s.id, k = 5 WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.k = 2 THEN DELETE"
    )
    names = [kind.create(columns) for _ in range(2)]
    for name in names:
        sql(f"INSERT INTO {name} {rows.format('old')}(20)")
        statement = merge(lake, name, clauses, f"{rows.format('new')}(10, 30)")
        assert broadcasts(lake, statement)
        if name is names[0]:
            assert sql(statement).rows_inserted == 10
        else:
            with mock.patch.object(row_level, "send_source", return_value=ThroughSpark(reason="the test says so")):
                sql(statement)
    assert repr(lake.rows(names[0])) == repr(lake.rows(names[1]))
    assert lake.session.verify(names[0], every_file=True).ok
    kept = "ON t.id = s.id WHEN MATCHED AND s.k = 0 THEN UPDATE SET k = 7 WHEN MATCHED THEN UPDATE SET *"
    assert not broadcasts(lake, merge(lake, names[0], kept, f"{rows.format('new')}(10)"))


def test_columns_that_are_called_as_functions(lake: Lake) -> None:
    """`current_date` is a column where there is one; `k0` and the like mean nothing of ours."""
    name = lake.create("id INT, v DATE, current_date DATE")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, NULL, DATE '2000-01-01')")
    source = "VALUES (1, DATE '2010-01-01') AS s(id, d)"
    deletes = "ON t.id = s.id WHEN MATCHED AND s.d < current_date THEN DELETE"
    assert lake.session.sql(merge(lake, name, deletes, source)).rows_deleted == 0
    lake.session.sql(merge(lake, name, "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = current_date", source))
    assert lake.rows(f"SELECT v = DATE '2000-01-01' FROM {name}") == [(True,)]
    wrong = "ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (k0)"
    with pytest.raises(AnalysisError, match="k0"):
        lake.session.sql(merge(lake, name, wrong, "VALUES (7) AS s(id)"))


def test_sources_that_are_others_each_time_are_evaluated_once(lake: Lake) -> None:
    """Every key is in the table, so nothing is inserted, also where Spark joins."""
    name = lake.create("id INT, v STRING")
    lake.session.sql(f"INSERT INTO {name} SELECT int(id), 'a' FROM range(50)")
    source = "SELECT int(50 * double(reflect('java.lang.Math', 'random'))) AS id, 'x' AS v FROM VALUES (1)"
    clauses = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = initcap(t.v || s.v) WHEN NOT MATCHED THEN INSERT *"
    for _ in range(3):
        assert lake.session.sql(merge(lake, name, clauses, source)).rows_inserted == 0


def test_long_rows_are_not_asked_of_the_driver(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long is not sent before it is known how long it is; nor is it taken where no clause wants it."""
    name = lake.create("id INT, v STRING", **{"format-version": "2", "write.merge.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT int(id % 2), 'a' FROM range(500)")
    asked: list[int] = []
    collected = sent_source.arrow_table

    def measured(frame: DataFrame) -> pa.Table:
        table = collected(frame)
        asked.append(table.nbytes)
        return table

    monkeypatch.setattr(sent_source, "arrow_table", measured)
    source = "SELECT int(id) AS id, repeat('x', 7000000 + int(id)) AS v FROM range(1, 5, 1, 2)"
    clauses = "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    result = lake.session.sql(merge(lake, name, clauses, source))
    assert (result.rows_deleted, result.rows_inserted) == (250, 3)
    assert 0 < max(asked) < 1000
    few = "SELECT int(id) AS id, repeat('y', 100000) AS v FROM range(2)"
    updates = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    assert lake.session.sql(merge(lake, name, updates, few)).rows_updated == 250
    assert max(asked) > 100_000


def test_conditions_of_very_many_parts(lake: Lake) -> None:
    name = filled(Kind(lake=lake, version=2, mode="copy-on-write", partitioned=False))
    parts = " AND ".join(f"t.id <> {number}" for number in range(100, 700))
    for clauses in (f"AND {parts} WHEN MATCHED THEN DELETE", f"WHEN MATCHED AND {parts} THEN DELETE"):
        statement = merge(lake, name, f"ON t.id = s.id {clauses}", SOURCE.replace("range(20, 60)", "range(21, 22)"))
        assert not broadcasts(lake, statement)
