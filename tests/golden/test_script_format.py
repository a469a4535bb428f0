"""The format of golden scripts: what is written is what is checked, and slips are errors."""

from pathlib import Path

import pyarrow as pa
import pytest

from dml.options import RowLevelOperationMode
from tests.golden.script import Combination, ExpectationKind, Script, ScriptError, parse_script
from tests.golden.values import rendered_rows

SCRIPT = """-- ids: C1, D2
-- A sentence.
-- partitioned by: dep
-- formats: 1, 2

CREATE TABLE db.t (id INT,
                   dep STRING);

-- A comment.
DELETE FROM db.t WHERE dep = ';';
--> result: rows_deleted=1, mode=metadata
--> snapshot [merge-on-read v2]: operation=delete
--> rows
--|   1   | a b
--| NULL |  c
"""
MERGE_ON_READ = Combination(version=2, mode=RowLevelOperationMode.MERGE_ON_READ, partitioning=None)
COPY_ON_WRITE = Combination(version=2, mode=RowLevelOperationMode.COPY_ON_WRITE, partitioning="dep")


def written(folder: Path, text: str) -> Script:
    path = folder / "script.sql"
    path.write_text(text, encoding="utf-8")
    return parse_script(path)


def test_a_script_is_read_as_written(tmp_path: Path) -> None:
    script = written(tmp_path, SCRIPT)
    assert script.ids == ("C1", "D2")
    create, delete = script.steps
    assert create.sql == "CREATE TABLE db.t (id INT,\n                   dep STRING)"
    assert (create.line, delete.line) == (6, 10)
    assert delete.sql == "DELETE FROM db.t WHERE dep = ';'"
    result, snapshot, rows = delete.expectations
    assert result.pairs == {"rows_deleted": "1", "mode": "metadata"}
    assert snapshot.words == {"merge-on-read", "v2"}
    assert rows.rows == ("1 | a b", "NULL | c")


def test_expectations_hold_only_for_their_combinations(tmp_path: Path) -> None:
    delete = written(tmp_path, SCRIPT).steps[1]
    assert delete.expected(MERGE_ON_READ.words, ExpectationKind.SNAPSHOT)
    assert not delete.expected(COPY_ON_WRITE.words, ExpectationKind.SNAPSHOT)
    assert delete.expected(COPY_ON_WRITE.words, ExpectationKind.ROWS)


def test_version_1_is_run_copy_on_write_only(tmp_path: Path) -> None:
    combinations = written(tmp_path, SCRIPT).combinations
    assert {c.mode for c in combinations if c.version == 1} == {RowLevelOperationMode.COPY_ON_WRITE}
    assert len(combinations) == 6


def test_few_combinations_hold_all_that_a_script_says(tmp_path: Path) -> None:
    """What is the default, what differs from it in everything, and what an expectation is about besides."""
    plain = SCRIPT.replace("formats: 1, 2", "formats: 2, 3").replace("[merge-on-read v2]", "")
    expected = {
        (plain, 0): ["v2-copy-on-write", "v3-merge-on-read-partitioned"],
        (plain, 1): ["v2-copy-on-write-partitioned", "v3-merge-on-read"],
        (SCRIPT.replace("1, 2", "2, 3"), 0): ["v2-copy-on-write", "v2-merge-on-read", "v3-merge-on-read-partitioned"],
        (SCRIPT, 0): ["v1-copy-on-write-partitioned", "v2-copy-on-write", "v2-merge-on-read-partitioned"],
        (plain.replace("formats: 2, 3", "formats: 3"), 0): ["v3-copy-on-write", "v3-merge-on-read-partitioned"],
        (plain.replace("-- partitioned by: dep\n", ""), 1): ["v2-copy-on-write", "v3-merge-on-read"],
    }
    for (text, turn), names in expected.items():
        assert [str(one) for one in written(tmp_path, text).chosen_combinations(turn)] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM db.t;\n", "no ids"),
        ("-- ids: C1\nDELETE FROM db.t\n", "no semicolon"),
        ("-- ids: C1\n--> unchanged\n", "follows no statement"),
        ("-- ids: C1\nDELETE FROM db.t;\n--> unchangd\n", "not an expectation"),
        ("-- ids: C1\nDELETE FROM db.t;\n--> unchanged\n--| 1\n", "follows no rows"),
    ],
)
def test_slips_are_errors(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        written(tmp_path, text)


def test_values_have_one_form() -> None:
    table = pa.table(
        {
            "a": pa.array([None, 1], pa.int32()),
            "b": pa.array([float("nan"), -0.0]),
            "c": pa.array(["", "NULL"]),
            "d": pa.array([{"x": 1, "y": None}, None], pa.struct({"x": pa.int32(), "y": pa.string()})),
            "e": pa.array([[("k", [1, None])], None], pa.map_(pa.string(), pa.list_(pa.int32()))),
            "f": pa.array([b"\x00\xff", None]),
            "g": pa.array([0, 1], pa.timestamp("us", "UTC")),
        }
    )
    assert rendered_rows(table) == [
        "1 | -0.0 | 'NULL' | NULL | NULL | NULL | 1970-01-01 00:00:00.000001",
        "NULL | NaN | '' | {x: 1, y: NULL} | {k -> [1, NULL]} | X'00ff' | 1970-01-01 00:00:00",
    ]
