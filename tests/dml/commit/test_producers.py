"""Every producer on every format version: rows as other readers see them, operation and summary."""

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from dml.catalog import create_table
from dml.commit import (
    AppendFiles,
    CommittedSnapshot,
    DeleteFiles,
    OverwriteByFilter,
    OverwriteFiles,
    ReplacePartitions,
    RowDelta,
    commit,
)
from dml.errors import ValidationFailedError
from dml.model.manifest import ContentFile
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, ids, new_table, position_deletes, vectors

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])


def append(table: Table, *files: ContentFile) -> CommittedSnapshot:
    return commit(table, AppendFiles(data_files=files))


def now(table: Table) -> int | None:
    return table.refresh().metadata.current_snapshot_id


@VERSIONS
def test_an_append_adds_rows(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first = data_file(table, [1, 2, 3])
    made = append(table, first)
    assert (made.operation, made.parent_snapshot_id, made.attempts) == ("append", None, 1)
    assert made.sequence_number == (0 if version == 1 else 1)
    assert made.summary == {
        "added-data-files": "1",
        "added-records": "3",
        "added-files-size": str(first.file_size_in_bytes),
        "changed-partition-count": "1",
        "total-records": "3",
        "total-files-size": str(first.file_size_in_bytes),
        "total-data-files": "1",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    second = append(table, data_file(table, [4]), data_file(table, []))
    assert second.parent_snapshot_id == made.snapshot_id
    assert (second.summary["total-records"], second.summary["total-data-files"]) == ("4", "3")
    assert ids(second.metadata_location) == [1, 2, 3, 4]


@VERSIONS
def test_an_append_of_nothing_is_a_snapshot_unless_it_is_to_be_skipped(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    made = append(table)
    assert made.operation == "append"
    assert made.summary["changed-partition-count"] == "0"
    assert "added-data-files" not in made.summary
    assert commit(table, AppendFiles(), skip_empty=True) is None
    assert now(table) == made.snapshot_id


@VERSIONS
def test_a_delete_by_filter_removes_the_files_that_match_wholly(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    low, high = data_file(table, [1, 2]), data_file(table, [10, 20, 30])
    append(table, low, high)
    made = commit(table, DeleteFiles(row_filter=LessThan("id", 5)))
    assert made.operation == "delete"
    assert made.summary["deleted-data-files"] == "1"
    assert made.summary["deleted-records"] == "2"
    assert made.summary["removed-files-size"] == str(low.file_size_in_bytes)
    assert made.summary["total-records"] == "3"
    assert ids(made.metadata_location) == [10, 20, 30]
    everything = commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    assert everything.summary["total-data-files"] == "0"
    assert ids(everything.metadata_location) == []


@VERSIONS
def test_a_delete_that_matches_nothing_is_an_empty_delete_snapshot(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    append(table, data_file(table, [1, 2]))
    made = commit(table, DeleteFiles(row_filter=GreaterThan("id", 100)))
    assert (made.operation, made.summary["changed-partition-count"]) == ("delete", "0")
    assert made.summary["total-records"] == "2"
    assert ids(made.metadata_location) == [1, 2]


@VERSIONS
def test_an_overwrite_replaces_files_by_path(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first, second = data_file(table, [1, 2]), data_file(table, [3])
    append(table, first, second)
    start = now(table)
    replacement = data_file(table, [2])
    action = OverwriteFiles(
        data_files=(replacement,), removed_data_files=frozenset({first.path}), starting_snapshot_id=start
    )
    made = commit(table, action)
    assert made.operation == "overwrite"
    assert {key: made.summary[key] for key in ("added-data-files", "deleted-data-files", "added-records")} == {
        "added-data-files": "1",
        "deleted-data-files": "1",
        "added-records": "1",
    }
    assert made.summary["deleted-records"] == "2"
    assert ids(made.metadata_location) == [2, 3]


@VERSIONS
def test_an_overwrite_that_only_removes_is_a_delete_and_one_without_files_an_overwrite(
    catalog: Catalog, version: int
) -> None:
    table = new_table(catalog, version)
    first = data_file(table, [1, 2])
    append(table, first)
    empty = commit(table, OverwriteFiles(starting_snapshot_id=now(table)))
    assert (empty.operation, empty.summary["changed-partition-count"]) == ("overwrite", "0")
    action = OverwriteFiles(removed_data_files=frozenset({first.path}), starting_snapshot_id=now(table))
    assert commit(table, action).operation == "delete"
    action = OverwriteFiles(data_files=(data_file(table, [7]),), starting_snapshot_id=now(table))
    made = commit(table, action)
    assert made.operation == "append"
    assert ids(made.metadata_location) == [7]


@VERSIONS
def test_a_static_overwrite_replaces_the_rows_of_a_filter(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, partitioned=True)
    append(table, data_file(table, [1], "a"), data_file(table, [2], "b"))
    made = commit(table, OverwriteByFilter(data_files=(data_file(table, [9], "a"),), row_filter=EqualTo("p", "a")))
    assert made.operation == "overwrite"
    assert made.summary["changed-partition-count"] == "1"
    assert ids(made.metadata_location) == [2, 9]
    emptied = commit(table, OverwriteByFilter(row_filter=EqualTo("p", "a")))
    assert emptied.operation == "delete"
    assert ids(emptied.metadata_location) == [2]


@VERSIONS
def test_a_filter_that_matches_some_rows_of_a_file_is_refused(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    append(table, data_file(table, [1, 5, 9]))
    with pytest.raises(ValidationFailedError, match="Cannot delete file where some, but not all, rows match filter"):
        commit(table, OverwriteByFilter(row_filter=LessThan("id", 6)))


@VERSIONS
def test_a_dynamic_overwrite_replaces_the_partitions_of_its_files(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, partitioned=True)
    append(table, data_file(table, [1], "a"), data_file(table, [2], "b"), data_file(table, [3], None))
    made = commit(table, ReplacePartitions(data_files=(data_file(table, [8], "b"), data_file(table, [9], None))))
    assert made.operation == "overwrite"
    assert made.summary["replace-partitions"] == "true"
    assert made.summary["changed-partition-count"] == "2"
    assert ids(made.metadata_location) == [1, 8, 9]


@WITH_DELETES
def test_a_row_delta_of_deletes_alone_is_a_delete(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first = data_file(table, [1, 2, 3])
    append(table, first)
    delete = deletes(table, first, [0, 2])
    made = commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=now(table)))
    assert made.operation == "delete"
    size = delete.content_size_in_bytes if version == 3 else delete.file_size_in_bytes
    kind = "added-dvs" if version == 3 else "added-position-delete-files"
    assert {key: value for key, value in made.summary.items() if not key.startswith("total-")} == {
        "added-delete-files": "1",
        kind: "1",
        "added-position-deletes": "2",
        "added-files-size": str(size),
        "changed-partition-count": "1",
    }
    assert made.summary["total-records"] == "3"
    assert made.summary["total-delete-files"] == "1"
    assert made.summary["total-position-deletes"] == "2"
    assert size is not None
    assert made.summary["total-files-size"] == str(first.file_size_in_bytes + size)
    assert ids(made.metadata_location) == [2]


@WITH_DELETES
def test_a_row_delta_with_data_is_an_overwrite_and_with_data_alone_an_append(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, partitioned=True)
    first, second = data_file(table, [1, 2], "a"), data_file(table, [3], "b")
    append(table, first, second)
    action = RowDelta(
        command=Command.UPDATE,
        data_files=(data_file(table, [20], "c"),),
        delete_files=(deletes(table, first, [1]),),
        starting_snapshot_id=now(table),
    )
    made = commit(table, action)
    assert (made.operation, made.summary["changed-partition-count"]) == ("overwrite", "2")
    assert ids(made.metadata_location) == [1, 3, 20]
    action = RowDelta(command=Command.MERGE, data_files=(data_file(table, [5], "a"),), starting_snapshot_id=now(table))
    assert commit(table, action).operation == "append"
    assert commit(table, RowDelta(command=Command.MERGE, starting_snapshot_id=now(table))).operation == "overwrite"


@pytest.mark.proves("DV3")
@WITH_DELETES
def test_rewritten_delete_files_are_replaced(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first = data_file(table, [1, 2, 3, 4])
    append(table, first)
    old = deletes(table, first, [0])
    commit(table, RowDelta(command=Command.DELETE, delete_files=(old,), starting_snapshot_id=now(table)))
    action = RowDelta(
        command=Command.UPDATE,
        delete_files=(deletes(table, first, [0, 3]),),
        rewritten_delete_files=frozenset({old.key}),
        starting_snapshot_id=now(table),
    )
    made = commit(table, action)
    assert made.summary["added-position-deletes"] == "2"
    assert made.summary["removed-position-deletes"] == "1"
    assert made.summary["removed-delete-files"] == "1"
    assert made.summary["removed-dvs" if version == 3 else "removed-position-delete-files"] == "1"
    assert made.summary["total-position-deletes"] == "2"
    assert ids(made.metadata_location) == [2, 3]


@pytest.mark.proves("DV4")
def test_two_vectors_of_one_puffin_file_are_told_apart(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    first, second = data_file(table, [1, 2]), data_file(table, [3, 4])
    append(table, first, second)
    both = vectors(table, [(first, [0]), (second, [1])])
    commit(table, RowDelta(command=Command.DELETE, delete_files=both, starting_snapshot_id=now(table)))
    action = RowDelta(
        command=Command.DELETE,
        delete_files=vectors(table, [(first, [0, 1])]),
        rewritten_delete_files=frozenset({both[0].key}),
        starting_snapshot_id=now(table),
    )
    made = commit(table, action)
    assert made.summary["removed-dvs"] == "1"
    assert made.summary["total-delete-files"] == "2"
    assert ids(made.metadata_location) == [3]


@pytest.mark.proves("DV5", "P10")
@WITH_DELETES
def test_removing_a_data_file_removes_its_vector_but_not_its_position_deletes(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first, second = data_file(table, [1, 2]), data_file(table, [3, 4])
    append(table, first, second)
    delete = deletes(table, first, [0])
    commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=now(table)))
    made = commit(
        table,
        OverwriteFiles(
            data_files=(data_file(table, [2]),),
            removed_data_files=frozenset({first.path}),
            starting_snapshot_id=now(table),
        ),
    )
    assert made.summary.get("removed-dvs") == ("1" if version == 3 else None)
    assert made.summary["total-delete-files"] == ("0" if version == 3 else "1")
    assert ids(made.metadata_location) == [2, 3, 4]


def test_deletes_do_not_fit_version_1(catalog: Catalog) -> None:
    table = new_table(catalog, 1)
    first = data_file(table, [1])
    append(table, first)
    action = RowDelta(
        command=Command.DELETE, delete_files=(deletes(table, first, [0]),), starting_snapshot_id=now(table)
    )
    with pytest.raises(ValidationFailedError, match="Deletes are supported in V2 and above"):
        commit(table, action)


@pytest.mark.proves("DV1", "R4")
@pytest.mark.parametrize(("version", "message"), [(2, "Must not use DVs"), (3, "Must use DVs")])
def test_deletes_of_the_other_version_are_refused(catalog: Catalog, version: int, message: str) -> None:
    table = new_table(catalog, version)
    first = data_file(table, [1])
    append(table, first)
    delete = position_deletes(table, first, [0]) if version == 3 else vectors(table, [(first, [0])])[0]
    action = RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=now(table))
    with pytest.raises(ValidationFailedError, match=message):
        commit(table, action)


def test_the_partition_of_nan_is_replaced_like_any_other(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "d", DoubleType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "d"), spec_id=0)
    table = create_table(catalog, ("db", "nan"), schema, partition_spec=spec, properties={"format-version": "2"})
    old, new = (
        replace(data_file(table, [row_id]), partition=(float("nan"),), lower_bounds={}, upper_bounds={})
        for row_id in (1, 2)
    )
    commit(table, AppendFiles(data_files=(old,)))
    made = commit(table, ReplacePartitions(data_files=(new,)))
    assert (made.summary["deleted-data-files"], made.summary["total-data-files"]) == ("1", "1")
