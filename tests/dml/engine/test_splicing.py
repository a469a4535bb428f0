"""Statements that copy the columns which they do not assign: rows, metrics, what is said of files, and who may not."""

import pyarrow.parquet as pq
import pytest

import dml
from dml.engine import row_level
from dml.result import Result
from tests.lake import Lake

pytestmark = pytest.mark.spark

ALWAYS = {"write.splice.min-file-size-bytes": "0"}
COLUMNS = "id BIGINT NOT NULL, k INT, note STRING, amount DOUBLE, inner STRUCT<a: INT, b: ARRAY<STRING>>"
ROWS = (
    "SELECT /*+ COALESCE(1) */ id, CAST(id % 3 AS INT), concat('note ', id), if(id = 7, double('NaN'), id / 4), "
    "named_struct('a', CAST(id AS INT), 'b', array(concat('b', id), NULL)) FROM range({start}, {end})"
)


def filled(lake: Lake, columns: str = COLUMNS, clause: str = "", version: int = 2, **properties: str) -> str:
    """A table of two files, of 40 rows in row groups of 16, which other tables read too."""
    key = (filled, columns, clause, version, *properties.items())
    return lake.copy_of(key, lambda: new_table(lake, columns, clause, version, **properties))


def new_table(lake: Lake, columns: str, clause: str, version: int, **properties: str) -> str:
    """Create the table that `filled` copies."""
    name = lake.create(
        columns,
        clause,
        **{"format-version": str(version), "write.parquet.row-group-limit": "16", **ALWAYS, **properties},
    )
    for start in (0, 40):
        lake.session.sql(f"INSERT INTO {name} {ROWS.format(start=start, end=start + 40)}")
    return name


def chunks(path: str) -> dict[str, list[tuple[int, int]]]:
    """What a reader would see as the sizes of each column's chunks."""
    metadata = pq.read_metadata(path.removeprefix("file://"))
    found: dict[str, list[tuple[int, int]]] = {}
    for place in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(place).column(column)
            found.setdefault(chunk.path_in_schema, []).append((chunk.total_compressed_size, chunk.num_values))
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_an_update_copies_the_other_columns_and_says_so(lake: Lake, version: int) -> None:
    name = filled(lake, version=version)
    before = {file.path: file for file in lake.data_files(name)}
    rows = lake.rows(name)
    explained = lake.session.sql(f"EXPLAIN UPDATE {name} SET k = k + 100 WHERE id % 10 = 3").collect()[0][0]
    kept = "row groups in which nothing changes, and columns that are not assigned,"
    assert f"splicing: in 2 of 2 data files {kept} are copied" in explained
    assert explained.count("(40 rows, spliced if rows change)") == 2
    result = lake.session.sql(f"UPDATE {name} SET k = k + 100 WHERE id % 10 = 3 AND id < 40")
    assert (result.rows_updated, result.data_files_rewritten, result.data_files_spliced) == (4, 1, 1)
    assert isinstance(result, Result)
    assert result.summary["rowdelta.data-files-spliced"] == "1"
    expected = [(row[0], row[1] + 100 if row[0] in (3, 13, 23, 33) else row[1], *row[2:]) for row in rows]
    assert repr(lake.rows(name)) == repr(sorted(expected, key=repr))  # NaN is not equal to itself
    after = {file.path: file for file in lake.data_files(name)}
    (new,), (old,) = after.keys() - before.keys(), before.keys() - after.keys()
    copied = {path: sizes for path, sizes in chunks(old).items() if path != "k"}
    assert {path: sizes for path, sizes in chunks(new).items() if path in copied} == copied
    if version == 2:
        for metric in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds"):
            assert getattr(after[new], metric) == getattr(before[old], metric), metric
        assert after[new].nan_value_counts == {4: 1}
    assert int.from_bytes(after[new].upper_bounds[2], "little") == 102
    assert lake.session.verify(name).ok


def test_a_second_update_of_a_spliced_file_and_what_follows(lake: Lake) -> None:
    """New values longer and shorter than the old ones; then deletes, other columns, row ids."""
    name = filled(lake, version=3)
    ids = dict(lake.rows(f"SELECT id, _row_id FROM {name}"))
    for number in range(3):
        result = lake.session.sql(
            f"UPDATE {name} SET note = repeat('x', {number}), inner.a = -id WHERE id % 7 = {number}"
        )
        assert result.data_files_spliced == 2
    assert lake.session.sql(f"DELETE FROM {name} WHERE id % 7 = 3").data_files_spliced == 0  # in every row group
    assert lake.session.sql(f"UPDATE {name} SET amount = NULL WHERE id = 5").data_files_spliced == 1
    assert dict(lake.rows(f"SELECT id, _row_id FROM {name}")) == {key: row for key, row in ids.items() if key % 7 != 3}
    sequences = dict(lake.rows(f"SELECT id, _last_updated_sequence_number FROM {name}"))
    assert (sequences[0], sequences[1], sequences[2], sequences[5], sequences[4]) == (3, 4, 5, 7, 1)
    expected = {key: "x" * (key % 7) if key % 7 < 3 else f"note {key}" for key in ids if key % 7 != 3}
    assert dict(lake.rows(f"SELECT id, note FROM {name}")) == expected
    assert lake.session.verify(name).ok


def test_a_schema_that_has_changed_since_the_file_was_written(lake: Lake) -> None:
    """A dropped column goes, a renamed one is renamed, an added one is what it was, also under an old name."""
    name = filled(lake)
    for change in (
        "DROP COLUMN amount",
        "RENAME COLUMN note TO text",
        "ADD COLUMN note STRING",
        "ADD COLUMN other INT",
        "ALTER COLUMN k TYPE BIGINT",
        "ADD COLUMN inner.c STRING",
        "ALTER COLUMN text FIRST",
    ):
        lake.session.sql(f"ALTER TABLE {name} {change}")
    rows = dict(lake.rows(f"SELECT id, struct(*) FROM {name}"))
    result = lake.session.sql(f"UPDATE {name} SET note = 'new' WHERE id IN (1, 50)")
    assert result.data_files_spliced == 2
    expected = {key: {**row.asDict(), "note": "new"} if key in {1, 50} else row.asDict() for key, row in rows.items()}
    found = dict(lake.rows(f"SELECT id, struct(*) FROM {name}"))
    assert {key: row.asDict() for key, row in found.items()} == expected
    for file in lake.data_files(name):
        assert pq.read_schema(file.path.removeprefix("file://")).names == ["text", "id", "k", "inner", "note"]
    assert lake.rows(f"SELECT id FROM {name} WHERE k = 2 AND id < 6") == [(2,), (5,)]
    assert lake.session.verify(name).ok


def test_a_merge_that_only_updates_is_spliced(lake: Lake) -> None:
    name = filled(lake)
    source = "(SELECT id, concat('m', id) AS note FROM range(0, 80, 20)) s"
    result = lake.session.sql(
        f"MERGE INTO {name} t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note"
    )
    assert (result.rows_updated, result.data_files_spliced) == (4, 2)
    assert lake.rows(f"SELECT note FROM {name} WHERE id % 20 = 0") == [("m0",), ("m20",), ("m40",), ("m60",)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_copies_the_row_groups_without_its_rows(lake: Lake, version: int) -> None:
    name = filled(lake, version=version, **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"DELETE FROM {name} WHERE id = 41")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    before = {file.path: file for file in lake.data_files(name)}
    rows, ids = lake.rows(name), dict(lake.rows(f"SELECT id, _row_id FROM {name}")) if version == 3 else {}
    condition = "id IN (1, 2, 70)"
    explained = lake.session.sql(f"EXPLAIN DELETE FROM {name} WHERE {condition}").collect()[0][0]
    assert "splicing: in 2 of 2 data files row groups in which nothing changes are copied" in explained
    result = lake.session.sql(f"DELETE FROM {name} WHERE {condition}")
    assert (result.rows_deleted, result.data_files_rewritten, result.data_files_spliced) == (3, 2, 2)
    assert repr(lake.rows(name)) == repr([row for row in rows if row[0] not in {1, 2, 70}])
    if version == 3:
        assert dict(lake.rows(f"SELECT id, _row_id FROM {name}")) == {
            key: row for key, row in ids.items() if key not in {1, 2, 70}
        }
    new = sorted(lake.data_files(name), key=lambda file: file.lower_bounds[1])
    old = sorted(before.values(), key=lambda file: file.lower_bounds[1])
    assert [(file.record_count, file.nan_value_counts[4]) for file in new] == [(38, 1), (38, 0)]
    # The second file had lost a row of its first row group, and loses one of its second: the third is copied.
    for was, file, kept in zip(old, new, ([1, 2], [2]), strict=True):
        for path, sizes in chunks(was.path).items():
            assert [sizes[place] for place in kept] == chunks(file.path)[path][-len(kept) :], path
    assert [int.from_bytes(file.lower_bounds[1], "little") for file in new] == [0, 40]
    assert lake.session.verify(name).ok


def test_a_merge_that_deletes_and_updates_is_spliced(lake: Lake) -> None:
    name = filled(lake)
    result = lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT id FROM VALUES (0), (20), (79) s(id)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'm', k = 7"
    )
    assert (result.rows_updated, result.rows_deleted, result.data_files_spliced) == (2, 1, 2)
    assert lake.rows(f"SELECT id FROM {name} WHERE note = 'm' AND k = 7") == [(20,), (79,)]
    assert len(lake.rows(name)) == 79
    assert lake.session.verify(name).ok


@pytest.mark.parametrize(
    ("version", "clause", "sent"),
    [
        (2, "", True),
        (3, "PARTITIONED BY (k)", True),
        (3, "", False),
        pytest.param(2, "PARTITIONED BY (k)", True, marks=pytest.mark.nightly),
        pytest.param(3, "", True, marks=pytest.mark.nightly),
        pytest.param(2, "PARTITIONED BY (k)", False, marks=pytest.mark.nightly),
    ],
)
def test_a_merge_that_inserts_is_spliced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, clause: str, sent: bool
) -> None:
    """New rows go along with a spliced file, so that there is not one more; the rows are those of rewritten files."""
    if not sent:
        monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    names = [filled(lake, clause=clause, version=version, **{"write.splice.enabled": on}) for on in ("true", "false")]
    files = len(lake.data_files(names[0]))
    lineage = lake.rows(f"SELECT id, _row_id FROM {names[0]} WHERE id <> 71") if version == 3 else []
    results = [
        lake.session.sql(
            f"MERGE INTO {name} t USING (SELECT id, concat('m', id) AS note FROM range(70, 90)) s ON t.id = s.id "
            "WHEN MATCHED AND t.id = 71 THEN DELETE WHEN MATCHED THEN UPDATE SET note = s.note "
            "WHEN NOT MATCHED THEN INSERT (id, k, note, amount) VALUES (s.id, 1, s.note, double('NaN'))"
        )
        for name in names
    ]
    assert [(result.rows_updated, result.rows_deleted, result.rows_inserted) for result in results] == [(9, 1, 10)] * 2
    assert [result.data_files_spliced > 0 for result in results] == [True, False]
    assert repr(lake.rows(names[0])) == repr(lake.rows(names[1]))
    if sent:
        assert len(lake.data_files(names[0])) == files
    if version == 3:
        assert lake.rows(f"SELECT id, _row_id FROM {names[0]} WHERE id < 80") == lineage
        assert lake.rows(f"SELECT count(DISTINCT _row_id) FROM {names[0]}") == [(89,)]
    for column, condition in (("note", "note = 'm85'"), ("amount", "isnan(amount) AND id > 79"), ("id", "id = 88")):
        found = [lake.rows(f"SELECT {column} FROM {name} WHERE {condition}") for name in names]
        assert repr(found[0]) == repr(found[1])
        assert found[0]
    assert lake.session.verify(names[0], every_file=True).ok


@pytest.mark.parametrize(
    ("clause", "properties", "statement"),
    [
        ("PARTITIONED BY (k)", {}, "UPDATE {name} SET k = 1 WHERE id = 4"),
        ("", {"write.splice.enabled": "false"}, "UPDATE {name} SET note = 'x' WHERE id = 4"),
        ("", {"write.splice.min-file-size-bytes": "1000000"}, "UPDATE {name} SET note = 'x' WHERE id = 4"),
        ("", {"write.format.default": "orc"}, "UPDATE {name} SET note = 'x' WHERE id = 4"),
    ],
    ids=["partition source", "off", "small", "orc"],
)  # fmt: skip
def test_everything_else_is_rewritten(lake: Lake, clause: str, properties: dict, statement: str) -> None:
    name = filled(lake, clause=clause, **properties)
    result = lake.session.sql(statement.format(name=name))
    assert (result.rows_updated, result.data_files_spliced) == (1, 0)
    assert lake.session.verify(name).ok


def test_a_file_with_deletes_and_a_sorted_table(lake: Lake) -> None:
    name = filled(lake, **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"DELETE FROM {name} WHERE id = 3")
    assert lake.session.sql(f"UPDATE {name} SET note = 'x' WHERE id IN (4, 44)").data_files_spliced == 2
    lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY note")
    assert lake.session.sql(f"UPDATE {name} SET note = 'y' WHERE id IN (4, 44)").data_files_spliced == 0
    assert lake.session.sql(f"UPDATE {name} SET k = 9 WHERE id IN (4, 44)").data_files_spliced == 1
    assert {file.sort_order_id for file in lake.data_files(name)} == {1}
    inserts = f"MERGE INTO {name} t USING (SELECT 4L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = 9"
    result = lake.session.sql(f"{inserts} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")
    assert (result.rows_updated, result.data_files_spliced) == (1, 0)
    assert lake.rows(f"SELECT id, k, note FROM {name} WHERE k = 9") == [(4, 9, "y"), (44, 9, "y")]
    assert lake.session.verify(name).ok


def test_a_failure_leaves_no_file(lake: Lake) -> None:
    name = filled(lake, columns=COLUMNS.replace("k INT", "k INT NOT NULL"))
    before = lake.state(name)
    with pytest.raises(dml.DataError, match="requires a value"):
        lake.session.sql(f"UPDATE {name} SET k = CASE WHEN id = 70 THEN NULL ELSE 4 END")
    assert lake.state(name) == before
