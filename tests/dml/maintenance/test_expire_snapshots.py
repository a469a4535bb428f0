"""Files that only expired snapshots reach are deleted, and never another one, whatever others do meanwhile."""

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetPartitionStatisticsUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import dml.ddl.commit
import dml.iceberg
from dml import limits
from dml.catalog import load, register_table
from dml.catalog.loading import DATABASE_FILE
from dml.commit import AppendFiles, DeleteFiles, RowDelta, commit
from dml.errors import (
    AnalysisError,
    CorruptFileError,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
)
from dml.maintenance import (
    ExpireSnapshots,
    FileKind,
    RemoveOrphanFiles,
    SnapshotExpiry,
    expire_snapshots,
    remove_orphan_files,
)
from dml.model.manifest import ContentFile
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, duckdb_connection, equality_deletes, new_table, vectors
from tests.dml.conftest import database
from tests.fixtures.java.tables import HERE, lay_out, place_of_tables

expiry_module = import_module("dml.maintenance.expire_snapshots")  # the package has a function of that name

NAME = ("db", "t")
LATER = datetime.now(UTC) + timedelta(days=1)
ALL = ExpireSnapshots(older_than=LATER, retain_last=1)


@pytest.fixture
def make_catalog(tmp_path: Path) -> Callable[[], Catalog]:
    """Makes catalogs like `catalog`, several in one test."""
    numbers = itertools.count()

    def make() -> Catalog:
        warehouse = tmp_path / str(next(numbers))
        warehouse.mkdir()
        (warehouse / DATABASE_FILE).write_bytes(database())
        return load("lake", str(warehouse))

    return make


def expire(catalog: Catalog, call: ExpireSnapshots = ALL, name: tuple[str, ...] = NAME) -> SnapshotExpiry:
    return expire_snapshots(catalog, name, call)


def local(location: str) -> Path:
    """The file that a location names, however it is spelled."""
    return Path("/" + location.removeprefix("file:").lstrip("/")).resolve()


def stored(table: Table) -> set[Path]:
    """All files of the table but its metadata files."""
    folder = Path(table.location().removeprefix("file://"))
    return {path.resolve() for path in folder.rglob("*") if path.is_file() and ".metadata.json" not in path.name}


def reached(table: Table, snapshots: Any = None) -> set[Path]:
    """All files that snapshots reach, as PyIceberg reads them: independent of RowDelta's readers."""
    found = set()
    for snapshot in table.metadata.snapshots if snapshots is None else snapshots:
        found.add(local(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            found.add(local(manifest.manifest_path))
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found.add(local(entry.data_file.file_path))
    return found


def head(catalog: Catalog) -> int:
    snapshot = catalog.load_table(NAME).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


# ---- as in Java


def test_the_same_metadata_is_cleaned_as_in_java():
    """Specs and schemas of Java's own tables, whose specs and columns changed."""
    recorded: dict[str, dict[str, Any]] = json.loads((HERE / "expired.json").read_text(encoding="utf-8"))
    cleaned = 0
    with place_of_tables() as place:
        place.mkdir()
        catalog = load("lake", str(place / "lake"))
        catalog.create_namespace(("db",))
        for name, java in recorded.items():
            before = register_table(catalog, ("db", name), lay_out(name)).metadata
            call = ExpireSnapshots(older_than=LATER, retain_last=1, clean_expired_metadata=True)
            found = expire(catalog, call, ("db", name))
            metadata = catalog.load_table(("db", name)).metadata
            assert {
                "deleted": [found.deleted[kind] for kind in FileKind],
                "snapshots": sorted(snapshot.snapshot_id for snapshot in metadata.snapshots),
                "specs": sorted(spec.spec_id for spec in metadata.partition_specs),
                "schemas": sorted(schema.schema_id for schema in metadata.schemas),
            } == java, name
            cleaned += len(before.schemas) > len(metadata.schemas)
    assert cleaned > 3


# ---- what is deleted and what stays


KINDS = (
    "append",
    "append on branch",
    "add again",
    "add again on branch",
    "delete",
    "delete on branch",
    "delete rows",
    "overwrite",
    "roll back",
    "branch",
    "tag",
    "stage",
    "add by another name",
)


def ids_at(table: Table, snapshot_id: int) -> list[int]:
    """The ids of a snapshot as DuckDB reads them: PyIceberg reads no equality deletes."""
    path = table.metadata_location.removeprefix("file://")
    query = f"SELECT id FROM iceberg_scan('{path}', snapshot_from_id = {snapshot_id})"
    return sorted(row[0] for row in duckdb_connection().execute(query).fetchall())


class History:
    """A table with a random history.

    Attributes:
        table: The table.
        files: Data files that were added, which steps delete and add again.
        deleted: True if the first one has a position delete file or a deletion vector.
    """

    def __init__(self, catalog: Catalog, version: int) -> None:
        self.catalog = catalog
        self.table = new_table(catalog, version, partitioned=True)
        self.files: list[ContentFile] = []
        self.deleted = False
        self.step("append", 0)

    def step(self, kind: str, number: int) -> None:
        """Change the table; a step that its state does not allow does nothing."""
        table = self.catalog.load_table(NAME)
        heads = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        branch = "b" if kind.endswith("branch") else "main"
        match kind.removesuffix(" on branch"):
            case "append":
                self.files.append(data_file(self.table, [number], "a"))
                self.add(self.files[-1], branch)
            case "add again":
                self.add(self.files[number % len(self.files)], branch)
            case "add by another name":
                file = self.files[number % len(self.files)]
                self.files.append(replace(file, path=respelled(file.path)))
                self.add(self.files[-1], branch)
            case "delete" if branch in {*table.metadata.refs}:
                path = self.files[number % len(self.files)].path
                if any(path == file for file in live(table, branch)):
                    commit(table, DeleteFiles(paths=frozenset({path})), branch=branch)
            case "delete rows" if table.metadata.format_version > 1 and self.files[0].path in live(table, "main"):
                # A file has one deletion vector at most; equality deletes may be many.
                file = self.files[0]
                made = equality_deletes(self.table, file, 77) if self.deleted else deletes(self.table, file, [0])
                self.deleted = True
                start = head(self.catalog)
                commit(table, RowDelta(delete_files=(made,), command=Command.DELETE, starting_snapshot_id=start))
            case "overwrite":
                commit(table, DeleteFiles(row_filter=AlwaysTrue()))
            case "roll back":
                table.manage_snapshots().set_current_snapshot(heads[number % len(heads)]).commit()
            case "branch":
                table.manage_snapshots().create_branch(heads[number % len(heads)], "b").commit()
            case "tag":
                table.manage_snapshots().create_tag(heads[number % len(heads)], f"t{number % 3}").commit()
            case "stage":
                commit(table, AppendFiles(data_files=(self.files[number % len(self.files)],)), stage_only=True)

    def add(self, file: ContentFile, branch: str) -> None:
        table = self.catalog.load_table(NAME)
        exists = branch in table.metadata.refs or branch == "main"
        if exists or table.current_snapshot() is not None:
            commit(table, AppendFiles(data_files=(file,)), branch=branch, create_branch=not exists)


SEEDED = [kind for kind in KINDS if kind != "add by another name"]  # Java counts both names of a file


@pytest.mark.parametrize(
    ("version", "seed", "retain_last", "deleted"),
    [
        (1, 1, 1, [2, 0, 0, 10, 13, 0]),
        (2, 1, 1, [2, 1, 0, 11, 14, 0]),
        (2, 2, 1, [2, 1, 2, 9, 13, 0]),
        (2, 3, 2, [0, 0, 0, 9, 10, 0]),
        (3, 1, 1, [2, 1, 0, 11, 14, 0]),
    ],
)
def test_the_same_numbers_of_files_as_java(catalog, version, seed, retain_last, deleted):
    """Recorded from Iceberg 1.10.2 on these histories."""
    history, chance = History(catalog, version), random.Random(seed)
    for _ in range(25):
        history.step(chance.choice(SEEDED), chance.randrange(6))
    found = expire(catalog, ExpireSnapshots(older_than=LATER, retain_last=retain_last))
    assert [found.deleted[kind] for kind in FileKind] == deleted


def respelled(path: str) -> str:
    return f"file:{path.removeprefix('file://')}" if path.startswith("file://") else path


def live(table: Table, branch: str) -> set[str]:
    snapshot = table.snapshot_by_name(branch)
    if snapshot is None:
        return set()
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), min_size=3, max_size=9)
CALLS = st.fixed_dictionaries(
    {
        "retain_last": st.sampled_from([None, 1, 2, 3]),
        "older_than": st.sampled_from([LATER, LATER, LATER, None]),
        "places": st.lists(st.integers(0, 9), max_size=2),
        "removes_refs": st.booleans(),
    }
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([1, 2, 3]), steps=STEPS, call=CALLS)
def test_any_history(make_catalog: Callable[[], Catalog], version, steps, call):
    """Every file that a remaining snapshot reaches stays, every other one goes, and nothing else changes."""
    catalog = make_catalog()
    history = History(catalog, version)
    for kind, number in steps:
        history.step(kind, number)
    if call["removes_refs"]:
        catalog.load_table(NAME).transaction().set_properties(
            {"history.expire.max-ref-age-ms": "0"}
        ).commit_transaction()
    before = catalog.load_table(NAME)
    heads = {ref.snapshot_id for ref in before.metadata.refs.values()}
    snapshots = before.metadata.snapshots
    ids = {snapshots[place].snapshot_id for place in call["places"] if place < len(snapshots)} - heads
    options = ExpireSnapshots(older_than=call["older_than"], retain_last=call["retain_last"], snapshot_ids=tuple(ids))
    rows = {one.snapshot_id: ids_at(before, one.snapshot_id) for one in snapshots}
    all_before, stored_before = reached(before), stored(before)
    found = expire(catalog, options)
    after = catalog.load_table(NAME)
    assert ids.isdisjoint(one.snapshot_id for one in after.metadata.snapshots)
    needed = reached(after)
    deleted = stored_before - stored(after)
    assert deleted == all_before - needed
    assert found.deleted.total() == len(deleted)
    assert after.current_snapshot() == before.current_snapshot()
    for snapshot in after.metadata.snapshots:
        assert ids_at(after, snapshot.snapshot_id) == rows[snapshot.snapshot_id]
        assert snapshot == before.snapshot_by_id(snapshot.snapshot_id)


def appended(catalog: Catalog, count: int = 4, version: int = 2, **properties: str) -> tuple[Table, list[ContentFile]]:
    """A table with one snapshot for each data file, of which only the last file is still live."""
    table = new_table(catalog, version, **properties)
    files = [data_file(table, [number]) for number in range(count)]
    for number, file in enumerate(files):
        commit(table, AppendFiles(data_files=(file,)))
        if number < count - 1:
            commit(table, DeleteFiles(paths=frozenset({file.path})))
    return catalog.load_table(NAME), files


def test_files_of_two_specs_and_names(catalog):
    """A file that a kept snapshot names with another spec or another spelling is needed."""
    table, files = appended(catalog)
    table.update_spec().add_field("p", IdentityTransform(), "p").commit()
    table = catalog.load_table(NAME)
    again = (
        replace(files[0], spec_id=table.spec().spec_id, partition=("a",)),
        replace(files[1], path=respelled(files[1].path)),
    )
    for file in again:
        commit(table, AppendFiles(data_files=(file,)))
    found = expire(catalog)
    assert found.deleted[FileKind.DATA] == 1
    assert [local(file.path).exists() for file in files] == [True, True, False, True]


def test_a_file_behind_a_link_is_needed(catalog, tmp_path):
    """A table whose folder was moved and linked to has two names for each file."""
    table, files = appended(catalog)
    link = tmp_path / "link"
    link.symlink_to(local(table.location()))
    linked = replace(files[0], path=f"file://{link}/data/{local(files[0].path).name}")
    commit(table, AppendFiles(data_files=(linked,)))
    expire(catalog)
    assert [local(file.path).exists() for file in files] == [True, False, False, True]


def test_files_elsewhere_and_statistics(catalog, tmp_path):
    """`write.data.path` decides nothing: locations do. Statistics of expired snapshots go, others stay."""
    table, files = appended(catalog)
    outside = tmp_path / "elsewhere.parquet"
    outside.write_bytes(local(files[0].path).read_bytes())
    moved = replace(files[0], path=f"file://{outside}")
    commit(table, AppendFiles(data_files=(moved,)))
    old = head(catalog)
    commit(table, DeleteFiles(paths=frozenset({moved.path})))
    places = {}
    for snapshot_id in (old, head(catalog)):
        for kind in ("puffin", "parquet"):
            places[snapshot_id, kind] = tmp_path / f"{snapshot_id}.{kind}"
            places[snapshot_id, kind].write_bytes(b"statistics")
        with catalog.load_table(NAME).update_statistics() as update:
            update.set_statistics(
                StatisticsFile(
                    snapshot_id=snapshot_id,
                    statistics_path=str(places[snapshot_id, "puffin"]),
                    file_size_in_bytes=10,
                    file_footer_size_in_bytes=1,
                    blob_metadata=[],
                )
            )
        partition_statistics = PartitionStatisticsFile(
            snapshot_id=snapshot_id, statistics_path=str(places[snapshot_id, "parquet"]), file_size_in_bytes=10
        )
        catalog.commit_table(
            catalog.load_table(NAME), (), (SetPartitionStatisticsUpdate(partition_statistics=partition_statistics),)
        )
    found = expire(catalog)
    assert found.deleted[FileKind.STATISTICS] == 2
    assert [path.exists() for path in places.values()] == [False, False, True, True]
    assert not outside.exists()
    metadata = catalog.load_table(NAME).metadata
    assert len(metadata.statistics) == len(metadata.partition_statistics) == 1


def test_a_dry_run_says_what_the_call_does_and_changes_nothing(catalog):
    """With one decision for each ref, snapshot, spec, schema and kind of file."""
    table, _ = appended(catalog)
    table.update_spec().add_field("p", IdentityTransform(), "p").commit()
    with catalog.load_table(NAME).update_schema() as update:
        update.rename_column("p", "q")
    catalog.load_table(NAME).manage_snapshots().create_tag(head(catalog), "v1").commit()
    commit(catalog.load_table(NAME), DeleteFiles(row_filter=AlwaysTrue()))
    before = catalog.load_table(NAME)
    call = replace(ALL, clean_expired_metadata=True)
    tried = expire(catalog, replace(call, dry_run=True))
    assert catalog.load_table(NAME).metadata_location == before.metadata_location
    assert stored(before) == stored(catalog.load_table(NAME))
    done = expire(catalog, call)
    assert tried.deleted == done.deleted
    assert done.decisions == ()
    assert [(one.decision, one.object) for one in tried.decisions] == [
        ("keep", "branch main"),
        ("keep", "tag v1"),
        *(
            ("keep" if place >= 6 else "expire", f"snapshot {snapshot.snapshot_id}")
            for place, snapshot in enumerate(before.metadata.snapshots)
        ),
        ("delete", "data files"),
        ("keep", "position delete files"),
        ("keep", "equality delete files"),
        ("delete", "manifests"),
        ("delete", "manifest lists"),
        ("keep", "statistics files"),
    ]


def test_metadata_that_no_remaining_snapshot_uses_goes_if_asked(catalog):
    """Specs by the manifests of remaining snapshots, schemas by their ids; the current ones always stay."""
    table, _ = appended(catalog)
    table.update_spec().add_field("p", IdentityTransform(), "p").commit()
    with catalog.load_table(NAME).update_schema() as update:
        update.rename_column("p", "q")
    table = catalog.load_table(NAME)
    commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    file = data_file(table, [9], "a")
    commit(table, AppendFiles(data_files=(file,)))
    expire(catalog)
    metadata = catalog.load_table(NAME).metadata
    assert (len(metadata.partition_specs), len(metadata.schemas)) == (2, 2)
    found = expire(catalog, replace(ALL, clean_expired_metadata=True, dry_run=True))
    removed = [one.object for one in found.decisions if one.decision == "remove"]
    assert removed == ["partition spec 0", "schema 0"]
    expire(catalog, replace(ALL, clean_expired_metadata=True))
    metadata = catalog.load_table(NAME).metadata
    assert ([spec.spec_id for spec in metadata.partition_specs], [one.schema_id for one in metadata.schemas]) == (
        [1],
        [1],
    )
    assert catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist() == [9]


def test_columns_of_remaining_specs_and_equality_deletes_keep_their_schemas(catalog):
    """Their types come from the newest schema that has them: without it, the table could not be changed any more."""
    table = new_table(catalog, 2, partitioned=True)
    file = data_file(table, [1, 2], "a")
    commit(table, AppendFiles(data_files=(file,)))
    made = equality_deletes(table, file, 1)
    start = head(catalog)
    commit(table, RowDelta(delete_files=(made,), command=Command.DELETE, starting_snapshot_id=start))
    table.refresh().update_spec().remove_field("p").commit()
    for change in (
        lambda schema: schema.add_column("n", LongType()),
        lambda schema: schema.delete_column("p"),
        lambda schema: schema.delete_column("id"),
    ):
        with catalog.load_table(NAME).update_schema() as schema:
            change(schema)
    table = catalog.load_table(NAME)
    commit(table, AppendFiles(data_files=(data_file(table, [3]),)))
    expire(catalog, replace(ALL, clean_expired_metadata=True))
    table = catalog.load_table(NAME)
    # Schema 1 has p, and 2 has id, which 3 lacks; 0 has both, but is older.
    assert [one.schema_id for one in table.metadata.schemas] == [1, 2, 3]
    commit(table, DeleteFiles(paths=frozenset({file.path})))


def test_a_spec_that_a_commit_stages_meanwhile_stays(catalog, monkeypatch):
    """No requirement excludes it: the catalog refuses to remove the spec, and the next plan keeps it."""
    table, files = appended(catalog)
    table.update_spec().add_field("p", IdentityTransform(), "p").commit()
    table = catalog.load_table(NAME)
    commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    commit(table, AppendFiles(data_files=(data_file(table, [9]),)))
    before_the_commit(
        monkeypatch, lambda: commit(table.refresh(), AppendFiles(data_files=(files[0],)), stage_only=True)
    )
    expire(catalog, replace(ALL, older_than=datetime.now(UTC), clean_expired_metadata=True))
    table = catalog.load_table(NAME)
    assert [spec.spec_id for spec in table.metadata.partition_specs] == [0, 1]
    staged = table.metadata.snapshots[-1]
    assert {manifest.partition_spec_id for manifest in staged.manifests(table.io)} == {0, 1}


def test_deletion_vectors_in_a_file_of_expired_statistics_stay(catalog):
    """A Puffin file may have both."""
    table = new_table(catalog, 3)
    file = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(file,)))
    (vector,) = vectors(table, [(file, [0])])
    start = head(catalog)
    commit(table, RowDelta(delete_files=(vector,), command=Command.DELETE, starting_snapshot_id=start))
    with catalog.load_table(NAME).update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=start,
                statistics_path=vector.path,
                file_size_in_bytes=10,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )
    assert expire(catalog).deleted == {FileKind.MANIFEST_LIST: 1}
    assert local(vector.path).exists()


# ---- refusals


def test_what_is_refused(catalog):
    """Nothing changes."""
    table, _ = appended(catalog)
    before = table.metadata_location
    with pytest.raises(AnalysisError, match="must be at least 1, cannot be: 0"):
        ExpireSnapshots(retain_last=0)
    with pytest.raises(AnalysisError, match="max_concurrent_deletes should have value > 0, value: 0"):
        ExpireSnapshots(max_concurrent_deletes=0)
    with pytest.raises(AnalysisError, match=rf"Cannot expire {head(catalog)}. Still referenced by refs: \[main\]"):
        expire(catalog, replace(ALL, snapshot_ids=(head(catalog),)))
    with pytest.raises(NotFoundError):
        expire(catalog, name=("db", "missing"))
    assert catalog.load_table(NAME).metadata_location == before
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    for dry_run in (True, False):
        with pytest.raises(NotSupportedError, match="Cannot expire snapshots: GC is disabled"):
            expire(catalog, replace(ALL, dry_run=dry_run))


def test_nothing_to_expire_makes_no_commit(catalog):
    """Also of a table without snapshots."""
    table = new_table(catalog, 2)
    assert expire(catalog).deleted.total() == 0
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    before = catalog.load_table(NAME)
    assert expire(catalog).deleted.total() == 0
    assert catalog.load_table(NAME).metadata_location == before.metadata_location


@pytest.mark.parametrize("damage", ["missing", "cut"])
@pytest.mark.parametrize("what", ["list", "manifest"])
def test_a_damaged_file_of_a_kept_snapshot_stops_everything(catalog, what, damage):
    """Before the commit: the table stays as it is."""
    table, _ = appended(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path = local(snapshot.manifest_list if what == "list" else snapshot.manifests(table.io)[0].manifest_path)
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[: content.index(content[-16:]) + 16])  # the header: a list without lines
    before = stored(table)
    with pytest.raises(CorruptFileError):
        expire(catalog)
    assert stored(table) == before
    assert catalog.load_table(NAME).metadata_location == table.metadata_location


def test_a_list_with_fewer_files_than_its_summary_stops_everything(catalog):
    """Cut between two blocks, it looks whole."""
    table, _ = appended(catalog)
    old, current = table.metadata.snapshots[-2:]
    local(current.manifest_list).write_bytes(local(old.manifest_list).read_bytes())
    before = stored(table)
    with pytest.raises(
        CorruptFileError, match=r"0 data files where the summary of snapshot .* has total-data-files = 1"
    ):
        expire(catalog)
    assert stored(table) == before


@pytest.mark.parametrize("what", ["list", "manifest"])
def test_a_damaged_file_of_an_expired_snapshot_is_left(catalog, what):
    """What only it names stays, and so does it; the rest goes."""
    table, files = appended(catalog)
    first = table.metadata.snapshots[0]
    path = local(first.manifest_list if what == "list" else first.manifests(table.io)[0].manifest_path)
    path.write_bytes(b"damaged")
    found = expire(catalog, replace(ALL, dry_run=True))
    assert [one.decision for one in found.decisions if local(one.object) == path] == ["keep"]
    assert expire(catalog).deleted[FileKind.DATA] == 2
    assert [local(file.path).exists() for file in files] == [True, False, False, True]
    assert path.exists()


# ---- races, kills and failing storages


def before_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another commit land between the plan of the first attempt and its commit."""
    real, acts = dml.ddl.commit.commit_table, [act]

    def commit_table(*arguments: Any) -> Any:
        if acts:
            acts.pop()()
        return real(*arguments)

    monkeypatch.setattr(dml.ddl.commit, "commit_table", commit_table)


def tag_first(catalog: Catalog) -> int:
    table = catalog.load_table(NAME)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(first, "kept").commit()
    return first


def test_a_tag_that_is_created_between_plan_and_commit_keeps_its_snapshot(catalog, monkeypatch):
    """No requirement can name it: the catalog refuses to remove the snapshot, and the next plan keeps it."""
    appended(catalog)
    kept: list[int] = []
    before_the_commit(monkeypatch, lambda: kept.append(tag_first(catalog)))
    expire(catalog)
    table = catalog.load_table(NAME)
    assert {one.snapshot_id for one in table.metadata.snapshots} == {*kept, head(catalog)}
    assert table.scan(snapshot_id=kept[0]).to_arrow().num_rows == 1


def test_a_branch_that_moves_between_plan_and_commit_keeps_its_snapshot(catalog, monkeypatch):
    """Main is rolled back to a snapshot that was about to expire."""
    table, _ = appended(catalog)
    first = table.metadata.snapshots[0].snapshot_id
    before_the_commit(monkeypatch, lambda: table.manage_snapshots().set_current_snapshot(first).commit())
    expire(catalog)
    table = catalog.load_table(NAME)
    assert [one.snapshot_id for one in table.metadata.snapshots] == [first]
    assert table.scan().to_arrow().num_rows == 1


def test_a_server_that_drops_a_new_tag_with_its_snapshot_keeps_the_files(catalog, monkeypatch):
    """Requirements cannot exclude it, so the metadata in between is read."""
    table, _ = appended(catalog)
    before = stored(table)
    before_the_commit(monkeypatch, lambda: tag_first(catalog))

    def drop_refs(metadata: Any, updates: Any, removed: set[int]) -> None:
        for name in [name for name, ref in metadata.refs.items() if ref.snapshot_id in removed]:
            del metadata.refs[name]

    monkeypatch.setattr(dml.iceberg, "check_removals", drop_refs)
    with pytest.raises(ExecutionError, match="dropped tag kept") as raised:
        expire(catalog)
    assert "register the metadata file" in str(raised.value.hint)
    assert stored(table) >= before


def test_each_snapshot_is_an_update(catalog, monkeypatch):
    """Servers on Iceberg before 1.9 refuse an update that removes several, so Java sends one for each."""
    appended(catalog)
    real, sent = dml.ddl.commit.commit_table, []

    def commit_table(*arguments: Any) -> Any:
        sent.extend(arguments[-1])
        return real(*arguments)

    monkeypatch.setattr(dml.ddl.commit, "commit_table", commit_table)
    expire(catalog)
    removals = [len(one.snapshot_ids) for one in sent if isinstance(one, RemoveSnapshotsUpdate)]
    assert removals == [1] * 6


def between_batches(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], batch: int = 1) -> None:
    """Act after the given number of batches, each of one file."""
    real, number = expiry_module.delete_all, itertools.count(1)
    monkeypatch.setattr(limits, "ORPHAN_BATCH_FILES", 1)

    def delete_all(*arguments: Any) -> Any:
        outcome = real(*arguments)
        if next(number) == batch:
            act()
        return outcome

    monkeypatch.setattr(expiry_module, "delete_all", delete_all)


def test_a_file_that_a_commit_adds_again_during_the_deletion_stays(catalog, monkeypatch):
    """The newest metadata is read before each batch."""
    table, files = appended(catalog)
    between_batches(monkeypatch, lambda: commit(table, AppendFiles(data_files=(files[2],))))
    found = expire(catalog)
    assert found.deleted[FileKind.DATA] == 2
    assert [local(file.path).exists() for file in files] == [False, False, True, True]
    assert sorted(catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist()) == [2, 3]


def test_an_error_after_the_first_batch_says_what_is_deleted(catalog, monkeypatch):
    """And what to do about the rest."""
    table, files = appended(catalog)
    between_batches(
        monkeypatch, lambda: table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    )
    with pytest.raises(
        ExecutionError, match=r"have expired, but not all of their files are deleted.*GC is disabled"
    ) as raised:
        expire(catalog)
    assert "these are deleted: 1 data files" in str(raised.value.hint)
    assert raised.value.context["deleted"] == {FileKind.DATA: 1}
    assert sum(local(file.path).exists() for file in files) == 3


def test_files_that_cannot_be_deleted_are_reported(catalog, monkeypatch):
    """The others are deleted; deleting again is up to `remove_orphan_files`."""
    _, files = appended(catalog)
    real = expiry_module.delete_file

    def delete_file(io: Any, location: str) -> None:
        if location == files[1].path:
            raise PermissionError("read-only")
        real(io, location)

    monkeypatch.setattr(expiry_module, "delete_file", delete_file)
    with pytest.raises(
        ExecutionError, match=f"1 files could not be deleted: '{files[1].path}' \\(read-only\\)"
    ) as raised:
        expire(catalog)
    assert "2 data files" in str(raised.value.hint)
    assert [local(file.path).exists() for file in files] == [False, True, False, True]


@pytest.mark.parametrize("batch", [0, 1])
def test_what_a_killed_process_leaves_is_found_as_orphans(catalog, monkeypatch, batch):
    """Killed after the commit, or after the first batch."""
    table, _ = appended(catalog)
    call = replace(ALL, dry_run=True)
    planned = expire(catalog, call).deleted.total()

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    if batch:
        between_batches(monkeypatch, kill)
    else:
        monkeypatch.setattr(expiry_module, "delete_all", kill)
    with pytest.raises(KeyboardInterrupt):
        expire(catalog)
    monkeypatch.undo()
    table = catalog.load_table(NAME)
    left = stored(table) - reached(table)
    assert len(left) == planned - batch
    orphans = remove_orphan_files(catalog, NAME, RemoveOrphanFiles(older_than=LATER, dry_run=True))
    assert left <= {local(location) for location in orphans.orphans}
    assert table.scan().to_arrow()["id"].to_pylist() == [3]


def test_a_table_that_was_replaced_meanwhile_loses_nothing(catalog, monkeypatch):
    """Another table may have taken the name, and the folder."""
    _, files = appended(catalog)

    def replace_table() -> None:
        catalog.drop_table(NAME)
        new_table(catalog, 2)

    between_batches(monkeypatch, replace_table)
    with pytest.raises(ExecutionError, match="was replaced by another one"):
        expire(catalog)
    assert sum(local(file.path).exists() for file in files) == 3
