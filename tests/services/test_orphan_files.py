"""Orphan files on catalogs and storages of real servers: listed, and deleted by name."""

import importlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dml.errors import AnalysisError
from tests.marks import by_night
from tests.services.lakes import ServerLake

pytestmark = pytest.mark.spark


KINDS = [
    ("sql_local", 2, "copy-on-write"),
    ("sql_s3_arrow", 3, "merge-on-read"),
    ("sql_s3_fsspec", 2, "copy-on-write"),
    ("rest_s3", 2, "copy-on-write"),
    ("rest_s3", 3, "merge-on-read"),
]


@pytest.mark.parametrize(
    ("place", "version", "mode"), by_night(KINDS, lambda kind: kind != ("rest_s3", 2, "copy-on-write"))
)
def test_orphans_go_and_nothing_else_does(
    place: str, version: int, mode: str, lakes: dict[str, ServerLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files cannot be made old on S3, so the call is let look at files of the future."""
    lake = lakes[place]
    monkeypatch.setattr(
        importlib.import_module("dml.maintenance.remove_orphan_files"), "LEAST_AGE", timedelta(days=-30)
    )
    later = datetime.now(UTC) + timedelta(days=2)
    # Into a bucket of tables SeaweedFS takes nothing but files with the usual names.
    folder = {"write.data.path": f"s3://plain/orphans/{version}"} if place == "rest_s3" else {}
    name = lake.create_keyed_table(version, mode, **folder)
    sql = lake.session.sql
    sql(f"INSERT INTO {name} SELECT id, concat('s', id) FROM range(0, 20, 1, 2)")
    sql(f"DELETE FROM {name} WHERE id = 5")
    sql(f"UPDATE {name} SET s = 'new' WHERE id = 6")
    rows = {number: "new" if number == 6 else f"s{number}" for number in range(20) if number != 5}
    table = lake.table(name)
    # Of a REST catalog that keeps no log of its metadata files, old ones are orphans like others.
    old_metadata = set(lake.session.remove_orphan_files(name, later, dry_run=True))
    assert all(location.endswith(".metadata.json") for location in old_metadata)
    data = table.properties.get("write.data.path", f"{table.location()}/data")
    needed = next(task.file.file_path for task in table.scan().plan_files())
    strays = {f"{data}/k=a%20b/x.parquet", f"{data}/*", f"{needed}#1"}
    for location in strays:
        put(lake, location)
    assert set(lake.session.remove_orphan_files(name, later, dry_run=True)) == strays | old_metadata
    assert lake.session.remove_orphan_files(name, datetime.now(UTC) - timedelta(days=5)) == ()
    rows_of_call = sql(
        f"CALL {lake.catalog}.system.remove_orphan_files('{name}', TIMESTAMP '{later:%Y-%m-%d}')"
    ).collect()
    assert {row[0] for row in rows_of_call} == strays | old_metadata
    lake.assert_readers_agree(name, rows)
    assert lake.leftovers(name) == set()
    assert lake.session.remove_orphan_files(name, later) == ()
    with pytest.raises(AnalysisError, match="no folder of the table"):
        lake.session.remove_orphan_files(name, location=table.location().rpartition("/")[0])


def put(lake: ServerLake, location: str) -> None:
    """A file by its plain name: a FileIO would cut it at the number sign."""
    if location.startswith("s3://"):
        bucket, _, key = location.removeprefix("s3://").partition("/")
        lake.storage.server.s3.put_object(Bucket=bucket, Key=key, Body=b"stray")
        return
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
