"""The command line, as its users see it: in a process of its own where that counts, otherwise in that of the tests."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import Row, SparkSession

from dml import cli
from dml.cli import main, procedure_command
from dml.engine.procedures import PROCEDURES
from dml.errors import AnalysisError
from dml.session import ACTIVE
from dml.shell import plain, print_rows
from dml.spark import interception, lazy_session

FULL_DISK = Path("/dev/full")
OWN_COMMANDS = {"health", "maintain", "verify"}
"""Procedures whose commands are not generated."""


def dml(*arguments, stdin=b"", stdout=subprocess.PIPE, **environment):
    """Runs `python -m dml` outside the checkout."""
    outcome = subprocess.run(
        [sys.executable, "-P", "-m", "dml", *arguments],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        cwd="/",
        env=os.environ | environment,
        timeout=180,
    )
    outcome.stdout, outcome.stderr = (outcome.stdout or b"").decode(), outcome.stderr.decode()
    return outcome


@pytest.fixture
def without_spark(monkeypatch, capsys) -> Callable[..., SimpleNamespace]:
    """Run a command in this process, as if Spark had not started; it fails the test if it starts Spark."""
    monkeypatch.setattr(lazy_session, "active_session", lambda: None)
    monkeypatch.setattr(lazy_session, "active_context", lambda: None)
    monkeypatch.setattr(lazy_session, "spark_session", lambda **_: pytest.fail("the command starts Spark"))
    # A session that has not started replaces `getOrCreate`; this restores it afterwards.
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", SparkSession.Builder.getOrCreate)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["dml", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        for session in tuple(ACTIVE):
            session.close()
        shown = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=shown.out, stderr=shown.err)

    return run


@pytest.fixture
def closed_pipe():
    """The writing end of a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield stream
        with contextlib.suppress(BrokenPipeError):
            stream.flush()


def is_one_error(outcome):
    """Whether a command ended with one line that says what is wrong."""
    return outcome.returncode == 1 and outcome.stderr.startswith("Error: ") and outcome.stderr.count("\n") == 1


def test_help_answers_at_once_and_loads_no_spark():
    began = time.perf_counter()
    outcome = dml("--help")
    assert outcome.returncode == 0
    assert "sql" in outcome.stdout
    assert "demo" in outcome.stdout
    assert "./warehouse" in outcome.stdout
    assert time.perf_counter() - began < 5
    program = (
        "import sys, dml.cli; sys.argv = ['dml', '--help']\ntry: dml.cli.main()\n"
        "finally: assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyiceberg')]"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, cwd="/", stdout=subprocess.DEVNULL)


def test_the_version_is_that_of_the_package():
    assert dml("--version").stdout.strip() == "0.2.0"


def test_every_procedure_is_a_command_with_its_parameters(without_spark):
    """They are generated, without Spark; a procedure whose effect would end with the command has none."""
    lines = without_spark("procedures").stdout.splitlines()
    commands = {name: procedure for name, procedure in PROCEDURES.items() if not procedure.in_session}
    assert [line.partition(":")[0].replace("-", "_") for line in lines] == list(commands)
    for name, procedure in commands.items():
        if name not in OWN_COMMANDS:
            options = {option.name for option in procedure_command(name).params}
            wanted = {parameter.name for parameter in procedure.parameters if parameter.rejection is None}
            assert options == {*wanted, "output", "limit"}, name
            required = {parameter.name for parameter in procedure.parameters if parameter.required}
            arguments = [one for one in procedure_command(name).params if one.param_type_name == "argument"]
            assert {argument.name for argument in arguments} == required, name
    without_help = [
        (name, one.name) for name in commands for one in commands[name].parameters if not (one.doc or one.rejection)
    ]
    assert without_help == [], "a parameter has no text for the help"


def test_the_help_lists_the_procedures_with_their_summaries(without_spark, monkeypatch):
    """It has a list of its own, because the declarations load Spark."""
    shown = {name: text for panel in cli.PROCEDURES.values() for name, text in panel.items()}
    hidden = {"migrate", *OWN_COMMANDS}  # it is always refused
    declared = {name: one.summary for name, one in PROCEDURES.items() if not one.in_session and name not in hidden}
    assert shown == {name.replace("_", "-"): summary for name, summary in declared.items()}
    monkeypatch.setenv("COLUMNS", "200")
    outcome = without_spark("--help")
    for panel, commands in cli.PROCEDURES.items():
        listed = outcome.stdout.partition(f"─ {panel} ─")[2].partition("╰")[0]
        assert all(f"{name} " in listed and text in listed for name, text in commands.items()), panel


def test_a_machine_without_java_is_told_in_one_line(tmp_path):
    arguments = ("--warehouse", str(tmp_path), "sql", "CREATE NAMESPACE db; SELECT 1")
    outcome = dml(*arguments, JAVA_HOME=str(tmp_path), COLUMNS="500")
    assert outcome.returncode == 1
    created, error = outcome.stderr.strip().splitlines()
    assert created.startswith("Created a new warehouse")
    assert "there is no Java in it" in error


def test_a_property_without_a_value_is_refused(without_spark):
    outcome = without_spark("--property", "uri", "sql", "SELECT 1")
    assert outcome.returncode == 1
    assert "KEY=VALUE" in outcome.stderr


def test_a_property_without_a_name_is_refused(without_spark):
    outcome = without_spark("--property", "=c", "sql", "SELECT 1")
    assert is_one_error(outcome)
    assert "'=c' has no name" in outcome.stderr


def test_a_wrong_budget_is_a_wrong_option_and_refused_before_spark_starts(without_spark, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    outcome = without_spark("--warehouse", str(tmp_path), "maintain", "db.t", "--budget", "5")
    assert outcome.returncode == 2
    assert "The budget is '5'" in outcome.stderr


def test_a_reader_that_has_gone_ends_the_program_quietly(closed_pipe):
    for unbuffered in ("", "1"):  # the write fails at the end, or at once
        outcome = dml("--version", stdout=closed_pipe, PYTHONUNBUFFERED=unbuffered)
        assert (outcome.returncode, outcome.stderr) == (141, "")


@pytest.mark.skipif(not FULL_DISK.exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_in_one_line():
    for unbuffered in ("", "1"):
        with FULL_DISK.open("w") as full:
            outcome = dml("--version", stdout=full, PYTHONUNBUFFERED=unbuffered)
        assert is_one_error(outcome)
        assert "Standard output cannot be written: No space left on device" in outcome.stderr


def test_bytes_that_are_no_utf8_are_refused_before_spark_starts(without_spark):
    """On the command line in every locale; under C without UTF-8 mode Python keeps such bytes as lone surrogates."""
    outcome = without_spark("sql", "-", stdin=b"DELETE FROM db.t WHERE v = '\xff\xfe'")
    assert is_one_error(outcome)
    assert "standard input is not valid UTF-8, at byte 29" in outcome.stderr
    for locale in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        outcome = dml("sql", b"SELECT '\xff'", **locale)
        assert is_one_error(outcome)
        assert "The command line is not valid text" in outcome.stderr


def test_statements_come_from_one_place_and_wrong_ones_are_found_before_spark_starts(without_spark, tmp_path):
    script = tmp_path / "script.sql"
    script.write_bytes(b"\xef\xbb\xbfSELECT 1;\nDELETE FORM db.t;\n")
    for arguments, stdin, message in (
        (("sql", "-f", str(script)), b"", "line 2, column 8"),
        (("sql",), script.read_bytes(), "Statement 2 of 2 failed; no statement ran"),
        (("sql", "-f", "-"), script.read_bytes(), "Statement 2 of 2 failed; no statement ran"),
        (("shell",), script.read_bytes(), "Statement 2 of 2 failed; no statement ran"),
        (("sql", "-f", str(tmp_path / "no.sql")), b"", "no.sql' cannot be read: No such file"),
        (("sql", "-f", "json", "SELECT 1"), b"", "Write --format to choose how rows are printed"),
        (("sql", "SELECT 1", "-f", str(script)), b"", "Use one of them"),
    ):
        outcome = without_spark(*arguments, stdin=stdin)
        assert outcome.returncode == 1
        assert message in outcome.stderr


def test_a_misspelled_statement_is_refused_before_spark_starts(without_spark, tmp_path):
    assert without_spark("--warehouse", str(tmp_path), "sql", "CREATE NAMESPACE db").returncode == 0
    outcome = without_spark("--warehouse", str(tmp_path), "sql", "SELEC 1;")
    assert outcome.returncode == 1
    assert "Unexpected 'SELEC' (line 1, column 1)" in outcome.stderr
    assert "Did you mean SELECT?" in outcome.stderr


def test_only_a_text_that_creates_something_creates_a_warehouse(without_spark, tmp_path):
    """A path that does not exist may be a typo."""
    folder = tmp_path / "warehuose"
    for arguments in (("sql", "SELECT * FROM db.t"), ("sql", "SELECT 1; DROP TABLE db.t"), ("verify", "db.t")):
        outcome = without_spark("--warehouse", str(folder), *arguments)
        assert is_one_error(outcome)
        assert f"There is no warehouse in {folder}. Check --warehouse" in outcome.stderr
        assert not folder.exists()
    for text in ("CREATE NAMESPACE db", "SHOW NAMESPACES; create namespace other"):
        outcome = without_spark("--warehouse", str(folder), "sql", text)
        assert outcome.returncode == 0
        assert folder.exists()
    other = ("--catalog", "warehuose", "--property", "uri=http://127.0.0.1:9", "sql", "SELECT 1")
    assert "There is no warehouse" not in without_spark(*other).stderr


def test_json_refuses_two_values_of_one_name():
    """The later one would replace the earlier one; CSV has no such trouble."""
    for printed in (
        lambda: print_rows(["a", "b", "a"], [], "json", io.StringIO()),
        lambda: plain(Row("a", "a")(1, 2)),
    ):
        with pytest.raises(AnalysisError, match=r"Two values are named 'a'.*AS"):
            printed()
    target = io.StringIO()
    print_rows(["a", "a"], [Row("1", "2")], "csv", target)
    assert target.getvalue() == "a,a\n1,2\n"


@pytest.mark.spark
def test_statements_print_rows_and_facts_and_errors(spark, tmp_path, monkeypatch, capsys, closed_pipe):
    """One table through its life; in this process, so that all commands share its Spark session."""

    def run(*arguments, command="sql"):
        monkeypatch.setattr(sys, "argv", ["dml", "--warehouse", str(tmp_path / "warehouse"), command, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    try:
        code, _, err = run("CREATE NAMESPACE db")
        assert (code, err) == (0, f"Created a new warehouse in {tmp_path / 'warehouse'}\n")
        script = tmp_path / "create.sql"
        script.write_text("CREATE TABLE db.t AS SELECT id, id % 2 = 0 AS even FROM range(4);\nSELECT 'é' AS a\n")
        code, out, err = run("-f", str(script), "--format", "csv")
        assert (code, out.splitlines()[-2:], err) == (0, ["a", "é"], "")
        code, out, _ = run("DELETE FROM db.t WHERE id = 3", "--format", "csv")
        assert (code, out.splitlines()[-1]) == (0, "1,0,1,0")
        keyed = ("INSERT INTO db.t VALUES (3, false)", "--idempotency-key", "k", "--format", "json")
        results = [json.loads(run(*keyed)[1]) for _ in range(2)]
        assert [result["replayed"] for result in results] == [False, True]
        assert run("DELETE FROM db.t WHERE id = 3")[0] == 0
        code, out, _ = run("db.t", command="verify")
        assert (code, "all agrees" in out) == (0, True)
        code, out, _ = run("db.t", command="health")
        assert (code, "Health of lake.db.t" in out, max(map(len, out.splitlines())) <= 80) == (0, True, True)
        page = tmp_path / "health.html"
        code, out, _ = run("db.t", "--json", "--html", str(page), command="health")
        assert (code, json.loads(out)["files"]["rows"], "Health of lake.db.t" in page.read_text()) == (0, 3, True)
        code, out, _ = run("db.t", "--format", "json", command="ancestors-of")
        history = [json.loads(line)["snapshot_id"] for line in out.splitlines()]
        assert (code, len(history)) == (0, 4)
        first = ("db.t", str(history[-1]), "--format", "csv")
        code, out, _ = run(*first, command="rollback_to_snapshot")
        assert (code, out) == (0, f"previous_snapshot_id,current_snapshot_id\n{history[0]},{history[-1]}\n")
        assert run("db.t", "--snapshot-id", str(history[0]), command="set-current-snapshot")[0] == 0
        options = ("db.t", "--dry-run", "--older-than", "2000-01-01 00:00:00", "--equal-schemes", "s3,s3a=s3")
        code, out, _ = run(*options, "--format", "csv", command="remove-orphan-files")
        lines = out.splitlines()
        assert (code, lines[0]) == (0, "orphan_file_location,decision,object,reason")
        assert re.fullmatch(r",keep,\d+ files,the table's metadata needs them", lines[-1])
        code, out, _ = run(*options, command="remove-orphan-files")
        assert (code, "orphan_file_location" in out, "metadata needs them" in out) == (0, False, True)
        expired = (
            "db.t",
            "--dry-run",
            "--older-than",
            "2000-01-01 00:00:00",
            "--snapshot-ids",
            "5",
            "--snapshot-ids",
            "6",
        )
        code, out, _ = run(*expired, "--format", "csv", command="expire-snapshots")
        skipped = [line.removesuffix(",the table has no such snapshot") for line in out.splitlines()[-8:-6]]
        assert (code, skipped) == (0, [",,,,,,skip,snapshot 5", ",,,,,,skip,snapshot 6"])
        for arguments, command, status, message in (
            (("db.t", "--equal-schemes", "s3"), "remove-orphan-files", 1, "Write --equal-schemes KEY=VALUE"),
            (("db.t", "soon"), "rollback-to-timestamp", 1, "It must be a timestamp"),
            (("db.t",), "rollback-to-snapshot", 2, "'snapshot_id'"),
            (("db.t", "soon"), "rollback-to-snapshot", 2, "'snapshot_id'"),
            (("db.t",), "roll-back", 2, "roll-back"),
        ):
            code, out, err = run(*arguments, command=command)
            assert (code, message in err) == (status, True), err
        for file in tmp_path.rglob("*.parquet"):
            file.unlink()
        code, out, _ = run("db.t", "--every-file", "--format", "json", command="verify")
        assert (code, json.loads(out)["ok"]) == (1, False)
        assert run("CREATE OR REPLACE TABLE db.t AS SELECT id, id % 2 = 0 AS even FROM range(3)")[0] == 0
        code, out, _ = run("SELECT * FROM db.t ORDER BY id", "--format", "json")
        rows = ['{"id": 0, "even": true}', '{"id": 1, "even": false}', '{"id": 2, "even": true}']
        assert (code, out.splitlines()) == (0, rows)
        code, _, err = run("DELETE FROM db.t WHERE idd = 1")
        assert code == 1
        assert "idd" in err
        assert "Traceback" not in err
        code, out, err = run("SELECT 1 AS a, 2 AS a", "--format", "json")
        assert (code, out) == (1, "")
        assert "Two values are named 'a'" in err
        code, out, err = run("DELETE FROM db.t WHERE id = 1; SELECT id FROM db.t ORDER BY id", "--format", "csv")
        assert (code, out.splitlines()[1:]) == (0, ["1,0,1,0", "id", "0", "2"])
        code, out, err = run("SELECT 1 AS a; SELECT b FROM db.t; SELECT 2", "--format", "csv")
        assert (code, out.splitlines()) == (1, ["a", "1"])
        assert "Statement 2 of 3 failed; 1 statement ran before it" in err
        code, out, err = run("SELECT 1; SELECT 2", "--idempotency-key", "k")
        assert (code, "several statements in one text" in err) == (1, True)
        monkeypatch.setattr(sys, "stdout", closed_pipe)
        code, _, err = run("SELECT id, repeat('x', 1000) FROM range(100)", "--format", "csv")
        assert (code, err) == (141, "")
    finally:
        interception.disable(spark)
