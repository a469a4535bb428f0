"""The lease of a table keeps two maintainers from the same work."""

import threading

import pytest

from dml.errors import CommitConflictError
from dml.maintenance import Lease, lease_of
from dml.maintenance import lease as module
from tests.dml.commit.builders import new_table

MINUTE = 60_000


@pytest.fixture
def table(catalog):
    return new_table(catalog, 2)


def lease(table, **given) -> Lease:
    return Lease(catalog=table.catalog, identifier=table.name(), **{"duration_ms": MINUTE, **given})


def properties(table) -> dict[str, str]:
    return {key: one for key, one in table.catalog.load_table(table.name()).properties.items() if "lease" in key}


def test_a_lease_is_given_back(table):
    with lease(table) as held:
        assert properties(table)["maintenance.lease.holder"] == held.holder
    assert properties(table) == {}


def test_a_lease_is_given_back_after_an_error(table):
    with pytest.raises(ValueError, match="broken"), lease(table):
        raise ValueError("broken")
    assert properties(table) == {}


def test_of_two_maintainers_one_gets_the_lease_and_the_other_is_told_who_has_it(table):
    with lease(table) as held, pytest.raises(CommitConflictError) as refused, lease(table):
        pass
    assert refused.value.message.startswith(f"'db.t' is being maintained by {held.holder}, whose lease lasts until 20")
    assert refused.value.context["holder"] == held.holder


def test_of_many_that_begin_at_once_one_gets_the_lease(table):
    start, winners, refused = threading.Barrier(6), [], []
    done = threading.Event()

    def take() -> None:
        start.wait()
        try:
            with lease(table) as held:
                winners.append(held.holder)
                done.wait(10)
        except CommitConflictError as error:
            refused.append(error.context.get("holder"))
        if len(refused) == 5:
            done.set()

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert refused == winners * 5


def test_a_lease_whose_holder_died_ends_by_itself(table, monkeypatch):
    lease(table).__enter__()
    now = module.milliseconds()
    monkeypatch.setattr(module, "milliseconds", lambda: now + MINUTE - 10_000)
    with pytest.raises(CommitConflictError), lease(table):
        pass
    monkeypatch.setattr(module, "milliseconds", lambda: now + MINUTE + 10_000)
    with lease(table) as held:
        assert properties(table)["maintenance.lease.holder"] == held.holder


def test_a_lease_is_renewed_when_half_of_it_is_over(table, monkeypatch):
    now = module.milliseconds()
    with lease(table) as held:
        until = held.expires_at_ms
        held.confirm()
        assert held.expires_at_ms == until
        monkeypatch.setattr(module, "milliseconds", lambda: now + MINUTE // 2 + 10_000)
        held.confirm()
        assert properties(table)["maintenance.lease.expires-at-ms"] == str(now + MINUTE // 2 + 10_000 + MINUTE)


def test_a_maintainer_that_was_too_slow_notices_and_leaves_the_lease_of_the_other(table, monkeypatch):
    slow = lease(table)
    slow.__enter__()
    now = module.milliseconds()
    monkeypatch.setattr(module, "milliseconds", lambda: now + MINUTE + 10_000)
    with lease(table) as other:
        with pytest.raises(CommitConflictError, match="is being maintained by"):
            slow.confirm()
        slow.__exit__()
        assert properties(table)["maintenance.lease.holder"] == other.holder
    with pytest.raises(CommitConflictError, match="ended before this run did"):
        slow.confirm()


def test_a_lease_that_ended_is_renewed_if_nobody_took_it(table, monkeypatch):
    now = module.milliseconds()
    with lease(table) as slow:
        monkeypatch.setattr(module, "milliseconds", lambda: now + 2 * MINUTE)
        slow.confirm()
        assert properties(table)["maintenance.lease.expires-at-ms"] == str(now + 3 * MINUTE)
        with pytest.raises(CommitConflictError, match=f"is being maintained by {slow.holder}"), lease(table):
            pass


@pytest.mark.parametrize("until", ["", "soon", "-1", str(2 * 3600_000 + 1), "9" * 5000])
def test_a_lease_without_an_end_is_none(until):
    """Otherwise the table could never be maintained again."""
    known = {"maintenance.lease.holder": "h", "maintenance.lease.expires-at-ms": until}
    assert lease_of(known, 0) is None


def test_a_lease_may_last_twice_the_duration_of_the_table():
    known = {"maintenance.lease.holder": "h", "maintenance.lease.expires-at-ms": str(2 * MINUTE)}
    assert lease_of({**known, "maintenance.lease.duration-ms": str(MINUTE)}, 0) is not None
    assert lease_of({**known, "maintenance.lease.duration-ms": str(MINUTE - 1)}, 0) is None
