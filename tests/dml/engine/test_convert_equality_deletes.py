"""Equality deletes become positions: the same rows are deleted, whatever others commit meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import dml.engine.convert_equality_deletes as converting
from dml import limits
from dml.commit import AppendFiles, CommittedSnapshot, DeleteFiles, OverwriteFiles, RewriteFiles, RowDelta, commit
from dml.engine.convert_equality_deletes import EqualityDeleteConversion
from dml.engine.engine import Engine, StatementSettings
from dml.errors import CommitConflictError, CorruptFileError
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.options import Command
from dml.scan.planner import plan_scan
from dml.verification import verify
from tests.dml.commit.builders import data_file, deletes, equality_deletes, ids, new_table, with_row_ids
from tests.dml.engine.rewrites import History, NoSpark, assert_sound, files, rows
from tests.lake import Lake

BOTH = pytest.mark.parametrize("version", [2, 3])
BY_PARTITION = {"write.delete.granularity": "partition"}
MANY = [pytest.param(seed, marks=[] if seed < 6 else [pytest.mark.nightly]) for seed in range(150)]


def conversion(table: Table, row_filter: BooleanExpression | None = None) -> EqualityDeleteConversion:
    return EqualityDeleteConversion(
        engine=cast("Engine", NoSpark()),
        settings=StatementSettings(),
        table=table.catalog.load_table(table.name()),
        row_filter=row_filter or AlwaysTrue(),
    )


def delete_files(table: Table) -> list[ContentFile]:
    """The live delete files."""
    snapshot = table.refresh().current_snapshot()
    entries = (entry for one in manifests_of(table.io, snapshot) for entry in entries_of(one, table.io, live_only=True))
    return [entry.data_file for entry in entries if entry.data_file.content is not FileContent.DATA]


def kinds(table: Table) -> list[FileContent]:
    return sorted({file.content for file in delete_files(table)})


class Upserts:
    """A table of three files of ten ids, in partitions a, a and b; other engines delete ids by key."""

    def __init__(self, catalog: Catalog, version: int, *, partitioned: bool = True, **properties: str) -> None:
        self.table = new_table(catalog, version, partitioned=partitioned, **properties)
        self.files = [data_file(self.table, range(10 * n, 10 * n + 10), p) for n, p in enumerate("aab")]
        self.commit(AppendFiles(data_files=tuple(self.files)))

    @property
    def head(self) -> int | None:
        return self.table.refresh().metadata.current_snapshot_id

    def commit(self, action: Any) -> CommittedSnapshot:
        return commit(self.table, action)

    def delete_keys(self, *keys: int) -> list[ContentFile]:
        """Delete keys of the partition of their file, or of the whole table without partitions."""
        found = []
        for key in keys:
            found.append(equality_deletes(self.table, self.files[key // 10 % 3], key))
            self.commit(RowDelta(command=Command.UPDATE, delete_files=(found[-1],), starting_snapshot_id=self.head))
        return found

    def delete_positions(self, file: ContentFile, *positions: int) -> None:
        delete = deletes(self.table, file, positions)
        self.commit(RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=self.head))

    def ids(self) -> list[int]:
        return ids(self.table.refresh().metadata_location)

    def stored(self) -> set[str]:
        return {path.name for path in files(self.table)}


def left(*gone: int, count: int = 30) -> list[int]:
    return [one for one in range(count) if one not in gone]


@BOTH
@pytest.mark.parametrize("seed", MANY)
def test_the_same_rows_are_deleted(catalog: Catalog, version: int, seed: int) -> None:
    """Random tables: deletes of all kinds, other schemas and specs, on version 3 with row ids and numbers."""
    history = History.new(catalog, version, seed, **{"write.delete.granularity": ("file", "partition")[seed % 2]})
    for _ in range(2):
        history.run(6)
        history.delete_by_key()
    table, before = history.reload(), rows(history.table)
    known = [file for file in delete_files(table) if file.content is FileContent.EQUALITY_DELETES]
    done = conversion(table).run()
    assert done.converted == len(known), history.steps
    assert rows(table) == before, history.steps
    assert kinds(table) in ([], [FileContent.POSITION_DELETES])
    assert_sound(table)
    assert conversion(table).run().converted == 0


@BOTH
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_other_engines_read_the_result(catalog: Catalog, version: int, granularity: str) -> None:
    """PyIceberg rejects equality deletes. A row that came after the delete stays."""
    upserts = Upserts(catalog, version, **{"write.delete.granularity": granularity})
    upserts.delete_positions(upserts.files[0], 1, 2)
    upserts.delete_keys(2, 3, 14, 25)
    upserts.commit(AppendFiles(data_files=(data_file(upserts.table, [3]),)))
    done = conversion(upserts.table).run()
    assert (done.converted, done.added) == (4, 3 if version == 3 or granularity == "file" else 2)
    assert upserts.ids() == sorted([*left(1, 2, 3, 14, 25), 3])
    snapshot = upserts.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "delete"
    assert snapshot.summary["total-equality-deletes"] == "0"
    assert snapshot.summary["total-position-deletes"] == "5"
    assert verify(upserts.table, snapshot, "t", every_file=True).ok


@BOTH
def test_keys_of_no_row_leave_nothing(catalog: Catalog, version: int) -> None:
    upserts = Upserts(catalog, version)
    upserts.delete_keys(99)
    done = conversion(upserts.table).run()
    assert (done.converted, done.added) == (1, 0)
    assert not delete_files(upserts.table)
    assert upserts.ids() == left()


@BOTH
def test_deletes_without_a_partition_apply_to_all_partitions(catalog: Catalog, version: int) -> None:
    """Of an older spec: the rows of all specs and partitions are found."""
    upserts = Upserts(catalog, version, partitioned=False)
    with upserts.table.update_spec() as update:
        update.add_field("p", IdentityTransform(), "p")
    upserts.table.refresh()
    upserts.commit(AppendFiles(data_files=tuple(data_file(upserts.table, [30 + n], p) for n, p in enumerate("ab"))))
    one = replace(upserts.files[0], spec_id=0, partition=())
    for key in (3, 25, 31):
        delete = equality_deletes(upserts.table, one, key)
        upserts.commit(RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=upserts.head))
    assert conversion(upserts.table).run().converted == 3
    assert upserts.ids() == left(3, 25, 31, count=32)
    assert kinds(upserts.table) == [FileContent.POSITION_DELETES]


@BOTH
def test_a_condition_selects_delete_files(catalog: Catalog, version: int) -> None:
    upserts = Upserts(catalog, version)
    first, second, third = upserts.delete_keys(3, 14, 25)
    some = conversion(upserts.table, EqualTo("p", "b"))
    assert {one.object: one.decision for one in some.decisions()} == {
        first.path: "keep",
        second.path: "keep",
        third.path: "convert",
    }
    assert some.run().converted == 1
    assert {file.path for file in delete_files(upserts.table)} >= {first.path, second.path}
    assert conversion(upserts.table).run().converted == 2
    assert upserts.ids() == left(3, 14, 25)


def test_a_dry_run_tells_what_each_file_deletes(catalog: Catalog) -> None:
    upserts = Upserts(catalog, 3)
    used, unused = upserts.delete_keys(3, 99)
    reasons = {one.object: (one.decision, one.reason) for one in conversion(upserts.table).decisions()}
    assert reasons == {
        used.path: ("convert", "1 keys, in 1 data files perhaps: converted"),
        unused.path: ("remove", "1 keys, in no older data file: removed"),
    }


# ---- what others do meanwhile


def compacts(upserts: Upserts, *, keeps_ids: bool = True, drops: Sequence[int] = ()) -> Callable[[], object]:
    """A rewrite of the first file, planned before the conversion commits; its rows are as old as before."""
    table = upserts.table
    (task,) = [one for one in plan_scan(table.refresh(), upserts.head).tasks if one.path == upserts.files[0].path]
    number = table.current_snapshot().sequence_number  # type: ignore[union-attr]
    start = upserts.head

    def act() -> None:
        kept = [one for one in reversed(range(10)) if one not in drops]
        file = data_file(table, kept)
        if keeps_ids and task.first_row_id is not None:
            file = with_row_ids(file, [task.first_row_id + one for one in kept])
        upserts.commit(
            RewriteFiles(
                data_files=(file,),
                removed_data_files=frozenset({task.path}),
                data_sequence_number=number,
                starting_snapshot_id=start,
            )
        )

    return act


Meanwhile = Callable[[Upserts], Callable[[], object]]


def overwrites(upserts: Upserts) -> Callable[[], object]:
    kept = data_file(upserts.table, [one for one in range(10) if one != 3])
    action = OverwriteFiles(
        data_files=(kept,),
        removed_data_files=frozenset({upserts.files[0].path}),
        starting_snapshot_id=upserts.head,
    )
    return lambda: upserts.commit(action)


MEANWHILE: dict[str, tuple[Meanwhile, list[int]]] = {
    "appends the key": (
        lambda up: lambda: up.commit(AppendFiles(data_files=(data_file(up.table, [3]),))),
        sorted([*left(3, 14), 3]),
    ),
    "deletes another row": (lambda up: lambda: up.delete_positions(up.files[0], 5), left(3, 5, 14)),
    "deletes the row": (lambda up: lambda: up.delete_positions(up.files[0], 3), left(3, 14)),
    "deletes another key": (lambda up: lambda: up.delete_keys(6), left(3, 6, 14)),
    "removes the file": (
        lambda up: lambda: up.commit(DeleteFiles(paths=frozenset({up.files[0].path}))),
        left(*range(10), 14),
    ),
    "overwrites the file": (overwrites, left(3, 14)),
    "compacts the file": (lambda up: compacts(up, drops=[3]), left(3, 14)),
    "converts the deletes": (lambda up: lambda: conversion(up.table).run(), left(3, 14)),
}


@BOTH
@pytest.mark.parametrize("happening", MEANWHILE)
def test_others_may_commit_meanwhile(
    catalog: Catalog, version: int, happening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion fits or is planned again; equality deletes that it did not see stay."""
    upserts = Upserts(catalog, version)
    upserts.delete_keys(3, 14)
    meanwhile, expected = MEANWHILE[happening]
    act = meanwhile(upserts)

    def late(*args: Any, **options: Any) -> CommittedSnapshot:
        monkeypatch.setattr(converting, "commit", commit)
        act()
        return commit(*args, **options)

    monkeypatch.setattr(converting, "commit", late)
    conversion(upserts.table).run()
    if happening == "deletes another key":
        assert FileContent.EQUALITY_DELETES in kinds(upserts.table)
        conversion(upserts.table).run()
    assert kinds(upserts.table) == [FileContent.POSITION_DELETES]
    assert upserts.ids() == expected


@BOTH
@pytest.mark.parametrize(("keeps_ids", "compares_rows"), [(True, "true"), (False, "true"), (True, "false")])
def test_a_rewrite_that_did_not_see_the_deletes_brings_no_row_back(
    catalog: Catalog, version: int, keeps_ids: bool, compares_rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned before the equality deletes, which apply to its file as to the old one."""
    properties = {**BY_PARTITION, "write.row-level-concurrency.enabled": compares_rows}
    upserts = Upserts(catalog, version, **properties)
    act = compacts(upserts, keeps_ids=keeps_ids)
    upserts.delete_keys(3, 14)

    def late(*args: Any, **options: Any) -> CommittedSnapshot:
        monkeypatch.setattr(converting, "commit", commit)
        act()
        return commit(*args, **options)

    monkeypatch.setattr(converting, "commit", late)
    conversion(upserts.table).run()
    assert kinds(upserts.table) == [FileContent.POSITION_DELETES]
    assert upserts.ids() == left(3, 14)


@BOTH
def test_conflicts_without_end_leave_no_file(catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    upserts = Upserts(catalog, version)
    upserts.delete_keys(3)
    before, tries = upserts.stored(), []

    def refused(*_: Any, **__: Any) -> CommittedSnapshot:
        tries.append(upserts.stored() - before)
        raise CommitConflictError("no", hint="no")

    monkeypatch.setattr(converting, "commit", refused)
    with pytest.raises(CommitConflictError):
        conversion(upserts.table).run()
    assert len(tries) == limits.CONVERSION_ATTEMPTS
    assert all(tries), "files were written each time"
    assert upserts.stored() == before


def test_a_damaged_delete_file_changes_nothing(catalog: Catalog) -> None:
    upserts = Upserts(catalog, 3)
    (file,) = upserts.delete_keys(3)
    Path(file.path.removeprefix("file://")).write_bytes(b"PAR1")
    before, head = upserts.stored(), upserts.head
    with pytest.raises(CorruptFileError, match=file.path.rpartition("/")[2]):
        conversion(upserts.table).run()
    assert (upserts.stored(), upserts.head) == (before, head)


@pytest.mark.spark
def test_the_procedure_in_tasks_of_spark(lake: Lake) -> None:
    name = lake.create("id BIGINT, p STRING", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(10)")
    table = lake.table(name)
    (task,) = plan_scan(table, table.metadata.current_snapshot_id).tasks
    delete = equality_deletes(table, cast("ContentFile", task), 3)
    start = table.metadata.current_snapshot_id
    commit(table, RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=start))
    lineage = f"SELECT id, _row_id FROM {name} ORDER BY id"
    before = lake.session.sql(lineage).collect()
    assert [row[0] for row in before] == [0, 1, 2, *range(4, 10)]
    plan = lake.session.convert_equality_deletes(name, where="id = 3", dry_run=True)
    assert [(one.decision, one.object) for one in plan.decisions] == [("convert", delete.path)]
    call = f"CALL system.convert_equality_deletes(table => '{name}', where => 'id < 3')"
    assert [tuple(row) for row in lake.session.sql(call).collect()] == [(0, 0)]
    done = lake.session.convert_equality_deletes(name)
    assert (done.converted_equality_delete_files_count, done.added_position_delete_files_count) == (1, 1)
    assert lake.session.sql(lineage).collect() == before
    assert ids(lake.table(name).metadata_location) == [row[0] for row in before]
    assert lake.session.verify(name, every_file=True).ok
