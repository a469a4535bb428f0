"""rewrite_manifests: the same files with all their fields, clustered, whatever others commit meanwhile.

`JAVA` has what Iceberg's Java library (1.10.2) did on the same tables.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from dml import limits
from dml.catalog import create_namespace, create_table, load
from dml.commit import AppendFiles, DeleteFiles, RewriteManifests, RowDelta, commit, publish
from dml.errors import AnalysisError, CommitConflictError, CommitStateUnknownError, NotFoundError, ValidationFailedError
from dml.maintenance.rewrite_manifests import plan_manifest_rewrite, rewrite_manifests
from dml.manifests.live_entries import live_entries
from dml.manifests.read import entries_of, manifests_of
from dml.manifests.write import ManifestWriter
from dml.model.manifest import ContentFile, EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, equality_deletes, ids, new_table, vectors
from tests.other_writers import set_properties

ALL = pytest.mark.parametrize("version", [1, 2, 3])
NO_MERGE = {"commit.manifest-merge.enabled": "false"}
DEFAULT_TARGET = 8 * 1024 * 1024

Lived = tuple[ManifestContent, ContentFile, int | None, int | None, int | None, int | None]


def manifests(table: Table, branch: str = "main") -> tuple[ManifestFile, ...]:
    """The manifests of a branch's head."""
    return manifests_of(table.io, table.refresh().snapshot_by_name(branch))


def live(table: Table, branch: str = "main") -> list[Lived]:
    """All that is known of the live files, in any order."""
    return sorted(
        (
            (
                manifest.content,
                entry.data_file,
                entry.snapshot_id,
                entry.data_sequence_number,
                entry.file_sequence_number,
                entry.first_row_id,
            )
            for manifest in manifests(table, branch)
            for entry in entries_of(manifest, table.io, live_only=True)
        ),
        key=repr,
    )


def next_row_id(table: Table) -> int | None:
    metadata = table.refresh().metadata
    return metadata.next_row_id if metadata.format_version > 2 else None


def delete_rows(table: Table, file: ContentFile, positions: list[int]) -> None:
    start = table.refresh().metadata.current_snapshot_id
    delete = deletes(table, file, positions)
    commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))


def filled(catalog: Catalog, version: int, partitions: str = "abcc", commits: int = 6, **properties: str) -> Table:
    """A table with a manifest for each commit, and two delete manifests."""
    table = new_table(catalog, version, partitioned=True, **NO_MERGE, **properties)
    files: list[ContentFile] = []
    for number in range(commits):
        new = tuple(
            data_file(table, [100 * number + 10 * place, 100 * number + 10 * place + 1], p)
            for place, p in enumerate(partitions)
        )
        commit(table, AppendFiles(data_files=new))
        files += new
    if version > 1:
        delete_rows(table, files[-2], [0])
        delete_rows(table, files[-1], [1])
    return table.refresh()


def metadata_files(table: Table) -> set[str]:
    folder = Path(f"{table.location()}/metadata".removeprefix("file://"))
    return {path.name for path in folder.iterdir() if path.suffix == ".avro"}


def bounds(manifest: ManifestFile) -> tuple[bytes | None, bytes | None]:
    assert manifest.partitions is not None
    return manifest.partitions[0].lower_bound, manifest.partitions[0].upper_bound


# Counters of the procedure; manifests-created, -kept and -replaced.
JAVA = {1: ((6, 1), ("1", "0", "6")), 2: ((8, 2), ("2", "0", "8")), 3: ((8, 2), ("2", "0", "8"))}


@ALL
def test_a_rewrite_keeps_every_field_of_every_file(catalog: Catalog, version: int) -> None:
    table = filled(catalog, version)
    before, rows, row_ids = live(table), ids(table.metadata_location), next_row_id(table)
    done = rewrite_manifests(plan_manifest_rewrite(table), {"engine-name": "tests"})
    counts, summary = JAVA[version]
    assert (len(done.removed), len(done.added)) == counts
    assert live(table) == before
    assert ids(table.metadata_location) == rows
    assert next_row_id(table) == row_ids  # no row id is taken
    assert done.snapshot is not None
    assert done.snapshot.operation == "replace"
    found = done.snapshot.summary
    assert tuple(found[f"manifests-{word}"] for word in ("created", "kept", "replaced")) == summary
    assert found["entries-processed"] == str(len(before))
    assert found["changed-partition-count"] == "0"
    assert found["total-data-files"] == "24"
    assert found["engine-name"] == "tests"
    again = plan_manifest_rewrite(table.refresh())
    assert again.removed == ()
    assert rewrite_manifests(again).snapshot is None


@ALL
def test_manifests_have_the_bounds_and_counts_of_their_files(catalog: Catalog, version: int) -> None:
    table = filled(catalog, version)
    old = [manifest for manifest in manifests(table) if manifest.content is ManifestContent.DATA]
    size = sum(manifest.manifest_length for manifest in old)
    target = size // 2 + 1
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(target)})
    done = rewrite_manifests(plan_manifest_rewrite(table.refresh()))
    data = [manifest for manifest in done.added if manifest.content is ManifestContent.DATA]
    # As Spark's range partitioning cuts them: a partition is in one manifest.
    assert [bounds(manifest) for manifest in data] == [(b"a", b"b"), (b"c", b"c")]
    assert [manifest.existing_files_count for manifest in data] == [12, 12]
    assert [manifest.existing_rows_count for manifest in data] == [24, 24]
    assert all(manifest.added_files_count == manifest.deleted_files_count == 0 for manifest in done.added)
    written = [one for one in manifests(table) if one.content is ManifestContent.DATA]
    for manifest in written:
        entries = list(entries_of(manifest, table.io))
        assert {entry.status for entry in entries} == {EntryStatus.EXISTING}
        if version > 1:
            assert manifest.min_sequence_number == min(entry.data_sequence_number or 0 for entry in entries)
        if version > 2:
            row_ids = [entry.first_row_id for entry in entries if entry.first_row_id is not None]
            assert (len(row_ids), manifest.first_row_id) == (len(entries), min(row_ids))
    assert {manifest.added_snapshot_id for manifest in written} == {table.metadata.current_snapshot_id}


@ALL
def test_encoded_entries_equal_decoded_ones(catalog: Catalog, version: int) -> None:
    """The writer of live entries writes what the writer of entries writes, byte for byte but the sync marker."""
    table = filled(catalog, version)
    writer = ManifestWriter(table.io, table.metadata, 7)
    for number, source in enumerate(manifests(table)):
        location = f"{table.location()}/metadata/{number}.avro"
        entries = tuple(
            ManifestEntry(
                status=EntryStatus.EXISTING,
                snapshot_id=entry.snapshot_id,
                data_sequence_number=entry.data_sequence_number,
                file_sequence_number=entry.file_sequence_number,
                first_row_id=entry.first_row_id,
                data_file=entry.data_file,
            )
            for entry in entries_of(source, table.io, live_only=True)
        )
        expected = writer.write(f"{location}.expected", 0, source.content, entries)
        (found,) = writer.write_existing(
            partial(str, location), 0, source.content, live_entries(source, table.io), DEFAULT_TARGET
        )
        number_of = replace(found, sequence_number=0 if version == 1 else 9)
        read = tuple(entries_of(number_of, table.io))
        assert [entry.data_file for entry in read] == [entry.data_file for entry in entries]
        assert read == tuple(
            entries_of(
                replace(expected, sequence_number=number_of.sequence_number, first_row_id=found.first_row_id), table.io
            )
        )
        assert found.manifest_length == expected.manifest_length
        assert found.partitions == expected.partitions


def test_sort_by_orders_fields_and_unknown_ones_are_refused(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True, **NO_MERGE)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    table.refresh()
    for p, bucket in [("a", 3), ("b", 0), ("a", 1), ("b", 2)]:
        file = data_file(table, [1], p)
        commit(table, AppendFiles(data_files=(in_spec(table, file, (p, bucket)),)))
    plan = plan_manifest_rewrite(table.refresh(), sort_by=["id_bucket"])
    done = rewrite_manifests(plan)
    (manifest,) = [one for one in manifests(table) if one.manifest_path == done.added[0].manifest_path]
    assert [entry.data_file.partition for entry in entries_of(manifest, table.io)] == [
        ("b", 0),
        ("a", 1),
        ("b", 2),
        ("a", 3),
    ]
    with pytest.raises(AnalysisError, match="sort_by must not be empty when provided"):
        plan_manifest_rewrite(table, sort_by=[])
    with pytest.raises(AnalysisError, match=r"specified field\(s\) \[id\] were not found"):
        plan_manifest_rewrite(table, sort_by=["id", "p"])
    with pytest.raises(AnalysisError, match="Invalid spec id 9"):
        plan_manifest_rewrite(table, spec_id=9)
    with pytest.raises(NotFoundError, match="nowhere"):
        plan_manifest_rewrite(table, branch="nowhere")


def in_spec(table: Table, file: ContentFile, partition: tuple[Any, ...]) -> ContentFile:
    """The same file in a partition of the table's current spec."""
    return replace(file, spec_id=table.spec().spec_id, partition=partition)


def test_only_manifests_of_the_spec_are_rewritten(catalog: Catalog) -> None:
    table = filled(catalog, 2, partitions="a", commits=2)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    table.refresh()
    for number in range(2):
        commit(table, AppendFiles(data_files=(in_spec(table, data_file(table, [number], "a"), ("a", number)),)))
    before = live(table)
    old = rewrite_manifests(plan_manifest_rewrite(table.refresh(), spec_id=0))
    assert {manifest.partition_spec_id for manifest in (*old.removed, *old.added)} == {0}
    assert old.snapshot is not None
    assert old.snapshot.summary["manifests-kept"] == "2"
    plan = plan_manifest_rewrite(table.refresh())
    reasons = {decision.reason for decision in plan.decisions if not decision.is_rewritten}
    assert reasons == {"of partition spec 0, not 1"}
    rewrite_manifests(plan)
    assert live(table) == before


def test_an_unpartitioned_table_is_cut_by_the_number_of_files(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **NO_MERGE)
    for number in range(6):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
    size = sum(manifest.manifest_length for manifest in manifests(table))
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(size // 3 + 1)})
    plan = plan_manifest_rewrite(table.refresh())
    assert plan.estimate_added() == 3
    assert [manifest.existing_files_count for manifest in rewrite_manifests(plan).added] == [2, 2, 2]
    assert ids(table.refresh().metadata_location) == list(range(6))


def test_a_manifest_above_the_target_is_split(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition is not cut by the plan: the writer begins another manifest when one is full."""
    monkeypatch.setattr(limits, "MANIFEST_BLOCK_ENTRIES", 4)
    table = filled(catalog, 3, partitions="a" * 12, commits=1)
    (manifest,) = [one for one in manifests(table) if one.content is ManifestContent.DATA]
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(int(manifest.manifest_length / 1.5))})
    before, row_ids = live(table), next_row_id(table)
    plan = plan_manifest_rewrite(table.refresh())
    assert "above target" in plan.decisions[0].reason
    added = [one for one in rewrite_manifests(plan).added if one.content is ManifestContent.DATA]
    assert len(added) > 1
    assert sum(one.existing_files_count or 0 for one in added) == 12
    assert live(table) == before
    assert next_row_id(table) == row_ids


def test_manifests_are_read_in_passes_if_files_are_many(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog, 3, partitions="abcdef")
    size = sum(one.manifest_length for one in manifests(table) if one.content is ManifestContent.DATA)
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(size // 3 + 1)})
    before, row_ids = live(table), next_row_id(table)
    monkeypatch.setattr(limits, "MANIFEST_REWRITE_ENTRIES", 12)
    done = rewrite_manifests(plan_manifest_rewrite(table.refresh()))
    data = [manifest for manifest in done.added if manifest.content is ManifestContent.DATA]
    assert [bounds(manifest) for manifest in data] == [(b"a", b"b"), (b"c", b"d"), (b"e", b"f")]
    assert live(table) == before
    assert next_row_id(table) == row_ids


# ---- other commits ----------------------------------------------------------------------------------------------


@ALL
def test_files_that_others_append_meanwhile_stay(catalog: Catalog, version: int) -> None:
    table = filled(catalog, version)
    plan = plan_manifest_rewrite(table)
    new = data_file(table, [9001], "z")
    commit(table, AppendFiles(data_files=(new,)))
    before, row_ids = live(table), next_row_id(table)
    done = rewrite_manifests(plan)
    assert live(table) == before
    assert next_row_id(table) == row_ids
    assert done.snapshot is not None
    assert done.snapshot.summary["manifests-kept"] == "1"


def lose(table: Table, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run another commit right before the catalog receives the first attempt."""
    original, pending = publish.commit_table, [action]

    def commit_late(*arguments: Any) -> Any:
        if pending:
            pending.pop()()
        return original(*arguments)

    monkeypatch.setattr(publish, "commit_table", commit_late)


def test_an_attempt_that_loses_to_an_append_is_repeated(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog, 3, **{"commit.retry.min-wait-ms": "1"})
    before = live(table)
    new = data_file(table, [9001], "z")
    lose(table, monkeypatch, lambda: commit(table, AppendFiles(data_files=(new,))))
    done = rewrite_manifests(plan_manifest_rewrite(table))
    assert done.snapshot is not None
    assert done.snapshot.attempts == 2
    after = live(table)
    assert [file for file in after if file[1].path != new.path] == before
    assert len(after) == len(before) + 1
    assert len([name for name in metadata_files(table) if name.startswith("optimized-m-")]) == len(done.added)


@ALL
def test_a_manifest_that_another_commit_replaced_is_a_conflict(catalog: Catalog, version: int) -> None:
    table = filled(catalog, version)
    plan = plan_manifest_rewrite(table)
    path = next(file.path for _, file, *_ in live(table) if file.partition == ("a",))
    commit(table, DeleteFiles(paths=frozenset({path})))
    before, files = live(table), metadata_files(table)
    with pytest.raises(CommitConflictError, match="could not be found in the latest snapshot"):
        rewrite_manifests(plan)
    assert live(table) == before
    assert metadata_files(table) == files


def test_an_upgrade_meanwhile_is_a_conflict(catalog: Catalog) -> None:
    """The first commit of version 3 gives the files row ids, which manifests from before would lose."""
    table = filled(catalog, 2)
    plan = plan_manifest_rewrite(table)
    set_properties(table, {"format-version": "3"})
    files = metadata_files(table)
    with pytest.raises(CommitConflictError, match="upgraded from format version 2 to 3"):
        rewrite_manifests(plan)
    assert metadata_files(table) == files


# ---- failures ---------------------------------------------------------------------------------------------------


def test_a_failure_while_writing_leaves_no_manifest(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog, 2)
    files = metadata_files(table)
    written: list[int] = []
    original = ManifestWriter.write_existing

    def fail_late(self: ManifestWriter, *arguments: Any) -> Any:
        if written:
            raise OSError("full")
        written.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(ManifestWriter, "write_existing", fail_late)
    with pytest.raises(OSError, match="full"):
        rewrite_manifests(plan_manifest_rewrite(table))
    assert written
    assert metadata_files(table) == files


def test_files_stay_if_the_commit_may_have_landed(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog, 2)

    def unknown(*_: Any, **__: Any) -> None:
        raise CommitStateUnknownError("no answer")

    # The package has the function under the name of the module.
    monkeypatch.setattr(import_module("dml.maintenance.rewrite_manifests"), "commit", unknown)
    with pytest.raises(CommitStateUnknownError):
        rewrite_manifests(plan_manifest_rewrite(table))
    assert any(name.startswith("optimized-m-") for name in metadata_files(table))


def test_manifests_that_list_other_files_are_not_committed(catalog: Catalog) -> None:
    table = filled(catalog, 2)
    old = tuple(manifest for manifest in manifests(table) if manifest.content is ManifestContent.DATA)
    with pytest.raises(ValidationFailedError, match=r"same number of active files: 4 \(new\), 24 \(old\)"):
        commit(table, RewriteManifests(manifests=old[-1:], removed_manifests=old))


def test_a_damaged_manifest_stops_the_rewrite(catalog: Catalog) -> None:
    table = filled(catalog, 2)
    files = metadata_files(table)
    last = Path(manifests(table)[-1].manifest_path.removeprefix("file://"))
    last.write_bytes(last.read_bytes()[:-40])
    with pytest.raises(Exception, match="cannot be read"):
        rewrite_manifests(plan_manifest_rewrite(table))
    assert metadata_files(table) == files


def test_a_branch_is_rewritten_alone(catalog: Catalog) -> None:
    table = filled(catalog, 3, commits=2)
    main = table.metadata.current_snapshot_id
    commit(table, AppendFiles(data_files=(data_file(table, [9001], "z"),)), branch="audit", create_branch=True)
    before = live(table, "audit")
    rewrite_manifests(plan_manifest_rewrite(table.refresh(), branch="audit"))
    assert live(table, "audit") == before
    assert table.metadata.current_snapshot_id == main
    assert len(manifests(table, "audit")) == 2


def test_a_table_without_snapshots_has_nothing_to_rewrite(catalog: Catalog) -> None:
    plan = plan_manifest_rewrite(new_table(catalog, 2))
    assert plan.decisions == ()
    assert rewrite_manifests(plan).snapshot is None


# ---- any table --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=3)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("equality"), st.integers(0, 5)),
        st.tuples(st.just("rewrite"), st.sampled_from([3_000, 8_000, DEFAULT_TARGET])),
    ),
    min_size=2,
    max_size=8,
)


def run_step(table: Table, step: tuple[str, Any]) -> None:
    kind, value = step
    files = [file for content, file, *_ in live(table) if content is ManifestContent.DATA]
    target = files[value % len(files)] if files and kind in {"delete", "remove", "equality"} else None
    if kind == "append":
        commit(table, AppendFiles(data_files=tuple(data_file(table, [1, 2, 3], p) for p in value)))
    elif kind == "remove" and target is not None:
        commit(table, DeleteFiles(paths=frozenset({target.path})))
    elif kind == "delete" and target is not None and table.metadata.format_version > 1:
        if target.path not in {file.referenced_data_file for _, file, *_ in live(table)}:
            delete_rows(table, target, [0])
    elif kind == "equality" and target is not None and table.metadata.format_version > 1:
        delete = equality_deletes(table, target, 2)
        start = table.refresh().metadata.current_snapshot_id
        commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
    elif kind == "rewrite":
        with table.transaction() as transaction:
            transaction.set_properties({"commit.manifest.target-size-bytes": str(value)})
        rewrite_manifests(plan_manifest_rewrite(table.refresh()))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([1, 2, 3]), partitioned=st.booleans(), steps=STEPS)
def test_any_table_keeps_its_files(
    tmp_path_factory: pytest.TempPathFactory, version: int, partitioned: bool, steps: list[tuple[str, Any]]
) -> None:
    catalog = load("lake", str(tmp_path_factory.mktemp("any")))
    create_namespace(catalog, ("db",))
    table = new_table(catalog, version, partitioned=partitioned, **NO_MERGE)
    for step in steps:
        run_step(table, step)
    before, row_ids = live(table), next_row_id(table)
    done = rewrite_manifests(plan_manifest_rewrite(table.refresh()))
    assert live(table) == before
    assert next_row_id(table) == row_ids
    rewritten = {manifest.manifest_path for manifest in done.removed}
    assert not rewritten & {manifest.manifest_path for manifest in manifests(table)}
    catalog.close()


def test_row_ids_that_another_commit_assigns_meanwhile_are_a_conflict(catalog: Catalog) -> None:
    """An append after an upgrade gives the old manifests row ids; manifests written before would take others."""
    table = filled(catalog, 2)
    set_properties(table, {"format-version": "3"})
    plan = plan_manifest_rewrite(table.refresh())
    commit(table, AppendFiles(data_files=(data_file(table, [1000], "a"),)))
    before, files = live(table), metadata_files(table)
    with pytest.raises(CommitConflictError, match="could not be found in the latest snapshot"):
        rewrite_manifests(plan)
    assert live(table) == before
    assert metadata_files(table) == files
    rewrite_manifests(plan_manifest_rewrite(table.refresh()))
    assert live(table) == before


def test_bounds_include_both_zeros(catalog: Catalog) -> None:
    """They are two partitions. Iceberg's Java library sorts -0.0 first, and would not look for 0.0 above it."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = create_table(catalog, ("db", "t"), schema, partition_spec=spec, properties=NO_MERGE)
    for value in (0.0, -0.0):
        file = replace(data_file(table, [1]), partition=(value,), lower_bounds={}, upper_bounds={})
        commit(table.refresh(), AppendFiles(data_files=(file,)))
    (added,) = rewrite_manifests(plan_manifest_rewrite(table.refresh())).added
    assert bounds(added) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_deletion_vectors_of_a_puffin_file_stay_in_order(catalog: Catalog) -> None:
    """DuckDB 1.5.5 reads them wrongly in another order, once the file is old enough for its cache."""
    table = new_table(catalog, 3, partitioned=True, **NO_MERGE)
    files = [data_file(table, [10 * number, 10 * number + 1], "ba"[number % 2]) for number in range(6)]
    for file in files:
        commit(table, AppendFiles(data_files=(file,)))
    found = vectors(table, [(file, [number % 2]) for number, file in enumerate(files)])
    for one in (found[:3], found[3:]):
        start = table.refresh().metadata.current_snapshot_id
        commit(table, RowDelta(command=Command.DELETE, delete_files=one, starting_snapshot_id=start))
    rewrite_manifests(plan_manifest_rewrite(table.refresh()))
    (manifest,) = (one for one in manifests(table) if one.content is ManifestContent.DELETES)
    offsets = [entry.data_file.content_offset for entry in entries_of(manifest, table.io)]
    assert offsets == sorted(one.content_offset or 0 for one in found)
    assert len({entry.data_file.partition for entry in entries_of(manifest, table.io)}) == 2
