"""The prompt of `dml shell`: keys in, statements and output out."""

import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

import dml
from dml import prompt
from dml.catalog.registry import CatalogRegistry
from dml.cli import print_error
from dml.completion import CatalogNames
from dml.prompt import SqlCompleter, history_file, open_history
from dml.sqlparse import is_terminated

ALT_ENTER, CTRL_C, CTRL_D = "\x1b\r", "\x03", "\x04"


class Stub:
    """A session without Spark: the prompt asks it for names alone."""

    def __init__(self, catalog: Catalog) -> None:
        self.registry = CatalogRegistry(catalogs={"lake": catalog}, current_catalog="lake")


@pytest.fixture
def typed(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], list[str]]:
    """Type keys at a prompt, and return the texts that it runs; one with `wait` is interrupted, one with `!` fails."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def keys(text: str) -> list[str]:
        ran: list[str] = []

        def run_sql(session: object, statements: str, **_: object) -> None:
            ran.append(statements)
            if "wait" in statements:
                raise KeyboardInterrupt
            if "!" in statements:
                raise dml.SqlError("It is wrong", sql=statements, position=statements.index("!"))

        monkeypatch.setattr(prompt, "run_sql", run_sql)
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(text + CTRL_D)
            prompt.run(Stub(catalog), limit=10, report=print_error)  # type: ignore[arg-type]
        return ran

    return keys


def test_enter_runs_what_ends_with_a_semicolon_and_continues_otherwise(typed: Callable[[str], list[str]]) -> None:
    assert typed("SELECT 1;\r") == ["SELECT 1;"]
    assert typed("SELECT ';'\r-- ;\r, 2;\r\r") == ["SELECT ';'\n-- ;\n, 2;"]
    assert typed("SELECT 1; SELECT 2;\r") == ["SELECT 1; SELECT 2;"]
    assert typed("SELECT 1" + ALT_ENTER) == ["SELECT 1"]
    assert typed("   \r-- nothing" + ALT_ENTER) == []


def test_control_c_discards_what_is_typed_and_a_word_leaves(typed: Callable[[str], list[str]]) -> None:
    assert typed("DROP TABLE t" + CTRL_C + "SELECT 1;\r") == ["SELECT 1;"]
    for word in ("exit", "quit;", "\\q"):
        assert typed(f"{word}\rSELECT 1;\r") == []


def test_errors_and_interrupts_return_to_the_prompt(
    typed: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("SELECT !;\rSELECT wait;\rSELECT 1;\r") == ["SELECT !;", "SELECT wait;", "SELECT 1;"]
    assert capsys.readouterr().err.splitlines() == [
        "Error: It is wrong (line 1, column 8)",
        "  SELECT !;",
        "         ^",
        "Cancelled",
    ]


def test_commands(typed: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "a script.sql"
    script.write_text("SELECT 1;\nSELECT 2")
    assert typed(f"\\i {script}\r\\dn\r\\d db.t;\r") == [
        "SELECT 1;\nSELECT 2",
        "SHOW NAMESPACES",
        "DESCRIBE TABLE db.t",
    ]
    capsys.readouterr()
    assert typed("\\timing\rSELECT 1;\r\\timing\rSELECT 2;\r") == ["SELECT 1;", "SELECT 2;"]
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(":")[0] for line in shown] == ["Timing is on", "Time", "Timing is off"]
    assert typed("\\i\r\\i no.sql\r\\x y\rhelp\r") == []
    shown, errors = capsys.readouterr()
    assert errors.splitlines() == [
        "Error: '\\i' needs an argument. Write \\i FILE",
        "Error: The file 'no.sql' cannot be read: No such file or directory",
        "Error: There is no command '\\x'. \\? lists them",
    ]
    assert all(name in shown for name in prompt.COMMANDS)


def test_tables_are_listed_without_spark(
    typed: Callable[[str], list[str]], catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog.create_table(("db", "t"), Schema())
    for command in ("\\dt", "\\d", "\\dt db"):
        assert typed(f"{command}\r") == []
        assert "lake.db.t" in capsys.readouterr().out
    typed("\\dt absent\r")
    assert "There is no namespace 'absent' in the catalog" in capsys.readouterr().err


def test_completion_of_commands_files_and_names(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table(("db", "flights"), Schema())
    (tmp_path / "one.sql").touch()
    completer = SqlCompleter(CatalogNames(Stub(catalog).registry))

    def completed(text: str) -> list[str]:
        found = completer.get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + one.start_position] + one.text for one in found]

    assert completed("\\d") == ["\\dt", "\\d", "\\dn"]
    assert completed(f"\\i {tmp_path}/o") == [f"\\i {tmp_path}/one.sql"]
    assert completed("\\d db.f") == ["\\d db.flights"]
    assert completed("\\dt d") == ["\\dt db"]
    assert completed("DELETE FROM db.f") == ["DELETE FROM db.flights"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- end\n ", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("SELECT 1 -- ;", False),
        ("SELECT 1; SELECT 2", False),
        (";", True),
        ("", False),
        ("BEGIN SELECT 1;", False),
        ("BEGIN SELECT 1; END;", True),
    ],
)
def test_a_semicolon_outside_of_strings_and_comments_ends_a_statement(text: str, expected: bool) -> None:
    assert is_terminated(text) is expected


def test_the_history_is_private_and_holds_no_credentials(tmp_path: Path) -> None:
    path = history_file({"XDG_STATE_HOME": str(tmp_path / "state")})
    history = open_history(path)
    assert isinstance(history, FileHistory)
    secrets = ("SET spark.hadoop.fs.s3a.secret.key = abc;", "CREATE TABLE t OPTIONS ('password' 'abc');")
    for text in ("SELECT 1;", *secrets, "SELECT '" + "x" * 20_000 + "';", "SELECT 2;"):
        history.append_string(text)
    assert list(open_history(path).load_history_strings()) == ["SELECT 2;", "SELECT 1;"]
    assert "abc" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    open_history(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_writable_folder_the_history_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(open_history(tmp_path / "file" / "history"), InMemoryHistory)
    assert history_file({}) == Path("~/.local/state/rowdelta/history").expanduser()


PROGRAM = """
import os

os.close(os.open(os.ttyname(0), os.O_RDWR))  # a leader of a session opens its controlling terminal: Ctrl-C is a signal

from dml.cli import main

main()
"""


class Terminal:
    """A program in a terminal of its own.

    Args:
        arguments: The arguments of `dml`.
        folder: Its current folder, and that of its state.
    """

    def __init__(self, *arguments: str, folder: Path) -> None:
        self.screen = self._unread = ""
        self._end, inside = pty.openpty()
        variables = {"XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=folder,
            env=os.environ | variables | {"COLUMNS": "120", "LINES": "40"},
            start_new_session=True,
        )
        os.close(inside)

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._end, keys.encode())

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Wait for a text that is shown after those that were waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self._unread:
            ready, _, _ = select.select([self._end], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} is not shown, but: {self._unread}"
            read = os.read(self._end, 65536).decode(errors="replace")
            self.screen += read
            self._unread = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._unread + read)
        self._unread = self._unread.partition(text)[2]  # one read may hold the next text too


@pytest.mark.spark
def test_the_shell_in_a_terminal(tmp_path: Path) -> None:
    """A warehouse that is made on demand, completion, an error, a statement that is cancelled, a query, the end."""
    shell = Terminal("shell", folder=tmp_path)
    try:
        shell.wait_for("Loading RowDelta ...")
        shell.wait_for(f"There is no warehouse in {tmp_path / 'warehouse'}. Create one? [y/N]")
        shell.type("y\r")
        shell.wait_for("lake>")
        shell.type("CREATE NAMESPACE db; CREATE TABLE db.flights (id INT);\r")
        shell.wait_for("OK")
        shell.wait_for("lake>")
        shell.type("INSERT INTO db.fli")
        shell.wait_for("flights")
        shell.type("\t VALUES (1);\r")
        shell.wait_for("INSERT lake.db.flights")
        shell.wait_for("lake>")
        shell.type("SELECT idd FROM db.flights;\r")
        shell.wait_for("Starting Spark ...")
        shell.wait_for("(line 1, column 8)")
        shell.wait_for("lake>")
        shell.type("SELECT count(*) FROM range(1000000000000) WHERE rand() < 0.1;\r")
        time.sleep(3)
        shell.type("\x03")
        shell.wait_for("Cancelled")
        shell.wait_for("lake>")
        shell.type("SELECT id + 41 FROM db.flights;\r")
        shell.wait_for("42")
        shell.wait_for("lake>")
        shell.type("\\q\r")
        assert shell.process.wait(60) == 0
    finally:
        shell.process.kill()
        shell.process.wait()
    assert "incubator" not in shell.screen
    assert {path.name for path in tmp_path.iterdir()} == {"state", "warehouse"}
