"""ALTER TABLE: columns, properties, partitioning, order, name."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.table.update import AssertCurrentSchemaId, SetPropertiesUpdate

from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ErrorKind,
    NotFoundError,
    NotSupportedError,
    ValidationFailedError,
)
from tests.dml.ddl.conftest import DdlCatalog

NewTable = Callable[..., DdlCatalog]
NESTED = "id INT NOT NULL, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<y: FLOAT>>"


def alter(lake: DdlCatalog, action: str) -> DdlCatalog:
    lake.run(f"ALTER TABLE db.t {action}")
    return lake


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("ADD COLUMN z STRING COMMENT 'c'", {"z": "11: z: optional string (c)"}),
        ("ADD COLUMN S.C DATE", {"s.C": "11: C: optional date"}),
        ("ADD COLUMN l.element.z INT", {"l.element.z": "11: z: optional int"}),
        ("ADD COLUMN l.z INT", {"l.element.z": "11: z: optional int"}),
        ("ADD COLUMN m.value.z INT", {"m.value.z": "11: z: optional int"}),
        (
            "ADD COLUMNS (p STRUCT<q: INT, r: INT>, t INT)",
            {"p": "11: p: optional struct<12: q: optional int, 13: r: optional int>", "t": "14: t: optional int"},
        ),
        ("ALTER COLUMN ID TYPE BIGINT", {"id": "1: id: required long"}),
        ("ALTER COLUMN l.element.x TYPE BIGINT", {"l.element.x": "8: x: optional long"}),
        ("ALTER COLUMN m.value.y TYPE DOUBLE", {"m.value.y": "11: y: optional double"}),
        ("ALTER COLUMN id DROP NOT NULL", {"id": "1: id: optional int"}),
        ("ALTER COLUMN s.b COMMENT 'it''s'", {"s.b": "6: b: optional string (it's)"}),
        ("RENAME COLUMN s.A TO Z", {"s.Z": "5: Z: optional int"}),
        ("RENAME COLUMN id TO ID", {"ID": "1: ID: required int"}),
    ],
)
def test_a_column_changes_as_the_statement_says(
    new_table: NewTable, version: int, action: str, expected: dict[str, str]
) -> None:
    lake = alter(new_table(NESTED, version), action)
    schema = lake.table().schema()
    found = {name: str(schema.find_field(name)) for name in expected}
    # Ids of new columns follow the last one of the table.
    shift = {"11": "12", "12": "13", "13": "14", "14": "15"} if "ADD" in action else {}
    for old, new in sorted(shift.items(), reverse=True):
        expected = {name: text.replace(f"{old}: ", f"{new}: ") for name, text in expected.items()}
    assert found == expected


@pytest.mark.parametrize(
    ("action", "names"),
    [
        ("ADD COLUMN z INT FIRST", ["z", "id", "s", "l", "m"]),
        ("ADD COLUMN z INT AFTER S", ["id", "s", "z", "l", "m"]),
        ("ADD COLUMNS (y INT AFTER id, z INT AFTER y)", ["id", "y", "z", "s", "l", "m"]),
        ("ALTER COLUMN m FIRST", ["m", "id", "s", "l"]),
        ("ALTER COLUMN id AFTER l", ["s", "l", "id", "m"]),
        ("DROP COLUMN l", ["id", "s", "m"]),
        ("DROP COLUMNS (l, m)", ["id", "s"]),
        ("DROP COLUMN IF EXISTS nope", ["id", "s", "l", "m"]),
    ],
)
def test_columns_stand_where_the_statement_puts_them(new_table: NewTable, action: str, names: list[str]) -> None:
    lake = alter(new_table(NESTED), action)
    assert [field.name for field in lake.table().schema().fields] == names


def test_a_nested_field_moves_inside_its_struct(new_table: NewTable) -> None:
    lake = alter(new_table(NESTED), "ALTER COLUMN s.b FIRST")
    assert (
        str(lake.table().schema().find_field("s")) == "2: s: optional struct<6: b: optional string, 5: a: optional int>"
    )


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("ADD COLUMN ID INT", ErrorKind.ALREADY_EXISTS),
        ("ADD COLUMN s.A INT", ErrorKind.ALREADY_EXISTS),
        ("ADD COLUMN id.x INT", ErrorKind.TYPE_MISMATCH),
        ("ADD COLUMN q.x INT", ErrorKind.UNRESOLVED_COLUMN),
        ("ADD COLUMN m.key.x INT", ErrorKind.NOT_SUPPORTED),
        ("ADD COLUMN z INT NOT NULL", ErrorKind.NOT_SUPPORTED),
        ("ADD COLUMN z INT AFTER nope", ErrorKind.UNRESOLVED_COLUMN),
        ("ADD COLUMN _pos INT", ErrorKind.NOT_SUPPORTED),
        ("DROP COLUMN nope", ErrorKind.UNRESOLVED_COLUMN),
        ("DROP COLUMNS (id, s, l, m)", ErrorKind.ANALYSIS),
        ("DROP COLUMN l.element", ErrorKind.NOT_SUPPORTED),
        ("DROP COLUMN l.element.x", ErrorKind.ANALYSIS),
        ("RENAME COLUMN id TO S", ErrorKind.ALREADY_EXISTS),
        ("RENAME COLUMN idd TO x", ErrorKind.UNRESOLVED_COLUMN),
        ("RENAME COLUMN m.value TO x", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN id TYPE STRING", ErrorKind.TYPE_MISMATCH),
        ("ALTER COLUMN s TYPE INT", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN s.b TYPE BINARY", ErrorKind.TYPE_MISMATCH),
        ("ALTER COLUMN s SET NOT NULL", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN id AFTER id", ErrorKind.ANALYSIS),
        ("ALTER COLUMN m.key COMMENT 'x'", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN l.element COMMENT 'x'", ErrorKind.NOT_SUPPORTED),
    ],
)
def test_what_a_column_cannot_do_is_refused_and_nothing_changes(
    new_table: NewTable, action: str, kind: ErrorKind
) -> None:
    lake = new_table(NESTED)
    before = lake.table().metadata_location
    with pytest.raises(DmlError) as caught:
        alter(lake, action)
    assert caught.value.kind is kind
    assert lake.table().metadata_location == before


def test_a_decimal_grows_only_in_digits(new_table: NewTable) -> None:
    lake = new_table("d DECIMAL(9, 2)")
    alter(lake, "ALTER COLUMN d TYPE DECIMAL(12, 2)")
    for wrong in ("DECIMAL(12, 3)", "DECIMAL(10, 2)", "DOUBLE"):
        with pytest.raises(NotSupportedError):
            alter(lake, f"ALTER COLUMN d TYPE {wrong}")


def test_an_unknown_column_names_the_nearest(new_table: NewTable) -> None:
    with pytest.raises(AnalysisError, match=r"no column 'amuont'.*'amount'"):
        alter(new_table("amount INT, other INT"), "DROP COLUMN amuont")


def test_names_that_differ_by_case_are_told_apart_by_case(new_table: NewTable, lake: DdlCatalog) -> None:
    new_table("a INT")
    table = lake.table()
    with table.update_schema() as update:
        update.add_column("A", table.schema().find_type("a"))
    alter(lake, "RENAME COLUMN A TO bB")
    with table.refresh().update_schema() as update:
        update.add_column("Bb", table.schema().find_type("a"))
    with pytest.raises(AnalysisError, match="can be any of bB, Bb"):
        alter(lake, "DROP COLUMN BB")
    alter(lake, "DROP COLUMN Bb")
    alter(lake, "RENAME COLUMN bB TO c")
    assert lake.columns() == ["1: a: optional int", "2: c: optional int"]


def test_several_columns_change_at_once(new_table: NewTable) -> None:
    lake = alter(new_table("a INT, b FLOAT"), "ALTER COLUMN a TYPE BIGINT, b TYPE DOUBLE")
    assert lake.columns() == ["1: a: optional long", "2: b: optional double"]


def test_a_new_column_gets_both_defaults_and_later_ones_change_the_write_default_only(new_table: NewTable) -> None:
    lake = new_table("id INT", 3)
    alter(lake, "ADD COLUMN a STRING NOT NULL DEFAULT 'x'")
    alter(lake, "ALTER COLUMN a SET DEFAULT 'y'")
    field = lake.table().schema().find_field("a")
    assert (field.required, field.initial_default, field.write_default) == (True, "x", "y")
    alter(lake, "ALTER COLUMN a DROP DEFAULT")
    field = lake.table().schema().find_field("a")
    assert (field.initial_default, field.write_default) == ("x", None)
    with pytest.raises(AnalysisError, match="cannot be NULL"):
        alter(lake, "ALTER COLUMN a SET DEFAULT NULL")


def test_defaults_survive_every_other_change(new_table: NewTable) -> None:
    lake = new_table("id INT DEFAULT 3, s STRUCT<a: INT>", 3)
    for action in ("ADD COLUMN s.b INT DEFAULT 9", "ALTER COLUMN id TYPE BIGINT", "RENAME COLUMN id TO k"):
        alter(lake, action)
    alter(lake, "ALTER COLUMN k AFTER s")
    schema = lake.table().schema()
    assert [schema.find_field(name).initial_default for name in ("k", "s.b")] == [3, 9]


@pytest.mark.parametrize("action", ["ADD COLUMN a INT DEFAULT 1", "ALTER COLUMN id SET DEFAULT 1"])
def test_defaults_below_version_3_are_refused(new_table: NewTable, action: str) -> None:
    with pytest.raises(NotSupportedError, match="version 3"):
        alter(new_table("id INT"), action)


def test_a_column_that_partitions_or_sorts_stays(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT, dep STRING, k INT", version, "PARTITIONED BY (dep)")
    with pytest.raises(NotSupportedError, match="DROP PARTITION FIELD dep"):
        alter(lake, "DROP COLUMN dep")
    alter(lake, "WRITE ORDERED BY k")
    with pytest.raises(NotSupportedError, match="WRITE UNORDERED"):
        alter(lake, "DROP COLUMN k")
    alter(lake, "DROP PARTITION FIELD dep")
    if version == 1:
        with pytest.raises(NotSupportedError, match="'format-version' = '2'"):
            alter(lake, "DROP COLUMN dep")
        alter(alter(lake, "SET TBLPROPERTIES ('format-version' = '2')"), "DROP PARTITION FIELD dep")
    alter(lake, "DROP COLUMN dep")
    assert [field.name for field in lake.table().schema().fields] == ["id", "k"]


def test_a_column_that_old_files_are_partitioned_by_stays(new_table: NewTable) -> None:
    lake = new_table("id INT, dep STRING", 2, "PARTITIONED BY (dep)")
    lake.table().append(pa.table({"id": pa.array([1], pa.int32()), "dep": ["x"]}))
    alter(lake, "DROP PARTITION FIELD dep")
    with pytest.raises(NotSupportedError, match="before"):
        alter(lake, "DROP COLUMN dep")


def test_a_column_cannot_take_the_name_of_a_partition_field(new_table: NewTable) -> None:
    lake = new_table("id INT", 2, "PARTITIONED BY (bucket(4, id))")
    for action in ("ADD COLUMN id_bucket INT", "RENAME COLUMN id TO id_bucket"):
        with pytest.raises(AlreadyExistsError):
            alter(lake, action)


def test_the_name_mapping_keeps_old_names_and_learns_new_ones(new_table: NewTable) -> None:
    lake = new_table("id INT, s STRUCT<a: INT>")
    mapping = lake.table().schema().name_mapping.model_dump_json()
    alter(lake, f"SET TBLPROPERTIES ('schema.name-mapping.default' = '{mapping}')")
    for action in ("RENAME COLUMN id TO k", "ADD COLUMN s.b INT", "ADD COLUMN z STRUCT<q: INT>"):
        alter(lake, action)
    found = parse_mapping_from_json(lake.table().properties["schema.name-mapping.default"])
    assert {field.field_id: set(field.names) for field in found.root} == {1: {"id", "k"}, 2: {"s"}, 5: {"z"}}
    nested = {field.field_id: [(inner.field_id, inner.names) for inner in field.fields] for field in found.root}
    assert nested == {1: [], 2: [(3, ["a"]), (4, ["b"])], 5: [(6, ["q"])]}


# ---- identifier fields ----------------------------------------------------------------------------------------

IDENTIFIED = (
    "id INT NOT NULL, s STRUCT<a: INT NOT NULL>, r STRUCT<a: INT NOT NULL, o: INT> NOT NULL, f FLOAT NOT NULL, "
    "l ARRAY<STRUCT<q: INT NOT NULL>> NOT NULL"
)


def test_identifier_fields_are_set_and_dropped_as_in_the_reference(new_table: NewTable) -> None:
    """Refusals are those of Iceberg's Java library, names match in any case, and an earlier schema is used again."""
    lake = new_table(IDENTIFIED)
    for action, names in (
        ("SET IDENTIFIER FIELDS id, r.a", {"id", "r.a"}),
        ("SET IDENTIFIER FIELDS ID, id", {"id"}),
        ("SET IDENTIFIER FIELDS R.a, id", {"id", "r.a"}),
        ("DROP IDENTIFIER FIELDS r.a", {"id"}),
        ("RENAME COLUMN id TO k", {"k"}),
        ("DROP IDENTIFIER FIELDS k", set()),
    ):
        assert alter(lake, action).table().schema().identifier_field_names() == names
    assert len(lake.table().metadata.schemas) == 5


@pytest.mark.parametrize(
    ("action", "message", "kind"),
    [
        ("SET IDENTIFIER FIELDS nope", "no column 'nope'", ErrorKind.UNRESOLVED_COLUMN),
        ("SET IDENTIFIER FIELDS s.a", "s may be NULL", ErrorKind.NOT_SUPPORTED),
        ("SET IDENTIFIER FIELDS id, r.o", "r.o may be NULL", ErrorKind.NOT_SUPPORTED),
        ("SET IDENTIFIER FIELDS f", "its type is float", ErrorKind.TYPE_MISMATCH),
        ("SET IDENTIFIER FIELDS r", "its type is struct", ErrorKind.TYPE_MISMATCH),
        ("SET IDENTIFIER FIELDS l.element.q", "inside an array or a map", ErrorKind.NOT_SUPPORTED),
        ("DROP IDENTIFIER FIELDS nope", "no column 'nope'", ErrorKind.UNRESOLVED_COLUMN),
        ("DROP IDENTIFIER FIELDS f", "identifier fields are id, r.a", ErrorKind.NOT_FOUND),
        ("DROP IDENTIFIER FIELDS id, id", "id is not an identifier field", ErrorKind.NOT_FOUND),
        ("DROP COLUMN id", "DROP IDENTIFIER FIELDS id", ErrorKind.NOT_SUPPORTED),
        ("DROP COLUMN r", "DROP IDENTIFIER FIELDS r.a", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN id DROP NOT NULL", "DROP IDENTIFIER FIELDS id", ErrorKind.NOT_SUPPORTED),
        ("ALTER COLUMN r DROP NOT NULL", "DROP IDENTIFIER FIELDS r.a", ErrorKind.NOT_SUPPORTED),
    ],
)
def test_what_cannot_identify_rows_is_refused(new_table: NewTable, action: str, message: str, kind: ErrorKind) -> None:
    lake = alter(new_table(IDENTIFIED), "SET IDENTIFIER FIELDS id, r.a")
    with pytest.raises(DmlError) as caught:
        alter(lake, action)
    assert (message in str(caught.value), caught.value.kind) == (True, kind), caught.value
    assert lake.table().schema().identifier_field_names() == {"id", "r.a"}


# ---- properties -----------------------------------------------------------------------------------------------


def test_properties_are_set_and_unset(new_table: NewTable) -> None:
    lake = alter(new_table("id INT"), "SET TBLPROPERTIES ('write.update.mode' = 'merge-on-read', 'k' = 'v')")
    assert lake.table().properties["write.update.mode"] == "merge-on-read"
    alter(lake, "UNSET TBLPROPERTIES ('k', 'never-there')")
    assert "k" not in lake.table().properties


@pytest.mark.parametrize(
    "pair",
    [
        "'write.delete.mode' = 'merge'",
        "'write.merge.isolation-level' = 'none'",
        "'write.row-level-concurrency.max-checked-bytes' = 'many'",
        "'write.distribution-mode' = 'sorted'",
        "'write.update.distribution-mode' = 'x'",
        "'write.delete.granularity' = 'row'",
        "'write.target-file-size-bytes' = '-1'",
        "'commit.retry.num-retries' = 'many'",
        "'write.format.default' = 'csv'",
        "'format-version' = 'two'",
        "'location' = 'file:///x'",
        "'uuid' = 'x'",
        "'maintenance.rewrite.nonsense' = '1'",
        "'maintenance.rewrite.compression-factor' = '1'",
    ],
)
def test_a_property_that_would_break_later_statements_is_refused_when_it_is_set(new_table: NewTable, pair: str) -> None:
    lake = new_table("id INT")
    with pytest.raises(AnalysisError) as caught:
        alter(lake, f"SET TBLPROPERTIES ('fine' = 'x', {pair})")
    assert caught.value.kind is ErrorKind.INVALID_PROPERTY
    assert "fine" not in lake.table().properties


def test_the_format_version_goes_up_and_never_down(new_table: NewTable) -> None:
    lake = new_table("id INT", 1)
    for target in (2, 2, 3):
        alter(lake, f"SET TBLPROPERTIES ('format-version' = '{target}')")
        assert lake.table().metadata.format_version == target
    assert "format-version" not in lake.table().properties
    with pytest.raises(NotSupportedError, match="cannot go back to 2"):
        alter(lake, "SET TBLPROPERTIES ('format-version' = '2')")
    with pytest.raises(AnalysisError):
        alter(lake, "UNSET TBLPROPERTIES ('format-version')")


def test_a_statement_that_changes_nothing_commits_nothing(new_table: NewTable) -> None:
    lake = alter(new_table("id INT"), "SET TBLPROPERTIES ('a' = 'b')")
    before = lake.table().metadata_location
    for action in ("SET TBLPROPERTIES ('a' = 'b')", "UNSET TBLPROPERTIES ('z')", "ALTER COLUMN id TYPE INT"):
        alter(lake, action)
    alter(lake, "ALTER COLUMN id FIRST")
    assert lake.table().metadata_location == before


def test_a_schema_that_was_there_before_is_used_again(new_table: NewTable) -> None:
    lake = new_table("id INT")
    alter(alter(lake, "RENAME COLUMN id TO k"), "RENAME COLUMN k TO id")
    metadata = lake.table().metadata
    assert (len(metadata.schemas), metadata.current_schema_id) == (2, 0)


# ---- partitioning and order -----------------------------------------------------------------------------------


def test_fields_added_later_carry_their_number_in_the_name(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT, dep STRING, ts TIMESTAMP", version)
    for term in ("bucket(16, id)", "truncate(4, dep)", "days(ts)", "dep", "bucket(8, id) AS shard"):
        alter(lake, f"ADD PARTITION FIELD {term}")
    assert lake.partitioning() == [
        "1000: id_bucket_16: bucket[16](1)",
        "1001: dep_trunc_4: truncate[4](2)",
        "1002: ts_day: day(3)",
        "1003: dep: identity(2)",
        "1004: shard: bucket[8](1)",
    ]


def test_a_dropped_field_leaves_a_void_one_in_version_1_only(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT, dep STRING", version, "PARTITIONED BY (dep, bucket(4, id))")
    alter(lake, "DROP PARTITION FIELD dep")
    kept = ["1000: dep: void(2)"] if version == 1 else []
    assert lake.partitioning() == [*kept, "1001: id_bucket: bucket[4](1)"]
    alter(lake, "DROP PARTITION FIELD bucket(4, id)")
    assert lake.partitioning() == [*kept, *(["1001: id_bucket: void(1)"] if version == 1 else [])]


def test_a_field_that_comes_back_has_its_id_again_and_in_version_1_a_new_one(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT, dep STRING", version, "PARTITIONED BY (dep)")
    alter(alter(lake, "DROP PARTITION FIELD dep"), "ADD PARTITION FIELD dep")
    if version == 1:
        assert lake.partitioning() == ["1000: dep_1000: void(2)", "1001: dep: identity(2)"]
    else:
        assert lake.partitioning() == ["1000: dep: identity(2)"]
        assert lake.table().metadata.default_spec_id == 0


def test_a_field_is_replaced_by_name_or_by_term(new_table: NewTable) -> None:
    lake = new_table("id INT, ts TIMESTAMP", 2, "PARTITIONED BY (days(ts))")
    alter(lake, "REPLACE PARTITION FIELD ts_day WITH hours(ts)")
    assert lake.partitioning() == ["1001: ts_hour: hour(2)"]
    alter(lake, "REPLACE PARTITION FIELD hours(ts) WITH bucket(4, id) AS shard")
    assert lake.partitioning() == ["1002: shard: bucket[4](1)"]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("ADD PARTITION FIELD bucket(4, id)", AlreadyExistsError),
        ("ADD PARTITION FIELD days(ts) AS id_bucket", AlreadyExistsError),
        ("ADD PARTITION FIELD days(ts) AS id", AlreadyExistsError),
        ("ADD PARTITION FIELD days(id)", AnalysisError),
        ("ADD PARTITION FIELD idd", AnalysisError),
        ("DROP PARTITION FIELD nope", NotFoundError),
        ("DROP PARTITION FIELD id", NotFoundError),
        ("DROP PARTITION FIELD bucket(8, id)", NotFoundError),
        ("REPLACE PARTITION FIELD nope WITH id", NotFoundError),
    ],
)
def test_partition_fields_that_cannot_be_are_refused(
    new_table: NewTable, version: int, action: str, error: type[Exception]
) -> None:
    lake = new_table("id INT, ts TIMESTAMP", version, "PARTITIONED BY (bucket(4, id))")
    with pytest.raises(error):
        alter(lake, action)
    assert lake.partitioning() == ["1000: id_bucket: bucket[4](1)"]


def test_a_name_of_an_earlier_field_is_not_given_to_another(new_table: NewTable) -> None:
    lake = new_table("id INT", 2, "PARTITIONED BY (bucket(4, id))")
    alter(lake, "DROP PARTITION FIELD id_bucket")
    with pytest.raises(AlreadyExistsError, match="name the new one AS"):
        alter(lake, "ADD PARTITION FIELD bucket(8, id) AS id_bucket")


@pytest.mark.parametrize(
    ("clause", "order", "mode"),
    [
        (
            "WRITE ORDERED BY id DESC NULLS LAST, bucket(4, id)",
            "1 DESC NULLS LAST, bucket[4](1) ASC NULLS FIRST",
            "range",
        ),
        ("WRITE LOCALLY ORDERED BY ts", "2 ASC NULLS FIRST", None),
        ("WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY ts", "2 ASC NULLS FIRST", "hash"),
        ("WRITE DISTRIBUTED BY PARTITION ORDERED BY ts", "2 ASC NULLS FIRST", "hash"),
        ("WRITE DISTRIBUTED BY PARTITION", "", "hash"),
        ("WRITE UNORDERED", "", "none"),
        ("WRITE DISTRIBUTED BY PARTITION UNORDERED", "", "hash"),
        ("WRITE UNORDERED DISTRIBUTED BY PARTITION", "", "hash"),
        ("WRITE LOCALLY ORDERED BY ts DISTRIBUTED BY PARTITION", "2 ASC NULLS FIRST", "hash"),
    ],
)
def test_the_write_order_sets_the_sort_order_and_the_distribution(
    new_table: NewTable, clause: str, order: str, mode: str | None
) -> None:
    lake = alter(new_table("id INT, ts TIMESTAMP"), clause)
    assert ", ".join(str(field) for field in lake.table().sort_order().fields) == order
    assert lake.table().properties.get("write.distribution-mode") == mode


def test_the_unsorted_order_is_always_0_and_an_old_order_is_used_again(new_table: NewTable) -> None:
    lake = new_table("id INT, ts TIMESTAMP")
    clauses = ("ORDERED BY id", "UNORDERED", "ORDERED BY ts", "ORDERED BY id")
    seen = [alter(lake, f"WRITE {clause}").table().metadata.default_sort_order_id for clause in clauses]
    assert seen == [1, 0, 2, 1]


# ---- the name, and other writers ------------------------------------------------------------------------------


def test_a_table_is_renamed_within_its_namespace_or_to_another(new_table: NewTable) -> None:
    lake = new_table("id INT")
    lake.run("CREATE NAMESPACE other")
    for old, new, found in (("db.t", "u", "db.u"), ("db.u", "other.v", "other.v"), ("other.v", "lake.db.t", "db.t")):
        lake.run(f"ALTER TABLE {old} RENAME TO {new}")
        assert lake.catalog.table_exists(found)
    lake.run("CREATE TABLE db.w (id INT)")
    with pytest.raises(AlreadyExistsError):
        alter(lake, "RENAME TO w")
    with pytest.raises(NotFoundError):
        alter(lake, "RENAME TO nope.w")
    with pytest.raises(NotFoundError):
        lake.run("ALTER TABLE db.tt RENAME TO w")


def test_a_lost_race_is_run_again_on_the_newer_state(new_table: NewTable, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_table("id INT")
    commit, rivals = lake.catalog.commit_table, iter(["r1", "r2"])

    def late(*arguments: object) -> object:
        rival = next(rivals, None)
        if rival is not None:
            with lake.table().update_schema() as update:
                monkeypatch.setattr(lake.catalog, "commit_table", commit)
                update.add_column(rival, lake.table().schema().find_type("id"))
            monkeypatch.setattr(lake.catalog, "commit_table", late)
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", late)
    alter(lake, "ADD COLUMN mine INT")
    assert lake.columns() == [
        "1: id: optional int",
        "2: r1: optional int",
        "3: r2: optional int",
        "4: mine: optional int",
    ]


def test_a_race_that_is_always_lost_is_a_conflict(new_table: NewTable, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = alter(
        new_table("id INT"), "SET TBLPROPERTIES ('commit.retry.num-retries' = '2', 'commit.retry.min-wait-ms' = '1')"
    )
    tries = []

    def lost(*arguments: object) -> object:
        tries.append(arguments)
        raise CommitFailedException("no")

    monkeypatch.setattr(lake.catalog, "commit_table", lost)
    with pytest.raises(CommitConflictError, match="3 times"):
        alter(lake, "ADD COLUMN mine INT")
    assert len(tries) == 3


def test_a_requirement_that_can_never_be_met_is_not_tried_again(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_table("id INT")
    real, tries = lake.catalog.commit_table, []

    def counted(*arguments: object) -> object:
        tries.append(arguments)
        return real(*arguments)

    def change(_: TableMetadata) -> MetadataChange:
        update = SetPropertiesUpdate(updates={"a": "b"})
        return MetadataChange(updates=(update,), requirements=(AssertCurrentSchemaId(current_schema_id=7),))

    monkeypatch.setattr(lake.catalog, "commit_table", counted)
    with pytest.raises(ValidationFailedError, match=r"can never succeed.*expected 7, found 0"):
        commit_change(lake.catalog, tuple(lake.table().name()), change)
    assert len(tries) == 1


def test_an_answer_that_was_lost_is_not_tried_again(new_table: NewTable, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_table("id INT")
    tries = []

    def unknown(*arguments: object) -> object:
        tries.append(arguments)
        raise CommitStateUnknownException("timeout")

    monkeypatch.setattr(lake.catalog, "commit_table", unknown)
    with pytest.raises(CommitStateUnknownError):
        alter(lake, "ADD COLUMN mine INT")
    assert len(tries) == 1


def test_many_writers_at_once_all_get_their_column(new_table: NewTable) -> None:
    lake = alter(
        new_table("id INT"), "SET TBLPROPERTIES ('commit.retry.num-retries' = '30', 'commit.retry.min-wait-ms' = '5')"
    )
    failures: list[BaseException] = []

    def add(number: int) -> None:
        try:
            alter(lake, f"ADD COLUMN c{number} INT")
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    fields = lake.table().schema().fields
    assert {field.name for field in fields} == {"id", "c0", "c1", "c2", "c3"}
    assert sorted(field.field_id for field in fields) == [1, 2, 3, 4, 5]


def test_old_metadata_files_are_deleted_where_the_table_says_so(new_table: NewTable) -> None:
    """Its own properties say so, from the statement on that sets them."""
    lake = alter(new_table("id INT"), "ADD COLUMN a INT")
    folder = Path(lake.table().location().removeprefix("file://")) / "metadata"
    alter(lake, "SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')")
    assert len(list(folder.glob("*.metadata.json"))) == 3
    alter(lake, "SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    alter(lake, "ADD COLUMN b INT")
    assert len(list(folder.glob("*.metadata.json"))) == 2
    alter(lake, "RENAME COLUMN b TO c")
    assert len(list(folder.glob("*.metadata.json"))) == 2
    assert lake.columns() == ["1: id: optional int", "2: a: optional int", "3: c: optional int"]
