"""The named measurements: tables of growing size, and a picture of each on the page that shows them."""

import re
import sys
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import MagicMock
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from benchmarks import pages
from benchmarks.__main__ import main
from benchmarks.cases import CASES, ModuleCase, SqlCase
from benchmarks.pictures import labelled, nice, picture, short
from benchmarks.runs import RESULTS, Bench, Run, describe_command
from benchmarks.walks import WALKS, Point, measures
from tests.docs import terminal

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", CASES)
def test_every_case_can_be_run_and_is_shown(name: str) -> None:
    case = CASES[name]
    readme = (DOCS.parent / "benchmarks" / "README.md").read_text()
    assert f"`{name}`" in readme
    if isinstance(case, ModuleCase):
        return
    sizes = case.sizes(1_000_000)
    assert [size.at for size in sizes] == sorted({size.at for size in sizes})
    assert all("{table}" in size.statement for size in sizes)
    if not (RESULTS / f"{name}.json").exists():
        return
    assert f"(pictures/{name}.svg)" in (DOCS / "performance.md").read_text()
    drawn = ElementTree.fromstring((DOCS / "pictures" / f"{name}.svg").read_text())
    assert len(drawn.findall(f"{SVG}polyline")) >= 1 + len(case.variants)


def test_a_picture_has_a_line_for_each_engine() -> None:
    lines = {"one <1>": [(10, 0.5), (1000, 2.0)], "two": [(10, 0.5), (1000, 2.01)]}
    drawn = ElementTree.fromstring(picture("A & B", "rows", lines, logarithmic=True))
    texts = [found.text for found in drawn.findall(f"{SVG}text")]
    assert texts[:3] == ["A & B", "rows", "seconds"]
    assert {"one <1>", "two", "10", "1 k", "0", "0.5", "2.5"} <= set(texts)
    points = [line.get("points", "").split() for line in drawn.findall(f"{SVG}polyline")]
    assert [[place.split(",")[0] for place in line] for line in points] == [["60.0", "570.0"]] * 2
    labels = [float(found.get("y", "")) for found in drawn.findall(f"{SVG}text") if found.text in lines]
    assert abs(labels[0] - labels[1]) >= 15


@pytest.mark.parametrize(("value", "round_number"), [(0.11, 0.2), (0.2, 0.2), (3, 5), (51, 100), (0, 1)])
def test_round_numbers(value: float, round_number: float) -> None:
    assert nice(value) == pytest.approx(round_number)


def test_short_numbers() -> None:
    assert [short(number) for number in (6, 300, 2_000, 1_500_000)] == ["6", "300", "2 k", "1.5 M"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case, ModuleCase)])
def test_a_module_takes_the_options_on_the_command_line_and_keeps_its_own_defaults(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    assert isinstance(case, ModuleCase)
    parsed: list[Namespace] = []

    def run_benchmark(options: Namespace, *_: object) -> None:
        parsed.append(options)
        raise InterruptedError

    module = import_module(f"benchmarks.{case.module}")
    monkeypatch.setattr(module, "run_benchmark", run_benchmark)
    with pytest.raises(InterruptedError):
        module.main(case.arguments)
    for words in ([], ["--cores", "5", "--rows", "77", "--rounds", "7", "--results", "folder", "--java", "program"]):
        monkeypatch.setattr("sys.argv", ["benchmarks", "--case", name, *words])
        with pytest.raises(InterruptedError):
            main()
    alone, defaults, options = map(vars, parsed)
    assert defaults == alone
    assert options.items() >= {"cores": 5, "results": Path("folder")}.items()
    changed = {f"--{option}" for option in ("rows", "rounds", "java") if defaults.get(option) != options.get(option)}
    assert changed == set(case.options)


PROGRAM = """
import json, sys
print(json.dumps({"hello": {"version": "1.0"}}), flush=True)
for line in sys.stdin:
    sql = json.loads(line)["sql"]
    refused = {"error": "Refused", "message": sql} if sql.startswith("INSERT") else {}
    print(json.dumps(refused), flush=True)
"""


def test_a_case_measures_every_engine_and_its_results_make_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the lake is a mock, so that only the engines' own code runs; `test_benchmarks` runs the cases with Spark."""
    lake = MagicMock()
    lake.spark.sql.return_value.toArrow.return_value = pa.table({"id": [1, 2], "k": [3, 4]})
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr("benchmarks.named.run_benchmark", lambda *_: nullcontext(Bench(lake, tmp_path, tmp_path)))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--case", "insert-computed", "--rows", "8", "--rounds", "1"])
    monkeypatch.setenv("ROWDELTA_BENCHMARK_SAIL", f"{sys.executable} {tmp_path / 'program.py'}")
    main()
    run = Run.read(tmp_path / "insert-computed.json")
    assert run.versions["Sail"] == "version 1.0"
    found = {(line["engine"], line["size"]): line.keys() & {"seconds", "ratio", "error"} for line in run.lines}
    kinds = {"RowDelta": {"seconds"}, "RowDelta, copied": {"seconds", "ratio"}, "delta-rs": {"seconds", "ratio"}}
    assert found == {
        (engine, size): kind for engine, kind in {**kinds, "Sail": {"error"}}.items() for size in (1, 2, 4, 8)
    }
    statements = [call.args[0] for call in lake.sql.call_args_list]
    computed = "INSERT INTO bench.t SELECT id + 0, k, grp, amt, note, ts FROM bench.t"
    assert statements.count(computed) == statements.count("INSERT INTO bench.t SELECT * FROM bench.t") == 5
    assert statements.count("DROP TABLE bench.t PURGE") == 10
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    labels = {label.text for label in ElementTree.fromstring(pages.pictures()["insert-computed"]).iter(f"{SVG}text")}
    assert labels >= kinds.keys()


def test_both_kinds_of_cases_are_there() -> None:
    assert {type(case) for case in CASES.values()} == {SqlCase, ModuleCase}


@pytest.mark.parametrize("name", WALKS)
def test_every_walk_grows_in_small_steps_and_is_listed(name: str) -> None:
    walk = WALKS[name]
    assert f"`{name}`" in (DOCS.parent / "benchmarks" / "README.md").read_text()
    assert list(walk.sizes) == sorted(set(walk.sizes))
    assert all("{table}" in walk.statement(size) for size in walk.sizes)


def test_a_cliff_is_a_step_above_what_the_sizes_before_it_lead_to_expect() -> None:
    """Time that grows linearly with the size, from 1 s to 2 s, is not a step, however the sizes grow."""
    even = [Point(size=size, seconds=1 + size / 100, cpu=2.0) for size in (10, 13, 18, 24, 32, 100)]
    assert measures(even)["step"] == pytest.approx(1.0)
    cliff = [*even[:5], Point(size=33, seconds=3 * even[4].seconds, cpu=2.0)]
    assert measures(cliff)["step"] == pytest.approx(3.0, abs=0.05)
    assert measures(cliff)["cpu_step"] == 1.0
    assert "step" not in measures(even[:1])


def test_labels_of_an_axis_do_not_cover_each_other() -> None:
    assert labelled([1, 2, 3, 4, 5], lambda at: 20 * at) == [1, 4]


@pytest.mark.parametrize("path", pages.PAGES, ids=[path.name for path in pages.PAGES])
def test_tables_of_pages_agree_with_the_results(path: Path) -> None:
    """`python -m benchmarks.pages` makes it so."""
    page = path.read_text(encoding="utf-8")
    assert pages.fill_in(page) == page


def test_pictures_agree_with_the_results() -> None:
    """`python -m benchmarks.pages` makes it so."""
    drawn = pages.pictures()
    assert set(drawn) | {terminal.PICTURE.stem} == {path.stem for path in pages.PICTURES.glob("*.svg")}
    assert [name for name, text in drawn.items() if (pages.PICTURES / f"{name}.svg").read_text() != text] == []


@pytest.mark.parametrize("path", ["benchmarks/README.md", "docs/performance.md"])
def test_all_tables_of_figures_are_made_from_results(path: str) -> None:
    text = (DOCS.parent / path).read_text(encoding="utf-8")
    assert pages.BLOCK.search(text)
    written_by_hand = pages.BLOCK.sub("", text)
    assert re.findall(r"^\|.*\| *[0-9]+\.[0-9]+ .*$", written_by_hand, re.MULTILINE) == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_tell_where_they_are_from(path: Path, tmp_path: Path) -> None:
    run = Run.read(path)
    assert run.lines
    assert run.date
    assert run.commit or run.recorded_in
    run.write(tmp_path / path.name)
    assert (tmp_path / path.name).read_text() == path.read_text()


def test_a_table_has_a_row_and_a_column_for_each_value() -> None:
    lines = [
        {"case": "a*b", "engine": "one", "seconds": 0.5, "size": 2_000_000},
        {"case": "a*b", "engine": "two", "seconds": 1.2345, "ratio": 2.47, "size": 2_000_000},
        {"case": "c", "engine": "two", "seconds": 12, "size": 3},
        {"case": "c", "engine": "one", "error": "refused", "size": 3},
    ]
    layout = {"rows": "{case}, {size} rows", "columns": "{engine}", "cells": "{seconds} s[ ({ratio})]"}
    assert pages.table(lines, layout).splitlines() == [
        "|  | one | two |",
        "| --- | --- | --- |",
        r"| a\*b, 2,000,000 rows | 0.5 s | 1.23 s (2.47) |",
        "| c, 3 rows |  | 12 s |",
    ]
    with pytest.raises(ValueError, match=r"several measurements for row 'a\\\*b', column seconds"):
        pages.table(lines, {"rows": "{case}", "fields": "seconds"})
    assert pages.table(lines[2:3], {"rows": "{case}", "fields": "seconds, ratio"}).splitlines() == [
        "| case | seconds | ratio |",
        "| --- | --- | --- |",
        "| c | 12 |  |",
    ]


def test_a_page_changes_with_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    run = Run(date="2026-11-26", commit="abc", machine={"cores": 2}, lines=[{"op": "load", "seconds": 1.5}])
    run.write(tmp_path / "x.json")
    marks = ("<!-- results x: rows {op}; fields seconds -->\n", "<!-- end of results -->\n")
    page = pages.fill_in(f"before\n\n{marks[0]}{marks[1]}\nafter\n")
    assert "| load | 1.5 |\n\n- <small>`x.json`: 2026-11-26; commit abc; 2 cores</small>\n" in page
    assert pages.fill_in(page) == page
    replace(run, lines=[{"op": "load", "seconds": 2.5}]).write(tmp_path / "x.json")
    assert pages.fill_in(page) == page.replace("1.5", "2.5")


def test_recorded_commands_have_no_paths_of_the_machine() -> None:
    words = ["/x/benchmarks/__main__.py", "--rows", "9", "--sail", "/y/python s.py", "--results=/z", "--rounds", "1"]
    assert describe_command(words) == "python -m benchmarks --rows 9 --rounds 1"
    assert describe_command(["/x/benchmarks/walks.py", "--results", "r"]) == "python -m benchmarks.walks"


def test_a_table_can_select_measurements_and_begins_with_rowdelta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measurements that lack the field are selected."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    lines = [
        {"op": "merge", "engine": "delta-rs", "seconds": 2.0},
        {"op": "merge", "engine": "RowDelta", "version": 2, "seconds": 9.0},
        {"op": "merge", "engine": "RowDelta", "version": 3, "seconds": 1.0},
        {"op": "load", "engine": "RowDelta", "version": 3, "seconds": 5.0},
    ]
    Run(date="2026-11-26", commit="abc", machine={}, lines=lines).write(tmp_path / "x.json")
    layout = "rows {op}; columns {engine}; cells {seconds}; where version = 3 and op = merge, delete"
    page = pages.fill_in(f"<!-- results x: {layout} -->\n<!-- end of results -->\n")
    assert "|  | RowDelta | delta-rs |\n| --- | --- | --- |\n| merge | 1 | 2 |\n" in page.replace("| op |", "|  |")
    assert "| load |" not in page


def test_a_sentence_has_the_smallest_and_the_largest_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    lines = [
        {"op": "merge", "engine": "Java", "ratio": 14.31},
        {"op": "merge", "engine": "Java", "ratio": 2.78},
        {"op": "load", "engine": "Java", "ratio": 0.66},
        {"op": "delete", "engine": "Java", "ratio": 2198},
        {"op": "load", "engine": "Java", "error": "refused"},
    ]
    Run(date="2026-11-26", commit="abc", machine={}, lines=lines).write(tmp_path / "x.json")
    mark = "<!-- range x ratio: engine = Java and op = {} -->{}<!-- end of range -->"
    page = f"A {mark.format('merge', 'old')}, B {mark.format('load', '')} times."
    assert pages.fill_in(page) == f"A {mark.format('merge', '2.8 to 14')}, B {mark.format('load', '0.66')} times."
    assert pages.fill_in(mark.format("delete", "")) == mark.format("delete", "2,200")
