"""Random MERGE statements."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.stateful.values import STRUCT, conditions, new_values

__all__ = ["Merge", "merges"]

KINDS = ("MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE")


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One WHEN clause: what it does is `UPDATE`, `UPDATE *`, `DELETE`, `INSERT` or `INSERT *`."""

    kind: str
    condition: str | None
    action: str
    ours: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A MERGE: as we run it, as DuckDB runs it, and its parts."""

    target: str
    source: str
    on: str
    clauses: tuple[Clause, ...]

    @property
    def ours(self) -> str:
        """The statement for us."""
        return self.text([clause.ours for clause in self.clauses])

    @property
    def model(self) -> str:
        """The statement for DuckDB."""
        return self.text([clause.model for clause in self.clauses])

    def text(self, actions: list[str]) -> str:
        head = f"MERGE INTO {self.target} AS t USING {self.source} ON {self.on}"
        whens = [
            f"WHEN {clause.kind}" + (f" AND {clause.condition}" if clause.condition else "") + f" THEN {action}"
            for clause, action in zip(self.clauses, actions, strict=True)
        ]
        return "\n".join([head, *whens])

    def action(self, kind: str) -> str:
        """An expression that tells what happens with a row of a kind; NULL for nothing."""
        cases = [
            f"WHEN {clause.condition or 'TRUE'} THEN '{clause.action}'"
            for clause in self.clauses
            if clause.kind == kind
        ]
        return f"CASE {' '.join(cases)} END" if cases else "NULL"

    @property
    def checks_cardinality(self) -> bool:
        """Whether two source rows for one target row are an error."""
        matched = [clause for clause in self.clauses if clause.kind == "MATCHED"]
        if len(matched) == 1 and matched[0].action == "DELETE" and matched[0].condition is None:
            return False
        return bool(matched)


@st.composite
def sources(draw, machine: Any) -> str:
    """The source: VALUES of the table's columns, or a query on the table itself, named `s`."""
    if draw(st.integers(0, 4)) == 0:
        base = machine.uids
        machine.uids *= 2
        rest = ", ".join(f"x.{name}" for name in machine.columns if name != "uid")
        condition = draw(conditions(machine.columns, "x."))
        return f"(SELECT x.uid + {base} AS uid, {rest} FROM {machine.name} x WHERE {condition}) AS s"
    rows = machine.new_rows(draw, 1, 4)
    query = f"SELECT * FROM (VALUES {', '.join(rows)}) AS v({', '.join(machine.columns)})"
    if draw(st.booleans()):  # one row a key
        key = machine.current("id")
        query = (
            f"SELECT v.* FROM (VALUES {', '.join(rows)}) AS v({', '.join(machine.columns)}) "
            f"WHERE v.uid IN (SELECT max(w.uid) FROM (VALUES {', '.join(rows)}) AS w({', '.join(machine.columns)}) "
            f"GROUP BY w.{key})"
        )
    return f"({query}) AS s"


@st.composite
def on_conditions(draw, machine: Any) -> str:
    """The ON condition: mostly equal keys."""
    key, k = machine.current("id"), machine.current("k")
    other = draw(st.sampled_from([name for name, kind in machine.columns.items() if kind != STRUCT and name != "uid"]))
    form = draw(st.integers(0, 11))
    equal = f"t.{key} = s.{key}"
    if form <= 4:
        return equal
    return {
        5: f"{equal} AND t.{k} = s.{k}",
        6: f"t.{key} <=> s.{key}",
        7: f"t.{other} = s.{other}",
        8: f"{equal} AND {draw(conditions(machine.columns, 't.'))}",
        9: f"{equal} AND {draw(conditions(machine.columns, 's.'))}",
        10: f"t.{key} < s.{key} AND t.{k} = s.{k}",
        11: draw(st.sampled_from(("FALSE", f"({equal} OR t.{k} = s.{k})", f"t.{key} = s.{key} + 1"))),
    }[form]


@st.composite
def clauses(draw, machine: Any, kind: str, *, last: bool, correlated: bool) -> Clause:
    """A WHEN clause; only the last of its kind may lack a condition."""
    sides = {"MATCHED": ("t.", "s."), "NOT MATCHED": ("s.",), "NOT MATCHED BY SOURCE": ("t.",)}[kind]
    condition = draw(conditions(machine.columns, draw(st.sampled_from(sides))))
    if last and draw(st.booleans()):
        condition = None
    if kind == "NOT MATCHED":
        ours = model = draw(insert_actions(machine, correlated=correlated))
        action = "INSERT"
    else:
        choices = ("DELETE", "UPDATE", "UPDATE *") if kind == "MATCHED" else ("DELETE", "UPDATE")
        action = draw(st.sampled_from(choices))
        ours = model = action
        if action == "UPDATE":
            mine, models = machine.assignments(draw, sides)
            ours, model = f"UPDATE SET {mine}", f"UPDATE SET {models}"
        elif action == "UPDATE *":
            everything = ", ".join(f"{name} = s.{name}" for name in machine.columns)
            ours, model = "UPDATE SET *", f"UPDATE SET {everything}"
    return Clause(kind=kind, condition=condition, action=action, ours=ours, model=model)


@st.composite
def insert_actions(draw, machine: Any, *, correlated: bool) -> str:
    """INSERT of all columns, or of some in any order."""
    names = [name for name in machine.columns if name != "uid"]
    if draw(st.booleans()):
        listed = ", ".join(machine.columns)
        values = ", ".join(f"s.{name}" for name in machine.columns)
        return f"INSERT ({listed}) VALUES ({values})"
    chosen = draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=4))
    columns = machine.columns
    drawn = [
        draw(new_values(name, columns[name], columns, ("s.",), machine.name, correlated=correlated)) for name in chosen
    ]
    return f"INSERT ({', '.join([*chosen, 'uid'])}) VALUES ({', '.join([*drawn, 's.uid'])})"


@st.composite
def merges(draw, machine: Any) -> Merge:
    """A MERGE with one to five clauses."""
    counts = {kind: draw(st.integers(0, 2)) for kind in KINDS}
    if not any(counts.values()):
        counts["MATCHED"] = 1
    source, on = draw(sources(machine)), draw(on_conditions(machine))
    # DuckDB 1.5 cannot bind a correlated subquery of an INSERT beside NOT MATCHED BY SOURCE.
    correlated = not counts["NOT MATCHED BY SOURCE"]
    found = [
        draw(clauses(machine, kind, last=place == counts[kind] - 1, correlated=correlated))
        for kind in KINDS
        for place in range(counts[kind])
    ]
    return Merge(target=machine.name, source=source, on=on, clauses=tuple(found))
