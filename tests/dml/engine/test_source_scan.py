"""MERGE whose source is a query of one of our tables: RowDelta's scan reads what Spark would have read."""

import random
from itertools import product
from unittest import mock

import pytest

from dml import limits
from dml.engine import row_level, sent_source
from dml.errors import DataError, ErrorKind
from dml.plan.row_delta_plan import ThroughSpark
from dml.result import Result
from tests.lake import Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP, price DECIMAL(9, 2), ok BOOLEAN, st STRUCT<a: INT>"
ROW = (
    "SELECT id, int(id % 3) AS k, CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL ELSE id / 4 END AS d, "
    "nullif(concat('n', id % 13), 'n3') AS s, timestamp_seconds(id * 3600) AS at, "
    "CAST(id / 8 AS DECIMAL(9, 2)) AS price, nullif(id % 4, 3) = 1 AS ok, named_struct('a', int(id)) AS st"
)
SCANNED = "source: read by RowDelta's own scan"
UPSERT = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k, s = s.s WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"

CASES = """
{source}
ON t.id = s.id WHEN MATCHED AND s.ok THEN DELETE WHEN MATCHED THEN UPDATE SET k = s.k, d = s.d, s = s.s, at = s.at

(SELECT * FROM {source} WHERE abs(x) > 3)
ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE
WHEN MATCHED AND op = 'u' THEN UPDATE SET s = 'new', d = s.x, price = s.price, ok = s.ok
WHEN NOT MATCHED AND op <> 'd' THEN INSERT (id, s, k) VALUES (s.id, upper(s.op), DEFAULT)

(SELECT id, k + 1 AS k, d / 2 AS d, upper(s) AS s, at, op, x * 2L AS x, CAST(NULL AS INT) AS n, 1.5 AS c
FROM {source} AS o WHERE length(o.op) = 1 OR o.op IS NULL)
ON t.id = s.id AND t.k <> s.k AND t.d >= s.d WHEN MATCHED THEN UPDATE SET d = t.d + s.d, s = concat(s.s, '!'), k = s.n
WHEN NOT MATCHED AND s.x > 20 AND s.s IS NOT NULL THEN INSERT (id, at, price, d) VALUES (-s.id, s.at, s.c, s.x)

{source} AS s(id, m, e, u, w, p, q, h, v, r)
ON t.id = s.id AND t.s <=> s.u WHEN MATCHED THEN UPDATE SET k = CASE WHEN s.v > 0 THEN s.m ELSE -1 END
WHEN NOT MATCHED AND s.h IN ('i', 'u') THEN INSERT (id, k, d, s, at) VALUES (s.id, s.m, s.e, lower(s.u), s.w)

((SELECT id, coalesce(k, 7) AS K, x FROM {source} WHERE coalesce(s, op) = 'n4' OR x + k < -3 OR d = double('NaN')))
ON T.ID = S.ID WHEN MATCHED THEN UPDATE SET K = S.K WHEN NOT MATCHED BY SOURCE AND t.k = 2 THEN DELETE

(SELECT k AS id, max AS k FROM (SELECT int(id) AS max, k FROM {source} WHERE id = 22))
ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k

(SELECT id, initcap(s) AS s, k FROM {source} WHERE x > 0)
ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s

{source}
ON t.id = s.id WHEN MATCHED THEN UPDATE SET st = s.st, s = initcap(s.s)

{source} VERSION AS OF {first}
ON t.id = s.id AND t.price = s.price WHEN MATCHED THEN DELETE
WHEN NOT MATCHED THEN INSERT (id, price) VALUES (id, price)

(SELECT id, x FROM {source} WHERE CASE WHEN x > 0 THEN k ELSE x END = 2)
ON t.k = s.x WHEN MATCHED THEN UPDATE SET k = 5

(SELECT id, k + 2147483647 AS k FROM {source} WHERE k = 0)
ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k

(SELECT id, x, k FROM {source})
ON t.id = s.id WHEN MATCHED AND s.x < 0 THEN UPDATE SET k = s.k + 1
WHEN MATCHED AND s.x >= 2 THEN UPDATE SET k = s.x - 2147483648

(SELECT id FROM {source} WHERE false)
ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
WHEN NOT MATCHED BY SOURCE AND k = 1 THEN DELETE

{source}
ON t.id = s.id AND s.op IS NOT NULL WHEN MATCHED AND (t.k = 1 OR s.ok) AND NOT (s.d IS NULL AND t.k = 2) THEN DELETE
WHEN MATCHED AND (t.s IS NULL OR NOT s.ok OR s.price IS NULL) THEN UPDATE SET d = s.x

(SELECT *, upper(s) AS y, 'z' AS _file FROM {source})
ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.y
""".strip().split("\n\n")
NOT_SCANNED = {5, 6, 7, 14}
"""Cases whose source only Spark can compute."""


def tables(lake: Lake) -> tuple[str, str, str]:
    """Return a copy of a table, a source, and the source's first snapshot.

    The source has deleted rows, and files with a column under an older name. Half of its rows have a partner.
    """

    def new_target() -> str:
        name = lake.create(COLUMNS)
        for start in (0, 20):
            lake.session.sql(f"INSERT INTO {name} {ROW} FROM range({start}, {start + 20})")
        return name

    def new_source() -> tuple[str, str]:
        columns = COLUMNS.replace("st STRUCT<a: INT>", "op STRING, x INT, st STRUCT<a: INT>")
        name = lake.create(columns.replace("s STRING", "old STRING"), **{"write.delete.mode": "merge-on-read"})
        op = "element_at(array('d', 'u', 'i', NULL), int(id % 4) + 1) AS op, int(id) - 30 AS x"
        row = ROW.replace("named_struct", f"{op}, named_struct")
        lake.session.sql(f"INSERT INTO {name} {row} FROM range(20, 40)")
        first = lake.table(name).current_snapshot().snapshot_id
        lake.session.sql(f"ALTER TABLE {name} RENAME COLUMN old TO s")
        lake.session.sql(f"INSERT INTO {name} {row} FROM range(40, 60)")
        lake.session.sql(f"DELETE FROM {name} WHERE id % 9 = 4")
        return name, str(first)

    source, first = lake.once("source of test_source_scan", new_source)
    return lake.copy_of("target of test_source_scan", new_target), source, first


def merge(target: str, case: str, source: str, first: str) -> str:
    query, clauses = case.format(source=source, first=first).split("\nON", 1)
    alias = "" if " AS s(" in query else " s"
    return f"MERGE INTO {target} t USING {query}{alias} ON{clauses}"


def is_scanned(lake: Lake, statement: str) -> bool:
    return SCANNED in lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]


def outcome(lake: Lake, statement: str, target: str) -> tuple[object, ...]:
    """Return the counts of a statement or its error, and the rows after it."""
    try:
        result = lake.session.sql(statement)
    except DataError as error:
        return error.kind, repr(lake.rows(target))
    assert isinstance(result, Result)
    counts = (result.rows_matched, result.rows_updated, result.rows_deleted, result.rows_inserted)
    assert lake.session.verify(target, every_file=True).ok
    return counts, repr(lake.rows(target))


def by_spark(lake: Lake, case: str) -> tuple[object, ...]:
    """Return the outcome if Spark reads the source and joins."""
    target, source, first = tables(lake)
    with mock.patch.object(row_level, "send_source", return_value=ThroughSpark(reason="the test says so")):
        return outcome(lake, merge(target, case, source, first), target)


ALWAYS = (1, 2, 4, 10, 11, 13, 14)
"""The cases that are run with every change, read by the driver and by tasks in turn."""


@pytest.mark.parametrize(
    ("place", "here"),
    by_night(
        list(product(range(len(CASES)), (True, False))),
        lambda case: case[0] in ALWAYS and case[1] is (ALWAYS.index(case[0]) % 2 == 0),
    ),
)
def test_a_scanned_source_is_what_spark_reads(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: int, here: bool
) -> None:
    """The driver reads small files, and tasks read others."""
    if not here:
        monkeypatch.setattr(limits, "MAX_DRIVER_SOURCE_BYTES", 0)
    target, source, first = tables(lake)
    statement = merge(target, CASES[place], source, first)
    scanned = mock.Mock(side_effect=sent_source.scanned_columns)
    with monkeypatch.context() as patch:
        patch.setattr(sent_source, "scanned_columns", scanned)
        found = outcome(lake, statement, target)
    assert scanned.called is (place not in NOT_SCANNED)
    expected = lake.once((by_spark, place), lambda: by_spark(lake, CASES[place]))
    assert found == expected
    assert place in {5, 10, 11, 12} or any(found[0])


VALUES = (
    "k",
    "x + 1",
    "x * k",
    "length(s)",
    "coalesce(k, x)",
    "-x",
    "CASE WHEN ok THEN k ELSE x END",
    "id % 7",
    "k / 2",
)
CONDITIONS = (
    "abs(x) > 8",
    "x % 3 = 1",
    "length(s) = 2",
    "NOT ok",
    "d > 3 OR s IS NULL",
    "coalesce(op, 'x') IN ('x', 'u')",
    "lower(s) >= 'n1'",
    "CASE WHEN k = 0 THEN x ELSE k END > 1",
    "price BETWEEN 3 AND 6",
)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_random_sources(lake: Lake, seed: int) -> None:
    chosen = random.Random(seed)
    conditions = f" {chosen.choice(('AND', 'OR'))} ".join(f"({chosen.choice(CONDITIONS)})" for _ in range(2))
    case = (
        f"(SELECT id, s, op, {chosen.choice(VALUES)} AS v, {chosen.choice(VALUES)} AS w FROM {{source}} "
        f"WHERE {conditions})\nON t.id = s.id AND t.k {chosen.choice(('<', '>=', '<>'))} s.v "
        f"WHEN MATCHED AND s.w > 3 THEN DELETE WHEN MATCHED THEN UPDATE SET d = s.w, s = upper(s.s) "
        f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, d) VALUES (s.id, s.v)"
    )
    target, source, first = tables(lake)
    statement = merge(target, case, source, first)
    assert is_scanned(lake, statement), statement
    assert outcome(lake, statement, target) == by_spark(lake, case), statement


def test_a_source_that_is_the_table_itself_or_has_no_rows(lake: Lake) -> None:
    target, _, _ = tables(lake)
    clauses = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k + 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    statement = f"MERGE INTO {target} t USING (SELECT id, k FROM {target} WHERE id % 2 = 0) s {clauses}"
    assert is_scanned(lake, statement)
    assert lake.session.sql(statement).rows_updated == 20
    empty = lake.create("id BIGINT, k INT")
    statement = f"MERGE INTO {target} t USING {empty} s {clauses}"
    assert is_scanned(lake, statement)
    assert lake.session.sql(statement).rows_matched == 0


def test_limits_and_errors_are_those_of_other_sources(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    target, source, _ = tables(lake)
    twice = f"MERGE INTO {target} t USING (SELECT k AS id, x FROM {source}) s ON t.id = s.id WHEN MATCHED THEN"
    with pytest.raises(DataError) as caught:
        lake.session.sql(f"{twice} UPDATE SET k = s.x")
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION
    statement = f"MERGE INTO {target} t USING {source} s {UPSERT}"
    for here in (True, False):
        monkeypatch.setattr(limits, "MAX_DRIVER_SOURCE_BYTES", 2**20 if here else 0)
        for most, sent in ((0, False), (100, False), (2**20, True)):
            monkeypatch.setattr(row_level, "most_sent", lambda *_, most=most: most)
            assert is_scanned(lake, statement) is sent


def test_long_texts_are_left_to_sparks_join(lake: Lake) -> None:
    """Each row of the target that matches would get a copy."""
    target, _, _ = tables(lake)
    for length, is_sent in ((1000, True), (2000, False)):
        source = lake.create("id BIGINT, s STRING")
        lake.session.sql(f"INSERT INTO {source} VALUES (1, repeat('x', {length}))")
        statement = f"MERGE INTO {target} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s"
        assert is_scanned(lake, statement) is is_sent
        assert lake.session.sql(statement).rows_updated == 1


@pytest.mark.parametrize("most", [0, 8])
def test_the_driver_reads_few_files(lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(limits, "MAX_DRIVER_SOURCE_FILES", most)
    reading = mock.Mock(side_effect=sent_source.TaskReader)
    monkeypatch.setattr(sent_source, "TaskReader", reading)
    target, source, _ = tables(lake)
    assert is_scanned(lake, f"MERGE INTO {target} t USING {source} s {UPSERT}")
    assert reading.called is (most > 0)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("(SELECT id, initcap(s) AS s, k FROM {source})", "INITCAP"),
        ("(SELECT DISTINCT id, s, k FROM {source})", "not a simple SELECT"),
        ("(SELECT id, s, max(k) AS k FROM {source} GROUP BY ALL)", "not a simple SELECT"),
        ("(SELECT a.id, a.s, a.k FROM {source} a JOIN {source} b ON a.id = b.id)", "not a simple SELECT"),
        ("(SELECT id, s, k FROM {source} WHERE rand() < 2)", "RAND"),
        ("(SELECT id, string(x) AS s, bigint(k) AS k FROM {source} WHERE _pos >= 0)", "_pos"),
        ("(SELECT 7L AS id, 's' AS s, 3 AS k)", "reads no table"),
    ],
)
def test_explain_says_why_spark_reads_a_source(lake: Lake, query: str, reason: str) -> None:
    target, source, _ = tables(lake)
    statement = f"MERGE INTO {target} t USING {query.format(source=source)} s {UPSERT}"
    plan = lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]
    (line,) = (line for line in plan.splitlines() if line.startswith("  source: "))
    assert line.startswith("  source: through Spark, because ")
    assert reason.lower() in line.lower()
