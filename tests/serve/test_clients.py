"""Clients of `dml serve` that have no RowDelta: Spark Connect from Python, and JDBC."""

import csv
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from dml import limits, serve
from tests.serve.conftest import CLIENT, CLIENT_SECONDS, START_SECONDS, Served, command, said

pytestmark = pytest.mark.spark

BEELINE = "org.apache.hive.beeline.BeeLine"


PARTS = ("statements", "calls", "types_as_text", "errors", "sessions", "together", "interrupt")


@pytest.fixture(scope="module")
def outcomes(served: Served) -> dict[str, str]:
    """What became of each part, all of them in one process: a client takes seconds to load PySpark."""
    return dict(json.loads(served.run(*PARTS).splitlines()[-1]))


@pytest.mark.parametrize("part", PARTS)
def test_a_client_without_rowdelta(part: str, outcomes: dict[str, str]) -> None:
    """What each part asks for stands in the client's program."""
    assert outcomes[part] == "done", outcomes[part]


def beeline(served: Served, text: str) -> tuple[list[list[str]], str]:
    """The rows that beeline prints, and its errors."""
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    options = ["-u", served.jdbc_url, "-n", "tests", "--silent=true", "--outputformat=csv2", "--showHeader=false"]
    outcome = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, BEELINE, *options, "--force=true", "-e", text],
        capture_output=True,
        text=True,
        check=False,
        timeout=CLIENT_SECONDS,
    )
    return [row for row in csv.reader(io.StringIO(outcome.stdout)) if row], outcome.stderr


def test_beeline_runs_every_kind_of_statement_once(served: Served) -> None:
    """Which is Hive's own JDBC client. One table is named without the catalog, which is the one that is served.

    The files of the other each go their own way.
    """
    merge = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    rows, errors = beeline(
        served,
        "CREATE NAMESPACE bare;"
        "CREATE TABLE bare.t AS SELECT id FROM range(3);"
        "DELETE FROM bare.t WHERE id = 1;"
        "SELECT count(*) FROM lake.bare.t;"
        "CREATE NAMESPACE IF NOT EXISTS lake.jdbc;"
        "CREATE TABLE lake.jdbc.t (id BIGINT, s STRING) "
        "TBLPROPERTIES ('write.auto.enabled' = 'true', 'write.auto.max-deleted-ratio' = '0.6');"
        "CREATE TABLE lake.jdbc.u (id BIGINT, s STRING);"
        "INSERT INTO lake.jdbc.t VALUES (1, 'a'), (2, 'b');"
        "INSERT INTO lake.jdbc.u VALUES (2, 'new'), (3, 'new');"
        "DELETE FROM lake.jdbc.t WHERE id = 1;"
        f"MERGE INTO lake.jdbc.t t USING lake.jdbc.u u ON t.id = u.id {merge};"
        "SHOW TABLES IN lake.jdbc;"
        "USE lake.jdbc;"
        "SELECT * FROM t ORDER BY id;"
        "SELECT count(*) FROM t.snapshots;",
    )
    assert rows[-11:-9] == [["1", "0", "1", "0"], ["2"]], errors
    assert rows[-9:] == [
        ["2", "0", "0", "2"],
        ["2", "0", "0", "2"],
        ["1", "0", "1", "0"],
        ["2", "1", "0", "1"],
        ["jdbc", "t", "false"],
        ["jdbc", "u", "false"],
        ["2", "new"],
        ["3", "new"],
        ["3"],
    ], errors


def test_beeline_is_told_what_is_wrong(served: Served) -> None:
    """With our message."""
    rows, errors = beeline(served, "DELETE FROM lake.jdbc.nothing;")
    assert rows == []
    assert "NotFoundError: There is no table 'lake.jdbc.nothing'" in errors


def test_only_who_has_the_token_comes_in_and_the_server_ends_when_it_is_told(
    client_python: Path, tmp_path: Path
) -> None:
    """Spark's own authentication; no command line has the token. By what service managers send it ends well."""
    token = "t0ken-of-the-test"
    secret = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    with started(tmp_path, **secret) as (process, log):
        url = said(log, r"\"(sc://[^\"]+)\"")()
        assert java_commands()
        assert not [line for line in java_commands() if token in line]
        outcome = subprocess.run(
            [str(client_python), str(CLIENT), url, "token"],
            capture_output=True,
            text=True,
            check=True,
            timeout=CLIENT_SECONDS,
            env={"PATH": "/usr/bin:/bin", "RIGHT_TOKEN": token},
        )
        found = outcome.stdout.splitlines()
        assert found[2] == "[(1,)]", found
        assert all(line.startswith("refused") for line in found[:2]), found
        assert_ends_well(process, signal.SIGTERM, log)
        assert token not in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_server_handles_the_signals_that_end_it(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_running_until_the_signal() -> bool:
        signal.raise_signal(number)
        return True

    @contextmanager
    def stub(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(is_running=is_running_until_the_signal)

    monkeypatch.setattr(serve, "serving", stub)
    monkeypatch.setattr(serve, "connection_lines", lambda _: ())
    monkeypatch.setattr(limits, "SERVER_POLL_SECONDS", 0.01)
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda *_: pytest.fail("the server does not handle it")) for one in both]
    try:
        output = io.StringIO()
        assert serve.run(serve.Listen(), output) == 0
        assert "Stopping" in output.getvalue()
    finally:
        for one, handler in zip(both, before, strict=True):
            signal.signal(one, handler)


@pytest.mark.nightly
def test_a_server_ends_well_by_ctrl_c(tmp_path: Path) -> None:
    """With every change a server ends so by SIGTERM, and its handler of both signals is called."""
    with started(tmp_path) as (process, log):
        assert_ends_well(process, signal.SIGINT, log)


def assert_ends_well(process: subprocess.Popen[bytes], number: signal.Signals, log: Path) -> None:
    """With exit code 0."""
    process.send_signal(number)
    assert process.wait(120) == 0, log.read_text()
    assert "Stopping" in log.read_text()


@contextmanager
def started(folder: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A server that serves, and its log."""
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(folder, "--port", "0"),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    try:
        ready = said(log, r"(Spark Connect:)")
        for _ in range(START_SECONDS * 5):
            try:
                ready()
                break
            except LookupError:
                assert process.poll() is None, log.read_text()
                with_pause(process)
        yield process, log
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def java_commands() -> list[str]:
    """The command lines of Spark's processes, which every user of the machine can read."""
    outcome = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True)
    return [line for line in outcome.stdout.splitlines() if "org.apache.spark.deploy.SparkSubmit" in line]


def with_pause(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment, or until the process has ended."""
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return
