"""Tables and files that others wrote are read and changed by us, to the row."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from dml.commit import RowDelta, commit
from dml.model.manifest import ContentFile, FileContent
from dml.options import Command
from tests.interop.conftest import InteropLake
from tests.marks import by_night

pytestmark = pytest.mark.spark

MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
VERSIONS = pytest.mark.parametrize("version", [2, 3])
CHANGES = (
    "DELETE FROM {t} WHERE id % 5 = 2",
    "UPDATE {t} SET s = concat(s, '!') WHERE id % 7 = 3",
    (
        "MERGE INTO {t} x USING (SELECT id * 3 AS id, 'merged' AS s FROM range(0, 10)) y ON x.id = y.id "
        "WHEN MATCHED AND x.id % 2 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = y.s "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (y.id, y.s)"
    ),
)


def changed(rows: dict[int, str]) -> dict[int, str]:
    """What `CHANGES` make of rows by id."""
    rows = {i: s for i, s in rows.items() if i % 5 != 2}
    rows = {i: s + "!" if i % 7 == 3 else s for i, s in rows.items()}
    merged = {3 * i for i in range(10)}
    kept = {i: "merged" if i in merged else s for i, s in rows.items() if not (i in merged and i % 2)}
    return kept | dict.fromkeys(merged - set(rows), "merged")


def by_id(lake: InteropLake, name: str) -> dict[int, str]:
    """The rows that we read."""
    found = lake.session.sql(f"SELECT id, s FROM {name}").collect()
    rows = {row.id: row.s for row in found}
    assert len(rows) == len(found)
    return rows


@pytest.mark.parametrize(
    ("mode", "partitioning"),
    by_night(
        [
            (mode, partitioning)
            for mode in ("copy-on-write", "merge-on-read")
            for partitioning in ("", "PARTITIONED BY (bucket(2, id))", "PARTITIONED BY (truncate(3, s))")
        ],
        lambda one: (one[0] == "copy-on-write") is (one[1] != "PARTITIONED BY (bucket(2, id))"),
    ),
)
def test_rows_that_pyiceberg_appended(lake: InteropLake, mode: str, partitioning: str) -> None:
    """PyIceberg's files, partitions and metrics serve as our own, and PyIceberg goes on after us."""
    name = lake.create("id BIGINT, s STRING", partitioning, version=2, mode=mode)
    rows = {i: f"s{i % 4}-{i}" for i in range(20)}
    for part in (range(12), range(12, 20)):
        lake.table(name).append(pa.table({"id": list(part), "s": [rows[i] for i in part]}))
    assert by_id(lake, name) == rows
    lake.run(name, *CHANGES)
    expected = changed(rows)
    assert by_id(lake, name) == expected
    lake.table(name).append(pa.table({"id": [100], "s": ["s-100"]}))
    lake.run(name, "DELETE FROM {t} WHERE id = 0")
    del expected[0]
    assert by_id(lake, name) == expected | {100: "s-100"}
    lake.assert_readers_agree(name, len(expected) + 1)


@MODES
@VERSIONS
def test_files_without_field_ids_and_with_int96(lake: InteropLake, mode: str, version: int, tmp_path: Path) -> None:
    """Columns are found by the name mapping, and timestamps of 12 bytes are read."""
    name = lake.create("id BIGINT, s STRING, ts TIMESTAMP_NTZ", version=version, mode=mode)
    moment = datetime(2024, 2, 29, 12, 30, 15, 123456)  # noqa: DTZ001  a local timestamp
    ids = list(range(20))
    path = tmp_path / "foreign.parquet"
    written = pa.table({"extra": ids, "s": [f"s{i}" for i in ids], "ts": [moment] * 20, "id": ids})
    pq.write_table(written, path, use_deprecated_int96_timestamps=True, row_group_size=6)
    add_file(lake, name, path, written.num_rows)
    expected = changed({i: f"s{i}" for i in ids})
    lake.run(name, *CHANGES)
    assert by_id(lake, name) == expected
    times = lake.session.sql(f"SELECT DISTINCT ts FROM {name} WHERE ts IS NOT NULL").collect()
    assert [row.ts for row in times] == [moment]


def add_file(lake: InteropLake, name: str, path: Path, rows: int) -> None:
    """Bring a file of somebody else's into a table, as it is, with a name mapping."""
    table = lake.table(name)
    mapping = table.schema().name_mapping.model_dump_json()
    table.transaction().set_properties({"schema.name-mapping.default": mapping}).commit_transaction()
    commit_files(
        lake.table(name),
        data_files=(
            ContentFile(
                content=FileContent.DATA,
                path=str(path),
                file_format="parquet",
                spec_id=0,
                partition=(),
                record_count=rows,
                file_size_in_bytes=path.stat().st_size,
            ),
        ),
    )


def commit_files(
    table: Table, data_files: Sequence[ContentFile] = (), delete_files: Sequence[ContentFile] = ()
) -> None:
    """Commit files as they are."""
    snapshot = table.current_snapshot()
    action = RowDelta(
        command=Command.DELETE,
        data_files=tuple(data_files),
        delete_files=tuple(delete_files),
        starting_snapshot_id=None if snapshot is None else snapshot.snapshot_id,
    )
    commit(table, action, branch="main", create_branch=snapshot is None, summary={})


def delete_file(
    table: Table, rows: pa.Table, content: FileContent, spec_id: int, partition: tuple, equality_ids: tuple = ()
) -> ContentFile:
    """A delete file of rows."""
    path = Path(table.location().removeprefix("file://")) / "data" / f"foreign-{content}-{rows.num_rows}.parquet"
    pq.write_table(rows, path)
    return ContentFile(
        content=content,
        path=f"file://{path}" if table.location().startswith("file:") else str(path),
        file_format="parquet",
        spec_id=spec_id,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=equality_ids,
        sort_order_id=0 if equality_ids else None,
    )


def with_id(name: str, kind: pa.DataType, field_id: int, *, nullable: bool = True) -> pa.Field:
    """A field that carries its id."""
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(field_id)})


def filled(lake: InteropLake, mode: str, version: int, partitioning: str = "") -> tuple[str, dict[int, str]]:
    """A table of two data files, and its rows."""
    name = lake.create("id BIGINT, s STRING, k INT", partitioning, version=version, mode=mode)
    for least in (0, 10):
        lake.run(name, f"INSERT INTO {{t}} SELECT id, concat('s', id), 1 FROM range({least}, {least + 10})")
    return name, {i: f"s{i}" for i in range(20)}


@pytest.mark.proves("S4", "S5")
@pytest.mark.parametrize(
    ("version", "mode", "partitioning"),
    by_night(
        [
            (version, mode, partitioning)
            for version in (2, 3)
            for mode in ("copy-on-write", "merge-on-read")
            for partitioning in ("", "PARTITIONED BY (k)")
        ],
        # Every pair of them.
        lambda one: (one[0] + (one[1] == "merge-on-read") + bool(one[2])) % 2 == 0,
    ),
)
def test_equality_deletes_are_applied_before_rows_are_changed(
    lake: InteropLake, mode: str, version: int, partitioning: str
) -> None:
    """A row deleted by equality is neither updated nor carried, and comes back with no later write."""
    name, rows = filled(lake, mode, version, partitioning)
    table = lake.table(name)
    keys = pa.table([[3, 11, 14, 555]], schema=pa.schema([with_id("id", pa.int64(), 1)]))
    partition = (1,) if partitioning else ()
    commit_files(
        table, delete_files=[delete_file(table, keys, FileContent.EQUALITY_DELETES, 0, partition, equality_ids=(1,))]
    )
    rows = {i: s for i, s in rows.items() if i not in {3, 11, 14}}
    assert by_id(lake, name) == rows
    lake.run(name, "INSERT INTO {t} VALUES (14, 'again', 1)")  # newer than the delete file
    rows |= {14: "again"}
    lake.run(name, *CHANGES)
    assert by_id(lake, name) == changed(rows)
    lake.run(name, "UPDATE {t} SET s = 'all'")
    assert by_id(lake, name) == dict.fromkeys(changed(rows), "all")


@pytest.mark.proves("DV2", "DV3")
@MODES
@pytest.mark.parametrize("upgraded", [False, True])
def test_position_deletes_of_several_data_files_in_one_file(lake: InteropLake, mode: str, upgraded: bool) -> None:
    """They are applied, merged into new deletes where they must be, and stay for the other data files."""
    name, rows = filled(lake, mode, 2)
    table = lake.table(name)
    data = lake.files(name, FileContent.DATA)
    positions = sorted((file.path, position) for file in data for position in (0, 2))
    written = pa.table(
        [[path for path, _ in positions], [position for _, position in positions]],
        schema=pa.schema(
            [
                with_id("file_path", pa.string(), 2147483546, nullable=False),
                with_id("pos", pa.int64(), 2147483545, nullable=False),
            ]
        ),
    )
    gone = {row.id for row in lake.session.sql(f"SELECT id, _pos FROM {name}").collect() if row["_pos"] in (0, 2)}
    commit_files(table, delete_files=[delete_file(table, written, FileContent.POSITION_DELETES, 0, ())])
    rows = {i: s for i, s in rows.items() if i not in gone}
    assert len(rows) == 20 - 2 * len(data)
    assert by_id(lake, name) == rows
    if upgraded:
        lake.run(name, "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    lake.run(name, *CHANGES)
    assert by_id(lake, name) == changed(rows)
    lake.assert_readers_agree(name, len(changed(rows)))


def test_a_table_that_pyiceberg_made_with_ids_of_its_own(lake: InteropLake) -> None:
    """Field ids are the table's, whatever the order of columns."""
    catalog = lake.session.registry.catalogs["lake"]
    schema = Schema(
        NestedField(7, "s", StringType(), required=False),
        NestedField(3, "id", LongType(), required=True),
        NestedField(5, "ts", TimestampType(), required=False),
        identifier_field_ids=[3],
    )
    table = catalog.create_table("db.pyiceberg_made", schema, properties={"write.merge.mode": "merge-on-read"})
    rows = {i: f"s{i}" for i in range(10)}
    required = pa.schema([pa.field("s", pa.string()), pa.field("id", pa.int64(), nullable=False)])
    table.append(pa.table([list(rows.values()), list(rows)], schema=required))
    lake.run("db.pyiceberg_made", *CHANGES)
    assert by_id(lake, "db.pyiceberg_made") == changed(rows)
    lake.assert_readers_agree("db.pyiceberg_made", len(changed(rows)))


@pytest.mark.proves("L11")
def test_a_row_that_was_replaced_by_an_equality_delete_is_a_new_one(lake: InteropLake) -> None:
    """As streaming engines write upserts: the delete and the new row in one commit, which know nothing of row ids."""
    name, _ = filled(lake, "copy-on-write", 3)
    table = lake.table(name)
    before = {row.id: row["_row_id"] for row in lake.session.sql(f"SELECT id, _row_id FROM {name}").collect()}
    keys = pa.table([[7]], schema=pa.schema([with_id("id", pa.int64(), 1)]))
    delete = delete_file(table, keys, FileContent.EQUALITY_DELETES, 0, (), equality_ids=(1,))
    path = Path(table.location().removeprefix("file://")) / "data" / "upsert.parquet"
    schema = pa.schema([with_id("id", pa.int64(), 1), with_id("s", pa.string(), 2), with_id("k", pa.int32(), 3)])
    pq.write_table(pa.table([[7], ["upsert"], [1]], schema=schema), path)
    new = ContentFile(
        content=FileContent.DATA,
        path=f"file://{path}",
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
    )
    commit_files(table, data_files=[new], delete_files=[delete])
    found = {row.id: (row.s, row["_row_id"]) for row in lake.session.sql(f"SELECT *, _row_id FROM {name}").collect()}
    assert found.keys() == before.keys()
    assert found[7] == ("upsert", max(before.values()) + 1)
    assert {i: row_id for i, (_, row_id) in found.items() if i != 7} == {i: r for i, r in before.items() if i != 7}
