"""What a statement returns to its user. Driver.

A `Result` is a value: counts, files, seconds. It collects and shows like a DataFrame of one row, as Spark's own
row-level commands would return it.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyspark.sql import Row
from rich.console import Console
from rich.table import Table as RichTable

__all__ = ["PhaseSeconds", "Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSeconds:
    """Seconds by phase.

    Attributes:
        plan: Parsing, name resolution, reading manifests, Spark's analysis.
        execute: The Spark job that finds rows and writes files.
        commit: Validation, manifests and the catalog's answer.
    """

    plan: float = 0.0
    execute: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        """All phases."""
        return self.plan + self.execute + self.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of DELETE, UPDATE, MERGE, INSERT or TRUNCATE.

    Attributes:
        command: `DELETE`, `UPDATE`, `MERGE`, `INSERT`, `INSERT OVERWRITE` or `TRUNCATE`.
        table: Full name of the table.
        mode: `copy-on-write`, `merge-on-read`, `auto` (by file), `metadata` (whole files, nothing read), `append` or
            `none`.
        rows_matched: Target rows that satisfied the condition; None where a metadata-only delete did not look.
        rows_deleted: Rows deleted; None where a metadata-only delete does not know them (delete files apply, or
            another commit came between plan and commit).
        rows_updated: Rows updated.
        rows_inserted: Rows inserted.
        data_files_added: New data files.
        data_files_removed: Data files that left the table.
        data_files_rewritten: Of those, how many were replaced by a new file with the rows that stay.
        data_files_spliced: Of these, how many were replaced by a file that copies undecoded what the statement leaves
            as it is.
        data_files_marked: In mode `auto`, data files that stay and of which rows were marked as deleted.
        delete_files_added: New position delete files and deletion vectors.
        delete_files_removed: Those that new ones replaced.
        bytes_added: Bytes of the files added.
        bytes_removed: Bytes of the files removed.
        seconds: By phase.
        snapshot_id: The snapshot that the statement made; None if it changed nothing.
        branch: The branch it went to.
        idempotency_key: The key that the statement was run with.
        replayed: Whether the table had the statement with this key already: nothing was done, and all but `seconds` is
            of the first run.
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
    summary: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", MappingProxyType(dict(self.summary)))

    @property
    def changed(self) -> bool:
        """Whether the statement made a snapshot."""
        return self.snapshot_id is not None

    @property
    def row(self) -> Row:
        """Spark's four counts."""
        affected = None if self.rows_deleted is None else self.rows_deleted + self.rows_updated + self.rows_inserted
        return Row(
            num_affected_rows=affected,
            num_updated_rows=self.rows_updated,
            num_deleted_rows=self.rows_deleted,
            num_inserted_rows=self.rows_inserted,
        )

    @property
    def columns(self) -> list[str]:
        """Names of the four counts."""
        return list(self.row.asDict())

    def collect(self) -> list[Row]:
        """One row with `num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows`."""
        return [self.row]

    def first(self) -> Row:
        """The one row."""
        return self.row

    def show(self) -> None:
        """Print the one row as a table."""
        table = RichTable(*self.columns)
        table.add_row(*("" if value is None else str(value) for value in self.row))
        Console().print(table)

    def facts(self) -> dict[str, str]:
        """What the repr and the HTML form show, in order; zero counts are left out."""
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
        """All attributes, seconds by phase nested, for logs and programs."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["seconds"] = {name: getattr(self.seconds, name) for name in PhaseSeconds.__slots__}
        values["summary"] = dict(self.summary)
        return values
