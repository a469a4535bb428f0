"""The results of statements and procedures. Driver.

A `Result` is a value: counts, files, seconds. It has `collect` and `show` like the DataFrame of one row that Spark's
own row-level commands return. The results of procedures have the columns of the procedure as fields.
"""

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyspark.sql import Row
from rich.console import Console
from rich.table import Table as RichTable

__all__ = [
    "AddedFiles",
    "Ancestor",
    "BranchMove",
    "ConvertedEqualityDeletes",
    "CurrentSnapshot",
    "Decision",
    "ExpiredSnapshots",
    "ImportedFiles",
    "MaintenanceDecision",
    "MaintenanceReport",
    "PhaseSeconds",
    "PublishedSnapshot",
    "RegisteredTable",
    "Result",
    "RewrittenDataFiles",
    "RewrittenDeleteFiles",
    "RewrittenManifests",
    "RewrittenTablePath",
    "dry_run_rows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSeconds:
    """Seconds by phase.

    Attributes:
        plan: Parsing, name resolution, reading manifests, Spark's analysis.
        execute: Finding rows and writing files.
        commit: Validation, writing manifests and the catalog's response.
    """

    plan: float = 0.0
    execute: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all phases."""
        return self.plan + self.execute + self.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of DELETE, UPDATE, MERGE, INSERT or TRUNCATE.

    Attributes:
        command: `DELETE`, `UPDATE`, `MERGE`, `INSERT`, `INSERT OVERWRITE` or `TRUNCATE`; for callbacks and metrics also
            `PUBLISH CHANGES`, `CHERRYPICK SNAPSHOT` or `FAST FORWARD`, with the counts of the published snapshot.
        table: The full name of the table.
        mode: `copy-on-write`, `merge-on-read`, `auto` (per file), `metadata` (whole files, nothing read), `append` or
            `none`.
        rows_matched: The target rows that satisfied the condition; None if a metadata delete did not count them.
        rows_deleted: The deleted rows; None if a metadata delete cannot count them (delete files apply, or another
            commit landed between plan and commit).
        rows_updated: The updated rows.
        rows_inserted: The inserted rows.
        data_files_added: The new data files.
        data_files_removed: The data files that were removed from the table.
        data_files_rewritten: How many of the removed files were replaced with a new file with the remaining rows.
        data_files_spliced: How many of the rewritten files were spliced: unchanged row groups and column chunks were
            copied byte for byte.
        data_files_marked: In mode `auto`, the data files in which rows were marked as deleted.
        delete_files_added: The new position delete files and deletion vectors.
        delete_files_removed: The delete files that new ones replaced.
        bytes_added: The size of the added files.
        bytes_removed: The size of the removed files.
        seconds: The seconds per phase.
        snapshot_id: The snapshot of the statement; None if it changed nothing.
        branch: The branch of the snapshot.
        idempotency_key: The key of the statement.
        replayed: True if the table already had the statement with this key: nothing was done, and all values but
            `seconds` are those of the first run.
        reruns: The messages of the conflicts after which the statement ran again.
        summary: The snapshot's summary, as committed.
    """

    command: str
    table: str
    mode: str
    rows_matched: int | None = 0
    rows_deleted: int | None = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    data_files_added: int = 0
    data_files_removed: int = 0
    data_files_rewritten: int = 0
    data_files_spliced: int = 0
    data_files_marked: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    snapshot_id: int | None = None
    branch: str = "main"
    idempotency_key: str | None = None
    replayed: bool = False
    reruns: tuple[str, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", MappingProxyType(dict(self.summary)))

    @property
    def changed(self) -> bool:
        """True if the statement committed a snapshot."""
        return self.snapshot_id is not None

    @property
    def row(self) -> Row:
        """The four counts of Spark's row-level commands."""
        affected = None if self.rows_deleted is None else self.rows_deleted + self.rows_updated + self.rows_inserted
        return Row(
            num_affected_rows=affected,
            num_updated_rows=self.rows_updated,
            num_deleted_rows=self.rows_deleted,
            num_inserted_rows=self.rows_inserted,
        )

    @property
    def columns(self) -> list[str]:
        """The names of the four counts."""
        return list(self.row.asDict())

    def collect(self) -> list[Row]:
        """Return one row with `num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows`."""
        return [self.row]

    def first(self) -> Row:
        """Return the row of `collect`."""
        return self.row

    def show(self) -> None:
        """Print the row as a table."""
        table = RichTable(*self.columns)
        table.add_row(*("" if value is None else str(value) for value in self.row))
        Console().print(table)

    def facts(self) -> dict[str, str]:
        """Return the values that the repr and the HTML form show, in order, without zero counts."""
        facts: dict[str, str] = {}
        for label, value in (
            ("matched", self.rows_matched),
            ("deleted", self.rows_deleted),
            ("updated", self.rows_updated),
            ("inserted", self.rows_inserted),
        ):
            if value:
                facts[f"rows {label}"] = f"{value:,}"
        for label, count in (
            ("data files added", self.data_files_added),
            ("data files removed", self.data_files_removed),
            ("data files rewritten", self.data_files_rewritten),
            ("of these spliced", self.data_files_spliced),
            ("data files marked", self.data_files_marked),
            ("delete files added", self.delete_files_added),
            ("delete files removed", self.delete_files_removed),
        ):
            if count:
                facts[label] = f"{count:,}"
        if self.bytes_added:
            facts["bytes added"] = f"{self.bytes_added:,}"
        facts["seconds"] = (
            f"{self.seconds.total:.2f} (plan {self.seconds.plan:.2f}, execute {self.seconds.execute:.2f}, "
            f"commit {self.seconds.commit:.2f})"
        )
        if self.branch != "main":
            facts["branch"] = self.branch
        facts["snapshot"] = str(self.snapshot_id) if self.changed else "none: nothing changed"
        if self.changed and self.mode == "none":
            facts["snapshot"] += ": nothing changed, it records the key"
        if self.idempotency_key is not None:
            facts["idempotency key"] = self.idempotency_key
        if self.reruns:
            facts["ran again"] = f"{len(self.reruns):,} (another commit came first)"
        if self.replayed:
            facts["replayed"] = "nothing was done, these are the results of the first run"
        return facts

    def __repr__(self) -> str:
        details = ", ".join(f"{label}: {value}" for label, value in self.facts().items())
        return f"{self.command} {self.table} [{self.mode}] {details}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th><td>{html.escape(value)}</td></tr>"
            for label, value in self.facts().items()
        )
        title = f"{self.command} {self.table} [{self.mode}]"
        return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values, for logs and programs; `seconds` is a dict by phase."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["seconds"] = {name: getattr(self.seconds, name) for name in PhaseSeconds.__slots__}
        values["summary"] = dict(self.summary)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentSnapshot:
    """The move of main by a rollback or `set_current_snapshot`.

    Attributes:
        previous_snapshot_id: The head of main before; None if it had no snapshot.
        current_snapshot_id: The head of main now.
    """

    previous_snapshot_id: int | None
    current_snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision of a procedure about one object.

    Attributes:
        decision: What happens to the object: `keep` if it does not change, else `expire`, `remove`,
            `delete`, `rewrite`, `copy`, `add`, `reject`, or `skip` for an input that is ignored.
        object: The object: `branch main`, `snapshot 1`, `data files`, a group of files, the path of a file.
        reason: The reason.
    """

    decision: str
    object: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSnapshots:
    """The outcome of `expire_snapshots`: the counts of deleted files, or with `dry_run` of files to delete.

    Attributes:
        deleted_data_files_count: Data files.
        deleted_position_delete_files_count: Position delete files, and files of deletion vectors.
        deleted_equality_delete_files_count: Equality delete files.
        deleted_manifest_files_count: Manifests.
        deleted_manifest_lists_count: Manifest lists.
        deleted_statistics_files_count: Statistics files, of tables and of partitions.
        decisions: The decisions of a dry run about each branch, tag, snapshot and kind of file, with their reasons.
    """

    deleted_data_files_count: int
    deleted_position_delete_files_count: int
    deleted_equality_delete_files_count: int
    deleted_manifest_files_count: int
    deleted_manifest_lists_count: int
    deleted_statistics_files_count: int
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSnapshot:
    """The publication of a staged snapshot.

    Attributes:
        source_snapshot_id: The staged snapshot.
        current_snapshot_id: The snapshot of main with its changes: the same one if main could move to it.
    """

    source_snapshot_id: int
    current_snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMove:
    """The move of a branch by `fast_forward`.

    Attributes:
        branch_updated: The branch.
        previous_ref: Its head before; None if the call created it.
        updated_ref: Its head now.
    """

    branch_updated: str
    previous_ref: int | None
    updated_ref: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A snapshot in the history of another one.

    Attributes:
        snapshot_id: The snapshot.
        timestamp: When it was committed, in milliseconds since 1970.
    """

    snapshot_id: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTable:
    """The state of a table that was added to a catalog.

    Attributes:
        current_snapshot_id: Its current snapshot; None if it has none.
        total_records_count: Its rows by the snapshot's summary; None if the summary lacks them.
        total_data_files_count: Its data files by the snapshot's summary; None if the summary lacks them.
    """

    current_snapshot_id: int | None
    total_records_count: int | None
    total_data_files_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenDataFiles:
    """The result of `rewrite_data_files`.

    Attributes:
        rewritten_data_files_count: The data files that were replaced.
        added_data_files_count: The new data files.
        rewritten_bytes_count: The size of the replaced files.
        failed_data_files_count: The data files of groups that were left out, because another commit replaced some of
            their files, or with partial progress because the group or its commit failed.
        removed_delete_files_count: The deletion vectors of the replaced files, and removed dangling delete files.
        decisions: For a dry run, a decision about each group and each file; the counters are then estimates.
    """

    rewritten_data_files_count: int = 0
    added_data_files_count: int = 0
    rewritten_bytes_count: int = 0
    failed_data_files_count: int = 0
    removed_delete_files_count: int = 0
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFiles:
    """The files that `add_files` appended to a table.

    Attributes:
        added_files_count: The number of data files.
        changed_partition_count: The number of partitions that they belong to.
        decisions: For a dry run, a decision about each file: `add`, `skip` or `reject`.
    """

    added_files_count: int
    changed_partition_count: int
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFiles:
    """The files of the source that a table created by `snapshot` reads.

    Attributes:
        imported_files_count: The number of data files.
        decisions: For a dry run, a decision about each file: `add`, `skip` or `reject`.
    """

    imported_files_count: int
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTablePath:
    """The staged copy of a table's metadata for another location.

    Attributes:
        latest_version: The name of the newest metadata file.
        file_list_location: The list of files to copy, with lines of `source,target`; "N/A" if none was written.
        rewritten_manifest_file_paths_count: The number of manifests.
        rewritten_delete_file_paths_count: The number of position delete files and deletion vectors.
        decisions: The decisions of a dry run about each file: `rewrite`, `copy` or `keep`.
    """

    latest_version: str
    file_list_location: str
    rewritten_manifest_file_paths_count: int
    rewritten_delete_file_paths_count: int
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenManifests:
    """The manifests that were replaced.

    Attributes:
        rewritten_manifests_count: The number of manifests that were replaced; 0 if there was nothing to rewrite.
        added_manifests_count: The number of manifests that replace them.
        decisions: For a dry run, a decision about each manifest: `rewrite` or `keep`.
    """

    rewritten_manifests_count: int
    added_manifests_count: int
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedEqualityDeletes:
    """The equality delete files that were replaced.

    Attributes:
        converted_equality_delete_files_count: The number of files that were removed; 0 if there were none.
        added_position_delete_files_count: The number of position delete files, or deletion vectors, that replace them;
            None for a dry run.
        decisions: For a dry run, a decision about each file: `convert`, `remove` (it deletes no row) or `keep`.
    """

    converted_equality_delete_files_count: int
    added_position_delete_files_count: int | None
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenDeleteFiles:
    """The position delete files that were replaced.

    Attributes:
        rewritten_delete_files_count: The number of files that were replaced; 0 if there was nothing to rewrite.
        added_delete_files_count: The number of files, or deletion vectors, that replace them; None for a dry run.
        rewritten_bytes_count: The bytes of the replaced files.
        added_bytes_count: The bytes of the new files; None for a dry run.
        decisions: For a dry run, a decision about each file: `rewrite` or `keep`.
    """

    rewritten_delete_files_count: int
    added_delete_files_count: int | None
    rewritten_bytes_count: int
    added_bytes_count: int | None
    decisions: tuple[Decision, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """A decision of `maintain` about a step, or about a part of it.

    Attributes:
        step: The step: the name of the procedure that does the same.
        decision: For a step `run` in a plan, `done`, `keep`, or `left` for what the budget left; for its parts
            `rewrite`, `remove` or `keep`.
        object: The table, a group of files, a partition, a branch or a tag.
        reason: The reason, and for `done` what was done.
    """

    step: str
    decision: str
    object: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What `maintain` did with a table, or with `plan` would do.

    Attributes:
        table: The name of the table.
        decisions: The decisions about each step, in the order of the steps.
    """

    table: str
    decisions: tuple[MaintenanceDecision, ...] = field(default=(), repr=False)

    @property
    def planned(self) -> tuple[MaintenanceDecision, ...]:
        """The steps that a plan would run."""
        return self._with("run")

    @property
    def done(self) -> tuple[MaintenanceDecision, ...]:
        """The steps that were run, with what they did."""
        return self._with("done")

    @property
    def left(self) -> tuple[MaintenanceDecision, ...]:
        """The work that the budget left."""
        return self._with("left")

    def _with(self, decision: str) -> tuple[MaintenanceDecision, ...]:
        return tuple(one for one in self.decisions if one.decision == decision)


def dry_run_rows(result: tuple[Any, ...], decisions: Iterable[Decision]) -> list[tuple[Any, ...]]:
    """Return the rows of a dry run: one with the procedure's result, then one for each decision.

    Args:
        result: The values of the procedure's own columns, which are NULL in the rows of decisions.
        decisions: The decisions.
    """
    empty = (None,) * len(result)
    return [(*result, None, None, None), *((*empty, one.decision, one.object, one.reason) for one in decisions)]
