"""The package as it installs, beside other packages, and how long its modules are."""

import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests import suite
from tests.class_archive import JVM_OPTIONS, make_home
from tests.conftest import importable_tests
from tests.suite import REST, Counts, Part, counts_of, files_of, parts_with_the_rest, seconds_by_file

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_nothing_installs_outside_our_package():
    """A top-level `sqlparse` would overwrite the library of that name."""
    packages = PROJECT["tool"]["setuptools"]["packages"]
    assert all(package == "dml" or package.startswith("dml.") for package in packages)


def test_every_folder_with_modules_is_installed():
    """The list of packages is written by hand."""
    mapping = PROJECT["tool"]["setuptools"]["package-dir"]
    found = set()
    for package in ("dml", "dml.sqlparse", "dml.deletes"):
        folder = ROOT / mapping[package]
        for path in folder.rglob("__init__.py"):
            found.add(".".join([package, *path.parent.relative_to(folder).parts]))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_sqlparse_of_pypi_and_ours_stand_side_by_side():
    """Both import in one interpreter, and each is itself."""
    program = (
        "import sqlparse, dml.sqlparse\n"
        "assert sqlparse.format('select 1', keyword_case='upper') == 'SELECT 1'\n"
        "assert sqlparse is not dml.sqlparse\n"
        "assert dml.sqlparse.__name__ == 'dml.sqlparse'\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd="/", capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr


def test_every_test_file_is_in_one_part_of_the_suite():
    """What no part lists is in the rest: nothing is forgotten, and nothing is run twice."""
    parts = parts_with_the_rest()
    assert [place for part in parts for place in part.paths if not (TESTS / place).exists()] == []
    found = Counter(path for part in parts for path in files_of(part))
    assert set(found) == set(TESTS.rglob("test_*.py"))
    assert [str(path) for path, count in found.items() if count > 1] == []


def test_the_rest_starts_no_session() -> None:
    """What needs one is in a part that has one: a session takes longer to start than many tests to run."""
    rest = next(part for part in parts_with_the_rest() if part.name == REST)
    assert [path.name for path in files_of(rest) if "pytest.mark." + "spark" in path.read_text()] == []


@pytest.mark.parametrize("place", ["Makefile", ".ci/run", ".ci/nightly"])
def test_the_parts_are_listed_once(place):
    """Whatever runs the suite takes them from there."""
    text = (ROOT / place).read_text()
    assert "tests/suite.py" in text
    assert "pytest" not in text


def cells_by_version(page):
    return {
        version: cells.split(" | ")
        for version, cells in re.findall(r"^\| (\d\.\d) \| (.*) \|$", (ROOT / page).read_text(), re.MULTILINE)
    }


def test_the_compatibility_page_shows_what_is_tested_on_each_pyspark():
    """In words for users, without the parts of the suite that CONTRIBUTING.md names."""
    tested = cells_by_version("CONTRIBUTING.md")
    shown = cells_by_version("docs/compatibility.md")
    assert list(shown) == list(tested)
    plain = {
        version: [
            "no" if cell == "no" else "some" if cell.startswith("some") else "yes" + "".join(cell.partition(", w")[1:])
            for cell in cells
        ]
        for version, cells in tested.items()
    }
    assert shown == plain


def test_each_cell_of_the_table_of_versions_is_a_part_that_is_run_on_its_pyspark():
    """With each change on the newest, and what is marked so on the oldest; by night on each."""
    nightly = (ROOT / ".ci" / "nightly").read_text()
    parts_on = nightly[nightly.index("parts_on() {") : nightly.index("done")]
    (versions,) = re.findall(r"^for version in ([\d. ]+); do$", parts_on, re.MULTILINE)
    rows = cells_by_version("CONTRIBUTING.md")
    assert list(rows) == versions.split()[::-1]
    everyday = {part.name for part in parts_with_the_rest()}
    for version, cells in rows.items():
        by_change = (
            everyday if version == versions.split()[-1] else {"oldest"} if version == versions.split()[0] else ()
        )
        command = f"{parts_on[: parts_on.index('for version')]}\nparts_on {version}"
        said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
        by_night = set(said.split())
        for cell in cells:
            found = re.findall(r"(each change|nightly): `(\w+)`", cell)
            assert found or cell == "no", (version, cell)
            for when, part in found:
                assert part in (by_change if when == "each change" else by_night), (version, cell)


def test_the_night_goes_on_after_a_part_that_failed(tmp_path):
    """Every environment runs its parts, and the failed one is named at the end."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "nightly").write_text((ROOT / ".ci" / "nightly").read_text())
    (tmp_path / "python").write_text('#!/bin/sh\necho "ran $0 $*"\ncase "$0 $*" in *4.0/bin*serve*) exit 1 ;; esac\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / ".ci" / "environment").write_text(
        f'step() {{ echo "== $*"; }}\nwork={tmp_path}/work; bin=$work/venv/bin\n'
        f'environment() {{ mkdir -p "$work/$1/bin"; ln -s {tmp_path}/python "$work/$1/bin/python"; }}\n'
        "installed_beside_oldest() { environment 3.5; }\nenvironment venv\n"
        'usable_python() { true; }\ninstalled() { environment "$1"; }\n'
    )
    ended = subprocess.run(["bash", tmp_path / ".ci" / "nightly"], capture_output=True, text=True, check=False)
    ran = [line for line in ended.stdout.splitlines() if line.startswith("ran ")]
    assert len(ran) == 15, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["== Failed", "PySpark 4.0: golden oldest connector connect serve"]
    assert ended.returncode == 1


def test_the_suite_counts_what_pytest_says():
    """Also where a test that runs pytest itself is among them."""
    output = (
        "== 3 failed in 1.00s ==\n== 1 failed, 2 passed, 1 skipped, 4 deselected, 2 errors in 61.10s (0:01:01) ==\n"
    )
    assert str(counts_of(output)) == "2 passed, 3 failed, 1 skipped"
    assert counts_of("Killed\n") == Counts()


def test_the_suite_says_what_failed(tmp_path, monkeypatch, capsys):
    """A part that fails is shown and makes the exit code, one that passes is only counted, one that dies is told."""
    sources = {
        "good": "import dml.errors\ndef test_good(): print('from good')",
        "bad": "def test_bad(): assert 1 == 2, 'from bad'",
        "dead": "import os\ndef test_dead(): os._exit(7)",
        "left_out": "import pytest\n@pytest.mark.skip\ndef test_skipped(): pass",
    }
    for name, source in sources.items():
        (tmp_path / f"test_{name}.py").write_text(source)
    # A report of the whole package would take most of the test's time.
    measured = '[tool.coverage.run]\nsource_pkgs = ["dml.errors"]\n[tool.pytest.ini_options]\n'
    (tmp_path / "pyproject.toml").write_text(measured)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "TESTS", tmp_path)
    parts = tuple(Part(name=name, paths=(f"test_{name}.py",), measured=name == "good") for name in sources)
    monkeypatch.setattr(suite, "PARTS", parts)
    assert suite.main(["--coverage"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^TOTAL +\d+ +\d+ +[\d.]+%$", said, re.MULTILINE)
    assert "from bad" in said
    assert "from good" not in said
    assert "failed: bad, dead\n" in said
    assert "broke off with exit code 7" in said
    assert re.search(r"^1 passed, 1 failed, 1 skipped in [\d.]+s$", said.splitlines()[-1])
    monkeypatch.setenv("CI", "true")
    assert suite.main(["good"]) == 0
    assert suite.main(["left_out"]) == 1


def test_the_java_of_the_suite_is_the_machines_with_options(tmp_path):
    """The options come first, so that a test's own count; other programs are Java's own."""
    real = tmp_path / "its own"
    (real / "bin").mkdir(parents=True)
    (real / "lib").mkdir()
    for name in ("java", "jcmd"):
        (real / "bin" / name).write_text('#!/bin/sh\necho "$0|$*"\n')
        (real / "bin" / name).chmod(0o755)
    home = tmp_path / "home"
    make_home(home, real, tmp_path / "classes.jsa")
    said = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "Main"], capture_output=True, text=True, check=True
    ).stdout
    program, options = said.rstrip().split("|")
    assert program == str(real / "bin" / "java")
    assert options.startswith(JVM_OPTIONS)
    assert options.endswith(f"-XX:SharedArchiveFile={tmp_path / 'classes.jsa'} -cp a b Main")
    assert (home / "bin" / "jcmd").resolve() == real / "bin" / "jcmd"
    assert (home / "lib").resolve() == real / "lib"


def test_the_suite_knows_the_seconds_of_each_file(tmp_path):
    """As pytest wrote them; a part that broke off wrote nothing."""
    cases = "".join(f'<testcase classname="{f}" time="{s}"/>' for f, s in [("a.b", 2), ("c", 1), ("a.b", 3)])
    (tmp_path / "one.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert seconds_by_file([tmp_path / "one.xml", tmp_path / "dead.xml"]) == {"a/b": 5.0, "c": 1.0}


def test_what_is_not_for_every_day_runs_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    """By name, or with all parts; Spark interprets queries where the part says so."""
    (tmp_path / "test_always.py").write_text("def test_always(): pass")
    (tmp_path / "test_loads.py").write_text(
        "import os\ndef test_settings(): assert 'NO_CODEGEN' in os.environ['TEST_SPARK_SETTINGS']"
    )
    parts = (
        Part(name="always", paths=("test_always.py",)),
        Part(name="loads", paths=("test_loads.py",), everyday=False, compiles=False),
    )
    monkeypatch.setattr(suite, "TESTS", tmp_path)
    monkeypatch.setattr(suite, "PARTS", parts)
    for given, count in ([], 1), (["--all"], 2), (["loads"], 1):
        assert suite.main(given) == 0
        said = capsys.readouterr().out
        assert re.search(rf"^{count} passed, 0 failed, 0 skipped", said.splitlines()[-1])
        assert ("not every day, but for each change by .ci/run (--all): loads" in said) == (not given)


def test_no_test_starts_a_program_in_the_checkout():
    """Python would import the checkout's `dml`, which lacks `dml.sqlparse`, instead of the installed package."""
    started = re.compile(r"\bcwd=(str\()?ROOT\b")
    assert [str(path) for path in TESTS.rglob("*.py") if started.search(path.read_text())] == []


def test_the_suite_ends_its_parts_when_it_is_told_to_end(tmp_path):
    """It starts no other part, and shows how far the current one was."""
    started = tmp_path / "started"
    (tmp_path / "test_long.py").write_text(
        f"import pathlib, time\ndef test_long():\n    pathlib.Path({str(started)!r}).touch()\n    time.sleep(600)\n"
    )
    program = (
        "import sys; from pathlib import Path; from tests import suite\n"
        f"suite.TESTS = Path({str(tmp_path)!r})\n"
        "suite.PARTS = tuple(suite.Part(name=name, paths=('test_long.py',)) for name in 'ab')\n"
        "suite.main(['a', 'b', '--jobs', '1'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=importable_tests(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
        while not started.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        rest = process.stdout.read()
    assert "started  a" in said[1]
    assert "started  b" not in rest
    assert "a was ended by SIGTERM; its last lines were:" in rest
    assert "collected 1 item" in rest
    assert process.returncode == 1
