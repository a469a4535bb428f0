"""Which files a statement opens, replaces and writes: those that it must not open are taken away, or spoilt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.errors import PythonException

from dml.engine import publish
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ManifestEntry, ManifestFile
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def by_least_id(lake: Lake, name: str) -> dict[int, str]:
    """The data files of a table by the least id in them."""
    return {pq.read_table(local(file.path))["id"].to_pylist()[0]: file.path for file in lake.data_files(name)}


def test_a_delete_of_whole_files_opens_and_writes_no_data_file(kind: Kind) -> None:
    """By partition or by column metrics: the data files may be gone already."""
    name, lake = kind.filled_alone(), kind.lake
    for file in lake.data_files(name):
        local(file.path).unlink()
    before = set(lake.folder(name).joinpath("data").rglob("*.*"))
    result = lake.session.delete(name, "k = 1")
    assert (result.mode, result.data_files_removed, result.data_files_added) == ("metadata", 1, 0)
    assert result.summary["operation"] == "delete"
    result = lake.session.delete(name, "id >= 8")
    assert (result.mode, result.data_files_removed) == ("metadata", 1)
    assert lake.session.delete(name).data_files_removed == 1
    assert set(lake.folder(name).joinpath("data").rglob("*.*")) == before
    assert lake.rows(name) == []


def test_a_metadata_delete_reads_each_manifest_to_plan_and_to_commit_and_nothing_afterwards(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is committed, its snapshot may expire what it read, and the statement has succeeded all the same."""
    name = lake.create("id BIGINT, k INT", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 2)")
    table = lake.table(name)
    snapshot = table.current_snapshot()
    (manifest,) = manifests_of(table.io, snapshot)
    opened: list[str] = []
    new_input, commit = PyArrowFileIO.new_input, publish.commit

    def counted(io: PyArrowFileIO, location: str) -> Any:
        opened.append(location)
        return new_input(io, location)

    def commit_and_expire(*arguments: Any, **options: Any) -> Any:
        committed = commit(*arguments, **options)
        local(snapshot.manifest_list).unlink()
        local(manifest.manifest_path).unlink()
        return committed

    monkeypatch.setattr(PyArrowFileIO, "new_input", counted)
    monkeypatch.setattr(publish, "commit", commit_and_expire)
    result = lake.session.delete(name, "k = 2")
    assert (result.mode, result.rows_deleted) == ("metadata", 2)
    assert opened.count(manifest.manifest_path) == 2
    assert lake.rows(name) == [(1, 1)]


def test_files_without_a_matched_row_stay_as_they_are(kind: Kind) -> None:
    """Also where no metric tells: the condition is on what Iceberg cannot prune by."""
    name, lake = kind.filled(), kind.lake
    files = by_least_id(lake, name)
    result = lake.session.update(name, {"s": "'new'"}, "length(s) = 2 AND id % 4 = 1 AND k % 2 = 1")
    assert result.rows_updated == 1
    left = {file.path for file in lake.data_files(name)}
    assert left >= {files[0], files[8]}
    assert (files[4] in left) != kind.copy_on_write
    assert result.data_files_rewritten == (1 if kind.copy_on_write else 0)
    assert [row for row in lake.rows(name) if row[2] == "new"] == [(5, 1, "new")]
    assert len(lake.rows(name)) == 12


def test_a_pruned_file_is_not_opened_for_a_change(kind: Kind) -> None:
    """UPDATE and MERGE reach the rows of one file while the others are gone."""
    name, lake = kind.filled_alone(), kind.lake
    files = by_least_id(lake, name)
    for least in (0, 8):
        local(files[least]).rename(local(files[least]).with_suffix(".away"))
    assert lake.session.update(name, {"s": "'u'"}, "id = 5 AND k = 1").rows_updated == 1
    source = lake.session.spark.createDataFrame([(6, "m"), (7, "m")], "id BIGINT, s STRING")
    builder = lake.session.merge_into(source, f"{name} AS t", "t.id = source.id AND t.k = 1")
    assert builder.whenMatched().update({"s": "source.s"}).merge().rows_updated == 2
    for least in (0, 8):
        local(files[least]).with_suffix(".away").rename(local(files[least]))
    changed = [row for row in lake.rows(name) if not row[2].startswith("s")]
    assert changed == [(5, 1, "u"), (6, 1, "m"), (7, 1, "m")]
    assert len(lake.rows(name)) == 12


def test_a_commit_opens_only_manifests_of_the_files_that_it_changes(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning says where they are; each file of the table has a manifest of its own."""
    name, lake = kind.filled(), kind.lake
    assert lake.session.update(name, {"s": "'u'"}, "id = 5").rows_updated == 1
    opened: list[str] = []

    def recorded(manifest: ManifestFile, *arguments: Any, **options: Any) -> Iterator[ManifestEntry]:
        opened.append(manifest.manifest_path)
        return entries_of(manifest, *arguments, **options)

    monkeypatch.setattr("dml.commit.window.entries_of", recorded)
    assert lake.session.update(name, {"s": "'v'"}, "id = 6").rows_updated == 1
    # Copy-on-write: the manifest that lists the file. Merge-on-read: the one that lists its deletion vector or position
    # deletes, which the new ones replace.
    assert len(opened) == 1
    assert [row[2] for row in lake.rows(name) if row[0] in {5, 6}] == ["u", "v"]


def test_the_keys_of_a_merge_prune_files(kind: Kind) -> None:
    """Without any condition on the target alone, files that hold no key of the source are not opened."""
    name, lake = kind.filled_alone(), kind.lake
    files = by_least_id(lake, name)
    local(files[0]).unlink()
    source = "(SELECT * FROM VALUES (CAST(5 AS BIGINT)), (9) AS v(id))"
    builder = lake.session.merge_into(source, f"{name} AS t", "t.id = source.id")
    assert builder.whenMatched().delete().merge().rows_deleted == 2


def spoil(path: Path, *, but: str) -> None:
    """Overwrite all column chunks of a Parquet file but one column's."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    data = bytearray(path.read_bytes())
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema != but:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)


def test_a_sum_of_one_of_fifty_columns_reads_one(lake: Lake) -> None:
    """The other column chunks are spoilt: who reads them fails."""
    columns = ", ".join(f"c{index} BIGINT" for index in range(50))
    values = ", ".join(f"id + {index}" for index in range(50))
    name = lake.create(columns)
    lake.session.sql(f"INSERT INTO {name} SELECT {values} FROM range(100)")
    for file in lake.data_files(name):
        spoil(local(file.path), but="c7")
    assert lake.rows(f"SELECT sum(c7) FROM {name}") == [(sum(range(100)) + 700,)]
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE c7 > 50") == [(56,)]
    with pytest.raises(PythonException, match="CorruptFileError"):
        lake.rows(f"SELECT sum(c8) FROM {name}")


def test_a_delete_reads_the_columns_of_its_condition_only(lake: Lake) -> None:
    """Merge-on-read: what stays is not read at all."""
    name = lake.create("id BIGINT, other BIGINT", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, id FROM range(100)")
    for file in lake.data_files(name):
        spoil(local(file.path), but="id")
    assert lake.session.delete(name, "id % 10 = 3").rows_deleted == 10
    assert lake.rows(f"SELECT count(id), sum(id) FROM {name}") == [(90, sum(range(100)) - sum(range(3, 100, 10)))]


def test_a_filter_on_the_partition_opens_its_files_only(lake: Lake) -> None:
    """The files of the other partitions are gone."""
    name = lake.create("id BIGINT, k INT, day TIMESTAMP_NTZ", "PARTITIONED BY (k, days(day))")
    lake.session.sql(
        f"INSERT INTO {name} SELECT id, CAST(id % 4 AS INT), TIMESTAMP_NTZ '2024-01-01 00:00:00' + "
        f"make_interval(0, 0, 0, 0, CAST(id AS INT)) FROM range(48)"
    )
    for path in lake.folder(name).joinpath("data").rglob("*.parquet"):
        if "k=2" not in str(path) or "2024-01-02" not in str(path):
            path.unlink()
    query = f"SELECT id FROM {name} WHERE k = 2 AND day >= TIMESTAMP_NTZ '2024-01-02 00:00:00'"
    assert lake.rows(query) == sorted(((i,) for i in range(24, 48) if i % 4 == 2), key=repr)
    with pytest.raises(PythonException, match="CorruptFileError"):
        lake.rows(f"SELECT * FROM {name}")


@pytest.mark.parametrize("firsts", [(0, 10), (10, 0), (10, 0, 20)])
def test_a_file_with_other_rows_is_seen_before_and_after_whole_ones(lake: Lake, firsts: tuple[int, ...]) -> None:
    """Each manifest tells of its own files: what one of them tells must not be lost beside what another one tells."""
    name = lake.create("id BIGINT")
    for first in firsts:
        lake.session.sql(f"INSERT INTO {name} SELECT id FROM range({first}, {first + 10}, 1, 1)")
    result = lake.session.sql(f"DELETE FROM {name} WHERE id >= 5")
    assert (result.rows_deleted, result.mode != "metadata") == (10 * len(firsts) - 5, True)
    assert lake.rows(name) == [(number,) for number in range(5)]


@pytest.mark.parametrize(
    "condition",
    [
        "lake.system.days(ts) <= date('2024-01-03 00:00:00') AND id IN (SELECT 2L)",
        "ts < timestamp('2024-01-04 00:00:00') AND id IN (SELECT 2L)",
        "ts < to_timestamp('2024-01-04') AND id IN (SELECT 2L)",
        "CAST(ts AS DATE) <= to_date('2024-01-03') AND ts < to_date('2024-01-04') AND id IN (SELECT 2L)",
    ],
)
def test_functions_that_cast_a_constant_prune_files(lake: Lake, condition: str) -> None:
    name = lake.create("id BIGINT, ts TIMESTAMP", "PARTITIONED BY (days(ts))")
    days = "timestampadd(DAY, CAST(id AS INT), TIMESTAMP '2024-01-01 12:00:00')"
    lake.session.sql(f"INSERT INTO {name} SELECT id, {days} FROM range(6)")
    for number, path in by_least_id(lake, name).items():
        if number > 2:
            local(path).unlink()
    assert lake.session.delete(name, condition).rows_deleted == 1


def test_what_timestamp_means_in_a_session_decides_which_files_may_match(lake: Lake) -> None:
    """If timestamps are local by default, a cast ignores the time zone in a text."""
    conf = lake.session.spark.conf
    name = lake.create("id BIGINT, ts TIMESTAMP", "PARTITIONED BY (hours(ts))")
    conf.set("spark.sql.session.timeZone", "UTC")
    conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        lake.session.sql(f"INSERT INTO {name} VALUES (1, TIMESTAMP_LTZ '2024-01-01 05:00:00Z')")
        condition = "ts = CAST('2024-01-01 05:00:00+05:00' AS TIMESTAMP)"
        assert lake.rows(f"SELECT id FROM {name} WHERE {condition}") == [(1,)]
        assert lake.session.delete(name, condition).rows_deleted == 1
    finally:
        conf.unset("spark.sql.timestampType")
        conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("condition", ["day IN ('2024-01-01 10:00')", "day = '2024-01-01 10:00'"])
@pytest.mark.parametrize("as_text", ["true", "false"])
def test_a_date_is_compared_with_a_text_as_spark_compares_them(lake: Lake, condition: str, as_text: str) -> None:
    """In legacy mode Spark may compare the text of the date."""
    conf, setting = lake.session.spark.conf, "spark.sql.legacy.typeCoercion.datetimeToString.enabled"
    name = lake.create("id BIGINT, day DATE")
    for number in (1, 2):
        lake.session.sql(f"INSERT INTO {name} VALUES ({number}, DATE '2024-01-0{number}')")
    conf.set("spark.sql.ansi.enabled", "false")
    conf.set(setting, as_text)
    try:
        query = f"SELECT sum(int({condition})) FROM VALUES (DATE '2024-01-01') AS t(day)"
        ((wanted,),) = lake.session.spark.sql(query).collect()
        assert lake.session.delete(name, condition).rows_deleted == wanted
    finally:
        conf.unset("spark.sql.ansi.enabled")
        conf.unset(setting)


def test_a_number_with_an_exponent_that_a_session_reads_as_a_decimal_is_compared_exactly(lake: Lake) -> None:
    """As a double, 2^53 + 1 equals 2^53."""
    conf = lake.session.spark.conf
    name = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {name} VALUES ({2**53 + 1})")
    conf.set("spark.sql.legacy.exponentLiteralAsDecimal.enabled", "true")
    try:
        assert not lake.session.delete(name, f"id = {2**53}e0").changed
        assert lake.session.delete(name, f"id * 1e0 > {2**53}").rows_deleted == 1
    finally:
        conf.unset("spark.sql.legacy.exponentLiteralAsDecimal.enabled")
