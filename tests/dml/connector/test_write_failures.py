"""What a write leaves that does not come to its end, when its commit, or the catalog, is what fails."""

from operator import attrgetter

import pytest
from pyiceberg.exceptions import BadRequestError
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr, lit

from dml import ddl
from dml.errors import CommitStateUnknownError, DmlError

pytestmark = pytest.mark.spark


def frame(spark, ids):
    return spark.range(ids.start, ids.stop, 1, 2).select("id", lit("a").alias("k"))


@pytest.fixture
def catalog(lake):
    return lake.session.registry.catalogs["lake"]


@pytest.mark.parametrize("write", ["append", "_jwriter.overwritePartitions"])
def test_a_commit_that_is_refused_leaves_no_file(lake, catalog, spark, monkeypatch, write):
    """Whichever job wrote them."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)")
    before = lake.state(name)

    def refuse(*_, **__):
        raise BadRequestError("no")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "commit_table", refuse)
        with pytest.raises(DmlError):
            attrgetter(write)(frame(spark, range(4)).writeTo(f"lake.{name}"))()
    assert lake.state(name) == before


@pytest.mark.parametrize("write", ["append", "_jwriter.overwritePartitions"])
def test_a_commit_of_unknown_outcome_keeps_its_files(lake, catalog, spark, monkeypatch, write):
    """Nobody can look at the table, so it may be live; here it is, and its rows are there afterwards."""
    name = lake.create(
        "id bigint, k string",
        **{"commit.status-check.num-retries": "0", "commit.status-check.min-wait-ms": "1"},
    )
    commit_table, load_table = catalog.commit_table, catalog.load_table
    lost = []

    def lose_the_answer(*args, **kwargs):
        commit_table(*args, **kwargs)
        lost.append(name)
        raise ConnectionError("connection reset by peer")

    def load_nothing(*args, **kwargs):
        if lost:
            raise ConnectionError("connection refused")
        return load_table(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "commit_table", lose_the_answer)
        patched.setattr(catalog, "load_table", load_nothing)
        with pytest.raises(CommitStateUnknownError):
            attrgetter(write)(frame(spark, range(4)).writeTo(f"lake.{name}"))()
    assert [row[0] for row in lake.rows(name)] == [0, 1, 2, 3]


def test_a_catalog_that_cannot_stage_tables_creates_them_first(lake, spark, monkeypatch):
    """And drops a new one again whose rows cannot be written."""
    monkeypatch.setattr(ddl, "stage_table", lambda *_, **__: None)
    name = lake.new_name()
    frame(spark, range(3)).writeTo(f"lake.{name}").create()
    assert len(lake.rows(name)) == 3
    empty = lake.new_name()
    frame(spark, range(0)).writeTo(f"lake.{empty}").create()
    assert lake.rows(empty) == []
    failing = lake.new_name()
    with pytest.raises(PySparkException, match="no"):
        frame(spark, range(4)).withColumn("v", expr("if(id = 3, raise_error('no'), 1)").cast("int")).writeTo(
            f"lake.{failing}"
        ).create()
    assert not spark.catalog.tableExists(f"lake.{failing}")


def test_a_table_that_somebody_else_creates_meanwhile_stays_theirs(lake, catalog, spark, monkeypatch):
    """The write fails, and leaves no file beside their rows."""
    name = lake.new_name()
    stage_table = ddl.stage_table

    def slowly(*args, **kwargs):
        found = stage_table(*args, **kwargs)
        lake.session.sql(f"CREATE TABLE {name} (theirs int)")
        lake.session.sql(f"INSERT INTO {name} VALUES (77)")
        return found

    monkeypatch.setattr(ddl, "stage_table", slowly)
    with pytest.raises(DmlError):
        frame(spark, range(3)).writeTo(f"lake.{name}").create()
    assert lake.rows(name) == [(77,)]
    assert len(list(lake.folder(name).rglob("*.parquet"))) == 1
