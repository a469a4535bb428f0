"""What a small change from the command line must not load: its time is almost all imports (decision 064)."""

import json
import os
import subprocess
import sys

import pytest

UNUSED = (
    # of others
    "fsspec",
    "jinja2",
    "pandas",
    "prompt_toolkit",
    "pyiceberg.catalog.rest",
    "pyspark.pandas",
    "pyspark.sql.connect",
    "requests",
    "sqlglot.optimizer.optimizer",
    # for other statements, and for sessions of Spark
    "dml.connector.install",
    "dml.connector.state",
    "dml.engine.maintain",
    "dml.engine.procedures",
    "dml.maintenance",
    "dml.merge_stream",
    "dml.metadata_tables.tables",
    "dml.patches",
    "dml.spark_connect.calls",
    "dml.spark_scan.scan",
    "dml.streaming",
    "dml.table_health",
    "dml.verification",
)

STATEMENTS = """
    CREATE NAMESPACE db;
    CREATE TABLE db.t (id INT, name STRING);
    INSERT INTO db.t VALUES (1, 'a'), (2, 'b'), (3, 'c');
    DELETE FROM db.t WHERE id = 1;
    UPDATE db.t SET name = upper(name) WHERE id = 2;
    MERGE INTO db.t AS t USING (VALUES (3, 'z'), (4, 'd')) AS s(id, name) ON t.id = s.id
      WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""

PROGRAM = """
import atexit, gc, json, sys
atexit.register(lambda: print(json.dumps({"tracked at exit": len(gc.get_objects())})))
from dml.cli import main
try:
    main()
except SystemExit as end:
    print(json.dumps({"code": end.code, "modules": sorted(sys.modules)}))
import pandas, pyarrow
print(json.dumps(pyarrow.Table.from_pandas(pandas.DataFrame({"a": [1]})).to_pylist()))
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What a process prints that runs the statements; there is no Java for it."""
    folder = tmp_path_factory.mktemp("cold")
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, "--warehouse", str(folder / "w"), "sql", "--format", "json", STATEMENTS],
        env=os.environ | {"TZ": "UTC", "JAVA_HOME": "/nowhere"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_small_changes_load_only_what_they_use(lines):
    *results, ended, _, _ = lines
    assert [(one["rows_deleted"], one["rows_updated"], one["rows_inserted"]) for one in results] == [
        (0, 0, 3),
        (1, 0, 0),
        (0, 1, 0),
        (0, 1, 1),
    ]
    assert ended["code"] == 0
    loaded = set(ended["modules"])
    assert {"dml.engine.by_tasks", "pyarrow.dataset"} <= loaded
    assert sorted(loaded & set(UNUSED)) == []


def test_a_command_can_still_load_pandas_and_its_exit_collects_nothing(lines):
    *_, rows, at_exit = lines
    assert rows == [{"a": 1}]
    assert at_exit["tracked at exit"] < 1000
