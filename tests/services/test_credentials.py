"""Credentials go to the catalog, the storage and the workers that read it, and nowhere else."""

import logging
from pathlib import Path

import pytest

from dml.catalog.credentials import storage_properties
from dml.errors import DmlError
from dml.session import runner_of
from tests.services.lakes import ServerLake
from tests.services.postgresql import PASSWORD, PostgreSql
from tests.services.seaweedfs import SECRET_KEY

pytestmark = pytest.mark.spark

SECRETS = (PASSWORD, "p%40ss%2Fw0rd-of-the-catalog", SECRET_KEY)


def shows_secret(text: str) -> bool:
    return any(secret in text for secret in SECRETS)


@pytest.mark.parametrize("place", ["sql_s3_fsspec", "rest_s3"])
def test_credentials_are_in_no_text_and_in_no_file(
    place: str, lakes: dict[str, ServerLake], caplog: pytest.LogCaptureFixture
) -> None:
    """Not in reprs, plans, errors with their causes, results, summaries, what is logged, or what Spark writes."""
    lake = lakes[place]
    session, spark = lake.session, lake.session.spark
    name = lake.create_keyed_table(2, "merge-on-read")
    with caplog.at_level(logging.DEBUG, logger="dml"), caplog.at_level(logging.DEBUG, logger="pyiceberg"):
        results = [session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range(4)")]
        results += [session.delete(name, "id = 1"), session.update(name, {"s": "'u'"}, "id = 2")]
        frame = session.table(name)
        planned = frame._jdf.queryExecution().toString()
        explained = session.sql(f"EXPLAIN MERGE INTO {name} t USING {name} s ON t.id = s.id WHEN MATCHED THEN DELETE")
        with pytest.raises(DmlError) as raised:
            session.update(name, {"s": "raise_error('no')"})
    table = lake.table(name)
    texts = [
        repr(one) for one in (session, session.registry, runner_of(session).engine, table, table.io, frame, *results)
    ]
    texts += [planned, explained.collect()[0][0], table.metadata.model_dump_json(), caplog.text]
    texts += [str(raised.value), repr(raised.value.__dict__), str(raised.value.__cause__)]
    texts += [f"{key}={value}" for key, value in spark.sparkContext.getConf().getAll()]
    texts += [repr(row) for row in session.sql(f"SELECT summary FROM {name}.snapshots").collect()]
    assert not [text for text in texts if shows_secret(text)]
    written = [table.io.new_input(path).open().read() for path in lake.storage.below(table.location())]
    local = Path(spark.conf.get("spark.local.dir"))
    written += [path.read_bytes() for path in local.rglob("*") if path.is_file()]
    assert written
    assert not [content for content in written if any(secret.encode() in content for secret in SECRETS)]


def test_workers_get_the_storage_s_credentials_alone(lakes: dict[str, ServerLake]) -> None:
    """The password of the catalog's database stays on the driver."""
    for lake in lakes.values():
        sent = storage_properties(lake.table(lake.create_keyed_table(2, "copy-on-write")).io.properties)
        assert PASSWORD not in repr(sent)
        assert "p%40ss" not in repr(sent)
        assert (SECRET_KEY in sent.values()) == (lake.catalog != "sql_local")


def test_a_session_that_is_closed_holds_no_connection(postgres: PostgreSql, lakes: dict[str, ServerLake]) -> None:
    """The pool is emptied, also after an error."""
    lake = lakes["sql_local"]
    uri = postgres.create_database("closing")
    lake.session.add_catalog("closing", type="sql", uri=uri, warehouse=lake.properties["warehouse"])
    catalog = lake.session.registry.catalogs.pop("closing")
    assert catalog.list_namespaces() == []
    assert postgres.connections("closing") == 1
    catalog.close()
    assert postgres.connections("closing") == 0
