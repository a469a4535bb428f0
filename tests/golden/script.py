"""Golden scripts: text to statements and what is expected of them. Pure.

A script is plain SQL. Its first comment lines are the header:

    -- ids: C1, C2                    behaviours of docs/semantics.md that it proves
    -- partitioned by: dep            run it also with this partitioning of db.t; without the line, as it is written
    -- formats: 1, 2, 3               format versions (default: 2, 3; version 1 is run copy-on-write only)
    -- modes: copy-on-write           row-level modes (default: both)
    -- readers: pyiceberg             other readers that can read the tables (default: pyiceberg, duckdb)
    -- doors: lake.sql                the doors of tests/golden/doors.py that show it (default: all)

Statements end with `;` at the end of a line. Lines that begin with `-->` say what is expected of the statement above
them; without any, it has to succeed:

    --> unchanged                                    it makes no snapshot and no file
    --> error AnalysisError type-mismatch: text      class, kind and a part of the message; the table is unchanged
    --> result: mode=metadata, rows_deleted=2        attributes of its `Result`
    --> snapshot: operation=delete, added-dvs=1      keys of the snapshot's summary; `absent` for one that is not there
    --> rows: SELECT id FROM db.t                    rows, in any order; without a query, those of db.t
    --| 1 | a
    --| NULL | b

Each of them may be limited: `--> snapshot [merge-on-read v3]: ...` holds where all the words do: a mode, `v1` to `v3`,
`partitioned`, `unpartitioned`, a door. The first error that holds is expected, so an error of one door precedes the
error of all others. `--> error [python] AnalysisException INSERT_COLUMN_ARITY_MISMATCH: ...` is Spark's error, with its
class and condition.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from pathlib import Path

from dml.options import RowLevelOperationMode

__all__ = ["Combination", "Expectation", "ExpectationKind", "Script", "ScriptError", "Step", "parse_script"]

MARK = "-->"
ROW_MARK = "--|"
MODES = (RowLevelOperationMode.COPY_ON_WRITE, RowLevelOperationMode.MERGE_ON_READ)
"""Iceberg's: what scripts expect of files is about these."""
HEADER = re.compile(r"--\s*(?P<key>ids|partitioned by|formats|modes|readers|doors):\s*(?P<value>.+)")
DIRECTIVE = re.compile(
    r"-->\s*(?P<kind>unchanged|error|result|snapshot|rows)\b\s*(\[(?P<words>[\w\s-]+)\])?\s*(?P<head>[^:]*?)\s*(:\s*(?P<text>.*))?"
)
READERS = ("pyiceberg", "duckdb")


class ScriptError(Exception):
    """A golden script that is not written as golden scripts are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """What a script is run with."""

    version: int
    mode: RowLevelOperationMode
    partitioning: str | None

    @property
    def words(self) -> frozenset[str]:
        """What expectations may be limited to."""
        return frozenset({f"v{self.version}", str(self.mode), "partitioned" if self.partitioning else "unpartitioned"})

    def __str__(self) -> str:
        return f"v{self.version}-{self.mode}{'-partitioned' if self.partitioning else ''}"


class ExpectationKind(StrEnum):
    """What an expectation is about."""

    UNCHANGED = "unchanged"
    ERROR = "error"
    RESULT = "result"
    SNAPSHOT = "snapshot"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One expectation: its kind, where it holds, its text before and after the colon, its rows."""

    kind: ExpectationKind
    words: frozenset[str] = frozenset()
    head: str = ""
    text: str = ""
    rows: tuple[str, ...] = ()

    @property
    def pairs(self) -> dict[str, str]:
        """`a=1, b=2` as a mapping."""
        return dict(pair.strip().split("=", 1) for pair in self.text.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A statement and what is expected of it."""

    sql: str
    line: int
    expectations: tuple[Expectation, ...] = ()

    def expected(self, words: frozenset[str], kind: ExpectationKind) -> list[Expectation]:
        """The expectations of a kind that hold where all of these words do."""
        return [e for e in self.expectations if e.kind is kind and e.words <= words]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A golden script; without doors it is for all."""

    path: Path
    ids: tuple[str, ...]
    partitioning: str | None = None
    versions: tuple[int, ...] = (2, 3)
    modes: tuple[RowLevelOperationMode, ...] = MODES
    readers: tuple[str, ...] = READERS
    doors: tuple[str, ...] = ()
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def combinations(self) -> list[Combination]:
        """All that the script may be run with."""
        layouts = (None,) if self.partitioning is None else (None, self.partitioning)
        return [
            Combination(version=version, mode=mode, partitioning=partitioning)
            for version, partitioning, mode in product(self.versions, layouts, self.modes)
            if version > 1 or mode is RowLevelOperationMode.COPY_ON_WRITE
        ]

    def chosen_combinations(self, turn: int) -> list[Combination]:
        """As few as show everything that the script says.

        What a table is without properties, version 2 and copy-on-write, and what differs from it in everything, version
        3 and merge-on-read; version 1, where the script is for it; and one more for each expectation that holds in none
        of these.

        Args:
            turn: Of the two layouts, if there are two, which has which: it is even or odd.
        """
        found = [self.nearest(2, RowLevelOperationMode.COPY_ON_WRITE, partitioned=turn % 2 == 1)]
        found.append(self.nearest(3, RowLevelOperationMode.MERGE_ON_READ, partitioned=turn % 2 == 0))
        if 1 in self.versions:
            found.append(self.nearest(1, RowLevelOperationMode.COPY_ON_WRITE, partitioned=turn % 2 == 0))
        for expectation in (each for step in self.steps for each in step.expectations):
            if not any(expectation.words <= combination.words for combination in found):
                found += [other for other in self.combinations if expectation.words <= other.words][:1]
        return [combination for combination in self.combinations if combination in found]

    def nearest(self, version: int, mode: RowLevelOperationMode, *, partitioned: bool) -> Combination:
        """The combination that has most in common with what is asked for: the version first, then the mode."""
        return max(
            self.combinations,
            key=lambda one: (one.version == version, one.mode is mode, (one.partitioning is not None) is partitioned),
        )


def parse_script(path: Path) -> Script:
    """Read a golden script.

    Raises:
        ScriptError: it is not one.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    header: dict[str, str] = {}
    for line in lines:
        found = HEADER.fullmatch(line.strip())
        if found is not None:
            header[found["key"]] = found["value"].strip()
        elif not line.startswith("--"):
            break
    if "ids" not in header:
        raise ScriptError(f"{path}: no ids")
    modes = items(header.get("modes", ", ".join(MODES)))
    return Script(
        path=path,
        ids=items(header["ids"]),
        partitioning=header.get("partitioned by"),
        versions=tuple(int(version) for version in items(header.get("formats", "2, 3"))),
        modes=tuple(RowLevelOperationMode(mode) for mode in modes),
        readers=items(header.get("readers", ", ".join(READERS))),
        doors=items(header.get("doors", "none")),
        steps=tuple(steps(path, lines)),
    )


def items(text: str) -> tuple[str, ...]:
    """A comma-separated list; `none` is the empty one."""
    return () if text == "none" else tuple(item.strip() for item in text.split(","))


def steps(path: Path, lines: list[str]) -> list[Step]:
    """The statements of a script."""
    found: list[Step] = []
    pending: list[str] = []
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if stripped.startswith((MARK, ROW_MARK)):
            if pending or not found:
                raise ScriptError(f"{path}:{number}: an expectation follows no statement")
            found[-1] = with_line(found[-1], stripped, path, number)
        elif stripped.startswith("--") or (not stripped and not pending):
            continue
        else:
            pending.append(line)
            if stripped.endswith(";"):
                sql = "\n".join(pending).strip().removesuffix(";")
                found.append(Step(sql=sql, line=number - len(pending) + 1))
                pending = []
    if pending:
        raise ScriptError(f"{path}: the last statement has no semicolon at its end")
    return found


def with_line(step: Step, line: str, path: Path, number: int) -> Step:
    """A step with one more expectation, or with one more row of its last one."""
    if line.startswith(ROW_MARK):
        if not step.expectations or step.expectations[-1].kind is not ExpectationKind.ROWS:
            raise ScriptError(f"{path}:{number}: a row follows no rows")
        *others, last = step.expectations
        row = " | ".join(value.strip() for value in line.removeprefix(ROW_MARK).split(" | "))
        grown = Expectation(kind=last.kind, words=last.words, head=last.head, text=last.text, rows=(*last.rows, row))
        return Step(sql=step.sql, line=step.line, expectations=(*others, grown))
    found = DIRECTIVE.fullmatch(line)
    if found is None:
        raise ScriptError(f"{path}:{number}: not an expectation: {line}")
    expectation = Expectation(
        kind=ExpectationKind(found["kind"]),
        words=frozenset((found["words"] or "").split()),
        head=found["head"] or "",
        text=(found["text"] or "").strip(),
    )
    return Step(sql=step.sql, line=step.line, expectations=(*step.expectations, expectation))
