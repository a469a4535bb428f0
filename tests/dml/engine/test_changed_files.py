"""The files that snapshots added and removed, on histories of commits without Spark."""

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.commit import Action, AppendFiles, DeleteFiles, OverwriteFiles, RewriteFiles, RowDelta, commit
from dml.engine.changelog import ChangelogFile, changed_files, column_path, identifier_paths
from dml.engine.changelog_range import ChangelogRange
from dml.errors import NotFoundError, NotSupportedError
from dml.model.manifest import ContentFile
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, new_table


def found(table: Table, **bounds: int) -> list[ChangelogFile]:
    """The changed files of a range."""
    snapshots = ChangelogRange(**bounds).snapshots(table.refresh().metadata)
    return changed_files("db.t", table, snapshots)


def run(table: Table, action: Action) -> int:
    """Commit an action that has read the current snapshot."""
    now = table.refresh()
    if isinstance(action, OverwriteFiles | RowDelta):
        action = replace(action, starting_snapshot_id=now.metadata.current_snapshot_id)
    return commit(now, action).snapshot_id


def changes(table: Table, *files: ContentFile, **bounds: int) -> list[tuple[int, ...]]:
    """The changes of each of these files in a range, which has no others."""
    by_path = {one.file.path: one.changes for one in found(table, **bounds)}
    listed = [by_path.pop(file.path, ()) for file in files]
    assert not by_path
    return listed


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("merged", [False, True])
def test_each_snapshot_has_the_files_that_it_added_and_removed(catalog: Catalog, version: int, merged: bool) -> None:
    """Merged manifests list files of earlier snapshots as existing; a rewrite is no change, and takes no ordinal."""
    settings = {"commit.manifest.min-count-to-merge": "1"} if merged else {}
    table = new_table(catalog, version, **settings)
    a, b, c, d, e = (data_file(table, [number]) for number in range(5))

    ids = [
        run(table, AppendFiles(data_files=(a, b))),
        run(table, OverwriteFiles(data_files=(c,), removed_data_files=frozenset({a.path}))),
        run(table, RewriteFiles(data_files=(d,), removed_data_files=frozenset({c.path}))),
        run(table, DeleteFiles(paths=frozenset({b.path}))),
        run(table, AppendFiles(data_files=(e,))),
    ]
    # Twice the ordinal, plus 1 for added files.
    assert changes(table, a, b, c, d, e) == [(1, 2), (1, 4), (3,), (), (7,)]
    assert changes(table, a, b, c, d, e, start_snapshot_id=ids[0]) == [(0,), (2,), (1,), (), (5,)]
    assert changes(table, b, start_snapshot_id=ids[1], end_snapshot_id=ids[3]) == [(0,)]
    assert changes(table, start_snapshot_id=ids[1], end_snapshot_id=ids[2]) == []
    assert [one.file.record_count for one in found(table, start_snapshot_id=ids[3])] == [1]


@pytest.mark.parametrize("version", [2, 3])
def test_snapshots_with_delete_files_are_refused(catalog: Catalog, version: int) -> None:
    """Also those that only carry them on; those before have none."""
    table = new_table(catalog, version)
    a, b = data_file(table, [1, 2]), data_file(table, [3])
    first = run(table, AppendFiles(data_files=(a,)))
    marked = RowDelta(
        command=Command.DELETE, delete_files=(deletes(table, a, [0]),), referenced_data_files=frozenset({a.path})
    )
    second = run(table, marked)
    run(table, AppendFiles(data_files=(b,)))
    assert changes(table, a, end_snapshot_id=first) == [(1,)]
    for start in (first, second):
        with pytest.raises(
            NotSupportedError, match="Delete files are currently not supported in changelog scans"
        ) as raised:
            found(table, start_snapshot_id=start)
        assert "EXCEPT ALL" in (raised.value.hint or "")


def test_identifier_columns_are_found_by_name(catalog: Catalog) -> None:
    schema = new_table(catalog, 2).schema()
    assert (
        column_path(schema, "ID", case_sensitive=False) == column_path(schema, "`id`", case_sensitive=True) == ("id",)
    )
    for name, case_sensitive in (("ID", True), ("idx", False), ("id.p", False)):
        with pytest.raises(NotFoundError, match=f"Cannot find the identifier column '{name}'"):
            column_path(schema, name, case_sensitive=case_sensitive)
    assert identifier_paths(schema) == ()
