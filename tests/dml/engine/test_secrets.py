"""Secrets among a catalog's properties are in nothing that statements show, log or write, done or failed."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.errors import DmlError
from dml.session import runner_of
from tests.dml.catalog.test_secrets import PLACES, SECRET, told

pytestmark = pytest.mark.spark


def test_statements_show_log_and_write_no_secret(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Reprs, plans, results, summaries, all files of the table, logs, output, errors with their causes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    folder = tmp_path / "warehouse"
    session = dml.connect(str(folder), spark=spark, progress=False, **PLACES)
    session.disable()
    catalog = session.registry.catalogs["lake"]
    # What goes between Python and the JVM is logged nowhere else than at py4j's own DEBUG, and is not ours.
    caplog.set_level(logging.INFO, logger="py4j")
    with caplog.at_level(logging.DEBUG):
        session.sql("CREATE NAMESPACE db")
        session.sql("CREATE TABLE db.t (id BIGINT, s STRING) TBLPROPERTIES ('format-version' = '3', "
                    "'write.delete.mode' = 'merge-on-read', 'commit.status-check.min-wait-ms' = '1')")  # fmt: skip
        done = [session.sql("INSERT INTO db.t SELECT id, 's' FROM range(4)"), session.delete("db.t", "id = 1")]
        frame = session.table("db.t")
        shown = [frame._jdf.queryExecution().toString(), repr(frame), repr(frame.collect())]
        statement = "MERGE INTO db.t t USING db.t s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'x'"
        shown += [repr(row) for row in session.sql(f"EXPLAIN {statement}").collect()]
        for text in ("SHOW CREATE TABLE db.t", "SHOW TBLPROPERTIES db.t", "SELECT * FROM db.t.snapshots"):
            shown += [repr(row) for row in session.sql(text).collect()]
        table = catalog.load_table(("db", "t"))
        objects = (session, session.registry, runner_of(session).engine, catalog, table, table.io, *done)
        shown += [repr(one) for one in objects] + [str(one) for one in objects]
        shown.append(repr(table.metadata))

        def failing(text: str) -> str:
            with pytest.raises(DmlError) as raised:
                session.sql(text)
            return told(raised.value)

        shown += [failing("UPDATE db.t SET s = raise_error('no')"), failing("DELETE FROM db.t WHERE nothing = 1")]
        shown += [failing("DELETE FROM db.none WHERE id = 1"), failing("DELETE FROM db.t WHERE")]

        def lost(*arguments: object) -> None:
            raise OSError(f"no connection to http://user:{SECRET}@host as {SECRET}")

        with monkeypatch.context() as patched:
            patched.setattr(catalog, "commit_table", lost)
            shown.append(failing("DELETE FROM db.t WHERE id = 2"))
        files = [
            path for path in folder.rglob("*") if path.is_file() and path.suffix in {".parquet", ".avro", ".puffin"}
        ]
        next(path for path in files if path.suffix == ".parquet").write_bytes(b"PAR1")
        shown.append(failing("UPDATE db.t SET s = 'x'"))
    shown += [caplog.text, *capfd.readouterr()]
    assert [text[max(0, text.index(SECRET) - 500) :][:600] for text in shown if SECRET in text] == []
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 8
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
