"""Compactions and statements at once: neither fails because of the other."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dml
from dml import limits
from dml.engine import publish, rewrite_data_files
from tests.lake import Lake

pytestmark = pytest.mark.spark

ALL = {"rewrite-all": "true"}
BOTH = pytest.mark.parametrize("version", [2, 3])
MARKS = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}


@pytest.fixture
def before_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has other writers act before the next commits, one before each."""
    waiting: list[Callable[[], object]] = []

    def later(original: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*args: object, **kwargs: object) -> object:
            if waiting:
                waiting.pop(0)()
            return original(*args, **kwargs)

        return commit

    for module in (publish, rewrite_data_files):
        monkeypatch.setattr(module, "commit", later(module.commit))
    yield lambda *acts: waiting.extend(acts)
    assert not waiting, "nobody committed"


def several_files(lake: Lake, version: int) -> str:
    """A table of ids 0 to 29, in six files of two partitions; two rows are deleted."""
    name = lake.create("id BIGINT, p INT, s STRING", "PARTITIONED BY (p)", **MARKS, **{"format-version": str(version)})
    for start in range(0, 30, 10):
        lake.session.sql(f"INSERT INTO {name} SELECT id, id % 2, concat('s', id) FROM range({start}, {start + 10})")
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (3, 16)")
    return name


def new_table(lake: Lake, version: int, **properties: str) -> str:
    return lake.copy_of((several_files, version), lambda: several_files(lake, version), **properties)


ROWS = {id_: f"s{id_}" for id_ in range(30) if id_ not in {3, 16}}


def values(lake: Lake, name: str) -> dict[int, str]:
    return {row[0]: row[2] for row in lake.rows(name)}


def unneeded_files(lake: Lake, name: str) -> set[str]:
    """Data files in the table's folder that no snapshot of it needs."""
    needed = {row["file_path"].removeprefix("file://") for row in lake.table(name).inspect.all_files().to_pylist()}
    _, files = lake.state(name)
    return {str(path) for path in files if path.parent.name.startswith("p=") and not path.name.startswith(".")} - needed


@BOTH
def test_statements_follow_a_compaction(lake: Lake, version: int, before_commits: Callable[..., None]) -> None:
    """Each statement has its rows in files that are gone when it commits."""
    name, session = new_table(lake, version), lake.session
    lineage = f"SELECT id, _row_id FROM {name} ORDER BY id"
    before = session.sql(lineage).collect() if version > 2 else []

    def compact() -> None:
        session.rewrite_data_files(name, options=ALL)

    before_commits(compact)
    deleted = session.sql(f"DELETE FROM {name} WHERE id IN (5, 8)")
    before_commits(compact)
    updated = session.sql(f"UPDATE {name} SET s = 'mine' WHERE id IN (0, 29)")
    before_commits(compact)
    merged = session.sql(
        f"MERGE INTO {name} t USING (SELECT * FROM VALUES (7L), (40L) AS v(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, p, s) VALUES (s.id, 0, 'merged')"
    )
    assert not deleted.reruns
    assert not updated.reruns
    assert not merged.reruns
    expected = ROWS | {0: "mine", 29: "mine", 7: "merged", 40: "merged"}
    assert values(lake, name) == {id_: value for id_, value in expected.items() if id_ not in {5, 8}}
    assert session.verify(name, every_file=True).ok
    if version > 2:
        after: dict[Any, Any] = dict(session.sql(lineage).collect())
        assert {id_: after[id_] for id_, _ in before if id_ in after} == {
            id_: row_id for id_, row_id in before if id_ not in {5, 8}
        }


@BOTH
def test_rows_of_copied_row_groups_are_followed(
    lake: Lake, version: int, before_commits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files have deletes already: both sides add theirs."""
    monkeypatch.setattr(limits, "MIN_COPIED_ROW_GROUP_BYTES", 1)
    name, session = new_table(lake, version), lake.session
    few = {"min-input-files": "2"}

    def compact() -> None:
        done = session.rewrite_data_files(name, options=few)
        assert (done.rewritten_data_files_count, done.added_data_files_count) == (6, 2)
        assert sum(file["record_count"] for file in lake.table(name).inspect.data_files().to_pylist()) == 30

    before_commits(compact)
    assert not session.sql(f"DELETE FROM {name} WHERE id IN (5, 8)").reruns
    session.sql(f"INSERT INTO {name} SELECT id, id % 2, concat('s', id) FROM range(30, 40)")
    before_commits(lambda: session.sql(f"DELETE FROM {name} WHERE id IN (7, 35)"))
    assert session.rewrite_data_files(name, options=few).failed_data_files_count == 0
    expected = ROWS | {id_: f"s{id_}" for id_ in range(30, 40)}
    assert values(lake, name) == {id_: value for id_, value in expected.items() if id_ not in {5, 7, 8, 35}}
    assert session.verify(name, every_file=True).ok


@BOTH
def test_a_compaction_takes_deletes_over(lake: Lake, version: int, before_commits: Callable[..., None]) -> None:
    name, session = new_table(lake, version), lake.session
    before_commits(
        lambda: (
            session.sql(f"DELETE FROM {name} WHERE id IN (5, 8)"),
            session.sql(f"UPDATE {name} SET s = 'theirs' WHERE id = 29"),
        )
    )
    done = session.rewrite_data_files(name, options=ALL)
    assert (done.rewritten_data_files_count, done.failed_data_files_count) == (6, 0)
    expected = ROWS | {29: "theirs"}
    assert values(lake, name) == {id_: value for id_, value in expected.items() if id_ not in {5, 8}}
    summary = lake.table(name).current_snapshot().summary
    assert summary is not None
    assert summary["rowdelta.deletes-reapplied"] == "3"
    assert session.verify(name, every_file=True).ok


def test_files_that_others_have_replaced_are_left_to_them(lake: Lake, before_commits: Callable[..., None]) -> None:
    """A copy-on-write UPDATE has written a file anew; the other partition is compacted all the same."""
    name, session = new_table(lake, 3, **{"write.update.mode": "copy-on-write"}), lake.session
    before_commits(lambda: session.sql(f"UPDATE {name} SET s = 'theirs' WHERE id = 4"))
    done = session.rewrite_data_files(name, options=ALL)
    assert (done.rewritten_data_files_count, done.added_data_files_count, done.failed_data_files_count) == (3, 1, 3)
    assert values(lake, name) == ROWS | {4: "theirs"}
    assert session.verify(name, every_file=True).ok
    assert not unneeded_files(lake, name)


def test_of_two_compactions_the_second_does_nothing(lake: Lake, before_commits: Callable[..., None]) -> None:
    name, session = new_table(lake, 3), lake.session
    before_commits(lambda: session.rewrite_data_files(name, options=ALL))
    done = session.rewrite_data_files(name, options=ALL)
    assert (done.rewritten_data_files_count, done.added_data_files_count, done.failed_data_files_count) == (0, 0, 6)
    assert values(lake, name) == ROWS
    assert len(lake.data_files(name)) == 2
    assert not unneeded_files(lake, name)


def test_a_row_that_both_delete_is_still_a_conflict(lake: Lake, before_commits: Callable[..., None]) -> None:
    name, session = new_table(lake, 3), lake.session
    before_commits(
        lambda: (
            session.sql(f"DELETE FROM {name} WHERE id = 5"),
            session.rewrite_data_files(name, options=ALL),
        )
    )
    with pytest.raises(dml.CommitConflictError, match="deleted or updated rows that this one changes too"):
        session.sql(f"UPDATE {name} SET s = 'mine' WHERE id IN (5, 7)")
    assert values(lake, name) == {id_: value for id_, value in ROWS.items() if id_ != 5}


def test_copy_on_write_runs_again(lake: Lake, before_commits: Callable[..., None]) -> None:
    name, session = new_table(lake, 2, **{"write.update.mode": "copy-on-write"}), lake.session
    before_commits(lambda: session.rewrite_data_files(name, options=ALL))
    assert len(session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5").reruns) == 1
    assert values(lake, name) == ROWS | {5: "mine"}
