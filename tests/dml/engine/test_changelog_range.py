"""Which snapshots a changelog shows, on hand-made histories, without Spark. Errors as of Iceberg 1.10.2 for Java."""

from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2

from dml.engine.changelog_range import ChangelogRange
from dml.errors import AnalysisError, DmlError, NotFoundError, ValidationFailedError

# Id, parent, time and operation. 90 has expired; 7 is on a branch from 3; 4 is a rewrite.
HISTORY = ((1, 90, 100, "append"), (2, 1, 200, "overwrite"), (3, 2, 300, "delete"), (4, 3, 400, "replace"),
           (5, 4, 500, "append"), (7, 3, 700, "append"))  # fmt: skip


def table_of(*snapshots: tuple[int, int | None, int, str], current: int | None = None) -> TableMetadata:
    """The metadata of a table with these snapshots, of which one is main's."""
    return TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "location": "file:///t",
            "last-sequence-number": 9,
            "last-updated-ms": 900,
            "last-column-id": 1,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "current-snapshot-id": current,
            "snapshots": [
                {
                    "snapshot-id": snapshot_id,
                    "parent-snapshot-id": parent,
                    "sequence-number": snapshot_id,
                    "timestamp-ms": time,
                    "manifest-list": "file:///t/list.avro",
                    "summary": {"operation": operation},
                }
                for snapshot_id, parent, time, operation in snapshots
            ],
        }
    )


TABLE = table_of(*HISTORY, current=5)
WHOLE = table_of(*((one, None if parent == 90 else parent, *rest) for one, parent, *rest in HISTORY), current=5)


def ids(metadata: TableMetadata, **options: Any) -> list[int]:
    found = ChangelogRange.of({key.replace("_", "-"): str(value) for key, value in options.items()})
    return [snapshot.snapshot_id for snapshot in found.snapshots(metadata)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 5]),
        ({"start_snapshot_id": 1}, [2, 3, 5]),
        ({"start_snapshot_id": 90}, [1, 2, 3, 5]),  # expired, but the parent of the oldest
        ({"start_snapshot_id": 4}, [5]),
        ({"start_snapshot_id": 3, "end_snapshot_id": 4}, []),  # a rewrite changes no rows
        ({"end_snapshot_id": 2}, [1, 2]),
        ({"start_snapshot_id": 2, "end_snapshot_id": 7}, [3, 7]),  # of another branch
        ({"start_snapshot_id": 5}, []),
        ({"start_snapshot_id": 2, "end_snapshot_id": 2}, []),
        ({"start_timestamp": 100}, [2, 3, 5]),
        ({"start_timestamp": 199}, [2, 3, 5]),
        ({"start_timestamp": 200}, [3, 5]),
        ({"start_timestamp": 500}, []),
        ({"start_timestamp": 501}, []),
        ({"end_timestamp": 99}, []),
        ({"end_timestamp": 300}, [1, 2, 3]),
        ({"end_timestamp": 299}, [1, 2]),
        ({"start_timestamp": 201, "end_timestamp": 299}, []),
        ({"start_timestamp": 199, "end_timestamp": 200}, [2]),
        ({"start_timestamp": 150, "end_snapshot_id": 7}, [2, 3, 7]),
        ({"start_snapshot_id": 2, "end_timestamp": 350}, [3]),
        ({"start_snapshot_id": 2, "end_timestamp": 50}, []),
    ],
)
def test_starts_are_exclusive_and_ends_inclusive(options: dict[str, int], expected: list[int]) -> None:
    assert ids(TABLE, **options) == expected


def test_a_time_before_the_first_snapshot_is_an_open_start() -> None:
    assert ids(WHOLE, start_timestamp=5) == ids(WHOLE) == [1, 2, 3, 5]


def test_a_table_without_snapshots_has_no_changes() -> None:
    empty = table_of()
    assert ids(empty) == ids(empty, start_timestamp=5) == ids(empty, end_timestamp=5) == []
    with pytest.raises(NotFoundError, match="End snapshot is not set and table has no current snapshot"):
        ids(empty, start_snapshot_id=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start_timestamp": 99}, NotFoundError, r"Cannot find snapshot older than 1970-01-01T00:00:00\.099"),
        ({"end_snapshot_id": 8}, NotFoundError, "Cannot find the end snapshot: 8"),
        (
            {"start_snapshot_id": 7},
            ValidationFailedError,
            r"Starting snapshot \(exclusive\) 7 is not a parent ancestor of end snapshot 5",
        ),
        ({"start_snapshot_id": 3, "end_snapshot_id": 2}, ValidationFailedError, "3 is not a parent ancestor"),
        ({"start_snapshot_id": 4, "end_snapshot_id": 7}, ValidationFailedError, "4 is not a parent ancestor"),
        (
            {"start_snapshot_id": 1, "start_timestamp": 1},
            AnalysisError,
            "Cannot set both start-snapshot-id and start-timestamp for changelogs",
        ),
        (
            {"end_snapshot_id": 1, "end_timestamp": 1},
            AnalysisError,
            "Cannot set both end-snapshot-id and end-timestamp for changelogs",
        ),
        (
            {"start_timestamp": 300, "end_timestamp": 300},
            AnalysisError,
            "Cannot set start-timestamp to be greater than end-timestamp for changelogs",
        ),
        ({"start_timestamp": "2026-01-01"}, AnalysisError, "The option 'start-timestamp' is '2026-01-01'"),
        ({"starting_snapshot_id": 1}, AnalysisError, "has no option 'starting-snapshot-id'"),
    ],
)
def test_bounds_that_select_no_range(options: dict[str, Any], error: type[DmlError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        ids(TABLE, **options)
    assert raised.value.hint


def test_options_are_in_any_case() -> None:
    assert ChangelogRange.of({"Start-Snapshot-ID": " 5 "}) == ChangelogRange(start_snapshot_id=5)
