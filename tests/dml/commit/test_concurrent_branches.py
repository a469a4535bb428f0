"""Commits to two branches at once: both land, on catalogs that write metadata themselves and on servers.

Each requirement of such a commit holds although another one came first, for that one moved another branch. What cannot
be is its sequence number, and in version 3 its row ids: both count for the whole table.
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table

from dml.catalog import load, load_table
from dml.commit import AppendFiles, CommittedSnapshot, OverwriteFiles, commit
from dml.errors import AnalysisError, CommitConflictError
from dml.manifests.read import entries_of, manifests_of
from tests.dml.commit.builders import data_file, new_table
from tests.dml.commit.test_publish import QUICK, before_commits, metadata_files, used_files

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


class Server:
    """A catalog that leaves metadata to a server, as far as commits are concerned.

    Args:
        behind: What the server keeps its tables in.
        stale: What it answers to a snapshot whose numbers are taken: a conflict (409), or as older servers do, that the
            request is bad (400).
    """

    def __init__(self, behind: Catalog, stale: type[Exception]) -> None:
        self._behind = behind
        self._stale = stale

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def load_table(self, identifier: Any) -> Table:
        table = self._behind.load_table(identifier)
        table.catalog = self  # type: ignore[assignment]
        return table

    def create_table(self, *arguments: Any, **options: Any) -> Table:
        return self.load_table(self._behind.create_table(*arguments, **options).name())

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
        try:
            return self._behind.commit_table(table, requirements, updates)
        except CommitFailedException as error:
            raise self._stale(str(error)) if "is not above" in str(error) else error from None


@pytest.fixture(params=["sql", "server", "older-server"])
def catalog(request: pytest.FixtureRequest, catalog: Catalog) -> Any:
    """The catalogs that have to behave alike."""
    kinds = {"server": CommitFailedException, "older-server": BadRequestError}
    return Server(catalog, kinds[request.param]) if request.param in kinds else catalog


def append(table: Table, number: int, branch: str = "main", **options: Any) -> CommittedSnapshot:
    return commit(table, AppendFiles(data_files=(data_file(table, [number]),)), branch=branch, **options)


def rows(table: Table, branch: str) -> list[int]:
    """The ids of a branch, as PyIceberg reads them."""
    snapshot = table.refresh().metadata.refs[branch].snapshot_id
    return sorted(table.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())


def row_ids(table: Table) -> list[tuple[int, int]]:
    """The ranges of row ids that the data files of all snapshots take."""
    files = {
        entry.data_file.path: (entry.first_row_id, entry.first_row_id + entry.data_file.record_count)
        for snapshot in table.refresh().metadata.snapshots
        for manifest in manifests_of(table.io, snapshot)
        for entry in entries_of(manifest, table.io)
        if entry.first_row_id is not None
    }
    return sorted(files.values())


def assert_sound(table: Table, made: int) -> None:
    """Every snapshot has its own number and row ids, and no file of an attempt that was lost is left."""
    metadata = table.refresh().metadata
    assert len(metadata.snapshots) == made
    if metadata.format_version > 1:
        assert sorted(snapshot.sequence_number or 0 for snapshot in metadata.snapshots) == list(range(1, made + 1))
    if metadata.format_version > 2:
        taken = row_ids(table)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken)), taken
        assert metadata.next_row_id is not None
        assert metadata.next_row_id >= taken[-1][1]
    assert metadata_files(table) == used_files(table)


@VERSIONS
@pytest.mark.parametrize(
    ("mine", "theirs"), [("a", "b"), ("main", "b"), ("b", "main")], ids=["branches", "main-first", "main-last"]
)
def test_two_commits_to_two_branches_both_land(
    catalog: Catalog, version: int, mine: str, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, **QUICK)
    append(table, 1)
    for branch in sorted({mine, theirs} - {"main"}):
        append(table, 10 if branch == "a" else 20, branch, create_branch=True)
    before = {branch: rows(table, branch) for branch in (mine, theirs)}
    count = len(table.metadata.snapshots)
    before_commits(monkeypatch, catalog, lambda: append(table, 3, theirs))
    made = append(table, 2, mine)
    # Version 1 has no numbers that could be taken.
    assert made.attempts == (1 if version == 1 else 2)
    assert rows(table, mine) == sorted([*before[mine], 2])
    assert rows(table, theirs) == sorted([*before[theirs], 3])
    assert_sound(table, count + 2)


@VERSIONS
def test_a_branch_can_be_created_while_main_moves(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, **QUICK)
    append(table, 1)
    before_commits(monkeypatch, catalog, lambda: append(table, 2))
    append(table, 3, "audit", create_branch=True)
    assert rows(table, "main") == [1, 2]
    # The branch starts from the head that main has when the commit is taken.
    assert rows(table, "audit") == ([1, 3] if version == 1 else [1, 2, 3])
    assert_sound(table, 3)


@VERSIONS
def test_files_are_replaced_on_one_branch_while_another_moves(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another branch adds is no conflict for serializable isolation."""
    table = new_table(catalog, version, **QUICK)
    old = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(old,)))
    start = append(table, 3, "b", create_branch=True).parent_snapshot_id
    before_commits(monkeypatch, catalog, lambda: append(table, 4, "b"))
    action = OverwriteFiles(
        data_files=(data_file(table, [2]),), removed_data_files=frozenset({old.path}), starting_snapshot_id=start
    )
    commit(table, action)
    assert rows(table, "main") == [2]
    assert rows(table, "b") == [1, 2, 3, 4]
    assert_sound(table, 4)


@pytest.mark.parametrize("version", [2, 3])
def test_races_with_another_branch_end_as_all_lost_races_do(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, **QUICK, **{"commit.retry.num-retries": "2"})
    append(table, 1)
    append(table, 10, "b", create_branch=True)
    before_commits(monkeypatch, catalog, *(lambda: append(table, 11, "b") for _ in range(3)))
    with pytest.raises(CommitConflictError, match="failed 3 times because other commits landed first"):
        append(table, 2)
    assert rows(table, "main") == [1]
    assert_sound(table, 5)


def test_a_bad_request_stays_one(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the numbers of the snapshot are taken does it mean a lost race."""
    table = new_table(catalog, 2, **QUICK)
    append(table, 1)
    tried = []

    def refuse(*_: Any) -> Any:
        tried.append(1)
        raise BadRequestError("no such thing")

    monkeypatch.setattr(catalog, "commit_table", refuse)
    with pytest.raises(AnalysisError, match="no such thing"):
        append(table, 2)
    assert len(tried) == 1
    assert metadata_files(table) == used_files(table)


@VERSIONS
def test_many_writers_on_three_branches_lose_nothing(tmp_path_factory: pytest.TempPathFactory, version: int) -> None:
    """Threads with catalogs of their own on one SQLite file, as sessions in several processes have them."""
    warehouse = str(tmp_path_factory.mktemp("lake"))
    first = load("lake", warehouse)
    first.create_namespace(("db",))
    table = new_table(first, version, **QUICK, **{"commit.retry.num-retries": "100"})
    append(table, 0)
    for branch in ("a", "b"):
        append(table, 0, branch, create_branch=True)
    ready = threading.Barrier(6)

    def writer(number: int) -> list[CommittedSnapshot]:
        own = load_table(load("lake", warehouse), ("db", "t"))
        ready.wait()
        branch = ("main", "a", "b")[number % 3]
        return [append(own, 10 * number + step, branch) for step in range(1, 4)]

    with ThreadPoolExecutor(6) as pool:
        made = [snapshot for snapshots in pool.map(writer, range(6)) for snapshot in snapshots]
    assert len({snapshot.snapshot_id for snapshot in made}) == 18
    for place, branch in enumerate(("main", "a", "b")):
        added = [10 * number + step for number in (place, place + 3) for step in range(1, 4)]
        assert rows(table, branch) == sorted([*([0] if branch == "main" else [0, 0]), *added])
    assert_sound(table, 21)
