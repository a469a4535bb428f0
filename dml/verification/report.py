"""What the verification of a snapshot found. Driver.

A `Verification` is a value: it can be printed, compared, kept, and asked whether all was well.
"""

import html
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from dml.errors import CorruptFileError

__all__ = ["Count", "FileRole", "Verification", "VerifiedFile"]

SHOWN = 20
"""How many files, and how many problems, are printed."""


class FileRole(StrEnum):
    """What a snapshot did to a data file."""

    ADDED = "added"
    REMOVED = "removed"
    DELETED_FROM = "deleted from"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A data file that was opened.

    Attributes:
        path: Its location.
        role: What the snapshot did to it.
        rows_by_manifest: Its rows, as its manifest says.
        rows: Its rows, counted in the file; None where it cannot be read.
        rows_before: Live rows in the parent snapshot; None where they cannot be counted, 0 for an added file.
        rows_after: Live rows in the snapshot; None where they cannot be counted, 0 for a removed file.
    """

    path: str
    role: FileRole
    rows_by_manifest: int
    rows: int | None
    rows_before: int | None
    rows_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number that the summary of a snapshot gives.

    Attributes:
        name: What is counted: keys of the summary.
        recorded: What the summary says; None where it says nothing.
        counted: What the files say; None where they do not say.
    """

    name: str
    recorded: int | None
    counted: int | None

    @property
    def agrees(self) -> bool:
        """Whether the two are equal, as far as both are there."""
        return self.recorded is None or self.counted is None or self.recorded == self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was found.

    Attributes:
        table: Full name of the table.
        snapshot_id: The snapshot; None for a table without one.
        parent_snapshot_id: The snapshot that it followed; None where it is the first one, or where that has expired.
        operation: `append`, `delete`, `overwrite` or `replace`.
        counts: The numbers of the summary beside those of the files.
        files: The data files that were opened: those that the snapshot touched, or all.
        problems: What does not agree, one sentence each, with the file or the count.
        unverified: What could not be checked, and why.
    """

    table: str
    snapshot_id: int | None
    parent_snapshot_id: int | None = None
    operation: str | None = None
    counts: tuple[Count, ...] = ()
    files: tuple[VerifiedFile, ...] = ()
    problems: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that could be checked agrees."""
        return not self.problems

    def raise_for_problems(self) -> "Verification":
        """Return the verification itself if all is well.

        Raises:
            CorruptFileError: something does not agree; `context["problems"]` has all of it.
        """
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise CorruptFileError(
                f"Snapshot {self.snapshot_id} of {self.table} does not agree with its files: {self.problems[0]}{more}",
                hint="Roll the table back to a snapshot that verifies, or restore its files",
                snapshot_id=self.snapshot_id,
                problems=self.problems,
            )
        return self

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def lines(self) -> list[str]:
        """The printed form."""
        if self.snapshot_id is None:
            return [f"{self.table} has no snapshot: there is nothing to verify"]
        after = "" if self.parent_snapshot_id is None else f", after {self.parent_snapshot_id}"
        found = "all agrees" if self.ok else plural(len(self.problems), "problem")
        lines = [f"Snapshot {self.snapshot_id} of {self.table} ({self.operation}{after}): {found}"]
        width = max([len(count.name) for count in self.counts], default=0)
        for count in self.counts:
            recorded = "-" if count.recorded is None else f"{count.recorded:,}"
            counted = "not known from the files" if count.counted is None else f"{count.counted:,} counted"
            lines.append(
                f"  {count.name:<{width}}  {recorded:>12} recorded  {counted}" + ("" if count.agrees else "  <--")
            )
        lines += [f"  {shown(file)}" for file in self.files[:SHOWN]]
        if len(self.files) > SHOWN:
            lines.append(f"  and {plural(len(self.files) - SHOWN, 'more data file')}: see .files")
        lines += [f"  problem: {problem}" for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {plural(len(self.problems) - SHOWN, 'more problem')}: see .problems")
        lines += [f"  not verified: {reason}" for reason in self.unverified]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """All attributes as plain values, for logs and programs."""

        def plain(value: Any) -> Any:
            if isinstance(value, Count | VerifiedFile):
                return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            return str(value) if isinstance(value, FileRole) else value

        return {"ok": self.ok, **{one.name: plain(getattr(self, one.name)) for one in fields(self)}}


def plural(number: int, name: str) -> str:
    """A number of things."""
    return f"{number:,} {name}" + ("" if number == 1 else "s")


def shown(file: VerifiedFile) -> str:
    """A file in one line."""
    before, after = ("?" if rows is None else f"{rows:,}" for rows in (file.rows_before, file.rows_after))
    return f"{file.role}: {file.path}, live rows {before} -> {after}"
