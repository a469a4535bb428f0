"""Attempts, lost races, answers that say nothing, and which files are there afterwards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement

from dml.catalog import CommitBase
from dml.commit import AppendFiles, DeleteFiles, OverwriteFiles, RowDelta, commit, publish
from dml.commit.publish import has_passed
from dml.commit.window import ManifestReader, open_window
from dml.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptFileError,
    ExecutionError,
    NotFoundError,
    SetupError,
    ValidationFailedError,
)
from dml.manifests.read import manifests_of
from dml.options import Command, CommitOptions
from dml.retry import backoff_seconds
from tests.dml.commit.builders import data_file, deletes, ids, new_table, position_deletes
from tests.other_writers import set_properties

QUICK = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "5",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "5",
}


def metadata_files(table: Table) -> set[str]:
    """All Avro files of the table's metadata folder."""
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    return {f"file://{path}" for path in folder.glob("*.avro")}


def used_files(table: Table) -> set[str]:
    """The Avro files that some snapshot uses."""
    used = set()
    for snapshot in table.refresh().metadata.snapshots:
        used.add(snapshot.manifest_list)
        used |= {manifest.manifest_path for manifest in manifests_of(table.io, snapshot)}
    return used


def before_commits(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, *steps: Callable[[], None]) -> list[int]:
    """Run one step before each of the next commits reaches the catalog; the list counts the commits."""
    real = catalog.commit_table
    calls: list[Any] = []

    def commit_table(*arguments: Any) -> Any:
        number = len(calls)
        calls.append(number)
        if number < len(steps):
            monkeypatch.setattr(catalog, "commit_table", real)
            steps[number]()
            monkeypatch.setattr(catalog, "commit_table", commit_table)
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    return calls


@pytest.mark.proves("R1", "R5", "S1")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_lost_race_is_tried_again_on_the_new_state(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, **QUICK)
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))

    def race() -> None:
        commit(table, AppendFiles(data_files=(data_file(table, [2]),)))

    before_commits(monkeypatch, catalog, race, race)
    made = commit(table, AppendFiles(data_files=(data_file(table, [3]),)))
    assert made.attempts == 3
    assert made.sequence_number == (0 if version == 1 else 4)
    assert made.summary["total-records"] == "4"
    assert ids(made.metadata_location) == [1, 2, 2, 3]
    # The manifest of the new file was written once, the lists of the lost attempts are gone.
    assert metadata_files(table) == used_files(table)


@pytest.mark.proves("R1", "R6")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_attempt_takes_new_numbers_and_keeps_its_snapshot_id(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others took the sequence number and the row ids that the first attempt had; its parent is theirs then."""
    table = new_table(catalog, version, **QUICK)
    real, tried = catalog.commit_table, []

    def races(*arguments: Any) -> Any:
        (snapshot,) = [update.snapshot for update in arguments[2] if hasattr(update, "snapshot")]
        tried.append(snapshot)
        if len(tried) == 1:
            monkeypatch.setattr(catalog, "commit_table", real)
            commit(table, AppendFiles(data_files=(data_file(table, [1, 2]),)))
            monkeypatch.setattr(catalog, "commit_table", races)
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", races)
    made = commit(table, AppendFiles(data_files=(data_file(table, [3, 4, 5]),)))
    lost, won = tried
    assert (made.attempts, made.snapshot_id, lost.snapshot_id) == (2, won.snapshot_id, won.snapshot_id)
    others = table.refresh().metadata.snapshot_by_id(won.parent_snapshot_id)
    assert (lost.parent_snapshot_id, others.parent_snapshot_id) == (None, None)
    assert lost.manifest_list != won.manifest_list
    if version > 1:
        assert [one.sequence_number for one in (lost, others, won)] == [1, 1, 2]
        assert table.metadata.last_sequence_number == 2
    if version > 2:
        assert [one.first_row_id for one in (lost, others, won)] == [0, 0, 2]
        assert table.metadata.next_row_id == 5


@pytest.mark.proves("R5")
def test_a_lost_manifest_list_that_cannot_be_deleted_is_logged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(catalog, 2, **QUICK)
    before_commits(
        monkeypatch, catalog, lambda: commit(table, AppendFiles(data_files=(data_file(table, [1]),))) and None
    )
    asked: list[str] = []

    def fails(_: PyArrowFileIO, location: Any) -> None:
        asked.append(str(location))
        raise OSError(5, "the storage deletes nothing")

    monkeypatch.setattr(PyArrowFileIO, "delete", fails)
    made = commit(table, AppendFiles(data_files=(data_file(table, [2]),)))
    assert (made.attempts, ids(made.metadata_location)) == (2, [1, 2])
    assert set(asked) == metadata_files(table) - used_files(table) != set()
    assert "the storage deletes nothing" in caplog.text


@pytest.mark.proves("R2", "R5")
def test_a_requirement_that_can_never_be_met_is_not_tried_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong, and leaves no file; nobody else has committed, so it is no conflict."""
    table = new_table(catalog, 2, **QUICK)
    calls = before_commits(monkeypatch, catalog)

    def head_that_is_not(*_: Any) -> tuple[TableRequirement, ...]:
        return (AssertRefSnapshotId(ref="main", snapshot_id=5),)

    monkeypatch.setattr(publish, "requirements_of", head_that_is_not)
    with pytest.raises(ValidationFailedError, match=r"can never succeed.*branch or tag main is missing") as caught:
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert (len(calls), caught.value.retryable) == (1, False)
    assert caught.value.context["requirement"] == "assert-ref-snapshot-id"
    assert metadata_files(table) == set()


@pytest.mark.proves("R2")
def test_a_race_is_not_tried_again_after_the_total_time(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(
        catalog, 2, **QUICK, **{"commit.retry.num-retries": "1000", "commit.retry.total-timeout-ms": "40"}
    )

    def lose(*_: Any) -> Any:
        raise CommitFailedException("Requirement failed: branch main has changed")

    monkeypatch.setattr(catalog, "commit_table", lose)
    with pytest.raises(CommitConflictError, match=r"failed \d{1,2} times because other commits landed"):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert CommitOptions() == CommitOptions(
        num_retries=4, min_wait_ms=100, max_wait_ms=60_000, total_timeout_ms=1_800_000
    )


@pytest.mark.proves("R1", "R2")
def test_each_attempt_validates_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2, **QUICK)
    first = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(first,)))
    start = table.refresh().metadata.current_snapshot_id

    def race() -> None:
        delete = deletes(table, first, [0])
        commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))

    calls = before_commits(monkeypatch, catalog, race)
    action = OverwriteFiles(
        data_files=(data_file(table, [1]),),
        removed_data_files=frozenset({first.path}),
        starting_snapshot_id=start,
    )
    with pytest.raises(CommitConflictError, match="found new delete for replaced data file"):
        commit(table, action)
    assert calls == [0]
    assert metadata_files(table) == used_files(table)


@pytest.mark.proves("P11", "R4")
def test_a_table_that_was_upgraded_meanwhile_takes_no_position_deletes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, 2, **QUICK)
    first = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(first,)))
    start = table.refresh().metadata.current_snapshot_id

    def race() -> None:
        commit(table, AppendFiles(data_files=(data_file(table, [3]),)))
        set_properties(table, {"format-version": "3"})

    before_commits(monkeypatch, catalog, race)
    delete = position_deletes(table, first, [0])
    with pytest.raises(CommitConflictError, match="was upgraded from format version 2 to 3 while the statement ran"):
        commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
    assert metadata_files(table) == used_files(table)


@pytest.mark.proves("R2")
def test_a_race_that_is_lost_every_time_gives_up(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2, **QUICK, **{"commit.retry.num-retries": "2"})
    calls: list[int] = []

    def lose(*_: Any) -> Any:
        calls.append(1)
        raise CommitFailedException("Requirement failed: branch main has changed")

    monkeypatch.setattr(catalog, "commit_table", lose)
    file = data_file(table, [1])
    with pytest.raises(CommitConflictError, match="failed 3 times because other commits landed first") as raised:
        commit(table, AppendFiles(data_files=(file,)))
    assert len(calls) == 3
    assert raised.value.retryable
    assert metadata_files(table) == set()
    assert Path(file.path.removeprefix("file://")).exists()


def test_a_commit_that_landed_is_found_though_what_it_changed_besides_fits_no_more(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered as lost, and then somebody changed the columns: the files of a live snapshot stay."""
    table = new_table(catalog, 2, **QUICK)
    real = catalog.commit_table

    def commit_table(*arguments: Any) -> Any:
        real(*arguments)
        raise CommitFailedException("the branch has changed")

    def load_state() -> CommitBase:
        if table.refresh().current_snapshot() is None:
            return CommitBase(table=table)
        raise CommitConflictError("The columns of the table were changed")

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1]),)), load_state=load_state)
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert made.snapshot_id == snapshot.snapshot_id
    assert metadata_files(table) == used_files(table)
    assert ids(table.metadata_location) == [1]


@pytest.mark.proves("A8", "R3")
@pytest.mark.parametrize("error", [CommitStateUnknownException("502"), TimeoutError("no answer"), KeyError("odd")])
def test_an_unknown_answer_to_a_commit_that_landed_is_a_success(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = new_table(catalog, 3)
    real = catalog.commit_table

    def commits_and_fails(*arguments: Any) -> Any:
        real(*arguments)
        raise error

    monkeypatch.setattr(catalog, "commit_table", commits_and_fails)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert made.metadata_location == table.refresh().metadata_location
    assert ids(made.metadata_location) == [1]
    assert metadata_files(table) == used_files(table)


@pytest.mark.proves("R3")
def test_an_unknown_answer_to_a_commit_that_lost_is_tried_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch has moved on from the same head: what was not answered cannot come any more."""
    table, other = new_table(catalog, 2, **QUICK), catalog.load_table(("db", "t"))
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    real, calls = catalog.commit_table, []

    def is_beaten_and_fails(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return real(*arguments)
        monkeypatch.setattr(catalog, "commit_table", real)
        commit(other, AppendFiles(data_files=(data_file(table, [2]),)))
        monkeypatch.setattr(catalog, "commit_table", is_beaten_and_fails)
        raise TimeoutError("no answer")

    monkeypatch.setattr(catalog, "commit_table", is_beaten_and_fails)
    made = commit(table, AppendFiles(data_files=(data_file(table, [3]),)))
    assert made.attempts == 2
    assert ids(made.metadata_location) == [1, 2, 3]


@pytest.mark.proves("R3")
def test_a_table_that_cannot_be_looked_at_is_looked_at_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2, **QUICK)
    real_commit, real_load, down = catalog.commit_table, catalog.load_table, [True, True]

    def commits_and_goes_down(*arguments: Any) -> Any:
        real_commit(*arguments)
        monkeypatch.setattr(catalog, "load_table", is_down)
        raise TimeoutError("no answer")

    def is_down(identifier: Any) -> Table:
        if down:
            down.pop()
            raise ConnectionError("down")
        return real_load(identifier)

    monkeypatch.setattr(catalog, "commit_table", commits_and_goes_down)
    assert ids(commit(table, AppendFiles(data_files=(data_file(table, [1]),))).metadata_location) == [1]
    assert not down


@pytest.mark.parametrize("expired", [False, True])
def test_a_branch_that_moved_on_tells_only_what_its_history_tells(catalog: Catalog, *, expired: bool) -> None:
    """Where snapshots between are gone, the one that is looked for may have been among them."""
    table = new_table(catalog, 2)
    made = [commit(table, AppendFiles(data_files=(data_file(table, [row]),))) for row in range(3)]
    metadata = table.refresh().metadata
    sought_for = metadata.snapshot_by_id(made[1].snapshot_id).model_copy(update={"snapshot_id": 77})
    if expired:
        kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id != made[1].snapshot_id]
        metadata = metadata.model_copy(update={"snapshots": kept})
    assert has_passed(metadata, made[2].snapshot_id, sought_for) is not expired


def test_a_history_that_bites_its_own_tail_ends(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    made = [commit(table, AppendFiles(data_files=(data_file(table, [row]),))) for row in range(3)]
    metadata = table.refresh().metadata
    first, *later = metadata.snapshots
    tail = first.model_copy(update={"parent_snapshot_id": made[2].snapshot_id})
    metadata = metadata.model_copy(update={"snapshots": [tail, *later]})
    head = metadata.snapshot_by_id(made[2].snapshot_id)
    sought_for = head.model_copy(update={"snapshot_id": 77, "parent_snapshot_id": 78})
    assert not has_passed(metadata, head.snapshot_id, sought_for)
    with pytest.raises(CommitConflictError, match="is not an ancestor"):
        open_window(metadata, ManifestReader(table.io), starting_snapshot_id=78, head=head, must_descend=True)


@pytest.mark.proves("A5", "A6", "R3")
@pytest.mark.parametrize("error", [TimeoutError("no answer"), KeyError("odd"), CommitStateUnknownException("502")])
def test_an_unknown_answer_deletes_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Neither does an odd one: it does not say that nothing was published."""
    table = new_table(catalog, 2, **QUICK)

    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(catalog, "commit_table", fails)
    with pytest.raises(CommitStateUnknownError, match="may have landed") as raised:
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert raised.value.context["snapshot_id"]
    # A manifest and a list: if the commit lands after all, they are what it is made of.
    assert len(metadata_files(table)) == 2


@pytest.mark.parametrize("retries", [4, 0])
def test_a_race_reported_lost_that_was_won_is_not_committed_twice(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A client that sends its request again is told of a conflict: with itself."""
    table = new_table(catalog, 2, **QUICK, **{"commit.retry.num-retries": str(retries)})
    real = catalog.commit_table

    def sends_twice(*arguments: Any) -> Any:
        real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", sends_twice)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert len(table.refresh().metadata.snapshots) == 1
    assert ids(made.metadata_location) == [1]
    assert metadata_files(table) == used_files(table)


@pytest.mark.proves("A5")
@pytest.mark.parametrize("retries", [4, 0])
def test_files_of_a_race_reported_lost_stay_where_the_table_cannot_be_looked_at(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """The snapshot may be in the table, and here it is."""
    table = new_table(catalog, 2, **QUICK, **{"commit.retry.num-retries": str(retries)})
    real, load = catalog.commit_table, catalog.load_table

    def sends_twice(*arguments: Any) -> Any:
        real(*arguments)
        monkeypatch.setattr(catalog, "load_table", fails)
        return real(*arguments)

    def fails(*_: Any) -> Any:
        raise OSError(110, "timed out")

    monkeypatch.setattr(catalog, "commit_table", sends_twice)
    with pytest.raises(CommitStateUnknownError, match="may have landed"):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    monkeypatch.setattr(catalog, "load_table", load)
    assert metadata_files(table) == used_files(table)
    assert len(used_files(table)) == 2


@pytest.mark.proves("A4")
def test_a_refused_commit_leaves_no_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2)

    def refuses(*_: Any) -> Any:
        raise ForbiddenError("not allowed to write")

    monkeypatch.setattr(catalog, "commit_table", refuses)
    with pytest.raises(SetupError, match=r"Committing to the table 'db\.t' failed: not allowed to write"):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert metadata_files(table) == set()


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_that_cannot_be_written_is_a_commit_that_certainly_failed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The catalog was not asked; the file may be there in part. Every file goes, though the storage fails once more."""
    table = new_table(catalog, version, **QUICK)
    create, delete, refused = PyArrowFile.create, PyArrowFileIO.delete, []

    def breaks_off(file: PyArrowFile, *arguments: Any, **options: Any) -> Any:
        stream = create(file, *arguments, **options)
        if file.location.endswith(".metadata.json"):
            stream.write(b"{")
            stream.close()
            raise OSError(28, "No space left on device")
        return stream

    def fails_at_first(io: PyArrowFileIO, location: Any) -> None:
        if location not in refused:
            refused.append(location)
            raise OSError(5, "try again")
        delete(io, location)

    folder = Path(table.location().removeprefix("file://")) / "metadata"
    before = set(folder.iterdir())
    monkeypatch.setattr(PyArrowFile, "create", breaks_off)
    monkeypatch.setattr(PyArrowFileIO, "delete", fails_at_first)
    with pytest.raises(ExecutionError, match=r"Writing the metadata file .*\.metadata\.json' failed: .*No space left"):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert len(refused) == 3
    assert set(folder.iterdir()) == before


def test_a_missing_manifest_is_named_and_nothing_is_left(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    snapshot = table.refresh().current_snapshot()
    (manifest,) = manifests_of(table.io, snapshot)
    table.io.delete(manifest.manifest_path)
    before = metadata_files(table)
    with pytest.raises(CorruptFileError, match="is missing") as raised:
        commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    assert raised.value.context["file"] == manifest.manifest_path
    assert metadata_files(table) == before


def test_a_dropped_table_is_named(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    catalog.drop_table(("db", "t"))
    with pytest.raises(NotFoundError, match=r"There is no table 'db\.t'"):
        commit(table, AppendFiles())


def test_vectors_that_are_not_needed_any_more_are_deleted(catalog: Catalog) -> None:
    """Another DELETE removed the whole file: the Puffin file of the commit holds nothing of use."""
    table = new_table(catalog, 3)
    first = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(first,)))
    start = table.refresh().metadata.current_snapshot_id
    vector = deletes(table, first, [0])
    commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    commit(table, RowDelta(command=Command.DELETE, delete_files=(vector,), starting_snapshot_id=start))
    assert not Path(vector.path.removeprefix("file://")).exists()
    assert Path(first.path.removeprefix("file://")).exists()


@pytest.mark.proves("A6")
def test_an_interrupt_while_the_catalog_is_at_work_deletes_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit may have landed."""
    table = new_table(catalog, 2)
    real = catalog.commit_table

    def commits_and_is_interrupted(*arguments: Any) -> Any:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "commit_table", commits_and_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert ids(table.refresh().metadata_location) == [1]


@pytest.mark.proves("A7")
def test_trouble_after_the_commit_is_no_trouble(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(catalog, 2)

    def fails(*_: Any) -> None:
        raise RuntimeError("storage is away")

    monkeypatch.setattr(catalog, "_delete_old_metadata", fails)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert ids(made.metadata_location) == [1]
    assert "storage is away" in caplog.text


def test_nobody_can_speak_for_the_counters(catalog: Catalog) -> None:
    """Keys of engine and user are kept, except those that are counted."""
    table = new_table(catalog, 2)
    made = commit(
        table,
        AppendFiles(data_files=(data_file(table, [1]),)),
        summary={"total-records": "99", "operation": "replace", "mine": "x"},
    )
    assert (made.operation, made.summary["total-records"], made.summary["mine"]) == ("append", "1", "x")


@pytest.mark.proves("R2")
def test_waits_double_up_to_the_greatest() -> None:
    assert [backoff_seconds(100, 1000, failed) for failed in (1, 2, 3, 4, 5, 5000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
