"""Tables and namespaces with our errors; format version 3 where the client writes the metadata."""

import datetime
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NotInstalledError,
    ServerError,
    UnauthorizedError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION, TableMetadataV3, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from dml.catalog import (
    create_namespace,
    create_table,
    drop_namespace,
    drop_table,
    list_namespaces,
    list_tables,
    load_table,
    namespace_exists,
    namespace_properties,
    rename_table,
    table_exists,
    translate,
)
from dml.commit import AppendFiles, commit
from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    SetupError,
)
from tests.other_writers import set_properties

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StringType(), required=False))


def stored(table: Table) -> dict[str, Any]:
    """The table's metadata file."""
    parsed: dict[str, Any] = json.loads(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    return parsed


@VERSIONS
def test_a_table_is_created_as_asked(catalog: Catalog, version: int, tmp_path: Path) -> None:
    table = create_table(
        catalog,
        ("db", "t"),
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket")),
        sort_order=SortOrder(SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST)),
        location=f"file://{tmp_path}/elsewhere",
        properties={"format-version": str(version), "owner": "me"},
    )
    read = load_table(catalog, ("db", "t"))
    assert read.metadata.format_version == version
    assert read.location() == f"file://{tmp_path}/elsewhere"
    assert read.properties == {"owner": "me"}
    assert [field.name for field in read.spec().fields] == ["id_bucket"]
    assert [field.source_id for field in read.sort_order().fields] == [2]
    assert stored(table)["format-version"] == version
    assert stored(table).get("next-row-id") == (0 if version == 3 else None)


def test_version_2_is_the_default(catalog: Catalog) -> None:
    assert create_table(catalog, ("db", "t"), SCHEMA).metadata.format_version == 2


@pytest.mark.parametrize("text", ["0", "4", "two", ""])
def test_a_format_version_that_is_none_is_refused(catalog: Catalog, text: str) -> None:
    with pytest.raises(AnalysisError, match="It must be 1, 2 or 3"):
        create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": text})
    assert not table_exists(catalog, ("db", "t"))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 3)])
def test_the_format_version_is_upgraded_by_property(catalog: Catalog, before: int, after: int) -> None:
    table = create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": str(before)})
    commit(table, AppendFiles())
    upgraded = set_properties(table.refresh(), {"format-version": str(after), "a": "b"}, ["gone"])
    assert (upgraded.metadata.format_version, upgraded.properties) == (after, {"a": "b"})
    metadata = stored(upgraded)
    assert metadata["format-version"] == after
    assert metadata["last-sequence-number"] == (0 if before == 1 else 1)
    assert len(metadata["metadata-log"]) == 2
    assert metadata.get("next-row-id") == (0 if after == 3 else None)
    assert commit(upgraded, AppendFiles()).sequence_number == (1 if before == 1 else 2)


def test_an_upgrade_alone_is_a_change(catalog: Catalog) -> None:
    table = create_table(catalog, ("db", "t"), SCHEMA)
    upgraded = set_properties(table, {"format-version": "3"})
    assert upgraded.metadata_location != table.metadata_location
    assert [entry.metadata_file for entry in upgraded.metadata.metadata_log] == [table.metadata_location]
    assert set_properties(upgraded, {"format-version": "3"}).metadata_location == upgraded.metadata_location


DEFAULTS: tuple[tuple[PrimitiveType, Any, str], ...] = (
    (StringType(), "x", "x"),
    (DateType(), datetime.date(2020, 1, 2), "2020-01-02"),
    (TimestampType(), datetime.datetime.fromisoformat("2020-01-02T03:04:05.000600"), "2020-01-02T03:04:05.000600"),
    (DecimalType(9, 2), Decimal("1.50"), "1.50"),
    (UUIDType(), UUID("12345678-1234-5678-1234-567812345678"), "12345678-1234-5678-1234-567812345678"),
    (BinaryType(), b"\x01\xff", "01ff"),
)


def test_default_values_of_columns_are_kept(catalog: Catalog) -> None:
    """PyIceberg loses them when it gives columns fresh ids; nested columns have them as well."""
    columns = [
        NestedField(10 + n, f"c{n}", kind, required=False, initial_default=value, write_default=value)
        for n, (kind, value, _) in enumerate(DEFAULTS)
    ]
    inner = StructType(NestedField(31, "n", LongType(), required=False, initial_default=7, write_default=8))
    schema = Schema(*columns, NestedField(30, "st", inner, required=False))
    table = create_table(catalog, ("db", "t"), schema, properties={"format-version": "3"})
    fields = stored(table)["schemas"][0]["fields"]
    assert [field["initial-default"] for field in fields[:-1]] == [text for _, _, text in DEFAULTS]
    assert [field["write-default"] for field in fields[:-1]] == [text for _, _, text in DEFAULTS]
    (nested,) = fields[-1]["type"]["fields"]
    assert (nested["initial-default"], nested["write-default"]) == (7, 8)
    assert [field["id"] for field in fields] == [1, 2, 3, 4, 5, 6, 7]
    assert table.schema().find_field("st.n").write_default == 8
    assert stored(table)["format-version"] == 3


def test_default_values_are_kept_in_nested_namespaces(catalog: Catalog) -> None:
    """PyIceberg stages tables of one-part namespaces only."""
    create_namespace(catalog, ("db", "inner"))
    schema = Schema(NestedField(1, "id", LongType(), required=False, initial_default=7, write_default=7))
    table = create_table(catalog, ("db", "inner", "t"), schema, properties={"format-version": "3"})
    plain = create_table(catalog, ("db", "inner", "plain"), SCHEMA)
    assert table.name() == ("db", "inner", "t")
    assert table.location().removesuffix("/t") == plain.location().removesuffix("/plain")
    commit(table, AppendFiles())
    again = load_table(catalog, ("db", "inner", "t"))
    assert again.schema().find_field("id").write_default == 7
    assert len(again.metadata.snapshots) == 1
    with pytest.raises(AlreadyExistsError):
        create_table(catalog, ("db", "inner", "t"), schema, properties={"format-version": "3"})
    with pytest.raises(NotFoundError, match="other"):
        create_table(catalog, ("db", "other", "t"), schema, properties={"format-version": "3"})


def test_default_values_need_version_3(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False, write_default=1))
    with pytest.raises(AnalysisError, match="default values of columns need format version 3"):
        create_table(catalog, ("db", "t"), schema)
    assert not table_exists(catalog, ("db", "t"))


def test_metadata_is_compressed_where_its_name_says_so(catalog: Catalog) -> None:
    """PyIceberg reads it back by that name."""
    table = create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": "3"})
    location = f"{table.location()}/metadata/v1.gz.metadata.json"
    assert isinstance(catalog, SqlCatalog)
    catalog._write_metadata(table.metadata, table.io, location)
    assert gzip.decompress(Path(location.removeprefix("file://")).read_bytes()).startswith(b"{")
    assert FromInputFile.table_metadata(table.io.new_input(location)) == table.metadata


def metadata_files(table: Table) -> int:
    return len(list((Path(table.location().removeprefix("file://")) / "metadata").glob("*.metadata.json")))


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_old_metadata_files_are_deleted_where_the_table_says_so(catalog: Catalog, version: str) -> None:
    """After commits of data as after those of properties; the log names those that are left."""
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
        "format-version": version,
    }
    table = create_table(catalog, ("db", "t"), SCHEMA, properties=properties)
    for _ in range(5):
        commit(table, AppendFiles())
    assert metadata_files(table.refresh()) == 3
    for number in range(4):
        table = set_properties(table, {"number": str(number)})
        assert metadata_files(table) == 3
    assert len(stored(table)["metadata-log"]) == 2
    table = set_properties(table, {"write.metadata.previous-versions-max": "1"})
    assert metadata_files(table) == 2


def test_old_metadata_files_stay_where_the_table_does_not_ask(catalog: Catalog) -> None:
    """The log is short all the same."""
    table = create_table(catalog, ("db", "t"), SCHEMA, properties={"write.metadata.previous-versions-max": "2"})
    for _ in range(5):
        commit(table, AppendFiles())
    assert metadata_files(table) == 6
    assert len(stored(table.refresh())["metadata-log"]) == 2


def test_a_snapshot_with_numbers_that_another_branch_took_is_not_added(catalog: Catalog) -> None:
    """Every requirement holds, yet the sequence number is taken: a server answers with a conflict, and so do we."""
    table = create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": "3"})
    commit(table, AppendFiles())
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    late = snapshot.model_copy(update={"snapshot_id": 1})
    with pytest.raises(CommitFailedException, match="sequence number 1 is not above the table's last, 1"):
        catalog.commit_table(
            table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (AddSnapshotUpdate(snapshot=late),)
        )


def test_errors_say_what_is_there(catalog: Catalog) -> None:
    create_table(catalog, ("db", "flights"), SCHEMA)
    with pytest.raises(NotFoundError, match=r"There is no table 'db\.flihgts' in the catalog 'lake'.*'flights'"):
        load_table(catalog, ("db", "flihgts"))
    with pytest.raises(NotFoundError):
        load_table(catalog, ("nowhere", "t"))
    with pytest.raises(AlreadyExistsError, match=r"Creating the table 'db\.flights' failed"):
        create_table(catalog, ("db", "flights"), SCHEMA)
    with pytest.raises(NotFoundError):
        create_table(catalog, ("nowhere", "t"), SCHEMA)
    with pytest.raises(NotFoundError):
        drop_table(catalog, ("db", "t"))
    with pytest.raises(NotFoundError):
        rename_table(catalog, ("db", "t"), ("db", "u"))
    assert not table_exists(catalog, ("nowhere", "t"))


def test_tables_are_renamed_and_dropped(catalog: Catalog) -> None:
    create_table(catalog, ("db", "a"), SCHEMA)
    create_table(catalog, ("db", "b"), SCHEMA)
    with pytest.raises(AlreadyExistsError):
        rename_table(catalog, ("db", "a"), ("db", "b"))
    rename_table(catalog, ("db", "a"), ("db", "c"))
    assert list_tables(catalog, ("db",)) == [("db", "b"), ("db", "c")]
    drop_table(catalog, ("db", "b"))
    location = load_table(catalog, ("db", "c")).metadata_location.removeprefix("file://")
    drop_table(catalog, ("db", "c"), purge=True)
    assert not Path(location).exists()
    assert list_tables(catalog, ("db",)) == []


def test_namespaces(catalog: Catalog) -> None:
    create_namespace(catalog, ("a", "b"), {"owner": "me"})
    assert namespace_exists(catalog, ("a", "b"))
    assert ("a",) in list_namespaces(catalog)
    assert namespace_properties(catalog, ("a", "b"))["owner"] == "me"
    with pytest.raises(AlreadyExistsError):
        create_namespace(catalog, ("db",))
    create_namespace(catalog, ("db",), exists_ok=True)
    with pytest.raises(NotFoundError):
        namespace_properties(catalog, ("nowhere",))
    create_table(catalog, ("db", "t"), SCHEMA)
    with pytest.raises(AnalysisError, match="Dropping the namespace 'db' failed") as caught:
        drop_namespace(catalog, ("db",))
    assert caught.value.kind is ErrorKind.NOT_EMPTY
    drop_namespace(catalog, ("a", "b"))
    with pytest.raises(NotFoundError):
        drop_namespace(catalog, ("a", "b"))


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (UnauthorizedError("x"), SetupError),
        (NotInstalledError("x"), SetupError),
        (CommitFailedException("x"), CommitConflictError),
        (CommitStateUnknownException("x"), CommitStateUnknownError),
        (ServerError("x"), ExecutionError),
        (BadRequestError("x"), AnalysisError),
        (OSError("x"), ExecutionError),
        (NotFoundError("x"), NotFoundError),
    ],
)
def test_every_exception_of_a_catalog_becomes_one_of_ours(error: Exception, ours: type[DmlError]) -> None:
    assert type(translate(error, "Doing", {})) is ours


class TestWhatPyIcebergCannotDoYet:
    """When one of these fails, PyIceberg can do it itself, and `dml.iceberg` should lose that part."""

    def test_write_version_3_metadata(self, catalog: Catalog) -> None:
        table = create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": "3"})
        with pytest.raises(NotImplementedError, match="Writing V3 is not yet supported"):
            ToOutputFile.table_metadata(table.metadata, table.io.new_output(f"{table.location()}/x.metadata.json"))

    def test_upgrade_to_version_3(self) -> None:
        assert SUPPORTED_TABLE_FORMAT_VERSION == 2

    def test_start_row_ids_at_0(self) -> None:
        properties = {"format-version": "3"}
        metadata = new_table_metadata(SCHEMA, PartitionSpec(), UNSORTED_SORT_ORDER, "file:///x", properties)
        assert isinstance(metadata, TableMetadataV3)
        assert metadata.next_row_id is None

    def test_keep_default_values(self) -> None:
        schema = Schema(NestedField(1, "id", LongType(), required=False, write_default=1))
        metadata = new_table_metadata(
            schema, PartitionSpec(), UNSORTED_SORT_ORDER, "file:///x", {"format-version": "3"}
        )
        assert metadata.schema().find_field("id").write_default is None


def test_a_database_that_cannot_be_written_to_is_named_without_sql(catalog: Catalog) -> None:
    identifier = create_table(catalog, ("db", "t"), SCHEMA).name()
    folder = catalog.properties["warehouse"]
    database = f"sqlite:///file:{folder.removeprefix('file://')}/catalog.db?mode=ro&uri=true"
    read_only = SqlCatalog("lake", uri=database, warehouse=folder, init_catalog_tables="false")
    change = MetadataChange(updates=(SetPropertiesUpdate(updates={"a": "b"}),))
    with pytest.raises(ExecutionError, match="readonly database") as raised:
        commit_change(read_only, identifier, lambda _: change)
    assert "UPDATE" not in str(raised.value)
    assert "can be written to" in str(raised.value.hint)
