"""The prompt of `dml shell`: reads statements in a terminal, with history and completion, and runs them. Driver.

Input: a session; keys. Output: what `dml.shell` prints for each statement. Errors are reported, and the prompt returns.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from dml import limits
from dml.catalog.credentials import is_secret
from dml.completion import CatalogNames, complete
from dml.errors import AnalysisError
from dml.session import Session
from dml.shell import print_table, read_script, run_sql, tables_in
from dml.sqlparse import is_terminated
from dml.sqlparse.tokens import tokenize

__all__ = ["history_file", "open_history", "run"]

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "\\dt": (" [NAMESPACE]", "list the tables of a namespace, or of all of them"),
    "\\d": (" TABLE", "describe a table"),
    "\\dn": ("", "list the namespaces"),
    "\\i": (" FILE", "run the statements of a file"),
    "\\timing": ("", "show how long statements take, or stop showing it"),
    "\\?": ("", "show this help"),
    "\\q": ("", "leave, as Ctrl-D does"),
}
"""The commands of the prompt, with their arguments and what they do."""

KEYS: Final[Mapping[str, str]] = {
    "Enter": "run what is typed if it ends with ; and begin a new line otherwise",
    "Alt-Enter": "run what is typed, without a ; too",
    "Tab": "complete names and keywords",
    "Ctrl-C": "cancel the running statement, or discard what is typed",
    "Ctrl-R": "search the history",
}

WORDS: Final[Mapping[str, str]] = {"exit": "\\q", "quit": "\\q", "help": "\\?"}
"""Words that are commands by themselves, with or without a semicolon."""

GREETING: Final = "RowDelta. Statements end with ;  \\? shows help, \\q leaves."


def run(session: Session, *, limit: int, report: Callable[[Exception], None]) -> None:
    """Read and run statements until the user leaves.

    Args:
        session: The session.
        limit: The maximum number of rows to print of a query.
        report: Prints an error.
    """
    names = CatalogNames(session.registry)
    shell = Shell(session, names, limit=limit, report=report)
    prompt: PromptSession[str] = PromptSession(
        lambda: f"{current_name(session)}> ",
        multiline=True,
        prompt_continuation=lambda width, *_: "... ".rjust(width),
        completer=SqlCompleter(names),
        complete_in_thread=True,  # a slow catalog must not delay typing
        auto_suggest=AutoSuggestFromHistory(),
        history=open_history(history_file(os.environ)),
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=key_bindings(),
        enable_open_in_editor=True,
    )
    print(GREETING)
    while not shell.has_ended:
        try:
            text = prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        shell.run(text)


def current_name(session: Session) -> str:
    """Return the current catalog, with the current namespace once one was chosen."""
    registry = session.registry
    namespace = () if registry.current_namespace == ("default",) else registry.current_namespace
    return ".".join((registry.current_catalog, *namespace))


class Shell:
    """Runs the commands and statements of the prompt.

    Args:
        session: The session.
        names: The names of the completion, which statements may change.
        limit: The maximum number of rows to print of a query.
        report: Prints an error.

    Attributes:
        has_ended: True after the command that leaves.
    """

    def __init__(
        self, session: Session, names: CatalogNames, *, limit: int, report: Callable[[Exception], None]
    ) -> None:
        self.has_ended = False
        self._session = session
        self._names = names
        self._limit = limit
        self._report = report
        self._shows_time = False

    def run(self, text: str) -> None:
        """Run a command or statements; report errors, and an interrupt, which cancels the running statement."""
        started = time.monotonic()
        try:
            command = command_of(text)
            if command is not None:
                self._run_command(*command)
            elif tokenize(text) != ([], None):
                self._run_statements(text)
        except KeyboardInterrupt:
            print("Cancelled", file=sys.stderr)
        except Exception as error:  # noqa: BLE001  the prompt must return after any error
            self._report(error)
        if self._shows_time and command_of(text) is None:
            print(f"Time: {time.monotonic() - started:.3f} s")

    def _run_statements(self, text: str) -> None:
        try:
            run_sql(self._session, text, output="table", limit=self._limit, confirms=True)
        finally:
            self._names.forget()

    def _run_command(self, name: str, argument: str) -> None:
        match name:
            case "\\q":
                self.has_ended = True
            case "\\?":
                print_help()
            case "\\timing":
                self._shows_time = not self._shows_time
                print(f"Timing is {'on' if self._shows_time else 'off'}")
            case "\\dn":
                self._run_statements("SHOW NAMESPACES")
            case "\\d" if argument:
                self._run_statements(f"DESCRIBE TABLE {argument}")
            case "\\d" | "\\dt":
                print_table(("table",), ((table,) for table in tables_in(self._session, argument or None)))
            case "\\i" if argument:
                self._run_statements(read_script(argument))
            case _ if name in COMMANDS:
                raise AnalysisError(f"'{name}' needs an argument", hint=f"Write {name}{COMMANDS[name][0]}")
            case _:
                raise AnalysisError(f"There is no command '{name}'", hint="\\? lists them")


def command_of(text: str) -> tuple[str, str] | None:
    """Return the name of a command and its argument; None for statements."""
    stripped = text.strip()
    word = WORDS.get(stripped.removesuffix(";").rstrip().lower())
    if word is not None:
        return word, ""
    if not stripped.startswith("\\"):
        return None
    name, _, argument = stripped.partition(" ")
    return name.removesuffix(";"), argument.strip().removesuffix(";").rstrip()


def print_help() -> None:
    """Print the commands and the keys."""
    rows = [(name + argument, text) for name, (argument, text) in COMMANDS.items()]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"  {name:{width}}  {text}" for name, text in [*rows, *KEYS.items()]))


def key_bindings() -> KeyBindings:
    """Return the keys of the prompt that differ from prompt_toolkit's."""
    bindings = KeyBindings()
    is_selected = has_completions & Condition(lambda: selected_completion() is not None)

    @bindings.add("enter", filter=~is_selected)
    def run_or_continue(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.text.strip() or command_of(buffer.text) is not None or is_terminated(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @bindings.add("enter", filter=is_selected)
    def accept_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return bindings


def selected_completion() -> Completion | None:
    """Return the completion that is selected in the menu."""
    state = get_app().current_buffer.complete_state
    return None if state is None else state.current_completion


class SqlCompleter(Completer):
    """Completes statements, commands and their arguments.

    Args:
        names: The names of the catalogs.
    """

    def __init__(self, names: CatalogNames) -> None:
        self._names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        if before.startswith("\\i "):
            path = before.removeprefix("\\i ").lstrip()
            yield from self._paths.get_completions(Document(path), complete_event)
            return
        if before.startswith("\\") and " " not in before:
            for name, (_, text) in COMMANDS.items():
                if name.startswith(before):
                    yield Completion(name, -len(before), display_meta=text)
            return
        text, cursor = document.text, document.cursor_position
        for command, statement in (("\\dt ", "USE "), ("\\d ", "DESCRIBE ")):
            if before.startswith(command):
                text, cursor = statement + text[len(command) :], cursor + len(statement) - len(command)
        for found in complete(text, cursor, self._names):
            yield Completion(found.text, -found.typed, display_meta=found.kind)


def history_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the history, in the user's folder for state."""
    folder = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(folder).expanduser() / "rowdelta" / "history"


def open_history(path: Path) -> History:
    """Open the history, which only its owner can read; in memory if the file cannot be written."""
    with suppress(OSError, RuntimeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600))
        path.chmod(0o600)
        return StatementHistory(str(path))
    return InMemoryHistory()


class StatementHistory(FileHistory):
    """A history that stores neither statements with credentials nor very long ones."""

    def store_string(self, string: str) -> None:
        """Append an input to the file."""
        if len(string) <= limits.SHELL_HISTORY_CHARS and not names_secret(string):
            with suppress(OSError):  # a full disk must not end the shell
                super().store_string(string)


SEPARATORS: Final = re.compile(r"[._]")
URI_PASSWORD: Final = re.compile(r"://[^\s/@]*:[^\s@]*@")


def names_secret(text: str) -> bool:
    """Return True if a text names a credential, as `SET x.secret.key = ...` does, or has a URI with a password."""
    return is_secret(SEPARATORS.sub("-", text)) or URI_PASSWORD.search(text) is not None
