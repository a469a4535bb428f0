"""`create_changelog_view`: one history that all tests read, with the results of Iceberg 1.10.2 for Java on it."""

import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import dml
from dml.commit import RewriteFiles, commit
from dml.model.manifest import ContentFile
from tests.lake import Lake

pytestmark = pytest.mark.spark

History = tuple[str, list[int]]
Row = tuple[Any, ...]

STATEMENTS = (
    "INSERT INTO {} VALUES (1, 'a', 10), (2, 'b', 20), (2, 'b', 20), (3, NULL, 30), (4, 'd', NULL)",
    "UPDATE {} SET s = 'A' WHERE id = 1",
    "INSERT INTO {} VALUES (5, 'e', 50), (2, 'b', 20)",
    "DELETE FROM {} WHERE id = 3",
    (
        "MERGE INTO {} t USING (SELECT 1 AS id, 'a' AS s, 10 AS n UNION ALL SELECT 6, 'f', 60) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "ALTER TABLE {} ADD COLUMN later STRING",
    None,  # a rewrite of the data files
    "DELETE FROM {} WHERE id = 4",
    "INSERT OVERWRITE {} VALUES (1, 'a', 10, NULL), (7, 'g', 70, 'x'), (5, 'E', 50, NULL)",
)
CHANGES = [
    (1, "a", 10, None, "INSERT", 0),
    (2, "b", 20, None, "INSERT", 0),
    (2, "b", 20, None, "INSERT", 0),
    (3, None, 30, None, "INSERT", 0),
    (4, "d", None, None, "INSERT", 0),
    (1, "a", 10, None, "DELETE", 1),
    (1, "A", 10, None, "INSERT", 1),
    (5, "e", 50, None, "INSERT", 2),
    (2, "b", 20, None, "INSERT", 2),
    (3, None, 30, None, "DELETE", 3),
    (1, "A", 10, None, "DELETE", 4),
    (1, "a", 10, None, "INSERT", 4),
    (6, "f", 60, None, "INSERT", 4),
    (4, "d", None, None, "DELETE", 5),
    (2, "b", 20, None, "DELETE", 6),
    (2, "b", 20, None, "DELETE", 6),
    (2, "b", 20, None, "DELETE", 6),
    (5, "e", 50, None, "DELETE", 6),
    (6, "f", 60, None, "DELETE", 6),
    (7, "g", 70, "x", "INSERT", 6),
    (5, "E", 50, None, "INSERT", 6),
]
"""What Java shows of the whole history: the table's columns, type and ordinal."""


@pytest.fixture
def history(lake: Lake) -> History:
    """The table and its snapshots, oldest first; the sixth is the rewrite."""

    def make() -> str:
        name = lake.create("id INT, s STRING, n INT")
        for statement in STATEMENTS:
            if statement is None:
                rewrite(lake, name)
            else:
                lake.session.sql(statement.format(name))
        return name

    name = lake.once("changelog", make)
    return name, [snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots]


def rewrite(lake: Lake, name: str) -> None:
    """Replace each data file by a copy of it."""
    files = lake.data_files(name)
    copies = tuple(copy_of(file) for file in files)
    commit(lake.table(name), RewriteFiles(data_files=copies, removed_data_files=frozenset(file.path for file in files)))


def copy_of(file: ContentFile) -> ContentFile:
    path = file.path.replace(".parquet", "-copy.parquet")
    shutil.copyfile(file.path.removeprefix("file://"), path.removeprefix("file://"))
    return replace(file, path=path)


def changes(lake: Lake, name: str, **arguments: Any) -> list[Row]:
    """The changes without the snapshots' ids, which are checked by the ordinals."""
    view = lake.session.create_changelog_view(name, **arguments)
    rows = lake.rows(f"SELECT * FROM {view}")
    snapshots = dict({(row[-2], row[-1]) for row in rows})
    history = [one.snapshot_id for one in lake.table(name).metadata.snapshots]
    assert sorted(snapshots.values(), key=history.index) == [snapshots[ordinal] for ordinal in sorted(snapshots)]
    return [row[:-1] for row in rows]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def moved(rows: list[Row], first: int, count: int) -> list[Row]:
    """The changes of some snapshots with ordinals from 0."""
    return [(*row[:-1], row[-1] - first) for row in rows if first <= row[-1] < first + count]


def test_changes_are_those_that_java_shows(lake: Lake, history: History) -> None:
    """Of the whole history, and of a range that begins after a snapshot and ends with one."""
    name, ids = history
    assert changes(lake, name) == in_order(CHANGES)
    assert lake.session.spark.table(f"{name.partition('.')[2]}_changes").dtypes[-3:] == [
        ("_change_type", "string"),
        ("_change_ordinal", "int"),
        ("_commit_snapshot_id", "bigint"),
    ]
    bounds = {"start-snapshot-id": ids[1], "end-snapshot-id": ids[3]}
    assert changes(lake, name, options=bounds) == in_order(moved(CHANGES, 2, 2))
    assert lake.rows("SELECT DISTINCT _change_ordinal, _commit_snapshot_id FROM " + name[3:] + "_changes") == [
        (0, ids[2]),
        (1, ids[3]),
    ]


def test_changes_applied_to_a_snapshot_give_each_later_one(lake: Lake, history: History) -> None:
    """Row by row, however often a row is there; net changes from any snapshot on give the last one."""
    name, ids = history
    states = [Counter(row[:3] for row in lake.rows(f"SELECT * FROM {name} VERSION AS OF {one}")) for one in ids]
    shown = changes(lake, name)
    state: Counter[Row] = Counter()
    for ordinal, after in enumerate(states[:5] + states[6:]):
        for row in (row for row in shown if row[-1] == ordinal):
            state[row[:3]] += 1 if row[-2] == "INSERT" else -1
        assert +state == after
        assert all(count >= 0 for count in state.values())
    for start in (0, 2, 5):
        net: Counter[Row] = Counter(states[start])
        of_row: dict[Row, set[str]] = {}
        for row in changes(lake, name, net_changes=True, options={"start-snapshot-id": ids[start]}):
            net[row[:3]] += 1 if row[-2] == "INSERT" else -1
            of_row.setdefault(row[:3], set()).add(row[-2])
        assert +net == states[-1]
        assert all(len(types) == 1 for types in of_row.values())


def test_net_changes_keep_the_ordinals_of_the_rows(lake: Lake, history: History) -> None:
    """Java gives rows that were rewritten the ordinal of the last rewrite: apache/iceberg#14851."""
    name, ids = history
    assert changes(lake, name, net_changes=True) == in_order(
        [(1, "a", 10, None, "INSERT", 4), (7, "g", 70, "x", "INSERT", 6), (5, "E", 50, None, "INSERT", 6)]
    )
    assert changes(lake, name, net_changes=True, options={"start-snapshot-id": ids[0]}) == in_order(
        [
            (2, "b", 20, None, "DELETE", 5),
            (2, "b", 20, None, "DELETE", 5),
            (3, None, 30, None, "DELETE", 2),
            (4, "d", None, None, "DELETE", 4),
            (7, "g", 70, "x", "INSERT", 5),
            (5, "E", 50, None, "INSERT", 5),
        ]
    )


def test_updates_are_shown_by_identifiers(lake: Lake, history: History) -> None:
    """Given as argument or as the table's identifier fields."""
    name, ids = history
    options = {"start-snapshot-id": ids[2]}
    images = {(1, "A"): "UPDATE_BEFORE", (1, "a"): "UPDATE_AFTER", (5, "e"): "UPDATE_BEFORE", (5, "E"): "UPDATE_AFTER"}
    expected = in_order([(*row[:4], images.get(row[:2], row[4]), row[5]) for row in moved(CHANGES, 3, 4)])
    assert changes(lake, name, identifier_columns=["ID"], options=options) == expected
    assert changes(lake, name, identifier_columns=["id"], compute_updates=False, options=options) == in_order(
        moved(CHANGES, 3, 4)
    )
    with pytest.raises(dml.AnalysisError, match="Cannot compute the update images because identifier columns are not"):
        lake.session.create_changelog_view(name, compute_updates=True)
    with pytest.raises(dml.AnalysisError, match="Not support net changes with update images"):
        lake.session.create_changelog_view(name, identifier_columns=["id"], net_changes=True)
    own = lake.create("id INT NOT NULL, m MAP<STRING, DOUBLE>")
    lake.session.sql(f"ALTER TABLE {own} SET IDENTIFIER FIELDS id")
    lake.session.sql(f"INSERT INTO {own} VALUES (1, map('x', 0.0D, 'y', 1.0D)), (2, map('x', 1.0D, 'y', 2.0D))")
    # The entries of a map have no order, so row 2 does not change.
    lake.session.sql(f"UPDATE {own} SET m = IF(id = 1, map('y', 1.0D, 'x', -0.0D), map('y', 2.0D, 'x', 1.0D))")
    view = lake.session.create_changelog_view(own, "images", compute_updates=True)
    assert lake.rows(f"SELECT id, CAST(m['x'] AS STRING), _change_type FROM {view} WHERE _change_ordinal = 1") == [
        (1, "-0.0", "UPDATE_AFTER"),
        (1, "0.0", "UPDATE_BEFORE"),
    ]
    lake.session.sql(f"ALTER TABLE {own} DROP IDENTIFIER FIELDS id")
    with pytest.raises(dml.AnalysisError, match=r"Identifier field is required as .* unorderable columns: \[m\]"):
        lake.session.create_changelog_view(own)


def test_the_view_is_fixed_to_its_snapshots(lake: Lake) -> None:
    """Its name is quoted as Java quotes it; a name of several parts is refused, and so is a part of a table."""
    name = lake.create("`the id` INT, `the.data` STRING")
    call = f"CALL lake.system.create_changelog_view('{name}')"
    assert lake.rows(call) == [(f"`{name[3:]}_changes`",)]
    assert lake.rows(f"SELECT * FROM {name[3:]}_changes") == []
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    assert lake.rows(f"SELECT * FROM {name[3:]}_changes") == []
    assert lake.rows(call) == [(f"`{name[3:]}_changes`",)]
    (row,) = lake.session.sql(f"SELECT * FROM {name[3:]}_changes").collect()
    assert row.asDict() == {
        "the id": 1,
        "the.data": "a",
        "_change_type": "INSERT",
        "_change_ordinal": 0,
        "_commit_snapshot_id": lake.table(name).metadata.current_snapshot_id,
    }
    assert lake.session.create_changelog_view(name, "`my view`") == "`my view`"
    with pytest.raises(dml.AnalysisError, match=r"'a\.b' is not a valid name for a temporary view"):
        lake.session.create_changelog_view(name, "a.b")
    with pytest.raises(dml.NotSupportedError, match="is a part of the table"):
        lake.session.create_changelog_view(f"{name}.branch_main")


def test_tables_that_have_no_changelog(lake: Lake) -> None:
    """Merge-on-read ones, and those that another engine gave a column of a changelog."""
    name = lake.create("id INT, s STRING")
    with lake.table(name).update_schema() as update:
        update.rename_column("s", "_Change_Type")
    with pytest.raises(dml.NotSupportedError, match="has the column '_Change_Type'"):
        lake.session.create_changelog_view(name)
    marked = lake.create("id INT", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {marked} VALUES (1), (2)")
    lake.session.sql(f"DELETE FROM {marked} WHERE id = 1")
    with pytest.raises(dml.NotSupportedError, match="Delete files are currently not supported in changelog scans"):
        lake.session.create_changelog_view(marked)
