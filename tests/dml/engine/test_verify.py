"""`verify` on tables of a session: whatever a statement did, its snapshot agrees with the files."""

import pytest

import dml
from dml.engine.procedures import PROCEDURES
from dml.sqlparse.catalog_statements import PROCEDURES as NAMES_OF_PROCEDURES
from tests.dml.engine.conftest import BALANCED, Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

MERGE = (
    "MERGE INTO {t} t USING (SELECT id FROM range(6, 15)) s ON t.id = s.id WHEN MATCHED AND t.id = 7 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, 9, 'new') "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
)
STATEMENTS = (
    "DELETE FROM {t} WHERE id IN (1, 5)",
    "UPDATE {t} SET s = concat(s, '!') WHERE id < 6",
    MERGE,
    "DELETE FROM {t} WHERE k = 9",
    "INSERT OVERWRITE {t} SELECT id, 0, 'all' FROM range(3)",
    "DELETE FROM {t} WHERE id = 1",
    "TRUNCATE TABLE {t}",
)


@pytest.mark.parametrize("balanced_kind", BALANCED, indirect=True, ids=str)
def test_every_statement_makes_a_snapshot_that_agrees_with_its_files(balanced_kind: Kind) -> None:
    lake, name = balanced_kind.lake, balanced_kind.filled()
    for statement in STATEMENTS:
        lake.session.sql(statement.replace("{t}", name))
    snapshots = lake.table(name).metadata.snapshots
    assert len(snapshots) == 3 + len(STATEMENTS)
    for snapshot in snapshots:
        found = lake.session.verify(name, snapshot.snapshot_id, every_file=True)
        assert found.ok, repr(found)
        assert any(count.name.startswith("rows ") for count in found.counts), repr(found)
        assert found.unverified == ()


def test_the_snapshot_is_that_of_the_name_or_of_the_id(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    assert lake.session.verify(name).snapshot_id is None
    first = lake.session.sql(f"INSERT INTO {name} VALUES (1)").snapshot_id
    table = lake.table(name)
    with table.manage_snapshots() as change:
        change.create_tag(first, "one").create_branch(first, "audit")
    second = lake.session.sql(f"INSERT INTO {name} VALUES (2)").snapshot_id
    branched = lake.session.sql(f"INSERT INTO {name}.branch_audit VALUES (3)").snapshot_id
    verified = [
        lake.session.verify(given).snapshot_id for given in (name, f"{name}.branch_audit", f"lake.{name}.tag_one")
    ]
    assert verified == [second, branched, first]
    assert lake.session.verify(name, first).table == f"lake.{name}"


def test_call_gives_numbers_and_problems_as_rows(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    first = lake.session.sql(f"INSERT INTO {name} VALUES (1), (2)").snapshot_id
    lake.session.sql(f"DELETE FROM {name} WHERE id = 1")
    rows = lake.rows(f"CALL system.verify(table => '{name}', snapshot_id => {first})")
    assert ("rows inserted, updated and carried", 2, 2, None) in rows
    assert all(problem is None for *_, problem in rows)
    for file in lake.folder(name).rglob("*.parquet"):
        file.unlink()
    problems = [problem for *_, problem in lake.rows(f"CALL lake.system.verify('{name}', NULL, true)") if problem]
    assert len(problems) == 2
    assert all("does not exist" in problem for problem in problems)
    with pytest.raises(dml.AnalysisError, match="verify has no parameter 'snapshotid'"):
        lake.session.sql(f"CALL system.verify(table => '{name}', snapshotid => 1)")
    with pytest.raises(dml.AnalysisError, match="a whole number"):
        lake.session.sql(f"CALL system.verify(table => '{name}', snapshot_id => 'x')")


def test_a_name_that_is_no_text_is_told_so(lake: Lake) -> None:
    session, name = lake.session, lake.create("id BIGINT NOT NULL, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>")
    source = session.spark.range(1)
    for call in (
        lambda: session.verify(None),
        lambda: session.remove_orphan_files(5),
        lambda: session.table(None),
        lambda: session.delete(None),
        lambda: session.update(None, {"id": 1}),
        lambda: session.merge_into(source, None, "id = id"),
    ):
        with pytest.raises(dml.AnalysisError, match="The name of a table is a text, not"):
            call()
    with pytest.raises(dml.AnalysisError, match="whole number, not str"):
        session.verify(name, "x")
    with pytest.raises(dml.AnalysisError, match="older_than is a datetime, not str"):
        session.remove_orphan_files(name, "2020-01-01")
    with pytest.raises(dml.AnalysisError, match="'l' is an array: only fields of structs"):
        session.sql(f"UPDATE {name} SET l.x = 5")
    with pytest.raises(dml.AnalysisError, match="'id' is not a struct and has no field 'x'"):
        session.sql(f"UPDATE {name} SET id.x = 5")
    session.sql(f"INSERT INTO {name} (id) VALUES (1)")
    session.spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    try:
        with pytest.raises(dml.AnalysisError, match="type VOID") as required:
            session.sql(f"UPDATE {name} SET id = NULL")
        assert required.value.hint == "The column is required: give it a value"
        with pytest.raises(dml.AnalysisError, match="type VOID") as optional:
            session.sql(f"UPDATE {name} SET s = NULL")
        assert optional.value.hint is not None
        assert "CAST" in optional.value.hint
    finally:
        session.spark.conf.unset("spark.sql.storeAssignmentPolicy")


def test_every_procedure_that_can_be_written_can_be_run() -> None:
    assert frozenset(PROCEDURES) == NAMES_OF_PROCEDURES


@pytest.mark.parametrize(
    ("given", "snapshot_id", "error", "message"),
    [
        ("nope", None, dml.NotFoundError, "no table 'nope'"),
        ("{t}", 17, dml.NotFoundError, "no snapshot 17"),
        ("{t}.branch_nope", None, dml.NotFoundError, "nope"),
        ("{t}.snapshots", None, dml.NotSupportedError, "metadata table"),
        ("a b;", None, dml.AnalysisError, "not a valid table name"),
    ],
)
def test_what_is_not_there_is_an_error(
    lake: Lake, given: str, snapshot_id: int | None, error: type[Exception], message: str
) -> None:
    name = lake.create("id BIGINT")
    with pytest.raises(error, match=message):
        lake.session.verify(given.replace("{t}", name), snapshot_id)
