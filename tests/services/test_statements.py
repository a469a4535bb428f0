"""Every statement on catalogs and storages of real servers, in both modes and versions 2 and 3; read by others."""

import pytest

from dml.errors import NotFoundError
from tests.marks import by_night
from tests.services.lakes import ServerLake

pytestmark = pytest.mark.spark

KINDS = [
    ("sql_local", 2, "merge-on-read"),
    ("sql_local", 3, "copy-on-write"),
    ("sql_s3_arrow", 2, "copy-on-write"),
    ("sql_s3_arrow", 3, "merge-on-read"),
    ("sql_s3_fsspec", 2, "merge-on-read"),
    ("rest_s3", 2, "merge-on-read"),
    ("rest_s3", 3, "copy-on-write"),
    ("rest_s3", 3, "merge-on-read"),
]
ALWAYS = {
    ("sql_local", 3, "copy-on-write"),
    ("sql_s3_arrow", 2, "copy-on-write"),
    ("sql_s3_fsspec", 2, "merge-on-read"),
    ("rest_s3", 3, "merge-on-read"),
}
"""Each catalog and storage, both versions and modes."""


@pytest.mark.parametrize(("place", "version", "mode"), by_night(KINDS, ALWAYS.__contains__))
def test_every_statement_and_what_others_read(
    place: str, version: int, mode: str, lakes: dict[str, ServerLake]
) -> None:
    """Nothing lies in the storage but what snapshots name."""
    lake = lakes[place]
    name, sql = lake.create_keyed_table(version, mode, **{"write.splice.min-file-size-bytes": "0"}), lake.session.sql
    sql(f"INSERT INTO {name} SELECT id, concat('s', id) FROM range(0, 20, 1, 2)")
    rows = {i: f"s{i}" for i in range(20)}
    assert sql(f"DELETE FROM {name} WHERE id IN (1, 5, 19)").rows_deleted == 3
    rows = {i: s for i, s in rows.items() if i not in {1, 5, 19}}
    updated = sql(f"UPDATE {name} SET s = upper(s) WHERE id % 4 = 3")
    assert (updated.rows_updated, updated.data_files_spliced > 0) == (4, mode == "copy-on-write")
    rows = {i: s.upper() if i % 4 == 3 else s for i, s in rows.items()}
    merged = sql(
        f"MERGE INTO {name} t USING (SELECT id, 'm' AS s FROM range(16, 22)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 16 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (merged.rows_deleted, merged.rows_updated, merged.rows_inserted, merged.mode) == (1, 2, 3, mode)
    rows = {**{i: s for i, s in rows.items() if i != 16}, **dict.fromkeys((17, 18, 19, 20, 21), "m")}
    lake.assert_readers_agree(name, rows)
    assert lake.table(name).format_version == version
    assert lake.leftovers(name) == set()
    sql(f"TRUNCATE TABLE {name}")
    assert lake.rows_by_id(name) == {}
    sql(f"DROP TABLE {name}")
    with pytest.raises(NotFoundError):
        lake.session.table(name)


def test_a_merge_reads_one_catalog_and_writes_another(lakes: dict[str, ServerLake]) -> None:
    """From PostgreSQL and local files to REST and S3, and back, in one session."""
    local, remote = lakes["sql_local"], lakes["rest_s3"]
    source, target = local.create_keyed_table(2, "copy-on-write"), remote.create_keyed_table(2, "merge-on-read")
    local.session.sql(f"INSERT INTO {source} VALUES (1, 'one'), (2, 'two')")
    remote.session.sql(f"INSERT INTO {target} VALUES (2, 'old'), (3, 'three')")
    clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    session = remote.session
    session.add_catalog("sql_local", **local.properties)
    try:
        assert session.sql(f"MERGE INTO {target} t USING {source} s ON t.id = s.id {clauses}").rows_updated == 1
        remote.assert_readers_agree(target, {1: "one", 2: "two", 3: "three"})
        assert session.sql(f"MERGE INTO {source} t USING {target} s ON t.id = s.id {clauses}").rows_inserted == 1
        local.assert_readers_agree(source, {1: "one", 2: "two", 3: "three"})
    finally:
        session.registry.catalogs.pop("sql_local").close()
