"""The procedures of history on tables of a session: SQL, Python, what Spark has cached, and other catalogs' tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dml
from dml.result import Ancestor, BranchMove, CurrentSnapshot, PublishedSnapshot, RegisteredTable
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark


def head(lake: Lake, name: str) -> int | None:
    return lake.table(name).metadata.current_snapshot_id


def test_main_moves_and_all_else_stays(kind: Kind) -> None:
    """Back by id and by time, to any snapshot and to a tag; Spark's plans of the table follow."""
    lake, session, name = kind.lake, kind.lake.session, kind.filled()
    full = f"lake.{name}"
    first, second, third = (snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots)
    session.sql(f"ALTER TABLE {name} ADD COLUMN later STRING")
    session.sql(f"DELETE FROM {name} WHERE id = 9")
    fourth = head(lake, name)
    assert fourth is not None
    lake.table(name).manage_snapshots().create_tag(second, "v2").commit()
    cached = session.spark.table(full).cache()
    assert cached.count() == 11
    assert session.rollback_to_snapshot(name, third) == CurrentSnapshot(
        previous_snapshot_id=fourth, current_snapshot_id=third
    )
    assert (session.spark.table(full).count(), session.spark.table(full).columns[-1]) == (12, "later")
    assert lake.rows(
        f"CALL lake.system.rollback_to_snapshot(snapshot_id => {first}, table => concat('{name}', ''))"
    ) == [(third, first)]
    assert session.spark.table(full).count() == 4
    assert session.set_current_snapshot(name, fourth).current_snapshot_id == fourth
    assert session.spark.table(full).count() == 11
    committed = lake.table(name).metadata.snapshot_by_id(second)
    assert committed is not None
    time = datetime.fromtimestamp(committed.timestamp_ms / 1000, UTC)
    assert lake.rows(f"CALL system.rollback_to_timestamp('{full}', TIMESTAMP '{time:%Y-%m-%d %H:%M:%S.%f} UTC')") == [
        (fourth, first)
    ]
    assert session.set_current_snapshot(name, ref="v2") == CurrentSnapshot(
        previous_snapshot_id=first, current_snapshot_id=second
    )
    session.set_current_snapshot(name, fourth)
    assert session.rollback_to_timestamp(name, time + timedelta(milliseconds=1)).current_snapshot_id == second
    assert [(one.snapshot_id, one.timestamp) for one in session.ancestors_of(name)] == [
        (one.snapshot_id, one.timestamp_ms) for one in reversed(lake.table(name).metadata.snapshots[:2])
    ]
    assert session.ancestors_of(name, first) == (session.ancestors_of(name)[-1],)
    assert isinstance(session.ancestors_of(name)[0], Ancestor)
    session.spark.catalog.clearCache()
    assert lake.rows(f"SELECT max(id), max(later) FROM {name}") == [(7, None)]
    session.sql(f"INSERT INTO {name} VALUES (100, 1, 'after', 'x')")
    assert session.verify(name, every_file=True).ok
    # Moving to where main is changes nothing.
    before = lake.state(name)
    session.rollback_to_snapshot(name, session.ancestors_of(name)[0].snapshot_id)
    assert lake.state(name) == before


@pytest.mark.proves("H4")
def test_a_table_without_snapshots_has_no_ancestors(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    assert lake.session.ancestors_of(name) == ()
    assert lake.rows(f"CALL system.ancestors_of('{name}')") == []
    with pytest.raises(dml.NotFoundError, match="Cannot find snapshot: 5"):
        lake.session.ancestors_of(name, 5)
    with pytest.raises(
        dml.ValidationFailedError, match="Cannot roll back, no valid snapshot older than: 4102444800000"
    ):
        lake.session.rollback_to_timestamp(name, datetime(2100, 1, 1, tzinfo=UTC))


def test_staged_changes_are_published(balanced_kind: Kind) -> None:
    """By a move of main or as a new snapshot: rows, row lineage and counts agree with the files."""
    lake, session, name = balanced_kind.lake, balanced_kind.lake.session, balanced_kind.filled()
    session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")

    def stage(wap_id: str, *statements: str) -> int:
        session.spark.conf.set("spark.wap.id", wap_id)
        session.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            staged = [session.sql(statement) for statement in statements][-1]
            assert isinstance(staged, dml.Result)
            assert staged.snapshot_id is not None
            return staged.snapshot_id
        finally:
            session.spark.conf.unset("spark.wap.id")
            session.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

    moved = stage("update", f"UPDATE {name} SET s = 'checked' WHERE id = 1")
    assert session.publish_changes(name, "update") == PublishedSnapshot(
        source_snapshot_id=moved, current_snapshot_id=moved
    )
    appended = stage("rows", f"INSERT INTO {name} SELECT id, 7, 'staged' FROM range(20, 23)")
    late = stage("late", f"DELETE FROM {name} WHERE id = 4")
    session.sql(f"UPDATE {name} SET s = 'main' WHERE id = 2")
    published = session.cherrypick_snapshot(name, appended)
    assert published.current_snapshot_id == head(lake, name) != appended
    with pytest.raises(dml.ValidationFailedError, match="not append, dynamic overwrite, or fast-forward"):
        session.cherrypick_snapshot(name, late)
    replaced = stage("k = 7", f"INSERT OVERWRITE {name} VALUES (30, 7, 'replaced')")
    if balanced_kind.partitioned:
        session.sql(f"DELETE FROM {name} WHERE id = 8")
        assert session.publish_changes(f"lake.{name}", "k = 7").source_snapshot_id == replaced
        expected = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 30}
    else:
        session.sql(f"DELETE FROM {name} WHERE id = 8")
        with pytest.raises(dml.ValidationFailedError, match="not append, dynamic overwrite"):
            session.publish_changes(name, "k = 7")  # without partitions it replaced the whole table
        expected = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 20, 21, 22}
    rows = lake.rows(name)
    assert {row[0] for row in rows} == expected
    assert {row[2] for row in rows if row[0] in {1, 2}} == {"checked", "main"}
    assert session.verify(name, every_file=True).ok
    if balanced_kind.version == 3:
        (counts,) = lake.rows(f"SELECT count(_row_id), count(DISTINCT _row_id) FROM {name}")
        assert counts == (len(expected), len(expected))
    before = lake.state(name)
    with pytest.raises(dml.ValidationFailedError, match="wap id that was published already: rows"):
        session.cherrypick_snapshot(name, appended)
    assert lake.state(name) == before


def test_branches_move_forward(lake: Lake) -> None:
    name = lake.create("id BIGINT", **{"write.wap.enabled": "true", "commit.tag.creation": "commit"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    first = head(lake, name)
    called: list[dml.Result] = []
    stop = lake.session.after_commit(called.append)
    lake.session.spark.conf.set("spark.wap.branch", "audit")
    try:
        second = lake.session.sql(f"INSERT INTO {name} VALUES (2)").snapshot_id
    finally:
        lake.session.spark.conf.unset("spark.wap.branch")
    assert lake.session.fast_forward(name, "main", "audit") == BranchMove(
        branch_updated="main", previous_ref=first, updated_ref=second
    )
    assert lake.rows(f"CALL system.fast_forward('{name}', 'new', to => 'main')") == [("new", None, second)]
    stop()
    assert lake.rows(f"{name}.branch_new") == lake.rows(name) == [(1,), (2,)]
    assert [(one.command, one.branch, one.snapshot_id, one.rows_inserted) for one in called] == [
        ("INSERT", "audit", second, 1),
        ("FAST FORWARD", "main", second, 1),
    ]
    tags = {ref: one.snapshot_id for ref, one in lake.table(name).metadata.refs.items() if ref.startswith("commit-")}
    assert tags == {f"commit-{first}": first, f"commit-{second}": second}


def test_a_publication_marks_partitions_as_done(lake: Lake) -> None:
    """Staged rows mark none: they are not in main until they are published."""
    properties = {"write.wap.enabled": "true", "commit.mark-done.action": "success-file"}
    name = lake.create("id BIGINT, day DATE", "PARTITIONED BY (day)", **properties)

    def done() -> set[str]:
        return {path.parent.name for path in lake.folder(name).rglob("_SUCCESS")}

    for wap_id, day in (("moved", "2020-01-01"), ("picked", "2020-01-02")):
        lake.session.spark.conf.set("spark.wap.id", wap_id)
        try:
            lake.session.sql(f"INSERT INTO {name} VALUES (1, DATE '{day}')")
        finally:
            lake.session.spark.conf.unset("spark.wap.id")
    assert done() == set()
    called: list[dml.Result] = []
    stop = lake.session.after_commit(called.append)
    lake.session.publish_changes(name, "moved")
    assert done() == {"day=2020-01-01"}
    published = lake.session.publish_changes(name, "picked")
    assert published.source_snapshot_id != published.current_snapshot_id
    assert done() == {"day=2020-01-01", "day=2020-01-02"}
    stop()
    assert [(one.command, one.rows_inserted, one.data_files_added) for one in called] == [("PUBLISH CHANGES", 1, 1)] * 2


def test_a_table_is_registered_by_its_metadata_file(lake: Lake) -> None:
    name, new = lake.create("id BIGINT"), lake.new_name()
    empty = lake.table(name).metadata_location
    lake.session.sql(f"INSERT INTO {name} SELECT id FROM range(3)")
    location = lake.table(name).metadata_location
    rows = lake.rows(f"CALL lake.system.register_table('{new}', '{location}')")
    assert rows == [(head(lake, name), 3, len(lake.data_files(name)))]
    assert lake.rows(new) == [(0,), (1,), (2,)]
    other = lake.new_name()
    assert lake.session.register_table(other, empty) == RegisteredTable(
        current_snapshot_id=None, total_records_count=None, total_data_files_count=None
    )
    folder = lake.folder(name)
    (folder / "metadata/broken.metadata.json").write_text("{}")
    calls: tuple[tuple[str, str, type[dml.DmlError], str], ...] = (
        (new, location, dml.AlreadyExistsError, "already exists"),
        ("nope.t", location, dml.NotFoundError, "nope"),
        ("db.fresh", " ", dml.AnalysisError, "Cannot handle an empty argument metadata_file"),
        ("db.fresh", f"{folder}/metadata/nope.metadata.json", dml.CorruptFileError, "is missing"),
        ("db.fresh", f"{folder}/metadata/broken.metadata.json", dml.CorruptFileError, "broken"),
    )
    for table, file, error, message in calls:
        with pytest.raises(error, match=message):
            lake.session.register_table(table, file)
    assert lake.session.registry.resolve(("db", "fresh")) is None


def test_calls_that_are_refused(lake: Lake) -> None:
    """Before anything is changed; the error is at its place in the text."""
    name = lake.create("id BIGINT")
    session, first = lake.session, lake.session.sql(f"INSERT INTO {name} VALUES (1)").snapshot_id
    second = session.sql(f"INSERT INTO {name} VALUES (2)").snapshot_id
    session.rollback_to_snapshot(name, first)
    before = lake.state(name)
    refused = (dml.AnalysisError, dml.NotFoundError, dml.NotSupportedError, dml.ValidationFailedError)
    analysis, missing, unsupported, invalid = refused
    calls: tuple[tuple[Any, type[dml.DmlError], str], ...] = (
        (lambda: session.rollback_to_snapshot(name, second), invalid, "not an ancestor of the current state"),
        (lambda: session.rollback_to_snapshot(name, 5), missing, "Cannot roll back to unknown snapshot id: 5"),
        (lambda: session.rollback_to_snapshot(name, "5"), analysis, "must be a whole number"),
        (lambda: session.rollback_to_snapshot(f"{name}.branch_main", first), unsupported, "moves the branch main"),
        (lambda: session.rollback_to_snapshot("db.nope", first), missing, "no table 'db.nope'"),
        (lambda: session.rollback_to_timestamp(name, datetime(2001, 1, 1)), invalid, "no valid snapshot"),  # noqa: DTZ001
        (lambda: session.rollback_to_timestamp(name, "soon"), analysis, "must be a timestamp"),
        (lambda: session.set_current_snapshot(name, first, "main"), analysis, "not both"),
        (lambda: session.set_current_snapshot(name, ref="mian"), missing, "ref mian.*Did you mean 'main'"),
        (lambda: session.call("rollback_to_snapshot", table=name), analysis, "'snapshot_id' is missing"),
        (lambda: session.call("rollback_to_snapshots", table=name), unsupported, "Did you mean 'rollback_to_snapshot'"),
        (lambda: session.call("a b; DROP", table=name), unsupported, "a b; DROP"),
        (
            lambda: session.sql(f"CALL other.system.rollback_to_snapshot('{name}', 1)"),
            unsupported,
            "no catalog 'other'",
        ),
    )
    for call, error, message in calls:
        with pytest.raises(error, match=f"(?s){message}"):
            call()
    assert lake.state(name) == before
    with pytest.raises(dml.AnalysisError) as null:
        session.sql(f"CALL system.rollback_to_snapshot('{name}', NULL)")
    assert null.value.message == "The argument 'snapshot_id' is NULL"
    assert null.value.sql[null.value.position :].startswith("NULL")
