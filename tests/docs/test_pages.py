"""The documentation says everything that it should, and its links lead somewhere."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import dml
from dml.errors import ErrorKind
from dml.model import columns
from dml.options import DEFAULT_FILE_FORMAT, PARQUET_COMPRESSION, CommitOptions, WriteOptions
from dml.plan.row_delta_plan import raw_name
from tests.docs import configuration
from tests.docs.examples import FENCE, anchors_of, relative_anchors, relative_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
PROPERTY = re.compile(r'"((?:write|commit|read|gc|schema)\.[a-z][a-z0-9.-]*)"')
MODULE = re.compile(r"`((?:dml|sqlparse|deletes|tests|benchmarks)/[\w/.]*)`")
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
CAMEL_CASE = re.compile(r"`([A-Z][a-z]\w*)`")
SHOWN_BY = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
SETTING = re.compile(r'"(spark\.(?:sql|wap|default|app)\.[a-zA-Z.]+)"')


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_every_link_of_a_page_leads_to_a_file(path: Path) -> None:
    """Links into the repository, seen from the page."""
    missing = [target for target in relative_links(path) if not (path.parent / target).exists()]
    assert not missing, f"{path.relative_to(ROOT)} links to {missing}"


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_every_anchor_of_a_page_leads_to_a_place(path: Path) -> None:
    """In this page or another one."""
    missing = [
        f"{target}#{anchor}"
        for target, anchor in relative_anchors(path)
        if anchor not in anchors_of(path.parent / target if target else path)
    ]
    assert not missing, f"{path.relative_to(ROOT)} links to {missing}"


def test_every_page_can_be_reached_from_the_index() -> None:
    """By links, from page to page."""
    seen, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        left.extend(page.parent / target for target in relative_links(page))
    lost = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.resolve() not in seen]
    assert not lost


def test_every_error_class_and_kind_is_documented() -> None:
    """In errors.md."""
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    classes = [name for name in dml.__all__ if name.endswith("Error")]
    assert [name for name in [*classes, *(str(kind) for kind in ErrorKind)] if f"`{name}`" not in text] == []


def test_every_public_name_is_documented() -> None:
    """In python-reference.md; errors in errors.md as well."""
    text = (DOCS / "python-reference.md").read_text(encoding="utf-8")
    assert [name for name in dml.__all__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(("pattern", "what"), [(PROPERTY, "property"), (SETTING, "setting")], ids=["table", "spark"])
def test_everything_that_is_read_is_in_the_configuration_page(pattern: re.Pattern[str], what: str) -> None:
    """Table properties and Spark settings that stand in the code as whole strings."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    files = (ROOT / "dml").rglob("*.py")
    read = {name.rstrip(".") for path in files for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert read, f"no {what} found in the code: the pattern is wrong"
    assert sorted(name for name in read if name not in text) == []


def test_the_table_of_places_is_that_of_the_code() -> None:
    """`python -m tests.docs.configuration` makes it so."""
    page = configuration.PAGE.read_text(encoding="utf-8")
    assert configuration.made(page) == page


@pytest.mark.parametrize(
    ("defaults", "names"),
    [
        (WriteOptions(), {"target_file_size": "write.target-file-size-bytes", "compression": PARQUET_COMPRESSION}),
        (
            WriteOptions(),
            {"row_group_size": "write.parquet.row-group-size-bytes", "page_rows": "write.parquet.page-row-limit"},
        ),
        (
            WriteOptions(),
            {"delete_target_file_size": "write.delete.target-file-size-bytes", "file_format": DEFAULT_FILE_FORMAT},
        ),
        (CommitOptions(), {"num_retries": "commit.retry.num-retries", "min_wait_ms": "commit.retry.min-wait-ms"}),
        (CommitOptions(), {"manifest_target_size": "commit.manifest.target-size-bytes"}),
    ],
)
def test_defaults_are_those_of_the_code(defaults: WriteOptions | CommitOptions, names: dict[str, str]) -> None:
    """In the line of each property."""
    page = configuration.PAGE.read_text(encoding="utf-8")
    for attribute, name in names.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` | "))
        assert line.split(" | ")[1].strip("`") == str(getattr(defaults, attribute))


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_modules_that_a_page_names_are_there(path: Path) -> None:
    """Paths in backquotes: a module that is renamed is renamed in its description, too."""
    named = MODULE.findall(path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_classes_that_the_glossary_names_are_there() -> None:
    """A class that is renamed is renamed there, too."""
    files = [path for folder in ("dml", "sqlparse", "deletes") for path in (ROOT / folder).rglob("*.py")]
    defined = {name for path in files for name in CLASS.findall(path.read_text(encoding="utf-8"))}
    named = CAMEL_CASE.findall((DOCS / "glossary.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [name for name in named if name not in defined] == []


def test_promises_name_the_tests_that_keep_them() -> None:
    """In every line of a table of reliability.md whose heads are promise and test; and these are there."""
    text = (DOCS / "reliability.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| promise \| kept by \|\n\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    promises = [line.strip("|").split(" | ") for table in tables for line in table.splitlines()]
    assert len(promises) > 10
    for promise, keepers in promises:
        named = re.findall(r"`(tests/[\w/.]+)`", keepers)
        assert named, promise
        for name in named:
            path = ROOT / name
            modules = [path] if path.suffix == ".py" else list(path.rglob("test_*.py"))
            assert any(
                re.search(r"^ *def test_", module.read_text(encoding="utf-8"), re.MULTILINE) for module in modules
            )


def test_write_paths_name_the_tests_that_show_them() -> None:
    """Each line of write-paths.md that does not say that something is missing; and each named test is there."""
    text = (DOCS / "write-paths.md").read_text(encoding="utf-8")
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| feature", "| ---"))
    ]
    assert len(lines) > 40
    assert [line for line in lines if not SHOWN_BY.search(line) and "| not supported" not in line] == []
    for module, name in SHOWN_BY.findall(text):
        assert f"\ndef {name}(" in (ROOT / module).read_text(encoding="utf-8"), f"{module}::{name}"


def test_what_runs_on_workers_is_what_the_import_contract_says() -> None:
    """Folders that a page says run on workers are those of the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (workers,) = (contract for contract in contracts if contract["id"] == "workers")
    folders = {module.split(".")[1] for module in workers["source_modules"]}
    text = (DOCS / "architecture" / "00-life-of-a-statement.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"What runs in Spark's workers \((.*?)\)", text, re.DOTALL)
    assert {re.sub("dml/|/", "", name) for name in re.findall(r"`([\w/]+)`", named)} <= folders


def test_every_package_has_its_place_on_the_map() -> None:
    """In the table of the map, with a page."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    mapping = folders["package-dir"]
    places = {mapping.get(package, package.replace(".", "/")) for package in folders["packages"]} - {"dml"}
    text = (DOCS / "architecture" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+/)`", row)} == places


def test_layers_of_the_map_are_those_of_the_import_contract() -> None:
    """Every module of the contract is drawn."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    names = {name for layer in layers for name in re.split(r"[|: ]+", layer)} - {"__main__", "views", "suggestions"}
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", (DOCS / "architecture" / "README.md").read_text("utf-8"), re.DOTALL)
    assert {name for name in names if not re.search(rf"\b{name}\b", drawn)} == set()


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_internal_columns_that_a_page_names_are_there(path: Path) -> None:
    """A column that only the engine knows is renamed in its description, too."""
    code = {value for value in vars(columns).values() if isinstance(value, str)} | {raw_name(0), raw_name(1)}
    named = re.findall(r"(?<![\w.])__\w+", path.read_text(encoding="utf-8"))
    assert [name for name in named if name not in code and not name.endswith("__")] == []


def test_the_readme_compares_as_the_page_about_other_ways_does() -> None:
    """Its table is the first of that page."""
    table = re.compile(r"^\| \| RowDelta \|.*\n(?:\|.*\n)+", re.MULTILINE)
    (shown,) = table.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert table.findall((DOCS / "comparison.md").read_text(encoding="utf-8"))[0] == shown


def test_the_readme_counts_the_cells_of_the_conflict_tables() -> None:
    """Each of them is run by tests/dml/engine/test_isolation.py."""
    page = (DOCS / "isolation-reference.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| another commit \|.*\n\| ---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    cells = sum(len(row.strip("|").split("|")) - 1 for table in tables for row in table.splitlines())
    assert f"[{cells:,} cells](docs/isolation-reference.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_description_on_pypi_links_to_pages_of_the_site() -> None:
    """`setup.py` generates it from README.md, whose links lead to files of the repository."""
    text = runpy.run_path(str(ROOT / "setup.py"))["description"]()
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text))
    assert len(targets) > 20
    site = "https://rowdelta.readthedocs.io/"
    paths = [target.removeprefix(site).partition("#")[0] for target in targets if target.startswith(site)]
    others = [target for target in targets if not target.startswith(site)]
    assert others == ["https://iceberg.apache.org"]
    places = {path: [f"{path.strip('/') or 'index'}.md", f"{path}README.md", path] for path in paths}
    assert [path for path, files in places.items() if not any((DOCS / name).is_file() for name in files)] == []


def test_no_line_begins_with_a_mark_of_a_range() -> None:
    """Renderers begin a new paragraph at a comment that begins a line."""
    broken = [path.name for path in PAGES if re.search(r"^ *<!-- range", path.read_text("utf-8"), re.MULTILINE)]
    assert not broken
