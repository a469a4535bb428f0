"""Which files of a source are imported, and that the commit is safe, by PyIceberg's reader and DuckDB's."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform

from dml import limits
from dml.catalog import CommitBase, create_table, load_table
from dml.commit import AppendFiles, commit
from dml.ddl.new_schema import schema_from_json
from dml.errors import AnalysisError, CommitConflictError, CorruptFileError, NotFoundError, ValidationFailedError
from dml.maintenance.import_files import (
    FolderSource,
    ImportDecision,
    ImportOptions,
    ImportPlan,
    SourcePartition,
    TableSource,
    load_for_import,
    plan_import,
)
from dml.options import DEFAULT_NAME_MAPPING
from tests.interop.readers import read_duckdb
from tests.other_writers import set_properties

SCHEMA = """{"type": "struct", "fields": [
    {"name": "id", "type": "long", "nullable": true, "metadata": {}},
    {"name": "code", "type": "string", "nullable": true, "metadata": {}},
    {"name": "day", "type": "date", "nullable": true, "metadata": {}}]}"""
NAME = ("db", "t")
IDENTITY: Transform[Any, Any] = IdentityTransform()


@dataclass
class World:
    """A table, and a folder for sources."""

    catalog: Catalog
    folder: Path

    def create(self, *partitioned: str, transform=IDENTITY, prefix: str = "", version: str = "2") -> Table:
        schema = schema_from_json(SCHEMA)
        fields = (
            PartitionField(schema.find_field(name).field_id, 1000 + place, transform, f"{prefix}{name}")
            for place, name in enumerate(partitioned)
        )
        properties = {"format-version": version}
        return create_table(self.catalog, NAME, schema, partition_spec=PartitionSpec(*fields), properties=properties)

    def write(self, name: str, *ids: int) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        return str(path)

    def plan(self, source: str | TableSource = "", **options) -> ImportPlan:
        table = load_table(self.catalog, NAME)
        location = str(self.folder / source) if isinstance(source, str) else ""
        read = FolderSource(location=location, file_format="parquet") if isinstance(source, str) else source
        return plan_import(None, table, "db.t", read, ImportOptions(**options), table.metadata.current_snapshot())

    def add(self, source: str | TableSource = "", *, planned: ImportPlan | None = None, table=None, **options) -> int:
        table = table or load_table(self.catalog, NAME)
        plan = planned or self.plan(source, **options)
        plan.check()
        checked = load_for_import(
            table,
            plan,
            lambda: CommitBase(table=load_table(self.catalog, NAME)),
            "main",
        )
        commit(table, AppendFiles(data_files=plan.data_files), load_state=checked)
        return len(plan.data_files)

    def rows(self) -> list[tuple]:
        """The rows, by PyIceberg; DuckDB's must be the same."""
        table = load_table(self.catalog, NAME)
        found = table.scan().to_arrow()
        rows = sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
        assert sorted(read_duckdb(table.metadata_location)) == sorted(map(repr, rows))
        return rows

    def decisions(self, plan: ImportPlan) -> dict[str, tuple[ImportDecision, str]]:
        root = f"{self.folder}/"
        return {one.location.removeprefix(root): (one.decision, one.reason) for one in plan.decisions}


@pytest.fixture
def world(catalog: Catalog, tmp_path: Path) -> World:
    (tmp_path / "source").mkdir()
    return World(catalog, tmp_path / "source")


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_partitions_have_the_values_of_their_folders(world: World, version: str) -> None:
    """As Java read the same folders: text stays text, escapes are decoded, and NULL is NULL."""
    world.create("code", "day", version=version)
    world.write("code=001/day=2024-01-02/a.parquet", 1)
    world.write("code=002/day=__HIVE_DEFAULT_PARTITION__/a.parquet", 2)
    world.write("code=a%2Fb%3D c/day=2024-01-03/a.parquet", 3)
    plan = world.plan()
    assert (len(plan.data_files), plan.changed_partitions) == (3, 3)
    assert world.add() == 3
    assert [row[:2] for row in world.rows()] == [(1, "001"), (2, "002"), (3, "a/b= c")]
    assert [str(row[2]) for row in world.rows()] == ["2024-01-02", "None", "2024-01-03"]
    table = load_table(world.catalog, NAME)
    snapshot = table.metadata.current_snapshot()
    counts = ("added-data-files", "changed-partition-count", "total-records")
    assert snapshot is not None
    assert snapshot.summary is not None
    assert [snapshot.summary[key] for key in counts] == ["3", "3", "3"]
    assert table.name_mapping() is not None
    assert len(table.metadata.snapshots) == 1
    assert [snapshot.first_row_id, snapshot.added_rows] == ([0, 3] if version == "3" else [None, None])


def test_only_visible_files_with_rows_are_added(world: World) -> None:
    """Hidden and empty files are skipped; Java fails on an empty one."""
    world.create()
    for name in ("a.parquet", "_b.parquet", ".c.parquet", "_delta_log/d.parquet", ".tmp/e.parquet"):
        world.write(name, 1)
    (world.folder / "f.parquet").touch()
    hidden = "its name, or that of a folder, starts with _ or ."
    assert world.decisions(world.plan()) == {
        "a.parquet": (ImportDecision.ADD, ""),
        "_b.parquet": (ImportDecision.SKIP, hidden),
        ".c.parquet": (ImportDecision.SKIP, hidden),
        "_delta_log/d.parquet": (ImportDecision.SKIP, hidden),
        ".tmp/e.parquet": (ImportDecision.SKIP, hidden),
        "f.parquet": (ImportDecision.SKIP, "it is empty"),
    }
    assert world.add() == 1


def test_a_hidden_name_of_a_partition_column(world: World) -> None:
    """The folder of a partition column is not hidden, whatever its name is."""
    table = world.create("code")
    with table.update_spec() as update:
        update.rename_field("code", "_code")
    world.write("_code=x/a.parquet", 1)
    world.write("_other/a.parquet", 2)
    assert world.add() == 1
    assert world.rows() == [(1, "x", None)]


def test_one_file_is_a_source(world: World) -> None:
    world.create()
    world.write("a.parquet", 1)
    world.write("b.parquet", 2)
    assert world.add("a.parquet") == 1
    assert world.rows() == [(1, None, None)]


def test_links_are_followed(world: World, tmp_path: Path) -> None:
    """As reading the folder does: rows behind a link are not lost."""
    world.create("code")
    elsewhere = World(world.catalog, tmp_path / "elsewhere")
    elsewhere.write("a.parquet", 1)
    (world.folder / "code=x").symlink_to(elsewhere.folder)
    (world.folder / "code=y").mkdir()
    (world.folder / "code=y" / "b.parquet").symlink_to(elsewhere.folder / "a.parquet")
    assert world.add() == 2
    assert world.rows() == [(1, "x", None), (1, "y", None)]


@pytest.mark.parametrize(
    ("partitioned", "files", "message"),
    [
        ((), ["code=1/a.parquet"], r"matches the partition columns \(code\) in input table"),
        (("code",), ["a.parquet"], r"matches the partition columns \(\) in input table"),
        (("day", "code"), ["code=1/day=2024-01-01/a.parquet"], r"\(code, day\) in input table"),
        (("code",), ["code=1/a.parquet", "code=1/day=2024-01-01/b.parquet"], "Conflicting partition column names"),
        (("code",), ["code=1/a.parquet", "b.parquet"], r"'.*b.parquet' is not in a partition folder of code"),
        (
            ("code",),
            ["code=1/a.parquet", "code=1/more/b.parquet"],
            "'.*b.parquet' is not in a partition folder of code",
        ),
        ((), ["a.parquet", "more/b.parquet"], r"'.*b.parquet' is not in the folder itself"),
        (
            ("day",),
            ["day=2024-01-01/a.parquet", "day=soon/b.parquet"],
            "The value 'soon' of the partition column 'day'",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused_and_nothing_is_written(
    world: World, partitioned: tuple[str, ...], files: list[str], message: str
) -> None:
    """Java leaves out files in other folders without a word; others have its messages."""
    before = world.create(*partitioned).metadata_location
    for name in files:
        world.write(name, 1)
    with pytest.raises(AnalysisError, match=message):
        world.add()
    assert load_table(world.catalog, NAME).metadata_location == before


def test_only_columns_themselves_are_found_in_folders(world: World) -> None:
    world.create("code", transform=BucketTransform(4), prefix="b_")
    world.write("b_code=1/a.parquet", 1)
    with pytest.raises(AnalysisError, match=r"Cannot find a partition spec in Iceberg table db.t"):
        world.add()


def test_an_earlier_spec_takes_the_files(world: World) -> None:
    """The names decide; the table may be partitioned in another way by now."""
    table = world.create("code")
    with table.update_spec() as update:
        update.remove_field("code")
    world.write("code=x/a.parquet", 1)
    assert world.add() == 1
    assert world.rows() == [(1, "x", None)]
    world.write("b/c.parquet", 2)
    assert {file.spec_id for file in world.plan("b").data_files} == {1}
    assert world.add("b") == 1


def test_the_filter_selects_partitions(world: World) -> None:
    world.create("code", "day")
    for code, day in (("001", "2024-01-02"), ("002", "2024-01-02"), ("002", "2024-1-3")):
        world.write(f"code={code}/day={day}/a.parquet", 1)
    assert len(world.plan(partition_filter={"code": "002"}).data_files) == 2
    assert len(world.plan(partition_filter={"day": "2024-01-03"}).data_files) == 1
    with pytest.raises(AnalysisError, match=r"Cannot find any matching partitions in table db.t"):
        world.plan(partition_filter={"code": "2"})


def test_a_file_is_not_added_twice(world: World) -> None:
    """Whatever its location is spelled like."""
    world.create()
    path = world.write("a.parquet", 1)
    assert world.add() == 1
    for source in (path, f"file:{path}", f"file://{path}", str(world.folder)):
        plan = plan_import(
            None,
            table := load_table(world.catalog, NAME),
            "db.t",
            FolderSource(location=source, file_format="parquet"),
            ImportOptions(),
            table.metadata.current_snapshot(),
        )
        with pytest.raises(ValidationFailedError, match=r"already exist within the target table: .*a.parquet"):
            plan.check()


def test_names_that_only_look_alike_are_other_files(world: World) -> None:
    world.create()
    world.write("a%20b.parquet", 1)
    assert world.add("a%20b.parquet") == 1
    world.write("a b.parquet", 2)
    assert world.add("a b.parquet") == 1


def test_concurrent_imports_add_a_file_once(world: World) -> None:
    """Java adds it twice: it looks for duplicates only before it commits."""
    table = world.create()
    world.write("a.parquet", 1)
    planned = world.plan()
    assert world.add() == 1
    with pytest.raises(ValidationFailedError, match=r"already exist within the target table: .*a.parquet"):
        world.add(planned=planned, table=table)
    assert world.rows() == [(1, None, None)]


def test_a_changed_schema_or_mapping_is_a_conflict(world: World) -> None:
    """The files were examined for other columns."""
    table = world.create()
    world.write("a.parquet", 1)
    planned = world.plan()
    set_properties(table, {DEFAULT_NAME_MAPPING: "[]"})
    with pytest.raises(CommitConflictError, match="columns or the name mapping of the table were changed"):
        world.add(planned=planned, table=table)
    set_properties(table, {}, [DEFAULT_NAME_MAPPING])
    with load_table(world.catalog, NAME).update_schema() as update:
        update.rename_column("id", "number")
    with pytest.raises(CommitConflictError, match="columns or the name mapping of the table were changed"):
        world.add(planned=planned, table=table)


def test_the_mapping_of_the_table_is_kept(world: World) -> None:
    """It may have further names."""
    table = world.create()
    mapping = '[{"field-id":1,"names":["id","number"]},{"field-id":2,"names":["code"]},{"field-id":3,"names":["day"]}]'
    set_properties(table, {DEFAULT_NAME_MAPPING: mapping})
    pq.write_table(pa.table({"number": [5]}), world.folder / "a.parquet")
    assert world.add() == 1
    assert world.rows() == [(5, None, None)]
    assert load_table(world.catalog, NAME).metadata.properties[DEFAULT_NAME_MAPPING] == mapping


def test_one_bad_file_leaves_the_table_as_it_was(world: World) -> None:
    before = world.create().metadata_location
    for number in range(3):
        world.write(f"{number}.parquet", number)
    (world.folder / "b.parquet").write_text("no Parquet")
    (world.folder / "c.parquet").write_text("nor this")
    with pytest.raises(CorruptFileError, match=r"'.*b.parquet' is not a readable parquet file") as caught:
        world.add()
    assert "Another file cannot be imported either: dry_run => true shows all" in str(caught.value)
    assert load_table(world.catalog, NAME).metadata_location == before
    assert [decision for decision, _ in world.decisions(world.plan()).values()].count(ImportDecision.REJECT) == 2


def test_missing_sources(world: World) -> None:
    world.create()
    with pytest.raises(NotFoundError, match=r"There is no file or folder '.*/nothing'"):
        world.plan("nothing")
    (world.folder / "empty").mkdir()
    assert world.plan("empty").decisions == ()


def test_parallelism_is_positive() -> None:
    with pytest.raises(AnalysisError, match="Parallelism should be larger than 0"):
        ImportOptions(parallelism=0)
    assert ImportOptions().parallelism == limits.READ_THREADS


def table_source(world: World, *partitions: tuple[str, str]) -> TableSource:
    return TableSource(
        name="d.s",
        location=f"file:{world.folder}",
        file_format="parquet",
        partition_columns=("code",),
        partitions=tuple(
            SourcePartition(texts=(("code", code),), location=f"file:{world.folder / folder}")
            for code, folder in partitions
        ),
    )


def test_partitions_of_a_table_may_be_anywhere(world: World, tmp_path: Path) -> None:
    """The catalog says which partition a folder is: its name does not matter."""
    world.create("code")
    world.write("code=a/x.parquet", 1)
    World(world.catalog, tmp_path / "away").write("y.parquet", 2)
    World(world.catalog, tmp_path / "away").write("_z.parquet", 9)
    world.write("code=dropped/z.parquet", 3)
    source = table_source(world, ("a", "code=a"), ("b", "../away"), ("c", "code=dropped"))
    assert world.add(replace(source, partitions=source.partitions[:2])) == 2
    assert world.rows() == [(1, "a", None), (2, "b", None)]
    assert world.plan(source, partition_filter={"code": "z"}).data_files == ()


def test_a_file_of_two_partitions_is_refused(world: World) -> None:
    """Its rows would be there twice."""
    world.create("code")
    world.write("code=a/x.parquet", 1)
    with pytest.raises(ValidationFailedError, match=r"'.*x.parquet' is in two partitions of the source"):
        world.add(table_source(world, ("a", "code=a"), ("b", "code=a")))


def test_a_missing_folder_of_a_partition(world: World) -> None:
    world.create("code")
    world.write("code=a/x.parquet", 1)
    source = table_source(world, ("a", "code=a"), ("b", "code=b"))
    with pytest.raises(NotFoundError, match=r"'.*code=b' of a partition of the source does not exist"):
        world.add(source)
    assert world.add(source, ignore_missing_files=True) == 1


def test_folders_inside_a_partition_are_refused(world: World) -> None:
    world.create("code")
    world.write("code=a/x.parquet", 1)
    world.write("code=a/more/y.parquet", 2)
    with pytest.raises(AnalysisError, match=r"'.*y.parquet' is not in a partition folder of code"):
        world.add(table_source(world, ("a", "code=a")))
