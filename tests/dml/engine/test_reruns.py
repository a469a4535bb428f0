"""Statements that run again because another commit came first."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

import dml
from dml.commit import RewriteFiles, commit
from dml.engine import publish
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import FileContent
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

ROWS = {id_: f"s{id_}" for id_ in range(12)}


@pytest.fixture
def kind(lake: Lake) -> Kind:
    return Kind(lake=lake, version=2, mode="copy-on-write", partitioned=False)


@pytest.fixture
def before_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has other writers act before the next commits of statements, one before each."""
    original: Callable[..., Any] = publish.commit
    waiting: list[Callable[[], object]] = []

    def commit_later(*args: object, **kwargs: object) -> object:
        if waiting:
            act = waiting.pop(0)
            with monkeypatch.context() as patch:
                patch.setattr(publish, "commit", original)
                act()
        return original(*args, **kwargs)

    monkeypatch.setattr(publish, "commit", commit_later)
    yield lambda *acts: waiting.extend(acts)
    assert not waiting, "nobody committed"


def new_table(kind: Kind) -> str:
    name = kind.create()
    kind.lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, concat('s', id) FROM range(12)")
    return name


def compact(kind: Kind, name: str) -> None:
    """Another engine's compaction: the same rows in a file of another name, which does not tell where they were."""
    table = kind.lake.table(name)
    manifests = manifests_of(table.io, table.current_snapshot())
    entries = [entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True)]
    (old,) = [entry.data_file for entry in entries if entry.data_file.content is FileContent.DATA]
    path = old.path.replace(".parquet", "-compacted.parquet")
    copy(old.path.removeprefix("file://"), path.removeprefix("file://"))
    assert Path(path.removeprefix("file://")).exists()
    commit(
        table,
        RewriteFiles(
            data_files=(replace(old, path=path),),
            removed_data_files=frozenset({old.path}),
            starting_snapshot_id=table.metadata.current_snapshot_id,
        ),
    )


def values(kind: Kind, name: str) -> dict[int, str]:
    return {row[0]: row[2] for row in kind.lake.rows(name)}


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
def test_a_statement_runs_again_after_a_compaction(
    lake: Lake, before_commits: Callable[..., None], version: int, mode: str
) -> None:
    kind = Kind(lake=lake, version=version, mode=mode, partitioned=False)
    name = kind.copy_of(new_table)
    before_commits(lambda: compact(kind, name), lambda: compact(kind, name))
    result = kind.lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5")
    assert values(kind, name) == ROWS | {5: "mine"}
    assert len(result.reruns) == 2
    assert all("compacted" in reason or "missing" in reason.lower() for reason in result.reruns)
    assert result.rows_updated == 1
    assert "ran again: 2" in repr(result)


def test_a_statement_does_not_run_again_for_ever(kind: Kind, before_commits: Callable[..., None]) -> None:
    name = kind.copy_of(new_table, **{"commit.rerun.num-reruns-after-compaction": "1"})
    before_commits(lambda: compact(kind, name), lambda: compact(kind, name))
    with pytest.raises(dml.CommitConflictError) as raised:
        kind.lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5")
    assert raised.value.context["reruns"] == 1
    assert values(kind, name) == ROWS


def test_values_that_differ_from_run_to_run_are_not_computed_again_unasked(
    kind: Kind, before_commits: Callable[..., None]
) -> None:
    name = kind.copy_of(new_table)
    statement = f"UPDATE {name} SET s = uuid() WHERE id = 5"
    before_commits(lambda: compact(kind, name))
    with pytest.raises(dml.CommitConflictError):
        kind.lake.session.sql(statement)
    before_commits(lambda: compact(kind, name))
    assert len(kind.lake.session.sql(statement, reruns=1).reruns) == 1


def test_other_conflicts_need_to_be_asked_for(kind: Kind, before_commits: Callable[..., None]) -> None:
    """The row that the statement updates is updated before."""
    lake, name = kind.lake, kind.copy_of(new_table)
    statement = f"UPDATE {name} SET s = concat(s, '!') WHERE id = 5"

    def theirs() -> None:
        lake.session.sql(f"UPDATE {name} SET s = 'theirs' WHERE id = 5")

    before_commits(theirs)
    with pytest.raises(dml.CommitConflictError):
        lake.session.sql(statement)
    before_commits(theirs)
    assert len(lake.session.sql(statement, reruns=1).reruns) == 1
    assert values(kind, name)[5] == "theirs!"
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.rerun.num-reruns' = '1')")
    before_commits(theirs)
    assert len(lake.session.sql(statement).reruns) == 1
    before_commits(theirs)
    with pytest.raises(dml.CommitConflictError):
        lake.session.sql(statement, reruns=0)


def test_the_session_may_ask_for_reruns(kind: Kind, before_commits: Callable[..., None]) -> None:
    lake, name = kind.lake, kind.copy_of(new_table)
    settings = lake.session.spark.conf
    settings.set("spark.sql.iceberg.num-reruns", "0")
    try:
        before_commits(lambda: compact(kind, name))
        with pytest.raises(dml.CommitConflictError):
            lake.session.sql(f"DELETE FROM {name} WHERE id = 5")
    finally:
        settings.unset("spark.sql.iceberg.num-reruns")


def test_a_statement_with_a_key_is_applied_once(kind: Kind, before_commits: Callable[..., None]) -> None:
    name = kind.copy_of(new_table)
    statement = f"UPDATE {name} SET s = concat(s, '!') WHERE id = 5"
    before_commits(lambda: compact(kind, name))
    assert len(kind.lake.session.sql(statement, idempotency_key="once").reruns) == 1
    assert kind.lake.session.sql(statement, idempotency_key="once").replayed
    assert values(kind, name)[5] == "s5!"


def test_a_wrong_number_of_reruns_is_rejected(lake: Lake) -> None:
    for wrong in (-1, True, "3"):
        with pytest.raises(dml.AnalysisError, match="reruns must be a whole number"):
            lake.session.sql("SELECT 1", reruns=wrong)
