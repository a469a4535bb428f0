"""Makes the tables and pictures of measurements in the documentation from `benchmarks/results`.

    python -m benchmarks.pages    # after a run with --results benchmarks/results

A page marks a table by a comment, which this program leaves in place, and fills the lines up to the next comment:

    <!-- results NAME ...: rows {statement}; columns {engine}; cells {seconds}[ ({ratio})] -->
    <!-- end of results -->

NAME is a file of results without its ending; `walk-*` stands for several. `rows`, `columns` and `cells` are templates
that the fields of each measurement fill in. A part in brackets is omitted if the measurement lacks a field of it;
measurements that lack another field are omitted from the table. `fields a, b` in place of columns and cells makes a
column of each field. `where op = delete, merge and mode = copy-on-write` selects measurements; one that lacks the field
is selected.

The smallest and the largest value of a field can stand in a sentence:

    <!-- range NAME ratio: engine = Iceberg Java and op = delete -->2.8 to 4.8<!-- end of range -->
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, SqlCase
from benchmarks.pictures import picture
from benchmarks.runs import RESULTS, Run

__all__ = ["PAGES", "PICTURES", "draw", "fill_in", "pictures", "table"]

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
RANGE = re.compile(
    r"(<!-- range (?P<name>\S+) (?P<field>\w+)(?:: (?P<condition>.+?))? -->).*?(<!-- end of range -->)", re.DOTALL
)
BLOCK = re.compile(r"(<!-- results (?P<names>[^:]+): (?P<layout>.+?) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def fill_in(page: str) -> str:
    """Return a page whose tables and ranges hold the results."""

    def block(found: re.Match[str]) -> str:
        layout = dict(part.split(" ", 1) for part in found["layout"].split("; "))
        paths = [path for name in found["names"].split() for path in sorted(RESULTS.glob(f"{name}.json"))]
        runs = {path.stem: Run.read(path) for path in paths}
        lines = selected([line for run in runs.values() for line in run.lines], layout.get("where", ""))
        if layout.get("columns") == "{engine}":
            lines.sort(key=lambda line: line["engine"] != "RowDelta")
        names: dict[str, list[str]] = {}
        for name, run in runs.items():
            names.setdefault(conditions(run), []).append(f"`{name}.json`")
        sources = "\n".join(f"- <small>{', '.join(same)}: {text}</small>" for text, same in names.items())
        return f"{found[1]}\n{table(lines, layout)}\n\n{sources}\n\n{found[4]}"

    def extremes(found: re.Match[str]) -> str:
        field = found["field"]
        lines = selected(Run.read(RESULTS / f"{found['name']}.json").lines, found["condition"] or "")
        values = [line[field] for line in lines if field in line]
        least, greatest = (f"{float(f'{value:.2g}'):,g}" for value in (min(values), max(values)))
        return f"{found[1]}{least if least == greatest else f'{least} to {greatest}'}{found[5]}"

    return RANGE.sub(extremes, BLOCK.sub(block, page))


def selected(lines: Sequence[Mapping[str, Any]], condition: str) -> list[Mapping[str, Any]]:
    """Return the measurements that satisfy a condition like `op = delete, merge and mode = copy-on-write`."""
    if not condition:
        return list(lines)
    parts = [part.split(" = ") for part in condition.split(" and ")]
    allowed = {field: values.split(", ") for field, values in parts}
    return [
        line for line in lines if all(str(line[field]) in values for field, values in allowed.items() if field in line)
    ]


def conditions(run: Run) -> str:
    """Return what a reader has to know of a run to judge its figures."""
    machine = run.machine
    parts = [
        run.date[:10],
        f"commit {run.commit}" if run.commit else f"recorded in {run.recorded_in}" if run.recorded_in else "",
        f"{machine['cores']} cores" if "cores" in machine else "",
        f"load {', '.join(map(str, machine['load']))}" if "load" in machine else "",
        ", ".join(f"{name} {text}" for name, text in run.versions.items()),
        run.note,
    ]
    return "; ".join(part for part in parts if part)


def table(lines: list[Mapping[str, Any]], layout: Mapping[str, str]) -> str:
    """Return a Markdown table of measurements."""
    rows = layout["rows"]
    cells: dict[str, dict[str, str]] = {}
    fields = [name.strip() for name in layout.get("fields", "").split(",") if name.strip()]
    for line in lines:
        row = fill(rows, line)
        if row is None:
            continue
        if fields:
            shown = {name: number(line[name]) for name in fields if name in line}
        else:
            column, cell = fill(layout["columns"], line), fill(layout["cells"], line)
            shown = {} if column is None or cell is None else {column: cell}
        found = cells.setdefault(row, {}) if shown else {}
        if twice := found.keys() & shown.keys():
            raise ValueError(f"several measurements for row '{row}', column {', '.join(twice)}: {line}")
        found |= shown
    columns = fields or list(dict.fromkeys(column for found in cells.values() for column in found))
    head = rows.strip("{}") if rows.count("{") == 1 else ""
    body = [[row, *(found.get(column, "") for column in columns)] for row, found in cells.items()]
    titles = [head, *(column.replace("_", " ") for column in columns)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ["---"] * len(titles), *body])


def fill(template: str, line: Mapping[str, Any]) -> str | None:
    """Fill in the fields of a measurement, or return None if it lacks one."""

    def optional(found: re.Match[str]) -> str:
        return fill(found[1], line) or ""

    text = re.sub(r"\[(.*?)\]", optional, template)
    names = re.findall(r"\{(.+?)\}", text)
    if any(name not in line for name in names):
        return None
    return re.sub(r"\{(.+?)\}", lambda found: number(line[found[1]]), text)


def number(value: Any) -> str:
    """Return integers with separators, other numbers with three significant digits."""
    if isinstance(value, list):
        return ", ".join(number(part) for part in value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else re.sub(r"([*|])", r"\\\1", str(value))


def pictures() -> dict[str, str]:
    """Return the pictures of all results of named cases, as SVG by name."""
    found = {}
    for path in sorted(RESULTS.glob("*.json")):
        name = path.stem
        case = CASES.get(name)
        if isinstance(case, SqlCase):
            found[name] = draw(case.title, path, logarithmic=case.logarithmic)
        elif case is not None and case.title:
            found[name] = draw(case.title, path, logarithmic=False)
    return found


def draw(title: str, path: Path, *, logarithmic: bool) -> str:
    """Return the picture of a file of results: seconds by size, a line for each engine."""
    lines = [line for line in Run.read(path).lines if "size" in line and "seconds" in line]
    points: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        points.setdefault(line["engine"], []).append((line["size"], line["seconds"]))
    return picture(title, lines[0]["axis"], points, logarithmic=logarithmic)


def main() -> None:
    for path in PAGES:
        path.write_text(fill_in(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawn in pictures().items():
        (PICTURES / f"{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
