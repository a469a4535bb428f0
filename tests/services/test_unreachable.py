"""A wrong password, a server that is not there or does not answer, a missing bucket: one clear error, soon."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import dml
from dml.catalog import create_namespace, create_table, load
from dml.errors import DmlError, ExecutionError, SetupError
from tests.services.conftest import FSSPEC
from tests.services.lakes import ServerLake
from tests.services.postgresql import PASSWORD, PostgreSql
from tests.services.seaweedfs import SECRET_KEY, SeaweedFs
from tests.services.server import free_ports, silent_port

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
WRONG = "wrong-and-secret-all-the-same"
SECONDS = 20


@contextmanager
def raises_soon(kind: type[DmlError], *words: str) -> Iterator[None]:
    """The block raises an error that has the words, says what to do, and shows no credential."""
    started = time.monotonic()
    with pytest.raises(kind) as raised:
        yield
    assert time.monotonic() - started < SECONDS
    text = str(raised.value)
    assert all(word in text for word in (*words, "Check")), text
    assert not any(secret in text for secret in (PASSWORD, SECRET_KEY, WRONG, "p%40ss")), text
    assert "\n" not in text


def test_a_database_that_refuses_or_is_not_there(postgres: PostgreSql) -> None:
    (closed,) = free_ports(1)
    uri = postgres.create_database("refusing")
    place = {"type": "sql", "warehouse": "file:///tmp/nowhere"}
    with raises_soon(SetupError, "password authentication failed"):
        load("sql", **place, uri=postgres.uri("refusing", WRONG))
    with raises_soon(SetupError, "does not exist"):
        load("sql", **place, uri=postgres.uri("missing"))
    with raises_soon(SetupError, "Connection refused"):
        load("sql", **place, uri=uri.replace(str(postgres.port), str(closed)))
    with silent_port() as silent, raises_soon(SetupError, "timeout expired"):
        load("sql", **place, uri=uri.replace(str(postgres.port), str(silent)) + "?connect_timeout=2")


def test_a_rest_server_that_refuses_or_is_not_there(storage: SeaweedFs) -> None:
    (closed,) = free_ports(1)
    properties = storage.rest_catalog("tables")
    with raises_soon(SetupError, "credentials", "signature"):
        create_namespace(load("rest", **storage.rest_catalog("tables", WRONG)), ("refused",))
    with raises_soon(SetupError, "Connection refused"):
        load("rest", **{**properties, "uri": f"http://127.0.0.1:{closed}"})
    with silent_port() as silent, raises_soon(SetupError, "timed out"):
        timeouts = {"rest.client.connection-timeout-ms": "300"}
        load("rest", **{**properties, **timeouts, "uri": f"http://127.0.0.1:{silent}"})


def test_a_rest_server_that_stops_answering(storage: SeaweedFs) -> None:
    """Requests after the first have a limit too."""
    catalog = load("rest", **storage.rest_catalog("tables"), **{"rest.client.socket-timeout-ms": "300"})
    with silent_port() as silent:
        catalog.uri = f"http://127.0.0.1:{silent}"
        with raises_soon(ExecutionError, "timed out", "server runs"):
            create_namespace(catalog, ("slow",))


@pytest.mark.parametrize("implementation", [{}, FSSPEC])
def test_a_storage_that_refuses_or_is_not_there(
    implementation: dict[str, str], postgres: PostgreSql, storage: SeaweedFs
) -> None:
    (closed,) = free_ports(1)
    uri = postgres.create_database(f"storage_{len(implementation)}")

    def create(**properties: str) -> None:
        place = {"type": "sql", "uri": uri, "warehouse": "s3://plain/x", **storage.file_io(), **implementation}
        catalog = load("sql", **{**place, **properties})
        create_namespace(catalog, ("db",), exists_ok=True)
        create_table(catalog, ("db", "t"), SCHEMA)

    with raises_soon(ExecutionError, "bucket", "does not exist"):
        create(warehouse="s3://missing-bucket/x")
    with raises_soon(ExecutionError, "storage"):
        create(**{"s3.secret-access-key": WRONG})
    if not implementation:  # the other one is as clear, and takes six seconds
        with raises_soon(ExecutionError, "connect"):
            create(**{"s3.endpoint": f"http://127.0.0.1:{closed}"})


@pytest.mark.spark
@pytest.mark.parametrize("place", ["sql_s3_arrow", "sql_s3_fsspec"])
def test_a_statement_on_a_storage_that_refuses(place: str, lakes: dict[str, ServerLake]) -> None:
    """Through the session, and told before Spark runs anything."""
    lake = lakes[place]
    name = lake.create_keyed_table(2, "copy-on-write")
    properties = {**lake.properties, "s3.secret-access-key": WRONG}
    with dml.connect(catalog=place, spark=lake.session.spark, progress=False, **properties) as session:
        for run in statements(session, name):
            with raises_soon(ExecutionError, "storage"):
                run()


def statements(session: dml.Session, name: str) -> list[Callable[[], object]]:
    return [
        lambda: session.table(name),
        lambda: session.update(name, {"s": "'u'"}),
        lambda: session.sql(f"INSERT INTO {name} VALUES (1, 'a')"),
        lambda: session.sql(f"ALTER TABLE {name} ADD COLUMN more INT"),
    ]
