"""`remove_orphan_files` by SQL and from Python, on tables that statements have written."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import dml
from dml.errors import AnalysisError, DmlError, NotFoundError, NotSupportedError, SqlError
from dml.sqlparse import parse
from dml.sqlparse.statements import UnknownStatement

pytestmark = pytest.mark.spark

OLD = time.time() - 10 * 86_400


def age(folder: Path) -> None:
    """Let all files be ten days old."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (OLD, OLD))


def stray(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
    os.utime(path, (OLD, OLD))
    return path


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def call(lake, arguments: str) -> set[str]:
    """The names of the orphans that a CALL returns, which are also its decisions `delete` if it is a dry run."""
    rows = lake.session.sql(f"CALL system.remove_orphan_files({arguments})").collect()
    found = [row.orphan_file_location for row in rows if row.orphan_file_location is not None]
    assert all(tuple(row) == (row.orphan_file_location,) for row in rows if len(row) == 1)
    if rows and len(rows[0]) > 1:
        assert rows[0].asDict().keys() == {"orphan_file_location", "decision", "object", "reason"}
        assert found == [row.object for row in rows if row.decision == "delete"]
        assert {row.decision for row in rows if row.orphan_file_location is None} == {"keep"}
    return {location.rpartition("/")[2] for location in found}


def test_every_kind_of_table_keeps_all_it_needs(balanced_kind):
    """Both versions and modes: deletes, updates, merges, branches, staged snapshots; a failed statement's files go."""
    lake, session = balanced_kind.lake, balanced_kind.lake.session
    name = balanced_kind.filled_alone()
    table = lake.table(name)
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "v1").create_branch(first, "audit").commit()
    session.sql(f"DELETE FROM {name} WHERE id IN (1, 5)")
    session.sql(f"UPDATE {name} SET s = 'new' WHERE id = 6")
    session.sql(f"UPDATE {name}.branch_audit SET s = 'audited' WHERE id = 2")
    session.sql(
        f"MERGE INTO {name} t USING (SELECT 8L AS id, 2 AS k UNION ALL SELECT 99L, 9) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, s.k, 'merged')"
    )
    session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    session.spark.conf.set("spark.wap.id", f"staged-{name}")
    try:
        session.sql(f"DELETE FROM {name} WHERE id = 7")
    finally:
        session.spark.conf.unset("spark.wap.id")
    staged = max(lake.table(name).metadata.snapshots, key=lambda snapshot: snapshot.sequence_number).snapshot_id
    folder = lake.folder(name)
    age(folder)
    needed = files(folder)
    queries = [name, f"{name}.branch_audit", f"{name}.tag_v1", f"SELECT * FROM {name} VERSION AS OF {staged}"]
    before = [lake.rows(query) for query in queries]
    # What a driver that died leaves behind: files of tasks, manifests, a metadata file that was never published.
    left = {stray(folder / f"data/{part}.parquet") for part in ("00000-1-dead-00001", "k=1/00001-2-dead-00001-deletes")}
    left |= {stray(folder / "metadata" / part) for part in ("dead-m0.avro", "snap-1-0-dead.avro")}
    assert call(lake, f"'{name}'") == {path.name for path in left}
    assert files(folder) == needed
    assert [lake.rows(query) for query in queries] == before
    assert call(lake, f"table => '{name}'") == set()


def test_the_files_of_a_failed_statement_are_found(lake, monkeypatch):
    """Files that no abort could delete: the commit failed, and the storage refused to delete."""
    name = lake.create("id BIGINT, s STRING", **{"commit.status-check.min-wait-ms": "1"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    folder = lake.folder(name)
    before = files(folder)
    monkeypatch.setattr("dml.engine.writes.delete_files", lambda io, locations: tuple(locations))
    monkeypatch.setattr("dml.write.output_files.delete_files", lambda io, locations: tuple(locations))
    with pytest.raises(DmlError):
        lake.session.sql(f"INSERT INTO {name} SELECT id, CAST(raise_error('boom') AS STRING) FROM range(10, 20)")

    def refuse(*_arguments, **_options):
        raise ValueError("the catalog is down")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    with pytest.raises(DmlError):
        lake.session.sql(f"INSERT INTO {name} VALUES (2, 'b')")
    monkeypatch.undo()
    left = files(folder) - before
    assert any(path.suffix == ".parquet" for path in left)
    age(folder)
    assert call(lake, f"'{name}'") == {path.name for path in left}
    assert files(folder) == before
    assert lake.rows(name) == [(1, "a")]


def test_arguments_by_name_and_by_place(lake):
    """All that the reference takes, in its order; expressions are Spark's."""
    name = lake.create("id BIGINT")
    folder = lake.folder(name)
    for part in ("data/a.parquet", "metadata/b.avro"):
        stray(folder / part)
    (folder / "data/young.parquet").write_bytes(b"")
    both, everything = {"a.parquet", "b.avro"}, {"a.parquet", "b.avro", "young.parquet"}
    assert call(lake, f"'{name}', TIMESTAMP '2999-01-01', '{folder}/metadata', true") == {"b.avro"}
    assert call(lake, f"table => '{name}', dry_run => true") == both
    assert call(lake, f"dry_run => 1 = 1, table => concat('{name[:2]}', '{name[2:]}')") == both
    assert (
        call(lake, f"'lake.{name}', dry_run => true, older_than => current_timestamp() + INTERVAL 1 DAY") == everything
    )
    assert call(lake, f"'{name}', dry_run => true, older_than => current_timestamp() - INTERVAL 20 DAYS") == set()
    assert call(lake, f"'{name}', dry_run => true, older_than => '2999-01-01', location => NULL") == everything
    assert call(lake, f"'{name}', dry_run => true, older_than => DATE '1999-01-01'") == set()
    options = "map('hdfs,viewfs', 'file'), map('a', 'b'), 'ignore'"
    assert call(lake, f"'{name}', NULL, NULL, true, 2, NULL, {options}") == both
    assert call(lake, f"'{name}', max_concurrent_deletes => 1") == both
    assert not (folder / "data/a.parquet").exists()
    assert (folder / "data/young.parquet").exists()


def test_the_time_is_that_of_the_session(lake):
    """A timestamp without a zone, in SQL and in Python."""
    name = lake.create("id BIGINT")
    path = stray(lake.folder(name) / "data/a.parquet")
    os.utime(path, (1_700_000_000, 1_700_000_000))  # 2023-11-14 22:13:20 UTC
    conf = lake.session.spark.conf
    before = conf.get("spark.sql.session.timeZone")
    conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert call(lake, f"'{name}', TIMESTAMP '2023-11-15 07:13:20', dry_run => true") == set()
        assert call(lake, f"'{name}', TIMESTAMP '2023-11-15 07:13:21', dry_run => true") == {"a.parquet"}
        written, later = (datetime.fromisoformat(f"2023-11-15T07:13:{second}") for second in (20, 21))
        assert lake.session.remove_orphan_files(name, written, dry_run=True) == ()
        assert len(lake.session.remove_orphan_files(name, later, dry_run=True)) == 1
    finally:
        conf.set("spark.sql.session.timeZone", before)


def test_python_calls_and_spark_sql(lake):
    """The method, the function of the module, and Spark's own `sql`."""
    name = lake.create("id BIGINT")
    path = stray(lake.folder(name) / "data/a.parquet")
    location = (f"{lake.table(name).location()}/data/a.parquet",)
    older = datetime.now(UTC) - timedelta(days=5)
    assert lake.session.remove_orphan_files(name, older, None, True) == location
    assert dml.remove_orphan_files(f"lake.{name}", dry_run=True, prefix_mismatch_mode="IGNORE") == location
    spark = lake.session.spark
    for procedure in ("system", "lake.system"):
        rows = spark.sql(f"CALL {procedure}.remove_orphan_files(table => '{name}', dry_run => true)").collect()
        assert [(row.orphan_file_location,) for row in rows if row.decision == "delete"] == [location]
    assert path.exists()
    assert lake.session.remove_orphan_files(name) == location
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("'{t}', TIMESTAMP '2999-01-01'", AnalysisError, "less than 24 hours"),
        ("older_than => TIMESTAMP '2020-01-01'", AnalysisError, "'table' is missing"),
        ("", AnalysisError, "'table' is missing"),
        ("NULL", AnalysisError, "'table' is NULL"),
        ("table => CAST(NULL AS STRING), dry_run => true", AnalysisError, "'table' is NULL"),
        ("'{t}', older_than => 'abc'", AnalysisError, "'older_than' is 'abc'"),
        ("tabel => '{t}'", AnalysisError, "no parameter 'tabel'"),
        ("'{t}', table => '{t}'", AnalysisError, "'table' is given twice"),
        ("'{t}', dry_run => 'yes'", AnalysisError, "'dry_run' has the type string"),
        ("'{t}', older_than => 5", AnalysisError, "'older_than' has the type int"),
        ("'{t}', max_concurrent_deletes => 0", AnalysisError, "max_concurrent_deletes should have value > 0"),
        ("'{t}', prefix_mismatch_mode => 'maybe'", AnalysisError, "prefix_mismatch_mode is 'maybe'"),
        ("'{t}', file_list_view => 'v'", NotSupportedError, "does not take 'file_list_view'"),
        ("'{t}', prefix_listing => true", NotSupportedError, "does not take 'prefix_listing'"),
        ("'{t}', location => '/'", AnalysisError, "no folder of the table"),
        ("'db.nope'", NotFoundError, "no table 'db.nope'"),
        ("'{t}.snapshots'", NotSupportedError, "orphan files are those of the whole table"),
        ("'not a name'", AnalysisError, "is not a valid table name"),
        ("'{t}', (SELECT 1)", AnalysisError, "not a constant"),
        ("'{t}', nope", AnalysisError, "nope"),
        ("'{t}' 1", SqlError, "1"),
        ("'{t}', dry_run => true, 'x'", SqlError, "positional argument follows"),
        ("1,2,3,4,5,6,7,8,9,10,11,12", AnalysisError, "takes 11 arguments"),
    ],
)
def test_mistakes_are_told_with_their_place(lake, arguments, error, message):
    """And nothing is deleted."""
    name = lake.create("id BIGINT")
    path = stray(lake.folder(name) / "data/a.parquet")
    with pytest.raises(error, match=message) as raised:
        lake.session.sql(f"CALL system.remove_orphan_files({arguments.replace('{t}', name)})")
    assert raised.value.position is not None
    assert path.exists()


def test_other_procedures_are_sparks(lake):
    """As before."""
    assert isinstance(parse("CALL system.no_such_procedure('db.t')"), UnknownStatement)
    assert isinstance(parse("CALL other.function(1)"), UnknownStatement)
    name = lake.create("id BIGINT")
    with pytest.raises(NotSupportedError, match=r"There is no procedure 'system.no_such_procedure'"):
        lake.session.sql(f"CALL system.no_such_procedure('{name}')")
    with pytest.raises(NotSupportedError, match="Did you mean 'remove_orphan_files'") as raised:
        lake.session.sql(f"CALL lake.system.remove_orphan_file('{name}')")
    assert raised.value.position == len("CALL ")
