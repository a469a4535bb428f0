"""Every cell of the tables of docs/isolation-reference.md: what happens when two writers meet.

The tables are read from the page, so that the page cannot say anything else than what happens. Every cell is played
through with the statement's own commit, on versions 2 and 3; of each column one cell, another one for each version,
happens with the whole statement, and all of them do by night. Left to the night besides is version 3 of three in four
statements that make no delete files; one of the two versions of a column that is about the snapshot level, or about
merge-on-read at the other level; and where the comparison of rows is switched off, both versions of every second
column, and one of the others.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dml.engine import publish
from dml.errors import CommitConflictError, DmlError
from tests.dml.engine.interleavings import (
    AGAIN,
    BASE,
    HAPPENINGS,
    Change,
    Copies,
    Interleaved,
    Rows,
    files_in,
    files_of,
    judged,
    outcome,
    rows_of,
    with_outcomes,
)
from tests.lake import Lake

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "isolation-reference.md"
VERSIONS = (2, 3)
MINE = "mine"


# ---- statements


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement of a section of the page.

    Attributes:
        text: SQL; `{t}` stands for the table, `{level}` for its options.
        change: What it makes of the rows.
    """

    text: str
    change: Change


def chosen(one: tuple[int, str, str]) -> bool:
    return one[1] == "a" and one[2].endswith("2")


def chosen_in_two(one: tuple[int, str, str]) -> bool:
    return chosen(one) or (one[1] == "a" and one[2] == "v6")


def deleted(test: Callable[[tuple[int, str, str]], bool]) -> Change:
    return lambda rows: frozenset(one for one in rows if not test(one))


def updated(test: Callable[[tuple[int, str, str]], bool]) -> Change:
    return lambda rows: frozenset((one[0], one[1], MINE) if test(one) else one for one in rows)


def second_id(rows: Rows) -> int:
    return min((one[0] for one in rows), default=0) + 1


def merged(keys: set[int], *, matched: bool, inserts: bool, left_alone: int | None = None) -> Change:
    def change(rows: Rows) -> Rows:
        there = {one[0] for one in rows if one[1] == "a"}
        new = {(key, "a", MINE) for key in keys - there} if inserts else set()
        update = updated(lambda one: matched and one[1] == "a" and one[0] in keys and one[0] != left_alone)
        return update(rows) | new

    return change


def merge(keys: str, *clauses: str) -> str:
    source = f"(SELECT CAST(id AS BIGINT) AS id FROM VALUES {keys} AS v(id))"
    return f"MERGE INTO {{t}} t USING {source} s ON t.p = 'a' AND t.id = s.id {' '.join(clauses)}"


UPDATES = f"WHEN MATCHED THEN UPDATE SET v = '{MINE}'"
SPARES = f"WHEN MATCHED AND t.id <> 5 THEN UPDATE SET v = '{MINE}'"
INSERTS = f"WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 'a', '{MINE}')"
CONDITION = "p = 'a' AND v LIKE '%2'"
IN_TWO = "p = 'a' AND (v LIKE '%2' OR v = 'v6')"
"""A row of the file, which is marked, and one of two of the other file inside, which is written anew."""
BY_FILE = {"write.auto.enabled": "true", "write.auto.max-deleted-ratio": "0.3"}
REPLACED: Change = lambda rows: frozenset(one for one in rows if one[1] != "a") | {(50, "a", MINE)}  # noqa: E731
TWICE = "p = 'a' AND id = (SELECT min(x.id) + 1 FROM {t} x)"

STATEMENTS: dict[str, tuple[Statement, ...]] = {
    "DELETE": (Statement(text=f"DELETE FROM {{t}} WHERE {CONDITION}", change=deleted(chosen)),),
    "UPDATE, and MERGE without inserts": (
        Statement(text=f"UPDATE {{t}} SET v = '{MINE}' WHERE {CONDITION}", change=updated(chosen)),
        Statement(text=merge("(2), (32)", UPDATES), change=merged({2, 32}, matched=True, inserts=False)),
    ),
    "DELETE by file": (Statement(text=f"DELETE FROM {{t}} WHERE {IN_TWO}", change=deleted(chosen_in_two)),),
    "UPDATE by file": (Statement(text=f"UPDATE {{t}} SET v = '{MINE}' WHERE {IN_TWO}", change=updated(chosen_in_two)),),
    "MERGE with inserts": (
        Statement(text=merge("(2), (32)", UPDATES, INSERTS), change=merged({2, 32}, matched=True, inserts=True)),
    ),
    "MERGE with inserts that does not change some matched rows": (
        Statement(
            text=merge("(2), (5), (32)", SPARES, INSERTS),
            change=merged({2, 5, 32}, matched=True, inserts=True, left_alone=5),
        ),
    ),
    "MERGE that only inserts": (
        Statement(text=merge("(2), (32)", INSERTS), change=merged({2, 32}, matched=False, inserts=True)),
    ),
    "MERGE with WHEN NOT MATCHED BY SOURCE": (
        Statement(
            text=merge("(3)", f"WHEN NOT MATCHED BY SOURCE AND t.{CONDITION.replace('AND v', 'AND t.v')} THEN DELETE"),
            change=deleted(chosen),
        ),
    ),
    "DELETE that reads its table a second time": (
        Statement(
            text=f"DELETE FROM {{t}} WHERE {TWICE}",
            change=lambda rows: deleted(lambda one: one[1] == "a" and one[0] == second_id(rows))(rows),
        ),
    ),
    "UPDATE that reads its table a second time": (
        Statement(
            text=f"UPDATE {{t}} SET v = '{MINE}' WHERE {TWICE}",
            change=lambda rows: updated(lambda one: one[1] == "a" and one[0] == second_id(rows))(rows),
        ),
    ),
    "INSERT OVERWRITE of a partition, and INSERT ... REPLACE WHERE": (
        Statement(text=f"INSERT OVERWRITE {{t}} {{level}} PARTITION (p = 'a') SELECT 50L, '{MINE}'", change=REPLACED),
        Statement(text=f"INSERT INTO {{t}} {{level}} REPLACE WHERE p = 'a' SELECT 50L, 'a', '{MINE}'", change=REPLACED),
    ),
    "INSERT OVERWRITE of the partitions of the new rows": (
        Statement(text=f"INSERT OVERWRITE {{t}} {{dynamic}} SELECT 50L, 'a', '{MINE}'", change=REPLACED),
    ),
    "INSERT OVERWRITE that reads its table": (
        Statement(
            text="INSERT OVERWRITE {t} {level} SELECT id, p, concat(v, '!') FROM {t}",
            change=lambda rows: frozenset((one[0], one[1], f"{one[2]}!") for one in rows),
        ),
    ),
    "INSERT": (
        Statement(text=f"INSERT INTO {{t}} VALUES (50, 'a', '{MINE}')", change=lambda rows: rows | {(50, "a", MINE)}),
    ),
    "DELETE of whole files": (
        Statement(text="DELETE FROM {t} WHERE p = 'a'", change=deleted(lambda one: one[1] == "a")),
    ),
    "TRUNCATE": (Statement(text="TRUNCATE TABLE {t}", change=lambda _: frozenset()),),
}
SWITCHED_OFF = "With the comparison of rows switched off"
SWITCH = "write.row-level-concurrency.enabled"


# ---- the page


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table of the page.

    Attributes:
        section: The heading above the table.
        heading: Of the column.
        compares_rows: Whether rows are compared.
        cells: What the page says, by happening.
    """

    section: str
    heading: str
    compares_rows: bool
    cells: dict[str, str]

    def __str__(self) -> str:
        return f"{self.section}, {self.heading}{'' if self.compares_rows else ', off'}"

    def expected(self, version: int) -> dict[str, str]:
        """Outcomes of one version: a cell may tell them apart, `2: ok, 3: V6`."""
        return {happening: of_version(cell, version) for happening, cell in self.cells.items()}

    @property
    def kind(self) -> tuple[str, bool]:
        """Mode and level, and whether rows are compared: what columns of several statements share."""
        return self.heading, self.compares_rows

    @property
    def is_default(self) -> bool:
        """Whether it is about the default level, with rows compared, or about statements that know no level."""
        return self.compares_rows and not self.heading.endswith("snapshot")

    @property
    def has_both_modes(self) -> bool:
        """Whether it is about one mode of statements, whose other mode and level are columns of the same table."""
        return self.compares_rows and self.heading.startswith(("copy-on-write", "merge-on-read"))

    @property
    def makes_deletes(self) -> bool:
        """Whether statements mark rows as deleted, which versions 2 and 3 do in different ways."""
        return self.heading.startswith("merge-on-read") or self.section.endswith("by file")

    @property
    def properties(self) -> dict[str, str]:
        """Of the table."""
        found = {} if self.compares_rows else {SWITCH: "false"}
        words = self.heading.split(", ")
        found |= BY_FILE if self.section.endswith("by file") else {}
        for command in ("delete", "update", "merge"):
            if words[0] in {"copy-on-write", "merge-on-read"}:
                found[f"write.{command}.mode"] = words[0]
            if words[-1] in {"serializable", "snapshot"}:
                found[f"write.{command}.isolation-level"] = words[-1]
        return found

    def sql(self, statement: Statement, table: str) -> str:
        level = self.heading if self.heading in {"serializable", "snapshot"} else None
        options = [f"'isolation-level' = '{level}'"] if level else []
        dynamic = ", ".join([*options, "'overwrite-mode' = 'dynamic'"])
        return statement.text.format(
            t=table, level=f"WITH ({options[0]})" if options else "", dynamic=f"WITH ({dynamic})"
        )


def of_version(cell: str, version: int) -> str:
    parts = dict(part.split(": ") for part in cell.split(", ")) if ": " in cell else {}
    return parts.get(str(version), cell)


def columns() -> Iterator[Column]:
    """The columns of all tables."""
    section, compares = "", True
    lines = iter(PAGE.read_text().splitlines())
    for line in lines:
        if line.startswith("## "):
            compares = line[3:] != SWITCHED_OFF
        elif line.startswith("### "):
            section = line[4:]
        elif line.startswith("| another commit"):
            headings = cells_of(line)[1:]
            next(lines)
            table = []
            while (row := next(lines, "")).startswith("|"):
                table.append(cells_of(row))
            for place, heading in enumerate(headings, start=1):
                cells = {row[0]: row[place] for row in table}
                yield Column(section=section, heading=heading, compares_rows=compares, cells=cells)


def cells_of(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of a column of the page, for a statement and a version.

    Attributes:
        column: The column.
        statement: One that the column is about.
        number: Of the statement, in its section.
        version: Of the table.
        by_night: Whether it is left to the night.
    """

    column: Column
    statement: Statement
    number: int
    version: int
    by_night: bool = False

    def __str__(self) -> str:
        return f"{self.column}/{self.number}-v{self.version}"


def all_cells() -> Iterator[Cells]:
    """Everything on both versions. Of what is not the default one version waits for the night, in turn, or both do.

    Of the default it is version 3 that waits, where both versions rewrite files alike. Of statements with columns for
    modes and levels, deletion vectors meet the one level, and position deletes the other: each pair of mode, level
    and version is run.
    """
    seen: Counter[tuple[str, bool]] = Counter()
    of_a_kind = Counter(column.kind for column in COLUMNS)
    for place, column in enumerate(COLUMNS):
        for number, statement in enumerate(STATEMENTS[column.section]):
            waits: tuple[int, ...] = () if column.is_default else (VERSIONS[seen[column.kind] % 2],)
            if column.is_default and not column.makes_deletes and seen[column.kind] % 4:
                waits = (3,)
            if column.has_both_modes and column.makes_deletes and seen[column.kind]:
                waits = (2,) if column.is_default else (3,)
            in_turn = (place + list(STATEMENTS).index(column.section)) % 2
            if not column.compares_rows and in_turn and of_a_kind[column.kind] > 1:
                waits = VERSIONS
            seen[column.kind] += 1
            for version in VERSIONS:
                yield Cells(
                    column=column, statement=statement, number=number, version=version, by_night=version in waits
                )


COLUMNS = tuple(columns())
ALL_CELLS = tuple(all_cells())
CASES = [pytest.param(one, id=str(one), marks=[pytest.mark.nightly] if one.by_night else []) for one in ALL_CELLS]


def test_every_column_runs_on_every_version() -> None:
    """Levels, modes and versions do not alternate together.

    What is the default runs on version 2 every time, and on version 3 where it makes delete files; there the other
    level runs on version 2.
    """
    columns_and_statements = [
        (column, number) for column in COLUMNS for number in range(len(STATEMENTS[column.section]))
    ]
    statements = {(str(column), number) for column, number in columns_and_statements}
    for version in VERSIONS:
        default = {
            (str(column), number)
            for column, number in columns_and_statements
            if column.compares_rows
            and "snapshot" not in column.heading
            and (column.makes_deletes if version == 3 else not (column.has_both_modes and column.makes_deletes))
        }
        cells = [one for one in ALL_CELLS if one.version == version]
        assert {(str(one.column), one.number) for one in cells} == statements
        always = [one for one in cells if not one.by_night]
        assert {(str(one.column), one.number) for one in always} >= default
        headings = {one.column.kind for one in always}
        compared = {kind: count for kind, count in Counter(one.column.kind for one in cells).items() if kind[1]}
        assert headings >= {kind for kind, count in compared.items() if count > 1}
    always = [one for one in ALL_CELLS if not one.by_night]
    comparing = {(str(column), number) for column, number in columns_and_statements if column.compares_rows}
    assert {(str(one.column), one.number) for one in always} >= comparing
    switched_off = [column for column in COLUMNS if not column.compares_rows]
    assert {one.column.section for one in always} == {column.section for column in COLUMNS}
    assert {one.column.kind for one in always} >= {column.kind for column in switched_off}
    assert {one.column.section for one in always if one.column in switched_off} == {one.section for one in switched_off}


def test_the_page_has_every_statement_and_every_happening() -> None:
    """Nobody can leave out a cell."""
    texts = [happening.text for happening in HAPPENINGS]
    assert all(list(column.cells) == texts for column in COLUMNS)
    found = {(column.section, column.compares_rows): 0 for column in COLUMNS}
    for column in COLUMNS:
        found[column.section, column.compares_rows] += 1
    changing = {section for section in STATEMENTS if section.startswith(("UPDATE", "MERGE with"))} | {"DELETE"}
    rewriting = {section for section in changing if not section.endswith("by file")}
    twice = {section for section in STATEMENTS if section.endswith("a second time")}
    counts = {
        **dict.fromkeys(rewriting | twice, 4),
        "INSERT OVERWRITE that reads its table": 3,
        "DELETE by file": 2,
        "UPDATE by file": 2,
        "MERGE that only inserts": 2,
        "INSERT OVERWRITE of a partition, and INSERT ... REPLACE WHERE": 3,
        "INSERT OVERWRITE of the partitions of the new rows": 3,
        "INSERT": 1,
        "DELETE of whole files": 1,
        "TRUNCATE": 1,
    }
    assert {section: count for (section, compares), count in found.items() if compares} == counts
    switched_off = {section: count for (section, compares), count in found.items() if not compares}
    compared = (rewriting | {"MERGE that only inserts"}) - twice - {"MERGE with WHEN NOT MATCHED BY SOURCE"}
    assert switched_off == {section: counts[section] for section in compared}


# ---- the cells


@pytest.fixture(scope="module")
def all_copies(engine_lake: Lake) -> dict[int, Copies]:
    """A table of each version."""
    catalog = engine_lake.session.registry.catalogs["lake"]
    return {version: Copies(catalog, version) for version in VERSIONS}


def run(
    lake: Lake,
    copies: Copies,
    column: Column,
    statement: Statement,
    happens: int,
    patch: pytest.MonkeyPatch,
    *,
    plays: bool = True,
) -> Interleaved:
    """Run a statement, with everything that may happen before its commit; assert on what happened for good."""
    name = lake.new_name().split(".")[1]
    table = copies.copy(name, **column.properties)
    modules: list[Any] = [publish]
    stand_in = Interleaved(
        original=publish.commit,
        copies=copies,
        mine=statement.change,
        chosen=happens,
        name=("db", name),
        plays=plays,
    )
    for module in modules:
        patch.setattr(module, "commit", stand_in)
    error: DmlError | None = None
    reruns: Any = ()
    try:
        reruns = lake.session.sql(column.sql(statement, f"lake.db.{name}")).reruns
    except DmlError as raised:
        error = raised
    patch.undo()
    assert stand_in.came, "the statement came to its commit"
    happening = HAPPENINGS[happens]
    table.refresh()
    expected = column.expected(copies.version)[happening.text]
    assert (AGAIN if reruns else outcome(error)) == expected, f"{happening.text}, with the whole statement"
    assert not judged(rows_of(table), happening, statement.change, error), happening.text
    assert not files_in(table.location()) - stand_in.played - files_of(table) - registered(table), happening.text
    return stand_in


def registered(table: Any) -> set[str]:
    return {f"{table.location()}/metadata/00000.metadata.json".removeprefix("file://")}


def check(found: Interleaved, expected: dict[str, str]) -> None:
    problems = [f"{case.happening}: {case.problem}" for case in found.cases if case.problem]
    assert not problems
    assert with_outcomes(found.cases) == expected


@pytest.mark.proves("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V10")
@pytest.mark.parametrize("cells", CASES)
def test_every_cell(lake: Lake, all_copies: dict[int, Copies], cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says, with the rows of a serial order or the other's alone, and no file that nobody needs."""
    happens = (COLUMNS.index(cells.column) * 5 + cells.version) % len(HAPPENINGS)
    found = run(lake, all_copies[cells.version], cells.column, cells.statement, happens, monkeypatch)
    check(found, cells.column.expected(cells.version))


@pytest.mark.nightly
@pytest.mark.parametrize("happens", range(len(HAPPENINGS)), ids=lambda number: HAPPENINGS[number].text)
@pytest.mark.parametrize("cells", ALL_CELLS, ids=str)
def test_every_cell_with_the_whole_statement(
    lake: Lake, all_copies: dict[int, Copies], cells: Cells, happens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every statement meets every other writer in both versions."""
    run(lake, all_copies[cells.version], cells.column, cells.statement, happens, monkeypatch, plays=False)


# ---- keys


ANYWHERE = (
    "MERGE INTO {t} t USING (SELECT CAST(id AS BIGINT) AS id FROM VALUES (2), (32), (NULL) AS v(id)) AS s "
    "ON t.id {is} s.id "
)


@pytest.mark.parametrize("clauses", [f"{UPDATES} {INSERTS}", INSERTS], ids=["upsert", "only inserts"])
@pytest.mark.parametrize(
    ("compared", "theirs", "conflicts"),
    [
        ("=", "(32, 'b', 'theirs')", True),
        ("=", "(NULL, 'b', 'theirs')", False),
        ("<=>", "(NULL, 'b', 'theirs')", True),
    ],
)
def test_a_key_counts_in_whichever_partition_it_comes(
    lake: Lake,
    all_copies: dict[int, Copies],
    clauses: str,
    compared: str,
    theirs: str,
    conflicts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The MERGE writes to one partition, and its key appears in another; NULL is a key for `<=>` alone."""
    name = lake.new_name().split(".")[1]
    all_copies[3].copy(name, **{"write.merge.mode": "merge-on-read"})
    original = publish.commit

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        lake.session.sql(f"INSERT INTO lake.db.{name} VALUES {theirs}")
        return original(*args, **options)

    monkeypatch.setattr(publish, "commit", late)
    statement = ANYWHERE.replace("{t}", f"lake.db.{name}").replace("{is}", compared) + clauses
    if conflicts:
        with pytest.raises(CommitConflictError, match="conflicting files that can contain records"):
            lake.session.sql(statement)
    else:
        lake.session.sql(statement)
    values = [found[2] for found in lake.rows(f"lake.db.{name}")]
    assert values.count("theirs") == 1
    assert values.count(MINE) == (0 if conflicts else 2 + (clauses != INSERTS))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_matched_rows_count_without_a_clause_for_them(
    lake: Lake, all_copies: dict[int, Copies], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key 5 was there, so that the MERGE did not insert it; nobody counted that."""
    name = lake.new_name().split(".")[1]
    table = all_copies[2].copy(name, **{"write.merge.mode": mode})
    (happening,) = [one for one in HAPPENINGS if one.text == "deletes a row of another file inside"]
    original = publish.commit

    def late(*args: Any, **options: Any) -> Any:
        happening.act(table)
        return original(*args, **options)

    monkeypatch.setattr(publish, "commit", late)
    deletes_two = "WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE"
    with pytest.raises(CommitConflictError, match="new conflicting delete files"):
        lake.session.sql(merge("(5), (32)", INSERTS, deletes_two).format(t=f"lake.db.{name}"))
    assert sorted(lake.rows(f"lake.db.{name}")) == sorted(happening.change(BASE))
