"""The mode that chooses by file: one commit in which files leave, are written anew, spliced, and have rows marked."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from dml.engine import publish
from dml.errors import CommitConflictError
from dml.result import Result
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.lake import Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

AUTO = {"write.auto.enabled": "true", "write.splice.min-file-size-bytes": "0"}
VERSIONS = by_night(["1", "2", "3"], lambda version: version != "1")
VECTORS_FIRST = (pytest.param("2", marks=pytest.mark.nightly), "3")
"""What both ways to say deletes have in common, on version 2 by night."""


def filled(lake: Lake, version: str, clause: str = "", **properties: str) -> str:
    """A table of four files of 100 rows in row groups of 20, which other tables read too."""
    key = (filled, version, clause, *properties.items())
    return lake.copy_of(key, lambda: new_table(lake, version, clause, **properties))


def new_table(lake: Lake, version: str, clause: str, **properties: str) -> str:
    """Create the table that `filled` copies."""
    name = lake.create(
        "id BIGINT, k INT, v STRING",
        clause,
        **{"format-version": version, "write.parquet.row-group-limit": "20", **AUTO, **properties},
    )
    for start in range(0, 400, 100):
        rows = f"SELECT /*+ COALESCE(1) */ id, CAST(id % 7 AS INT), concat('v', id) FROM range({start}, {start + 100})"
        lake.session.sql(f"INSERT INTO {name} {rows}")
    return name


def expected(keep, change=lambda row: row) -> list[tuple]:
    rows = ((number, number % 7, f"v{number}") for number in range(400))
    return sorted((change(row) for row in rows if keep(row[0])), key=repr)


def others_agree(lake: Lake, name: str) -> None:
    """PyIceberg and DuckDB read the rows that Spark reads."""
    location, rows = lake.table(name).metadata_location, len(lake.rows(f"SELECT * FROM {name}"))
    assert len(read_pyiceberg(location)) == rows
    assert read_pyiceberg(location) == read_duckdb(location)
    assert lake.session.verify(name, every_file=True).ok


@pytest.mark.parametrize("version", VERSIONS)
def test_a_delete_treats_each_file_as_suits_it(lake: Lake, version: str) -> None:
    """Four rows of one, half of another, all of a third; the fourth is not touched."""
    name = filled(lake, version)
    ids = dict(lake.rows(f"SELECT id, _row_id FROM {name}")) if version == "3" else {}
    explained = lake.session.sql(f"EXPLAIN DELETE FROM {name} WHERE id % 30 = 1").collect()[0][0]
    assert "mode: auto" in explained
    assert "by file: rows are marked as deleted up to 10% of the file" in explained
    gone = "id % 30 = 1 AND id < 100 OR id >= 150 AND id < 300"
    result = lake.session.sql(f"DELETE FROM {name} WHERE {gone}")
    assert (result.mode, result.rows_deleted, result.data_files_removed) == ("auto", 154, 3 if version == "1" else 2)
    assert (result.delete_files_added, result.data_files_spliced) == ((0, 2) if version == "1" else (1, 1))
    assert isinstance(result, Result)
    files = (result.data_files_marked, result.data_files_rewritten)
    assert files == ((0, 2) if version == "1" else (1, 1))  # the third one of those that left lost every row
    assert lake.rows(name) == expected(lambda key: not ((key % 30 == 1 and key < 100) or 150 <= key < 300))
    others_agree(lake, name)
    # The next ones pass the ratio: the file is written anew, and its deletes go with it.
    again = lake.session.sql(f"DELETE FROM {name} WHERE id < 100 AND id % 10 = 3")
    assert (again.rows_deleted, again.data_files_removed, again.delete_files_added) == (10, 1, 0)
    assert isinstance(again, Result)
    assert again.summary["total-delete-files"] == "0" or version == "2"  # Iceberg leaves what points to no file
    left = {key for key in range(400) if not (key < 100 and (key % 30 == 1 or key % 10 == 3)) and not 150 <= key < 300}
    assert lake.rows(name) == expected(left.__contains__)
    if ids:
        assert dict(lake.rows(f"SELECT id, _row_id FROM {name}")) == {key: ids[key] for key in left}
    others_agree(lake, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_updates_and_merges(lake: Lake, version: str) -> None:
    """Few rows of a file are marked and written beside; of many the assigned column is new. Rows keep their ids."""
    name = filled(lake, version, "PARTITIONED BY (bucket(1, k))")
    ids = dict(lake.rows(f"SELECT id, _row_id FROM {name}")) if version == "3" else {}
    few_and_many = "id % 50 = 7 AND id < 200 OR id >= 200 AND id < 300 AND id % 2 = 0"
    result = lake.session.sql(f"UPDATE {name} SET v = 'new', id = id + 0 WHERE {few_and_many}")
    assert (result.mode, result.rows_updated) == ("auto", 54)
    assert (result.data_files_removed, result.data_files_spliced) == ((3, 3) if version == "1" else (1, 1))
    assert result.delete_files_added == {"1": 0, "2": 2, "3": 2}[version]
    changed = {key for key in range(300) if (key % 50 == 7 and key < 200) or (key >= 200 and key % 2 == 0)}
    assert lake.rows(name) == expected(lambda _: True, lambda row: (*row[:2], "new") if row[0] in changed else row)
    others_agree(lake, name)
    # Of few columns it is cheaper to write those anew, also of few rows.
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.auto.max-deleted-ratio' = '0.5')")
    narrow = lake.session.sql(f"UPDATE {name} SET v = v WHERE id IN (307, 308)")
    assert isinstance(narrow, Result)
    assert (narrow.data_files_spliced, narrow.data_files_rewritten, narrow.data_files_marked) == (1, 1, 0)
    assert narrow.delete_files_added == 0
    merged = lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT id FROM range(290, 420)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id % 2 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, 0, 'inserted')"
    )
    assert (merged.rows_deleted, merged.rows_updated, merged.rows_inserted) == (55, 55, 20)
    found = {row[0]: row[2] for row in lake.rows(name)}
    assert sorted(found) == [*range(290), *range(290, 400, 2), *range(400, 420)]
    assert {found[key] for key in range(290, 400, 2)} == {"merged"}
    assert {found[key] for key in range(400, 420)} == {"inserted"}
    if ids:
        now = dict(lake.rows(f"SELECT id, _row_id FROM {name}"))
        assert {key: row for key, row in now.items() if key in ids} == {key: ids[key] for key in now if key in ids}
        assert len(set(now.values())) == len(now)
    others_agree(lake, name)


@pytest.mark.parametrize("version", VECTORS_FIRST)
def test_no_file_keeps_more_dead_rows_than_the_table_allows(lake: Lake, version: str) -> None:
    name = filled(lake, version, **{"write.auto.max-deleted-ratio": "0.03"})
    for number in range(0, 100, 10):
        lake.session.sql(f"DELETE FROM {name} WHERE id IN ({number}, {100 + number}, {101 + number})")
        held = sum(pq.read_metadata(f.path.removeprefix("file://")).num_rows for f in lake.data_files(name))
        live = 400 - 3 * (number // 10 + 1)
        assert live <= held <= live + 0.03 * 400
    assert len(lake.rows(name)) == 400 - 30
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.auto.max-deleted-ratio' = '0')")
    assert lake.session.sql(f"DELETE FROM {name} WHERE id = 1").delete_files_added == 0
    others_agree(lake, name)


UPDATES = "UPDATE {t} SET v = 'mine', id = id + 0 WHERE id IN (1, 2) OR id >= 100 AND id < 150"
"""Marks two rows of the first file, and writes the second one anew."""
DELETES = "DELETE FROM {t} WHERE id IN (1, 2) OR id >= 100 AND id < 150 OR id >= 200 AND id < 300"
"""The same; of the third file every row goes."""


@pytest.mark.parametrize("version", VECTORS_FIRST)
@pytest.mark.parametrize(
    ("statement", "theirs", "conflict"),
    [
        # Of the file of which rows are marked, of the one that is written anew, and of one that is left alone.
        (UPDATES, "DELETE FROM {t} WHERE id IN (5, 99, 160, 199, 305)", None),
        (DELETES, "DELETE FROM {t} WHERE id IN (5, 99, 160, 199, 305)", None),
        (UPDATES, "UPDATE {t} SET v = 'theirs', id = id + 0 WHERE id IN (5, 160)", None),
        pytest.param(UPDATES, "DELETE FROM {t} WHERE id IN (1, 5)", "ROWS", marks=pytest.mark.nightly),
        (UPDATES, "DELETE FROM {t} WHERE id IN (120, 160)", "ROWS"),
        pytest.param(DELETES, "DELETE FROM {t} WHERE id = 250", "ROWS", marks=pytest.mark.nightly),
        pytest.param(UPDATES, "DELETE FROM {t} WHERE id >= 100 AND id < 200", "V3", marks=pytest.mark.nightly),
        pytest.param(UPDATES, "DELETE FROM {t} WHERE id < 100", "V4", marks=pytest.mark.nightly),
        (DELETES, "DELETE FROM {t} WHERE id < 100", None),  # their deletes are ours
        pytest.param(DELETES, "DELETE FROM {t} WHERE id >= 200 AND id < 300", "V3", marks=pytest.mark.nightly),
        pytest.param(UPDATES, "INSERT INTO {t} VALUES (1000, 0, 'theirs')", None, marks=pytest.mark.nightly),
        pytest.param(UPDATES, "INSERT INTO {t} VALUES (1, 0, 'theirs')", "V1", marks=pytest.mark.nightly),
    ],
)
def test_commits_of_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: str, statement: str, theirs: str, conflict: str | None
) -> None:
    """Rows are compared in files of every kind, and what others deleted is deleted in the new files as well."""
    name, serial = filled(lake, version), filled(lake, version)
    commit = publish.commit

    def after_them(*args: Any, **kwargs: Any) -> Any:
        if publish.commit is not commit:
            monkeypatch.setattr(publish, "commit", commit)
            lake.session.sql(theirs.format(t=name))
        return commit(*args, **kwargs)

    lake.session.sql(theirs.format(t=serial))
    monkeypatch.setattr(publish, "commit", after_them)
    if conflict is None:
        result = lake.session.sql(statement.format(t=name))
        assert isinstance(result, Result)
        assert (result.mode, result.delete_files_added > 0) == ("auto", "id < 100" not in theirs)
        assert ("rowdelta.deletes-reapplied" in result.summary) == ("160" in theirs)
        lake.session.sql(statement.format(t=serial))
    else:
        with pytest.raises(CommitConflictError) as raised:
            lake.session.sql(statement.format(t=name))
        assert {one.label for one in raised.value.context["conflicts"]} == {conflict}
    assert lake.rows(name) == lake.rows(serial)
    others_agree(lake, name)
