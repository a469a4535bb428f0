"""CREATE BRANCH on a table without a snapshot."""

from typing import Any

import pytest

from dml.engine import empty_branch
from dml.errors import AlreadyExistsError, AnalysisError
from tests.lake import Lake

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_branch_of_an_empty_table_has_an_empty_snapshot(lake: Lake, version: str) -> None:
    """As Iceberg's Java library makes it: the totals are 0, main has no snapshot, and each such branch has its own."""
    name = lake.create("id BIGINT", **{"format-version": version})
    retention = "RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 HOURS"
    assert lake.session.spark.sql(f"ALTER TABLE lake.{name} CREATE BRANCH audit {retention}").columns == []
    lake.session.sql(f"ALTER TABLE {name} CREATE BRANCH IF NOT EXISTS audit")
    lake.session.sql(f"ALTER TABLE {name} CREATE BRANCH other")
    metadata = lake.table(name).metadata
    assert (set(metadata.refs), metadata.current_snapshot_id) == ({"audit", "other"}, None)
    assert len({ref.snapshot_id for ref in metadata.refs.values()}) == 2
    ref = metadata.refs["audit"]
    assert (ref.max_ref_age_ms, ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) == (604_800_000, 2, 10_800_000)
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    assert (snapshot.summary.operation.value, snapshot.parent_snapshot_id) == ("append", None)
    totals = {key: value for key, value in snapshot.summary.additional_properties.items() if key.startswith("total-")}
    assert set(totals.values()) == {"0"}
    with pytest.raises(AnalysisError, match="no current snapshot"):
        lake.session.sql(f"ALTER TABLE {name} CREATE OR REPLACE BRANCH audit")

    lake.session.sql(f"INSERT INTO {name}.branch_audit VALUES (1)")
    assert (lake.rows(f"{name}.branch_audit"), lake.rows(name), lake.rows(f"{name}.branch_other")) == ([(1,)], [], [])
    kept = lake.table(name).metadata.refs["audit"]
    assert (kept.max_ref_age_ms, kept.min_snapshots_to_keep, kept.max_snapshot_age_ms) == (604_800_000, 2, 10_800_000)
    lake.session.sql(f"INSERT INTO {name} VALUES (2)")
    lake.session.sql(f"ALTER TABLE {name} CREATE TAG v1")
    assert lake.rows(f"{name}.tag_v1") == [(2,)]


@pytest.mark.parametrize(
    ("meanwhile", "statement", "rows"),
    [
        ("INSERT INTO {t} VALUES (1)", "CREATE BRANCH audit", [(1,)]),
        ("ALTER TABLE {t} CREATE BRANCH audit", "CREATE BRANCH IF NOT EXISTS audit", []),
        ("ALTER TABLE {t} CREATE BRANCH other", "CREATE BRANCH audit", []),
        ("ALTER TABLE {t} CREATE BRANCH audit", "CREATE BRANCH audit", None),
    ],
)
def test_a_commit_that_lands_meanwhile_is_as_one_before(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, meanwhile: str, statement: str, rows: list[tuple[int]] | None
) -> None:
    name = lake.create("id BIGINT")
    commit = empty_branch.commit

    def after_another(*positional: Any, **named: Any) -> Any:
        monkeypatch.undo()
        lake.session.sql(meanwhile.replace("{t}", name))
        return commit(*positional, **named)

    monkeypatch.setattr(empty_branch, "commit", after_another)
    if rows is None:
        with pytest.raises(AlreadyExistsError, match="Ref audit already exists"):
            lake.session.sql(f"ALTER TABLE {name} {statement}")
        rows = []
    else:
        lake.session.sql(f"ALTER TABLE {name} {statement}")
    assert lake.rows(f"{name}.branch_audit") == rows
    assert len(lake.table(name).metadata.snapshots) == (2 if "other" in meanwhile else 1)
