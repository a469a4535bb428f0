"""The suite in parts, several at a time: what `make test`, `.ci/run` and `.ci/nightly` run. A program.

Each part is a pytest process with one Spark session: a part that goes wrong does not take the others with it. A part
keeps one core and a bit of another busy, so that by default there are as many at a time as the machine has cores.

    python tests/suite.py                   what everybody runs who changes something
    python tests/suite.py --all             what a change has to pass: faults, loads, services, what is marked thorough
    python tests/suite.py engine golden     these parts alone
    python tests/suite.py --nightly         what is marked nightly or soak, with many random examples
    python tests/suite.py --demo            and the demo, beside them
    python tests/suite.py --checks          and the types of the package and its tests, and the documentation site
    python tests/suite.py --oldest PYTHON   and what is marked oldest, by the Python of another environment
    python tests/suite.py oldest golden     on another PySpark: what is marked oldest, all golden scripts
    python tests/suite.py --coverage        and how much of the package ran, with the floor of pyproject.toml
    python tests/suite.py --compiled        with queries that Spark compiles in every part

What it is at is said while it runs; the output of a part that failed is shown in the end, and then seconds by part and
of the files that took longest. The last line counts all tests. The exit code is 0 if every part passed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

__all__ = ["PARTS", "REST", "Counts", "Part", "counts_of", "files_of", "main", "parts_with_the_rest", "seconds_by_file"]

TESTS: Final = Path(__file__).resolve().parent
CLASS_ARCHIVE: Final = TESTS / "class_archive.py"
ROOT: Final = TESTS.parent
SAY_SECONDS: Final = 30
SAID_LINES: Final = 5
WORTH_AN_ARCHIVE: Final = 5  # parts: to make one takes as long as some sessions take to start without
NO_TESTS: Final = 5  # pytest's exit code where no test was chosen
SUMMARY: Final = re.compile(r"^=* ?(?P<counts>\d+ \w+.*) in \d+\.\d+s.*$", re.MULTILINE)
COUNT: Final = re.compile(r"(?P<number>\d+) (?P<what>passed|failed|errors?|skipped|xfailed|xpassed)\b")
PROGRESS: Final = re.compile(r"\[ *(\d+)%\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the suite.

    Attributes:
        name: How it is called.
        paths: Files and folders below `tests/`; a file that is listed is in no other part's folder.
        command: A module to run instead of tests, and its arguments; `{root}` is the checkout, `{folder}` a new one.
        everyday: Whether it runs unless all parts are asked for.
        measured: Whether lines that run count: not where it is about time, or where others have run them before.
        marks: Which marks its tests have; empty for what is run with every change, or by night.
        compiles: Whether Spark compiles queries, and checks its own plans, as it does for users. Where a part is about
            files, commits and calls, queries are small and often the same; without it they take a sixth less time. What
            needs compiled queries takes the fixture `compiled`.
        archived: Whether its JVMs read their classes from an archive, see `class_archive.py`: it is of one PySpark.
    """

    name: str
    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    everyday: bool = True
    measured: bool = True
    marks: str = ""
    compiles: bool = True
    archived: bool = True


# The longest first: what begins last should not end long after the others. Files that share a session of Spark save the
# time that one takes to start, and to become quick.
PARTS: Final = (
    Part(name="engine", paths=("dml/engine", "dml/scan/test_frames.py"), compiles=False),
    Part(name="golden", paths=("golden",), measured=False),
    Part(
        name="connector",
        paths=("dml/connector", "dml/test_dataframe_writers.py", "dml/test_foreign_data.py", "programs"),
        compiles=False,
    ),
    Part(name="faults", paths=("faults",), everyday=False, measured=False, compiles=False),
    Part(
        name="interop",
        paths=("interop", "stateful", "damage/test_statements.py", "dml/engine/test_isolation.py"),
        everyday=False,
        measured=False,
        compiles=False,
    ),
    Part(
        name="spark",
        paths=(
            "dml/spark",
            "dml/test_cli.py",
            "dml/test_own_process.py",
            "dml/test_progress.py",
            "dml/test_prompt.py",
            "dml/test_call_text.py",
            "dml/test_session_scripts.py",
            "dml/test_tracebacks.py",
            "dml/test_shell.py",
            "docs",
        ),
    ),
    Part(name="cluster", paths=("cluster",), everyday=False, measured=False, compiles=False),
    Part(name="services", paths=("services", "soak"), everyday=False, measured=False, compiles=False),
    Part(
        name="tables",
        paths=(
            "dml/catalog",
            "dml/commit",
            "dml/ddl",
            "dml/maintenance",
            "dml/pruning",
            "dml/table_health",
            "dml/verification",
        ),
        compiles=False,
    ),
    Part(name="connect", paths=("connect",), everyday=False, compiles=False),
    Part(name="serve", paths=("serve",), everyday=False, measured=False, compiles=False),
    Part(name="tools", paths=("tools",), everyday=False, measured=False),
    Part(name="damage", paths=("damage",), everyday=False),
)
REST: Final = "rest"
DEMO: Final = Part(name="demo", command=("dml", "demo"), measured=False, archived=False)
OLDEST: Final = Part(
    name="oldest",
    paths=("dml/spark", "golden"),
    measured=False,
    marks="oldest",
    compiles=False,
    archived=False,
)
CHECKS: Final = (
    Part(
        name="types",
        command=(
            "mypy",
            "--config-file",
            "{root}/pyproject.toml",
            "--cache-dir",
            os.devnull,  # nothing reads it: each run has a new environment
            "-p",
            "dml",
            "-p",
            "tests",
        ),
        measured=False,
        archived=False,
    ),
    Part(
        name="site",
        command=("mkdocs", "build", "--strict", "--quiet", "-f", "{root}/mkdocs.yml", "-d", "{folder}/site"),
        measured=False,
        archived=False,
    ),
)
EVERYDAY_MARKS: Final = "not nightly and not soak and not thorough"
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.lightweightPlanChangeValidation": "false",  # Spark's checks of its own optimizer
    "spark.sql.icu.caseMappings.enabled": "false",  # its tables are filled at the first upper(), for more than a second
}
SLOWEST: Final = 12
LONG_PARTS: Final = 8  # so many of the parts take longer than the demo and the oldest PySpark


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many tests of a part ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass(slots=True, kw_only=True)
class Run:
    """A part that runs or ran.

    Attributes:
        part: The part.
        log: Its output.
        seconds: How long it took; until it ended, when it began.
        code: Its exit code; None while it runs.
        counts: Of its tests.
    """

    part: Part
    log: Path
    seconds: float = 0.0
    code: int | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def passed(self) -> bool:
        return self.code == 0 and not self.counts.failed


def files_of(part: Part) -> set[Path]:
    """The test files of a part."""
    found: set[Path] = set()
    for path in (TESTS / place for place in part.paths):
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return found.difference(files_of_others(part))


def files_of_others(part: Part) -> list[Path]:
    """The files in a part's folders that another part lists."""
    listed = [TESTS / place for other in PARTS if other is not part for place in other.paths if place.endswith(".py")]
    folders = [TESTS / place for place in part.paths]
    return [path for path in listed if any(path.is_relative_to(folder) for folder in folders)]


def parts_with_the_rest() -> tuple[Part, ...]:
    """All parts: what is in none of the list is in one of its own, so that no test is forgotten.

    That one is the first: it starts no session, and the others find the archive of classes when they begin.
    """
    listed = set().union(*(files_of(part) for part in PARTS))
    rest = sorted(path.relative_to(TESTS).as_posix() for path in set(TESTS.rglob("test_*.py")) - listed)
    return (Part(name=REST, paths=tuple(rest)), *PARTS) if rest else PARTS


def counts_of(output: str) -> Counts:
    """The counts that pytest gives in its last line; of several (a test may run pytest), the last."""
    summaries = SUMMARY.findall(output)
    numbers = {what: int(number) for number, what in COUNT.findall(summaries[-1])} if summaries else {}
    return Counts(
        passed=numbers.get("passed", 0) + numbers.get("xfailed", 0),
        failed=sum(numbers.get(what, 0) for what in ("failed", "error", "errors", "xpassed")),
        skipped=numbers.get("skipped", 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How parts are run.

    Attributes:
        folder: Where the processes are started, and where their output is.
        nightly: Whether the long tests are run, and not the others.
        thorough: Whether tests that are marked so are run: with every change, but not by everybody who makes one.
        coverage: Whether it is measured which lines of the package run, in the process of the tests.
        compiled: Whether Spark compiles queries in every part.
        oldest: The Python of the environment with the oldest PySpark; empty for this one.
    """

    folder: Path
    nightly: bool = False
    thorough: bool = True
    coverage: bool = False
    compiled: bool = False
    oldest: str = ""
    said: threading.Lock = field(default_factory=threading.Lock)
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """A line, with the seconds since the beginning."""
        with self.said:
            print(f"[{time.monotonic() - self.began:5.0f}s] {text}", flush=True)

    def command(self, part: Part) -> list[str]:
        """What runs a part; nothing comes from the checkout but the tests."""
        python = [(part is OLDEST and self.oldest) or sys.executable, "-P", "-u"]
        if part.command:
            places = {"root": ROOT, "folder": self.folder}
            return [*python, "-m", *(word.format(**places) for word in part.command)]
        if self.coverage and part.measured:
            python += ["-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}"]
            python += [f"--data-file={self.folder / f'.coverage.{part.name}'}"]
        settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
        settings += [f"--junit-xml={self.folder / part.name}.xml"]
        chosen = part.marks or ("nightly or soak" if self.nightly else "" if self.thorough else EVERYDAY_MARKS)
        marks = ["-m", chosen] if chosen else []
        paths = [str(TESTS / path) for path in part.paths] + [f"--ignore={path}" for path in files_of_others(part)]
        return [*python, "-m", "pytest", *settings, "--durations=8", *marks, *paths]

    @property
    def importable(self) -> Path:
        """A folder that has the tests, and nothing else of the checkout."""
        return self.folder / "importable"

    @property
    def java(self) -> Path:
        """A JAVA_HOME, from when `archive_classes` has made it."""
        return self.folder / "classes" / "java"

    def archive_classes(self) -> None:
        """Make the Java that sessions start quickly with: parts that begin before it is there, do without."""
        made = self.java.parent
        made.mkdir()
        log = self.folder / "classes.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", str(CLASS_ARCHIVE), str(made)],
                cwd=made,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            self.running.add(process)
            code = process.wait()
            self.running.discard(process)
        if code == 0:
            self.say("there is an archive of Java's classes")
        else:
            why = log.read_text(errors="replace").splitlines()[-SAID_LINES:]
            self.say("\n".join(["there is no archive of Java's classes:", *why]))

    def run(self, part: Part) -> Run:
        """Run a part to its end."""
        run = Run(part=part, log=self.folder / f"{part.name}.log")
        environment = {**os.environ, "MYPYPATH": str(self.importable)}
        if not (part.compiles or self.compiled):
            environment["TEST_SPARK_SETTINGS"] = json.dumps(INTERPRETED)
        if self.nightly:
            environment.setdefault("HYPOTHESIS_PROFILE", "nightly")
        if part.archived and self.java.exists():
            environment["JAVA_HOME"] = str(self.java)
        self.say(f"started  {part.name}")
        began = time.monotonic()
        with run.log.open("wb") as log:
            process = subprocess.Popen(
                self.command(part),
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            self.running.add(process)
            code = None
            while code is None:
                try:
                    code = process.wait(SAY_SECONDS)
                except subprocess.TimeoutExpired:
                    self.say(f"running  {part.name}{self.progress(run)}")
            self.running.discard(process)
        run.seconds = time.monotonic() - began
        run.counts = Counts(passed=int(code == 0)) if part.command else counts_of(run.log.read_text(errors="replace"))
        run.code = 0 if code == NO_TESTS and self.nightly else code
        if code < 0:
            last = run.log.read_text(errors="replace").splitlines()[-SAID_LINES:]
            self.say("\n".join([f"{part.name} was ended by {signal.Signals(-code).name}; its last lines were:", *last]))
        verdict = "passed  " if run.passed else "FAILED  "
        self.say(
            f"{verdict} {part.name}: {run.counts}, {run.seconds:.0f} s" + ("" if run.passed else f", exit code {code}")
        )
        return run

    def run_all(self, parts: Sequence[Part], jobs: int) -> list[Run]:
        """Run parts, so many at a time; when this program is told to end, those that run end with it."""
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before all parts had"))
        with ThreadPoolExecutor(jobs) as pool:
            try:
                if len(parts) >= WORTH_AN_ARCHIVE:
                    pool.submit(self.archive_classes)
                return list(pool.map(self.run, parts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in tuple(self.running):
                    process.terminate()
                raise
            finally:
                signal.signal(signal.SIGTERM, before)

    def covered(self) -> bool:
        """Print how much of the package the measured parts ran; whether that is as much as pyproject.toml asks for.

        Only the tests' own processes are measured. What Spark's workers run is run by tests without Spark as well.
        """
        coverage = [sys.executable, "-P", "-m", "coverage"]
        settings = [f"--rcfile={ROOT / 'pyproject.toml'}", f"--data-file={self.folder / '.coverage'}"]
        subprocess.run([*coverage, "combine", "--quiet", *settings, str(self.folder)], cwd=self.folder, check=False)
        print("\ncoverage, the 15 modules with most lines that did not run, and all:", flush=True)
        command = [*coverage, "report", *settings, "--sort=-miss"]
        listed = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=False)
        lines = listed.stdout.splitlines()
        modules = [line for line in lines if line.rstrip().endswith("%") and not line.startswith("TOTAL")]
        total = [line for line in lines if line.startswith(("TOTAL", "Coverage failure"))]
        print("\n".join([*modules[:15], *total]))
        return listed.returncode == 0

    def progress(self, run: Run) -> str:
        """How far a part is, as pytest says it."""
        found = PROGRESS.findall(run.log.read_text(errors="replace"))
        return f" {found[-1]}%" if found else ""


def seconds_by_file(times: Iterable[Path]) -> dict[str, float]:
    """The seconds of each test file.

    Args:
        times: What pytest wrote by `--junit-xml`; a file that is missing belongs to a part that broke off.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for path in times:
        if path.exists():
            for case in ElementTree.parse(path).iter("testcase"):
                file = case.get("classname", "").replace(".", "/")
                seconds[file] += float(case.get("time", "0"))
    return seconds


def report(runs: Iterable[Run], *, verbose: bool) -> None:
    """The output of what failed, or of all parts; then seconds and counts by part."""
    listed = list(runs)
    for run in listed:
        if verbose or not run.passed:
            print(f"\n== {run.part.name}: its output\n{run.log.read_text(errors='replace')}")
    print(f"\n{'part':<12}{'seconds':>8}{'passed':>8}{'failed':>8}{'skipped':>8}")
    for run in listed:
        one = run.counts
        broken = "" if run.passed or one.failed else f"  broke off with exit code {run.code}"
        print(f"{run.part.name:<12}{run.seconds:>8.0f}{one.passed:>8}{one.failed:>8}{one.skipped:>8}{broken}")
    seconds = seconds_by_file(run.log.with_suffix(".xml") for run in listed)
    slowest = sorted(seconds.items(), key=lambda one: one[1], reverse=True)[:SLOWEST]
    print("\nseconds of the files that took longest: " + ", ".join(f"{file} {time:.0f}" for file, time in slowest))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    names = [part.name for part in (*parts_with_the_rest(), OLDEST)]
    parser.add_argument(
        "parts", nargs="*", choices=[*names, []], metavar="PART", help=f"of {', '.join(names)}; else all"
    )
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2), help="parts at a time")
    parser.add_argument("--all", action="store_true", help="the parts too that are not for every day")
    parser.add_argument("--nightly", action="store_true", help="what is marked nightly or soak, and nothing else")
    parser.add_argument("--demo", action="store_true", help="the demo too")
    parser.add_argument("--checks", action="store_true", help="types and the documentation site too")
    parser.add_argument("--oldest", metavar="PYTHON", default="", help="what is marked oldest too, by this Python")
    parser.add_argument("--coverage", action="store_true", help="measure which lines of the package run")
    parser.add_argument("--compiled", action="store_true", help="let Spark compile queries in every part")
    parser.add_argument("--verbose", action="store_true", help="show the output of parts that passed, too")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run parts.

    Returns:
        0 if all of them passed.
    """
    options = arguments(given)
    everything = options.all or options.nightly
    known = parts_with_the_rest()
    parts = [part for part in known if (part.name in options.parts if options.parts else everything or part.everyday)]
    cut = bool(options.oldest) or OLDEST.name in options.parts
    asked = [*([OLDEST] if cut else []), *([DEMO] if options.demo else [])]
    parts[LONG_PARTS:LONG_PARTS] = asked
    parts[:0] = CHECKS if options.checks else ()
    with tempfile.TemporaryDirectory(prefix="suite-") as folder:
        suite = Suite(
            folder=Path(folder),
            nightly=options.nightly,
            thorough=everything or bool(options.parts),
            coverage=options.coverage,
            compiled=options.compiled,
            oldest=options.oldest,
        )
        suite.importable.mkdir()
        (suite.importable / "tests").symlink_to(TESTS)
        suite.say(f"{len(parts)} parts, {options.jobs} at a time: {', '.join(part.name for part in parts)}")
        left = [part.name for part in known if part not in parts]
        if left and not options.parts:
            suite.say(f"not every day, but for each change by .ci/run (--all): {', '.join(left)}")
        runs = suite.run_all(parts, options.jobs)
        report(runs, verbose=options.verbose)
        total = sum((run.counts for run in runs), Counts())
        enough = not options.coverage or suite.covered() or bool(options.parts)
        wrong = [run.part.name for run in runs if not run.passed]
        seconds = time.monotonic() - suite.began
    if wrong:
        print(f"\nfailed: {', '.join(wrong)}")
    if not enough:
        print("\nless of the package ran than pyproject.toml asks for: test what is new")
    skipped = bool(os.environ.get("CI")) and total.skipped > 0
    if skipped:
        print("\nin CI a skipped test is a failed run: nobody would see that a part of the suite is gone")
    print(f"\n{total} in {seconds:.2f}s", flush=True)
    return 1 if wrong or skipped or not enough else 0


if __name__ == "__main__":
    sys.exit(main())
