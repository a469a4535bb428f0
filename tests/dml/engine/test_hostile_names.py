"""Names and values with every character that means something to SQL, to a shell, in a URI or in a file's name."""

from pathlib import Path

import pytest

from dml.manifests.read import entries_of, manifests_of
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.lake import COMMANDS, Lake

pytestmark = pytest.mark.spark

NAMES = ('a"; DROP TABLE db.t; --', "q`'%20%2F\\ü漢 $x{0} =&.(*)|;~!")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.mark.parametrize(
    ("name", "version", "mode"), [(NAMES[0], 2, "merge-on-read"), (NAMES[1], 3, "copy-on-write")], ids=["sql", "uri"]
)
def test_everything_is_called_and_holds_what_is_hostile(lake: Lake, name: str, version: int, mode: str) -> None:
    """Namespace, table, column, partition, value and source; all statements, and who reads the table afterwards."""
    session, column, value = lake.session, quoted(name), literal(name)
    table_name = f"{column}.{column}"
    session.sql(f"CREATE NAMESPACE {column}")
    properties = {"format-version": str(version), **{f"write.{command}.mode": mode for command in COMMANDS}}
    settings = ", ".join(f"'{key}' = '{setting}'" for key, setting in properties.items())
    session.sql(f"CREATE TABLE {table_name} (id BIGINT, {column} STRING) PARTITIONED BY ({column}) "
                f"TBLPROPERTIES ({settings})")  # fmt: skip
    session.sql(f"INSERT INTO {table_name} VALUES (1, {value}), (2, {value}), (3, 'plain'), (4, NULL), (5, '')")
    session.sql(f"DELETE FROM {table_name} WHERE {column} = {value} AND id = 1")
    session.update(table_name, {column: literal(name + "2")}, "id = 3")
    source = f"(SELECT 4L AS id, {value} AS {column} UNION ALL SELECT 9L, {value})"
    session.sql(f"MERGE INTO {table_name} {column} USING {source} s ON {column}.id = s.id "
                f"WHEN MATCHED THEN UPDATE SET {column} = s.{column} WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    session.sql(f"EXPLAIN DELETE FROM {table_name} WHERE {column} = {value}")
    expected = [(2, name), (3, name + "2"), (4, name), (5, ""), (9, name)]
    assert [tuple(row) for row in session.sql(f"SELECT * FROM {table_name} ORDER BY id").collect()] == expected
    table = session.registry.catalogs["lake"].load_table((name, name))
    assert read_pyiceberg(table.metadata_location) == sorted(map(repr, expected))
    assert read_duckdb(table.metadata_location) == sorted(map(repr, expected))
    assert session.remove_orphan_files(table_name, dry_run=True) == ()
    manifests = manifests_of(table.io, table.current_snapshot())
    live = [entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True)]
    assert all(entry.data_file.path.startswith(f"{table.location()}/data/") for entry in live)
    assert session.sql("SHOW TABLES IN " + column).collect()[0][1] == name
    session.sql(f"ALTER TABLE {table_name} RENAME COLUMN {column} TO {quoted(name + '2')}")
    session.sql(f"DROP TABLE {table_name} PURGE")
    session.sql(f"DROP NAMESPACE {column}")
    assert not [path for path in Path(table.location().removeprefix("file://")).rglob("*") if path.is_file()]
