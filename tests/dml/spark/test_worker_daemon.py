"""The daemon of Python workers: what it loads before it forks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dml.spark.worker_daemon import PRELOADED, exit_quietly

REPORT = """
import importlib, json, os, sys
for module in {modules}: importlib.import_module(module)
loaded = set(sys.modules)
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
print(json.dumps([threads, sorted({{"numpy", "pyarrow", "pandas"}} & loaded)]))
"""


def test_what_is_loaded_before_a_fork_starts_no_thread() -> None:
    report = REPORT.format(modules=PRELOADED)
    outcome = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert json.loads(outcome.stdout) == [1, []]


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_task_that_was_cut_short_is_no_error(error: type[OSError]) -> None:
    def broken(*_: object) -> int:
        raise error

    assert exit_quietly(broken)(None, True) == 1


def test_other_errors_and_exit_codes_stay() -> None:
    def failing(*_: object) -> int:
        raise OSError("disk")

    assert exit_quietly(lambda *_: 7)(None, True) == 7
    with pytest.raises(OSError, match="disk"):
        exit_quietly(failing)(None, True)


CUT_SHORT = """
from dml.spark.launch import spark_session
spark = spark_session(settings={"spark.master": "local[2]", "spark.ui.enabled": "false"})
def many(batches):
    for batch in batches:
        for _ in range(2000):
            yield batch
rows = spark.range(0, 20000, 1, 2).mapInArrow(many, "id BIGINT").limit(1).collect()
print(len(rows))
"""


@pytest.mark.spark
def test_a_limit_leaves_no_traceback_on_the_terminal() -> None:
    outcome = subprocess.run([sys.executable, "-c", CUT_SHORT], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "1"
    assert "Traceback" not in outcome.stderr
    assert "BrokenPipe" not in outcome.stderr


@pytest.mark.spark
def test_workers_are_forked_with_it(spark) -> None:
    def command_line(batches):
        for batch in batches:
            parent = Path(f"/proc/{__import__('os').getppid()}/cmdline").read_bytes()
            yield batch.slice(0, 0) if b"dml.spark.worker_daemon" not in parent else batch

    if not Path("/proc").is_dir():
        pytest.skip("no /proc on this system")
    assert spark.range(3).mapInArrow(command_line, "id BIGINT").count() == 3
