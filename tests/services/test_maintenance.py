"""Two maintainers of one table in a REST catalog, whose commits cannot require a property value."""

import threading

import pytest

import dml
from dml.errors import CommitConflictError
from dml.maintenance import Lease
from tests.services.lakes import ServerLake

pytestmark = pytest.mark.spark

MINUTE = 60_000
PATIENCE_SECONDS = 60


def test_the_second_maintainer_is_rejected_with_the_name_of_the_first(lakes: dict[str, ServerLake]) -> None:
    lake = lakes["rest_s3"]
    other = dml.connect(catalog="rest_s3", spark=lake.session.spark, progress=False, **lake.properties)
    other.disable()
    name = lake.create_keyed_table(2, "merge-on-read")
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
    lake.assert_readers_agree(name, rows)


def test_one_of_two_simultaneous_maintainers_gets_the_lease(lakes: dict[str, ServerLake]) -> None:
    """Both may write the lease, so each reads it again after the time in which the other commit may land."""
    lake = lakes["rest_s3"]
    name = lake.create_keyed_table(2, "merge-on-read")
    identifier = tuple(name.split(".")[1:])
    catalogs = [lake.table(name).catalog for _ in range(2)]
    start, refused = threading.Barrier(2), threading.Event()
    holders: list[str] = []
    named: list[str] = []

    def take(number: int) -> None:
        start.wait(PATIENCE_SECONDS)
        try:
            with Lease(catalog=catalogs[number], identifier=identifier, duration_ms=MINUTE) as held:
                holders.append(held.holder)
                refused.wait(PATIENCE_SECONDS)
        except CommitConflictError as error:
            named.append(str(error.context["holder"]))
            refused.set()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 1
    assert named == holders
