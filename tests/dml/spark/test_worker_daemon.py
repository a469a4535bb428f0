"""The daemon of Python workers: what it loads before it forks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dml.spark.worker_daemon import PRELOADED

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


@pytest.mark.spark
def test_workers_are_forked_with_it(spark) -> None:
    def command_line(batches):
        for batch in batches:
            parent = Path(f"/proc/{__import__('os').getppid()}/cmdline").read_bytes()
            yield batch.slice(0, 0) if b"dml.spark.worker_daemon" not in parent else batch

    if not Path("/proc").is_dir():
        pytest.skip("no /proc on this system")
    assert spark.range(3).mapInArrow(command_line, "id BIGINT").count() == 3
