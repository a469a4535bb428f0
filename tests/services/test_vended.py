"""Vended credentials that expire: the driver renews them; tasks that need them fail with an error that says so."""

from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import pytest
from pyspark.sql import SparkSession

import dml
from dml.engine.by_tasks import MergeJobs
from dml.errors import ExecutionError
from dml.result import Result
from dml.session import Session
from tests.services.lakes import S3Files
from tests.services.seaweedfs import SeaweedFs
from tests.services.vending import Vending, vending

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Leased:
    """A session on a catalog that vends credentials."""

    session: Session
    vends: Vending
    files: S3Files

    def data_files(self) -> set[str]:
        """The table's data files, by its storage."""
        return {path for path in self.files.below("s3://tables/vended/t") if path.endswith(".parquet")}


@pytest.fixture
def leased(spark: SparkSession, storage: SeaweedFs) -> Iterator[Leased]:
    """One table of three rows."""
    with vending(storage) as vends:
        session = dml.connect(catalog="leased", spark=spark, progress=False, **vends.properties)
        session.disable()
        session.sql("CREATE NAMESPACE IF NOT EXISTS vended")
        session.sql("DROP TABLE IF EXISTS vended.t")
        session.sql("CREATE TABLE vended.t (id BIGINT, s STRING)")
        session.sql("INSERT INTO vended.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        yield Leased(session, vends, S3Files(server=storage, buckets=("tables",)))
        session.close()


def expire_after_first_data_file(vends: Vending) -> None:
    """Let the credentials expire when tasks begin to write the first data file."""

    def before(method: str, path: str) -> None:
        if method in {"PUT", "POST"} and ".parquet" in path:
            vends.expire()
            vends.before = lambda method, path: None

    vends.before = before


def test_a_commit_and_what_the_driver_writes_get_new_credentials(leased: Leased) -> None:
    """The catalog reports a lifetime of zero; the storage refuses the credentials once tasks have written."""
    leased.vends.lives = 0
    written = 0

    def before(method: str, path: str) -> None:
        nonlocal written
        if "/metadata/" in path and not written:
            written = leased.vends.vended
            leased.vends.expired = set(leased.vends.keys[: written - 1])

    leased.vends.before = before
    leased.session.sql("UPDATE vended.t SET s = md5(s) WHERE id = 2")
    assert written > 1
    assert leased.session.table("vended.t").count() == 3


def test_a_task_that_meets_an_expired_credential_says_so_and_leaves_nothing(leased: Leased) -> None:
    leased.vends.lives = 0
    files = leased.data_files()
    expire_after_first_data_file(leased.vends)
    with pytest.raises(ExecutionError, match="the credential for the storage expired") as caught:
        leased.session.sql("INSERT INTO vended.t SELECT id, 'x' FROM range(0, 200000, 1, 4)")
    assert "let the catalog vend longer-lived ones" in str(caught.value)
    leased.vends.before = lambda method, path: None
    assert leased.data_files() == files
    assert leased.session.table("vended.t").count() == 3


def test_a_query_that_meets_an_expired_credential_says_so(leased: Leased) -> None:
    leased.vends.lives = 0
    frame = leased.session.table("vended.t").filter("length(s) > 0")
    frame.explain()
    leased.vends.expire()
    with pytest.raises(Exception, match="the credential for the storage expired at"):
        frame.collect()


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_each_job_of_a_merge_gets_live_credentials(leased: Leased, mode: str) -> None:
    """The statement's credentials expire in the job that looks up keys or changes rows, before the one that inserts."""
    leased.session.sql(f"ALTER TABLE vended.t SET TBLPROPERTIES ('write.merge.mode' = '{mode}')")
    # With a second file there are two tasks, so inserts get a job of their own.
    leased.session.sql("INSERT INTO vended.t SELECT id, 'more' FROM range(1000, 60000)")
    leased.vends.lives = 0
    original = MergeJobs.renew

    def renew(merge: MergeJobs) -> MergeJobs:
        leased.vends.expire()
        return original(merge)

    with mock.patch.object(MergeJobs, "renew", renew):
        result = leased.session.sql(
            "MERGE INTO vended.t t USING (SELECT id FROM range(0, 400000, 3)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'n')"
        )
    assert isinstance(result, Result)
    assert (result.rows_updated, result.rows_inserted) == (19_667, 113_667)
    assert leased.session.table("vended.t").count() == 3 + 59_000 + 113_667
