"""Manifests are read once, as long as they have room."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from dml import limits
from dml.catalog import create_namespace, load
from dml.commit import AppendFiles, RowDelta, commit
from dml.errors import AnalysisError
from dml.manifests import cache, read
from dml.manifests.cache import CACHE_ENABLED, CACHE_MAX_BYTES, ManifestCache, cache_of
from dml.manifests.entries import EntryArrays
from dml.model.manifest import ManifestEntry
from dml.options import Command
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import data_file, deletes, new_table


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The metadata files that were read."""
    locations: list[str] = []
    real = read.content_of

    def content_of(io: FileIO, location: str) -> bytes:
        locations.append(location.rpartition("/")[2])
        return real(io, location)

    monkeypatch.setattr(read, "content_of", content_of)
    return locations


def filled(catalog: Catalog, name: str = "t") -> Table:
    """A table of two data files in manifests of their own."""
    table = new_table(catalog, 2, name=name)
    for ids in ([1, 2], [3, 4]):
        commit(table, AppendFiles(data_files=(data_file(table, ids),)))
        table = table.refresh()
    return table


@pytest.mark.parametrize("few", [0, limits.MAX_ENTRY_OBJECTS])
def test_the_second_plan_reads_no_manifest(
    catalog: Catalog, opened: list[str], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(limits, "MAX_ENTRY_OBJECTS", few)
    table = filled(catalog)
    opened.clear()
    first = plan_scan(table, None, EqualTo("id", 3))
    assert len(opened) == 3  # the list and two manifests
    assert plan_scan(table, None, EqualTo("id", 3)) == first
    assert len(plan_scan(table, None, GreaterThan("id", 0)).tasks) == 2
    assert len(opened) == 3
    commit(table, AppendFiles(data_files=(data_file(table, [5]),)))
    table = table.refresh()
    opened.clear()
    assert len(plan_scan(table, None).tasks) == 3
    assert len(opened) == 2, "the new list and the new manifest"


def test_few_entries_and_many_are_planned_alike(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """With deleted rows, with files of which all rows match, and asked for nothing."""
    table = new_table(catalog, 2, partitioned=True)
    files = [data_file(table, range(start, start + 4), "ab"[start % 8 // 4]) for start in range(0, 16, 4)]
    commit(table, AppendFiles(data_files=tuple(files)))
    table = table.refresh()
    removed = tuple(deletes(table, of, [1]) for of in files[:3])
    start = table.current_snapshot()
    assert start is not None
    commit(table, RowDelta(command=Command.DELETE, delete_files=removed, starting_snapshot_id=start.snapshot_id))
    table = table.refresh()
    for row_filter in (AlwaysTrue(), EqualTo("p", "a"), GreaterThan("id", 7), EqualTo("id", 99), EqualTo("p", "z")):
        plans = []
        for few in (0, limits.MAX_ENTRY_OBJECTS):
            monkeypatch.setattr(limits, "MAX_ENTRY_OBJECTS", few)
            monkeypatch.setattr(cache, "CACHES", type(cache.CACHES)())
            plans.append(plan_scan(table, None, row_filter, find_whole_files=True))
        assert plans[0] == plans[1]
    assert [len(task.position_deletes) for task in plan_scan(table, None).tasks] == [1, 1, 1, 0]


@pytest.mark.parametrize("version", [2, 3])
def test_of_many_deletes_those_of_the_files_at_hand_become_objects(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Position deletes that name their data file, and deletion vectors; a table changed often has one for each file."""
    monkeypatch.setattr(limits, "MAX_ENTRY_OBJECTS", 0)
    unpacked: list[int] = []
    real = EntryArrays.entry

    def entry(entries: EntryArrays, place: int) -> ManifestEntry:
        unpacked.append(place)
        return real(entries, place)

    monkeypatch.setattr(EntryArrays, "entry", entry)
    table = new_table(catalog, version)
    files = [data_file(table, range(start, start + 4)) for start in range(0, 40, 4)]
    commit(table, AppendFiles(data_files=tuple(files)))
    table = table.refresh()
    start = table.current_snapshot()
    assert start is not None
    removed = tuple(replace(deletes(table, of, [1]), referenced_data_file=of.path) for of in files)
    commit(table, RowDelta(command=Command.DELETE, delete_files=removed, starting_snapshot_id=start.snapshot_id))
    table = table.refresh()
    unpacked.clear()
    (task,) = plan_scan(table, None, EqualTo("id", 17)).tasks
    assert task.path == files[4].path
    assert task.has_deletes
    assert len(unpacked) == 1
    assert all(task.has_deletes for task in plan_scan(table, None).tasks)
    assert len(unpacked) == 11


@pytest.mark.parametrize("properties", [{CACHE_ENABLED: "false"}, {CACHE_MAX_BYTES: "0"}])
def test_nothing_is_kept_where_the_catalog_says_so(
    tmp_path: Path, opened: list[str], properties: dict[str, str]
) -> None:
    catalog = load("lake", str(tmp_path / "w"), **properties)
    create_namespace(catalog, ("db",))
    table = filled(catalog)
    opened.clear()
    for _ in range(2):
        plan_scan(table, None)
    assert len(opened) == 6
    assert cache_of(table).nbytes == 0
    catalog.close()


def test_no_more_is_kept_than_the_catalog_allows(tmp_path: Path, opened: list[str]) -> None:
    """What was used least goes first, and what is larger than all the room is not kept."""
    catalog = load("lake", str(tmp_path / "w"), **{CACHE_MAX_BYTES: "9000"})
    create_namespace(catalog, ("db",))
    tables = [filled(catalog, name) for name in ("t", "u")]
    for table in tables * 2:
        plan_scan(table, None)
        assert 0 < cache_of(table).nbytes <= 9000
    opened.clear()
    plan_scan(tables[1], None)
    assert len(opened) < 3
    plan_scan(tables[0], None)
    assert opened
    catalog.close()
    small = ManifestCache(10)
    snapshot = tables[0].current_snapshot()
    assert snapshot is not None
    assert small.manifests(tables[0].io, snapshot) == small.manifests(tables[0].io, snapshot)
    assert small.nbytes == 0


def test_of_a_table_that_does_not_fit_a_part_stays(tmp_path: Path, opened: list[str]) -> None:
    """The next plan begins where this one began: forgetting what was used least would leave it nothing."""
    catalog = load("lake", str(tmp_path / "w"))
    create_namespace(catalog, ("db",))
    table = new_table(catalog, 2)
    for number in range(8):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
        table = table.refresh()
    plan_scan(table, None)
    whole = cache_of(table).nbytes
    catalog.close()
    catalog = load("lake", str(tmp_path / "w"), **{CACHE_MAX_BYTES: str(whole * 3 // 4)})
    table = catalog.load_table(("db", "t"))
    opened.clear()
    first = plan_scan(table, None)
    assert len(opened) == 9  # the list and its manifests
    opened.clear()
    assert plan_scan(table, None) == first
    assert 0 < len(opened) < 5
    other = filled(catalog, "u")
    opened.clear()
    for _ in range(2):
        plan_scan(other, None)
    assert len(opened) == 3, "what another table has kept goes"
    assert 0 < cache_of(table).nbytes <= whole * 3 // 4
    catalog.close()


def test_catalogs_share_nothing(catalog: Catalog, tmp_path: Path) -> None:
    """Who opens a catalog with other credentials has to read with them."""
    filled(catalog)
    others = load("lake", str(tmp_path / "warehouse"))
    tables = [one.load_table(("db", "t")) for one in (catalog, others, catalog)]
    for table in tables:
        plan_scan(table, None)
    assert cache_of(tables[0]) is cache_of(tables[2])
    assert cache_of(tables[0]) is not cache_of(tables[1])
    others.close()


def test_odd_properties_are_an_error(tmp_path: Path) -> None:
    catalog = load("lake", str(tmp_path / "w"), **{CACHE_MAX_BYTES: "much"})
    create_namespace(catalog, ("db",))
    with pytest.raises(AnalysisError, match=r"io\.manifest\.cache\.max-total-bytes"):
        plan_scan(filled(catalog), None)
    catalog.close()
