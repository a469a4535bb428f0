"""What a soak has left: every snapshot is read again, and every statement is looked for."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tests.services.lakes import Files, leftovers
from tests.soak.transfers import ACCOUNTS, BALANCE, Transfer

__all__ = ["Report", "check"]

KEY = "rowdelta.idempotency-key"
OPENING = dict.fromkeys(range(ACCOUNTS), (BALANCE, "opening"))
Rows = dict[int, tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was done and what was seen.

    Attributes:
        table: The table.
        statements: Statements begun.
        outcomes: How many ended how; "killed" has no end.
        retries: Commits beyond a statement's first.
        replayed: Statements whose second run found the first one.
        snapshots: Snapshots that were read by time travel, by PyIceberg and by DuckDB.
        mixed: Copy-on-write and merge-on-read statements that were done.
        lost: Statements said to be done that the history does not have: 0, or `check` fails.
    """

    table: str
    statements: int
    outcomes: Mapping[str, int]
    retries: int
    replayed: int
    snapshots: int
    mixed: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


def check(
    name: str, table: Table, files: Files, log: Iterable[Mapping[str, Any]], *, may_leave: bool = False
) -> Report:
    """Compare the history of a table of accounts with what its writers said.

    Args:
        name: The table's full name.
        table: The table.
        files: Its storage.
        log: The lines of all writers.
        may_leave: Whether files may be left: a writer was killed, or does not know.
    """
    lines = [line for line in log if line.get("table") == name]
    begun = {line["key"]: Transfer(**line["transfer"]) for line in lines if line["event"] == "begin"}
    ends = {line["key"]: line for line in lines if line["event"] == "end"}
    outcome = {key: ends[key]["outcome"] if key in ends else "killed" for key in begun}
    snapshots = ancestry(table)
    keys = [key for snapshot in snapshots if (key := said(snapshot)) is not None]
    found = Counter(keys)
    assert found.keys() <= begun.keys(), "the history has only statements of ours"
    twice = [key for key, times in found.items() if times > 1]
    assert not twice, f"applied more than once: {twice}"
    lost = [key for key, end in outcome.items() if end == "done" and key not in found]
    assert not lost, f"said to be done, and not in the history: {lost}"
    slipped_in = [key for key, end in outcome.items() if end in {"conflict", "error"} and key in found]
    assert not slipped_in, f"said to have failed, and in the history: {slipped_in}"
    read_every_snapshot(table, files, snapshots, begun)
    if not may_leave:
        assert leftovers(table, files) == set()
    done = [end for end in ends.values() if end["outcome"] == "done"]
    return Report(
        table=name,
        statements=len(begun),
        outcomes=dict(Counter(outcome.values())),
        retries=sum(max(0, end["commits"] - 1) for end in ends.values()),
        replayed=sum(bool(end["replayed"]) for end in done),
        snapshots=len(snapshots),
        mixed=dict(Counter(end["mode"] for end in done)),
    )


def ancestry(table: Table) -> list[Snapshot]:
    """All snapshots, oldest first: each is the child of the one before."""
    current, found = table.current_snapshot(), []
    while current is not None:
        found.append(current)
        current = None if current.parent_snapshot_id is None else table.snapshot_by_id(current.parent_snapshot_id)
    assert {snapshot.snapshot_id for snapshot in found} == {snapshot.snapshot_id for snapshot in table.snapshots()}
    return found[::-1]


def said(snapshot: Snapshot) -> str | None:
    """The statement that made a snapshot."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(KEY)


def read_every_snapshot(
    table: Table, files: Files, snapshots: list[Snapshot], transfers: Mapping[str, Transfer]
) -> None:
    """Each snapshot has the rows of the one before it and one transfer: as PyIceberg reads it, and as DuckDB does."""
    rows: Rows | None = None
    for snapshot in snapshots:
        key = said(snapshot)
        if key is not None:
            rows = transfers[key].applied(OPENING if rows is None else rows)
            assert sum(balance for balance, _ in rows.values()) == ACCOUNTS * BALANCE
        elif rows is None and snapshot.parent_snapshot_id is None:
            rows = OPENING.copy()
        assert rows is not None
        assert by_pyiceberg(table, snapshot) == rows, snapshot
    duck = files.duckdb()
    location = table.metadata_location.removeprefix("file://")
    for snapshot in snapshots:
        query = "SELECT count(*), count(DISTINCT id), sum(balance) FROM iceberg_scan(?, snapshot_from_id = ?)"
        counted = duck.execute(query, [location, snapshot.snapshot_id]).fetchone()
        assert counted == (ACCOUNTS, ACCOUNTS, ACCOUNTS * BALANCE), snapshot
    last = duck.execute("SELECT id, balance, key FROM iceberg_scan(?)", [location]).fetchall()
    assert len(last) == ACCOUNTS
    assert {account: (balance, key) for account, balance, key in last} == rows


def by_pyiceberg(table: Table, snapshot: Snapshot) -> Rows:
    """The accounts of a snapshot."""
    found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    assert len(found) == ACCOUNTS, f"{len(found)} rows in snapshot {snapshot.snapshot_id}"
    return {row["id"]: (row["balance"], row["key"]) for row in found}
