"""Maintainers of one table in a REST catalog, whose commits cannot require a property."""

import threading

import pytest

import dml
from dml.errors import CommitConflictError
from dml.maintenance import Lease
from tests.services.lakes import Lake

pytestmark = pytest.mark.spark

MINUTE = 60_000
PATIENCE_SECONDS = 60


def test_one_maintainer_works_and_the_other_is_told_who_does(lakes: dict[str, Lake]) -> None:
    lake = lakes["rest_s3"]
    other = dml.connect(catalog="rest_s3", spark=lake.session.spark, progress=False, **lake.properties)
    other.disable()
    name = lake.create(2, "merge-on-read")
    for number in range(6):
        lake.session.sql(f"INSERT INTO {name} VALUES ({number}, 's{number}')")
    rows = {number: f"s{number}" for number in range(6)}
    table = lake.table(name)
    identifier = tuple(name.split(".")[1:])
    with Lease(catalog=table.catalog, identifier=identifier, duration_ms=5 * MINUTE) as held:
        location = lake.table(name).metadata_location
        with pytest.raises(CommitConflictError, match=f"'db.*' is being maintained by {held.holder}") as refused:
            other.maintain(name)
        assert refused.value.hint is not None
        assert lake.table(name).metadata_location == location
    report = other.maintain(name)
    assert "rewrite_data_files" in {one.step for one in report.decisions if one.decision == "done"}
    assert not any(key.startswith("maintenance.lease") for key in lake.table(name).properties)
    assert {one.decision for one in lake.session.maintain(name).decisions} == {"keep"}
    lake.agree(name, rows)


def test_of_two_that_begin_at_once_one_gets_the_lease(lakes: dict[str, Lake]) -> None:
    """Both may write the lease: it is read again after the time in which the other commit may land."""
    lake = lakes["rest_s3"]
    name = lake.create(2, "merge-on-read")
    identifier = tuple(name.split(".")[1:])
    catalogs = [lake.table(name).catalog for _ in range(2)]
    start, refused = threading.Barrier(2), threading.Event()
    holders: list[str] = []
    told: list[str] = []

    def take(number: int) -> None:
        start.wait(PATIENCE_SECONDS)
        try:
            with Lease(catalog=catalogs[number], identifier=identifier, duration_ms=MINUTE) as held:
                holders.append(held.holder)
                refused.wait(PATIENCE_SECONDS)
        except CommitConflictError as error:
            told.append(str(error.context["holder"]))
            refused.set()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 1
    assert told == holders
