"""The daemon of Python workers: what it loads before it forks."""

import importlib
import json
import os
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path
from typing import Any

import pytest

from dml.spark.worker_daemon import PRELOADED, WITH_ARROW, exit_quietly, forget_zip_files, starts_no_threads

linux = pytest.mark.skipif(sys.platform != "linux", reason="NumPy and Arrow are preloaded on Linux")


def outcome_of(program: str, **environment: str) -> Any:
    """Run a program in a new process with an environment, and return the JSON that it prints."""
    others = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", program]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, env={**others, **environment})
    return json.loads(outcome.stdout)


PRELOAD = """
import json, os, random, sys
from dml.spark.worker_daemon import preload
preload()
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
loaded = sorted({"numpy", "pyarrow", "pandas"} & set(sys.modules))
drawn = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        numpy = sys.modules.get("numpy")
        os.write(write, json.dumps([numpy and float(numpy.random.random()), random.random()]).encode())
        os._exit(0)
    os.close(write)
    drawn.append(json.loads(os.read(read, 1000)))
print(json.dumps([threads, loaded, sorted(sys.modules), drawn]))
"""


def test_what_is_loaded_before_a_fork_starts_no_thread() -> None:
    threads, loaded, modules, _ = outcome_of(PRELOAD)
    assert (threads, loaded) == (1, [])
    assert set(PRELOADED) <= set(modules)


@linux
def test_neither_do_numpy_and_arrow_where_tasks_have_one_cpu() -> None:
    """Workers draw different random numbers all the same."""
    threads, loaded, modules, drawn = outcome_of(PRELOAD, OMP_NUM_THREADS="1")
    assert (threads, loaded) == (1, ["numpy", "pandas", "pyarrow"])
    assert {*PRELOADED, *WITH_ARROW} <= set(modules)
    assert len({number for pair in drawn for number in pair}) == 4


@pytest.mark.parametrize(
    ("openblas", "openmp", "expected"),
    [(None, None, False), (None, "2", False), (None, "1", True), ("1", "4", True), ("2", "1", False)],
)
def test_numpy_starts_threads_unless_it_is_given_one(
    monkeypatch: pytest.MonkeyPatch, openblas: str | None, openmp: str | None, expected: bool
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for key, value in (("OPENBLAS_NUM_THREADS", openblas), ("OMP_NUM_THREADS", openmp)):
        monkeypatch.delenv(key, raising=False)
        if value:
            monkeypatch.setenv(key, value)
    assert starts_no_threads() is expected
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not starts_no_threads()


def test_zip_files_are_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are imported from them as before."""
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("zipped_first", "zipped_second"):
            file.writestr(f"{name}.py", f"NAME = '{name}'")
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    assert importlib.import_module("zipped_first").NAME == "zipped_first"
    assert str(path) in sys.path_importer_cache
    forget_zip_files()
    assert str(path) not in sys.path_importer_cache
    listed: list[str] = []
    monkeypatch.setattr(zipimport, "_read_directory", listed.append)
    importlib.invalidate_caches()
    assert importlib.import_module("zipped_second").NAME == "zipped_second"
    assert not listed
    for name in ("zipped_first", "zipped_second"):
        del sys.modules[name]


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


@pytest.mark.spark
def test_workers_are_forked_with_it(spark) -> None:
    def command_line(batches):
        for batch in batches:
            parent = Path(f"/proc/{__import__('os').getppid()}/cmdline").read_bytes()
            yield batch.slice(0, 0) if b"dml.spark.worker_daemon" not in parent else batch

    if not Path("/proc").is_dir():
        pytest.skip("no /proc on this system")
    assert spark.range(3).mapInArrow(command_line, "id BIGINT").count() == 3
