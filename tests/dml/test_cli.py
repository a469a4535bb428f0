"""The command line, as its users see it."""

import os
import subprocess
import sys
import time

import pytest

from dml.cli import main
from dml.spark import interception


def dml(*arguments, **environment):
    """Runs `python -m dml` outside the checkout."""
    command = [sys.executable, "-P", "-m", "dml", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env=os.environ | environment, timeout=180
    )


def test_help_answers_at_once_and_loads_no_spark():
    began = time.perf_counter()
    outcome = dml("--help")
    assert outcome.returncode == 0
    assert "sql" in outcome.stdout
    assert "demo" in outcome.stdout
    assert time.perf_counter() - began < 5
    program = "import sys, dml.cli; assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyiceberg')]"
    subprocess.run([sys.executable, "-P", "-c", program], check=True, cwd="/")


def test_the_version_is_that_of_the_package():
    assert dml("--version").stdout.strip() == "0.1.0"


def test_a_machine_without_java_is_told_in_one_line(tmp_path):
    outcome = dml("--warehouse", str(tmp_path), "sql", "SELECT 1", JAVA_HOME=str(tmp_path), COLUMNS="500")
    assert outcome.returncode == 1
    assert "there is no Java in it" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1


def test_a_property_without_a_value_is_refused(tmp_path):
    outcome = dml("--property", "uri", "sql", "SELECT 1")
    assert outcome.returncode == 1
    assert "KEY=VALUE" in outcome.stderr


@pytest.mark.spark
def test_statements_print_rows_and_facts_and_errors(spark, tmp_path, monkeypatch, capsys):
    """One table through its life; in this process, so that all commands share its Spark session."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dml", "--warehouse", str(tmp_path / "warehouse"), "sql", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    try:
        assert run("CREATE NAMESPACE db")[0] == 0
        assert run("CREATE TABLE db.t AS SELECT id, id % 2 = 0 AS even FROM range(4)")[0] == 0
        code, out, _ = run("DELETE FROM db.t WHERE id = 3", "--format", "csv")
        assert (code, out.splitlines()[-1]) == (0, "1,0,1,0")
        code, out, _ = run("SELECT * FROM db.t ORDER BY id", "--format", "json")
        rows = ['{"id": 0, "even": true}', '{"id": 1, "even": false}', '{"id": 2, "even": true}']
        assert (code, out.splitlines()) == (0, rows)
        code, _, err = run("DELETE FROM db.t WHERE idd = 1")
        assert code == 1
        assert "idd" in err
        assert "Traceback" not in err
    finally:
        interception.disable(spark)
