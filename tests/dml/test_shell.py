"""How values and results are printed."""

import datetime
import decimal
import io
import json
from dataclasses import replace

import pytest
from pyspark.sql import Row

from dml.ddl import DdlResult
from dml.result import PhaseSeconds, Result
from dml.shell import common_folder, plain, print_dry_run, print_result, print_rows, print_table, run_sql

RESULT = Result(
    command="DELETE",
    table="lake.db.t",
    mode="merge-on-read",
    rows_deleted=3,
    seconds=PhaseSeconds(plan=0.5),
    snapshot_id=7,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (decimal.Decimal("1.20"), "1.20"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (bytearray(b"\x00\xff"), "00ff"),
        (Row(a=1, b=Row(c=None)), {"a": 1, "b": {"c": None}}),
        ({datetime.date(2024, 1, 1): [1, None]}, {"2024-01-01": [1, None]}),
    ],
)
def test_values_become_ones_that_json_knows(value, expected):
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_json_is_one_object_a_line():
    target = io.StringIO()
    print_rows(["a", "b"], [Row(a=1, b="é\n"), Row(a=None, b="")], "json", target)
    assert [json.loads(line) for line in target.getvalue().splitlines()] == [{"a": 1, "b": "é\n"}, {"a": None, "b": ""}]


def test_csv_quotes_and_tells_null_by_an_empty_cell():
    target = io.StringIO()
    print_rows(["a", "b"], [Row(a=None, b='x,"y'), Row(a=1, b=[1, 2])], "csv", target)
    assert target.getvalue() == 'a,b\n,"x,""y"\n1,"[1, 2]"\n'


def test_a_result_is_told_in_every_format(capsys):
    target = io.StringIO()
    print_result(RESULT, "json", target)
    assert json.loads(target.getvalue())["rows_deleted"] == 3
    print_result(RESULT, "csv", target)
    assert target.getvalue().splitlines()[-1] == "3,0,3,0"
    print_result(RESULT, "table", target)
    assert "rows deleted" in capsys.readouterr().out


def test_values_that_look_like_markup_are_printed_as_they_are(capsys):
    print_table(["[/x]"], [Row(a="[red]a[/b] :heart:")])
    print_result(replace(RESULT, idempotency_key="[/k]"), "table", io.StringIO())
    out = capsys.readouterr().out
    assert all(text in out for text in ("[/x]", "[red]a[/b] :heart:", "[/k]"))


FOLDER = "file:///warehouse/db/t/"
DECISIONS = [
    Row(files=3, decision=None, object=None, reason=None),
    Row(files=None, decision="rewrite", object=f"{FOLDER}data/{'a' * 50}.parquet", reason="10 bytes, below 250"),
    Row(files=None, decision="keep", object=f"{FOLDER}metadata/b.avro", reason=f"like {FOLDER}metadata/c.avro " * 3),
]


def test_a_dry_run_in_a_pipe_has_one_line_for_each_decision(capsys, monkeypatch):
    """No value is cut."""
    monkeypatch.delenv("COLUMNS", raising=False)
    print_dry_run(["files", "decision", "object", "reason"], DECISIONS, 100)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].replace(" ", "") == "│files│3│"
    assert f"Paths are relative to {FOLDER}" in lines
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")][1:]
    assert rows == [
        ["rewrite", f"data/{'a' * 50}.parquet", "10 bytes, below 250"],
        ["keep", "metadata/b.avro", ("like metadata/c.avro " * 3).strip()],
    ]


def test_a_dry_run_in_a_narrow_terminal_has_reasons_below_objects(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_dry_run(["files", "decision", "object", "reason"], DECISIONS, 1)
    printed = capsys.readouterr()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.out.splitlines() if "│" in line]
    assert rows[1:] == [["rewrite", f"{'a' * 50}.parquet"], ["", "10 bytes, below 250"]]
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "The first 1 of 2 decisions" in printed.err


@pytest.mark.parametrize(
    ("objects", "folder"),
    [
        (["s3://b/t/data/a", "s3://b/t/data2/b", "3 files"], "s3://b/t/"),
        (["s3://b/t/data/a"], "s3://b/t/data/"),
        (["s3://b/t/a", "gs://b/t/a"], ""),
        (["k=1/a", "group 1 of k=1/j=2", "branch main"], ""),
        (["/t/a", "/u/b"], ""),
        (["s3://one/a", "s3://two/a"], ""),
    ],
)
def test_the_folder_that_paths_share(objects, folder):
    assert common_folder(objects) == folder


def test_a_table_breaks_long_values_and_cuts_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["a", "b"], [Row("x" * 50, "y" * 50)])
    out = capsys.readouterr().out
    assert (out.count("x"), out.count("y")) == (50, 50)


def test_a_terminal_too_narrow_for_the_columns_shows_each_row_as_a_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"column {number}" for number in range(40)]
    print_table(names, [[f"value {number}" for number in range(40)], [None] * 40])
    out = capsys.readouterr().out
    assert all(name in out for name in names)
    assert all(f"value {number}" in out for number in range(40))
    assert "row 2" in out
    print_table(names, [])
    assert "No rows. The columns are column 0, " in capsys.readouterr().out
    print_table([f"c{number}" for number in range(12)], [[1] * 12])  # narrow columns fit
    assert "row 1" not in capsys.readouterr().out


def test_values_cannot_control_the_terminal(capsys):
    print_table(["\x1b[2J"], [["a\rb\x1b[31m\x9b\tc"], ["two\nlines"]])
    out = capsys.readouterr().out
    assert r"\x1b[2J" in out
    assert r"a\x0db\x1b[31m\x9b\x09c" in out
    assert "\x1b" not in out
    assert "two\\nlines" not in out


def test_the_prompt_confirms_a_statement_that_returns_nothing(capsys, monkeypatch):
    """`CREATE` before Spark has started."""

    class Runner:
        def outcome(self, *_, **__):
            return DdlResult()

    monkeypatch.setattr("dml.shell.runner_of", lambda _: Runner())
    run_sql(None, "CREATE NAMESPACE db", output="table", limit=1, confirms=True)
    assert capsys.readouterr().out == "OK\n"
    run_sql(None, "CREATE NAMESPACE db", output="table", limit=1)
    assert capsys.readouterr().out == ""
