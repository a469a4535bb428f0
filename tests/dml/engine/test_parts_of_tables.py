"""What a table's name may end in: branches, also before the first snapshot, and snapshots."""

import pytest

from dml.errors import NotFoundError, NotSupportedError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.nightly), "2", "3"])
def test_main_is_a_branch_before_its_first_snapshot(lake, version):
    name = lake.create("id INT, v STRING", **{"format-version": version})
    main = f"{name}.branch_main"
    assert lake.rows(main) == lake.rows(f"SELECT * FROM {name} VERSION AS OF 'main'") == []
    assert not lake.session.sql(f"DELETE FROM {main} WHERE id = 1").changed
    assert not lake.session.sql(f"UPDATE {main} SET v = 'x'").changed
    merge = f"MERGE INTO {main} t USING (SELECT 1 AS id, 'a' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    assert lake.session.sql(merge).branch == "main"
    assert lake.rows(name) == [(1, "a")]
    other = lake.create("id INT, v STRING", **{"format-version": version})
    assert lake.session.sql(f"INSERT INTO {other}.branch_main VALUES (1, 'a')").rows_inserted == 1
    assert lake.rows(other) == [(1, "a")]
    with pytest.raises(NotFoundError, match="does not exist"):
        lake.session.sql(f"INSERT INTO {lake.create('id INT')}.branch_other VALUES (1)")


MERGE = (
    "MERGE INTO {0} t USING (SELECT * FROM VALUES (1, 'a'), (2, 'b') AS s(id, v)) s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT *"
)
FIRST = ["INSERT INTO {0} VALUES (1, 'a'), (2, 'b')", "INSERT OVERWRITE {0} VALUES (1, 'a'), (2, 'b')", MERGE]


@pytest.mark.parametrize("version", ["2", pytest.param("3", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("first", FIRST)
def test_the_first_snapshot_of_a_table_may_be_that_of_a_wap_branch(lake, version, first):
    name = lake.create("id INT, v STRING", **{"format-version": version, "write.wap.enabled": "true"})
    spark = lake.session.spark
    spark.conf.set("spark.wap.branch", "audit")
    try:
        assert lake.session.sql(first.format(name)).branch == "audit"
        assert lake.rows(name) == [(1, "a"), (2, "b")]
        lake.session.sql(f"DELETE FROM {name} WHERE id = 1")
        assert lake.rows(name) == lake.rows(f"{name}.branch_audit") == [(2, "b")]
    finally:
        spark.conf.unset("spark.wap.branch")
    assert lake.rows(name) == lake.rows(f"{name}.branch_main") == []
    table = lake.table(name)
    assert set(table.refs()) == {"audit"}
    assert table.current_snapshot() is None
    lake.session.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    assert lake.rows(name) == [(3, "c")]
    assert lake.rows(f"{name}.branch_audit") == [(2, "b")]


@pytest.mark.parametrize(
    "qualifier",
    [
        "lake.{0}.branch_x",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("{0}.branch_x", "{1}.branch_x")),
        "branch_x",
        "lake.{0}",
    ],
)
def test_a_branch_may_qualify_its_columns(lake, qualifier):
    name = lake.create("id INT, v STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "x").commit()
    q, branch = qualifier.format(name, name.split(".")[-1]), f"lake.{name}.branch_x"
    assert lake.session.sql(f"UPDATE {branch} SET v = concat({q}.v, '2') WHERE {q}.id = 2").rows_updated == 1
    assert lake.session.sql(f"UPDATE {branch} SET {q}.v = 'u' WHERE {q}.id = 1").rows_updated == 1
    assert lake.rows(f"SELECT {q}.v, {q}.id FROM {branch} WHERE {q}.id < 3") == [("b2", 2), ("u", 1)]
    merge = (
        f"MERGE INTO {branch} USING (SELECT 2 AS key) s ON {q}.id = s.key "
        f"WHEN MATCHED AND {q}.v = 'b2' THEN UPDATE SET {q}.v = upper({q}.v)"
    )
    assert lake.session.sql(merge).rows_updated == 1
    source = lake.session.spark.createDataFrame([(3,)], "key INT")
    assert lake.session.merge_into(source, branch, f"{q}.id = s.key", source_alias="s").whenMatched().delete().merge()
    assert lake.session.sql(f"DELETE FROM {branch} WHERE {q}.id = 1").rows_deleted == 1
    assert lake.rows(branch) == [(2, "B2")]
    assert lake.rows(name) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_snapshot_is_read_by_its_name_and_never_written(lake):
    name = lake.create("id INT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    first = lake.table(name).current_snapshot()
    lake.session.sql(f"INSERT INTO {name} VALUES (2)")
    assert lake.rows(f"{name}.snapshot_id_{first.snapshot_id}") == [(1,)]
    assert lake.rows(f"lake.{name}.at_timestamp_{first.timestamp_ms}") == [(1,)]
    assert lake.session.verify(f"{name}.snapshot_id_{first.snapshot_id}").snapshot_id == first.snapshot_id
    with pytest.raises(NotFoundError, match="no branch, tag or snapshot '123'"):
        lake.rows(f"{name}.snapshot_id_123")
    with pytest.raises(NotFoundError, match="no snapshot at at_timestamp_5"):
        lake.rows(f"{name}.at_timestamp_5")
    for part in (f"snapshot_id_{first.snapshot_id}", "snapshot_id_123", "at_timestamp_5"):
        for statement in (
            "DELETE FROM {} WHERE id = 1",
            "UPDATE {} SET id = 3",
            "INSERT INTO {} VALUES (3)",
            "TRUNCATE TABLE {}",
            "MERGE INTO {} t USING (SELECT 1 AS k) s ON t.id = s.k WHEN MATCHED THEN DELETE",
        ):
            with pytest.raises(NotSupportedError, match="cannot write to a snapshot"):
                lake.session.sql(statement.format(f"{name}.{part}"))
    with pytest.raises(NotSupportedError, match="is a tag, not a branch"):
        lake.session.sql(f"DELETE FROM {name}.tag_x WHERE id = 1")
    assert lake.rows(name) == [(1,), (2,)]


def test_options_of_a_new_table_are_properties_as_in_the_reference(lake, tmp_path):
    name, place = lake.new_name(), (tmp_path / "elsewhere").as_uri()
    lake.session.sql(
        f"CREATE TABLE {name} (id INT) USING iceberg OPTIONS ('a' = 'b', 'write.delete.mode' = 'merge-on-read', "
        f"'format-version' '3', Foo 3, 'comment' = 'none', path '{place}') TBLPROPERTIES ('a' = 'c', 'x' = 'y')"
    )
    table = lake.table(name)
    assert (table.format_version, table.location()) == (3, place)
    assert {key: value for key, value in table.properties.items() if "compression" not in key} == {
        "Foo": "3",
        "a": "b",
        "x": "y",
        "write.delete.mode": "merge-on-read",
        "option.Foo": "3",
        "option.a": "b",
        "option.comment": "none",
        "option.format-version": "3",
        "option.write.delete.mode": "merge-on-read",
    }
    other = lake.new_name()
    lake.session.sql(f"CREATE TABLE {other} USING iceberg OPTIONS (k 'v') AS SELECT 1 AS id")
    lake.session.sql(f"CREATE OR REPLACE TABLE {other} USING iceberg OPTIONS (k2 'v') AS SELECT 2 AS id")
    kept = lake.table(other).properties
    assert {key: kept[key] for key in ("k", "k2", "option.k", "option.k2")} == dict.fromkeys(
        ("k", "k2", "option.k", "option.k2"), "v"
    )
    assert lake.rows(other) == [(2,)]
    lake.session.sql(f"CREATE TABLE plain_{other.split('.')[1]} (id INT) USING parquet OPTIONS (compression 'none')")
