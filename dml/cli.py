"""The command line: `dml sql "..."`, `dml shell`, `dml serve`, `dml demo`, and a command for each procedure. Driver.

Input: arguments. Output: rows or facts on standard output; errors as one message on standard error, with exit code 1.
`dml.shell`, `dml.prompt`, `dml.serve` and `dml.demo` do the work. They load Spark, so they are imported when a command
runs, and `--help` stays fast. The commands of procedures are generated from their declarations: `dml
rollback-to-snapshot db.t --snapshot-id 1` is `CALL system.rollback_to_snapshot(table => 'db.t', snapshot_id => 1)`.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, cast

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import dml
from dml.errors import DmlError, ExecutionError, SetupError, SqlError
from dml.hints import install_hint
from dml.tracebacks import is_debugging

__all__ = ["app", "main"]

BROKEN_PIPE: Final = 141
"""The exit code of a program that SIGPIPE ended, by shell convention: 128 + 13."""


class GuardedOutput:
    """Wraps a text stream: a closed pipe ends the program quietly, other failed writes raise RowDelta's errors.

    Args:
        stream: The stream to write to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            SystemExit: The reader closed the pipe.
            ExecutionError: The text cannot be written.
        """
        if text == "":  # typer probes streams this way and would swallow an error
            return 0
        with self._explain_errors():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines; errors of writing are raised as by `write`, errors of the iterable unchanged."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the buffer; raises as `write` does."""
        with self._explain_errors():
            self._stream.flush()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            discard(self._stream)
            raise SystemExit(BROKEN_PIPE) from error
        except OSError as error:
            discard(self._stream)
            raise ExecutionError(
                f"Standard output cannot be written: {error.strerror or error}",
                hint="A statement that changes rows has been committed all the same",
            ) from error
        except UnicodeEncodeError as error:
            raise ExecutionError(
                f"Standard output is in {error.encoding}, which has no {error.object[error.start : error.end]!a}",
                hint="Set PYTHONIOENCODING=utf-8. A statement that changes rows has been committed all the same",
            ) from error


def discard(stream: TextIO) -> None:
    """Redirect the stream to the null device: Python flushes it again at exit and would report a second error."""
    with suppress(OSError):  # not every stream is a file
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


@contextmanager
def guarded_stdout() -> Iterator[GuardedOutput]:
    """Guard standard output of the enclosed code."""
    guarded = GuardedOutput(sys.stdout)
    with redirect_stdout(cast("TextIO", guarded)):
        yield guarded


INTERRUPTED = 130


QUERY: Final = "Query"
UPKEEP: Final = "Upkeep"
HISTORY: Final = "History"
IMPORT: Final = "Import and move"
SERVER: Final = "Server"
MORE: Final = "More"

PROCEDURES: Final[Mapping[str, Mapping[str, str]]] = {
    UPKEEP: {
        "rewrite-data-files": "Rewrite small files, and files with deleted rows, into files of the target size.",
        "rewrite-position-delete-files": "Merge small position delete files, and drop positions of removed data files.",
        "convert-equality-deletes": "Replace the equality deletes of other engines by deletion vectors or position "
        "deletes.",
        "rewrite-manifests": "Replace manifests by ones of the target size that list each partition together.",
        "expire-snapshots": "Remove old snapshots, and the files that only they need.",
        "remove-orphan-files": "Remove the files below a table's folders that its metadata does not need.",
        "compute-table-stats": "Estimate the number of distinct values of columns, and add it to the table's metadata.",
        "compute-partition-stats": "Count the files and rows of each partition, and add the counts to the table's "
        "metadata.",
    },
    HISTORY: {
        "ancestors-of": "List a snapshot and its ancestors, newest first.",
        "rollback-to-snapshot": "Move main back to one of its earlier snapshots.",
        "rollback-to-timestamp": "Move main back to its newest snapshot before a time.",
        "set-current-snapshot": "Move main to any snapshot, or to that of a branch or tag.",
        "fast-forward": "Move a branch to the head of another one that descends from it.",
        "publish-changes": "Commit the changes that were staged under a WAP id to main.",
        "cherrypick-snapshot": "Commit the changes of a staged snapshot to main.",
    },
    IMPORT: {
        "add-files": "Append the data files of a folder, or of a table of Spark, to a table.",
        "snapshot": "Create a table that reads the files of a table of Spark, to try it without changing the source.",
        "register-table": "Add a table to the catalog by its metadata file.",
        "rewrite-table-path": "Stage copies of a table's metadata for another location, and list the files to copy "
        "there.",
    },
}
"""The commands of procedures by panel of the help, each with its summary as in the declaration.

`migrate` is always refused, so the help leaves it out.
"""


class Commands(TyperGroup):
    """The commands; those of procedures are generated when they are called, because their declarations load Spark."""

    shows_help = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the commands without loading Spark."""
        self.shows_help = True
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of one panel together."""
        panels = {name: panel for panel, commands in PROCEDURES.items() for name in commands}
        own = [name for name in super().list_commands(ctx) if name not in panels]
        panels |= {name: str(getattr(self.commands[name], "rich_help_panel", MORE)) for name in own}
        order = (QUERY, UPKEEP, HISTORY, IMPORT, SERVER, MORE)
        return sorted([*own, *(name for name in panels if name not in own)], key=lambda name: order.index(panels[name]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, in which `-` and `_` are equal for procedures."""
        if self.shows_help:
            for panel, commands in PROCEDURES.items():
                if cmd_name in commands:
                    return TyperCommand(cmd_name, help=commands[cmd_name], rich_help_panel=panel)
        return super().get_command(ctx, cmd_name) or procedure_command(cmd_name.replace("-", "_"))


app = typer.Typer(
    name="dml",
    cls=Commands,
    help="Row-level DML for Apache Iceberg tables on PySpark.",
    epilog="`dml COMMAND --help` explains the arguments, for example `dml expire-snapshots --help`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


FORMAT_HELP: Final = "How to print rows: table, json or csv."


class OutputFormat(StrEnum):
    """The format of printed rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The global options, which select the catalog."""

    warehouse: str | None
    catalog: str | None
    properties: dict[str, str]


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(version("rowdelta"))
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    warehouse: Annotated[
        Path | None, typer.Option(help="Folder of the embedded catalog; ./warehouse if not given.")
    ] = None,
    catalog: Annotated[str | None, typer.Option(help="Name of a catalog of PyIceberg's configuration.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="Property of the catalog, KEY=VALUE; may be repeated.")
    ] = None,
    version: Annotated[  # noqa: ARG001  its callback handles it
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Row-level DML for Apache Iceberg tables on PySpark."""
    context.obj = Connection(
        warehouse=None if warehouse is None else str(warehouse),
        catalog=catalog,
        properties=pairs_of(properties, "--property", "property"),
    )


@app.command(rich_help_panel=QUERY)
def sql(
    context: typer.Context,
    statements: Annotated[
        str | None, typer.Argument(help="SQL statements, separated by ;  - reads standard input.")
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read the statements from a file.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format", metavar="FORMAT", help=FORMAT_HELP)] = OutputFormat.TABLE,
    limit: Annotated[
        int, typer.Option(metavar="ROWS", help="Maximum number of rows to print as a table.", min=1)
    ] = 100,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Change rows only once: a second run with this key shows the first result.")
    ] = None,
) -> None:
    """Run SQL statements, each with its own commit, and print their rows or results. The first error ends the run."""
    text = statements_text(statements, file)
    connection: Connection = context.obj
    may_create = dml.shell.creates_objects(text)
    session = dml.shell.open_session(
        connection.warehouse, connection.catalog, connection.properties, may_create=may_create
    )
    dml.shell.run_sql(session, text, output=output, limit=limit, idempotency_key=idempotency_key)


@app.command(rich_help_panel=QUERY)
def shell(
    context: typer.Context,
    *,
    limit: Annotated[
        int, typer.Option(metavar="ROWS", help="Maximum number of rows to print as a table.", min=1)
    ] = 100,
) -> None:
    """Run SQL statements at a prompt with history and completion. Without a terminal, run standard input."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sql(context, "-", limit=limit)
        return
    connection: Connection = context.obj
    folder = dml.shell.missing_warehouse(connection.warehouse, connection.catalog, connection.properties)
    if folder is not None:
        typer.confirm(f"There is no warehouse in {folder}. Create one?", abort=True, err=True)
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties, may_create=True)
    dml.prompt.run(session, limit=limit, report=print_error)


@app.command(rich_help_panel=UPKEEP)
def verify(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, as db.t or db.t.branch_audit.")],
    *,
    snapshot_id: Annotated[int | None, typer.Option(help="The snapshot; the current one if not given.")] = None,
    every_file: Annotated[bool, typer.Option(help="Open all data files, not only those it touched.")] = False,
    output: Annotated[OutputFormat, typer.Option("--format", help="table or json.")] = OutputFormat.TABLE,
) -> None:
    """Verify a snapshot against its files; the exit code is 1 if there are problems."""
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    found = session.verify(table, snapshot_id, every_file=every_file)
    dml.shell.print_verification(found, output, sys.stdout)
    raise typer.Exit(0 if found.ok else 1)


@app.command(rich_help_panel=UPKEEP)
def maintain(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The table, as db.t; with --all a namespace, or nothing for all namespaces.")
    ] = None,
    *,
    all_tables: Annotated[bool, typer.Option("--all", help="Maintain all tables of the namespace.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show the decisions, and change nothing.")] = False,
    budget: Annotated[str | None, typer.Option(help="Start no new work after this time, such as 5m.")] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="How to print rows.")] = OutputFormat.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, as --format json.")] = False,
) -> None:
    """Do the maintenance that a table needs. Exit codes: 0 all done, 1 failed, 3 the budget ended before."""
    if not all_tables and name is None:
        raise SetupError("There is no table to maintain", hint="Name one: dml maintain db.t, or write --all")
    if budget is not None:
        try:
            dml.shell.parse_budget(budget)
        except DmlError as error:
            raise typer.BadParameter(f"{error.message}. {error.hint}", param_hint="--budget") from error
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    tables = dml.shell.tables_in(session, name) if all_tables else (str(name),)
    printed = OutputFormat.JSON if as_json else output
    code = dml.shell.run_maintenance(session, tables, plan=plan, budget=budget, output=printed, goes_on=all_tables)
    raise typer.Exit(code)


@app.command(rich_help_panel=UPKEEP)
def health(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, as db.t or db.t.branch_audit.")],
    *,
    branch: Annotated[str | None, typer.Option(help="The branch or tag; the current snapshot if not given.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page to this file instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report the health of a table from its metadata: file sizes, deleted rows, overlap, manifests, snapshots."""
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    found = session.health(table, branch)
    dml.shell.print_health(found, sys.stdout, as_json=as_json, html=None if html is None else str(html))


@app.command(rich_help_panel=MORE)
def procedures() -> None:
    """List the procedures, each of which is a command."""
    for procedure in dml.shell.procedures().values():
        if not procedure.in_session:
            typer.echo(f"{procedure.name.replace('_', '-')}: {procedure.summary}")


OPTION_KINDS: Final[Mapping[Any, tuple[Any, str]]] = {
    dict: (list[str], "; KEY=VALUE, may be repeated"),
    list[str]: (list[str], "; may be repeated"),
    list[int]: (list[int], "; may be repeated"),
}
"""By type of the values of a parameter: the type of its option, and what its help adds, if they differ."""


def procedure_command(name: str) -> Any:
    """Generate the command of a procedure: required parameters are arguments, the others are options.

    Returns:
        The command; None if there is no such procedure, or its effect would end with the command.
    """
    procedure = dml.shell.procedures().get(name)
    if procedure is None or procedure.in_session:
        return None
    kinds = {parameter.name: parameter.type.python for parameter in procedure.parameters}

    def call(context: typer.Context, *, output: OutputFormat, limit: int, **given: Any) -> None:
        for option, value in given.items():
            if kinds[option] is dict:
                given[option] = pairs_of(value, f"--{option.replace('_', '-')}", "entry") or None
            elif kinds[option] in OPTION_KINDS:
                given[option] = value or None
        connection: Connection = context.obj
        session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
        dml.shell.run_procedure(session, name, given, output=output, limit=limit)

    parameters = [Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for parameter in procedure.parameters:
        if parameter.rejection is None:
            kind, more = OPTION_KINDS.get(parameter.type.python, (parameter.type.python, ""))
            text = f"{parameter.doc or parameter.type.text}{more}."
            flag = f"--{parameter.name.replace('_', '-')}"
            names = [flag] if kind is bool and not parameter.is_on else []  # others have --no-flag too
            info = typer.Argument(help=text) if parameter.required else typer.Option(*names, help=text)
            annotation: Any = Annotated[kind if parameter.required else kind | None, info]
            default = Parameter.empty if parameter.required else None
            parameters.append(Parameter(parameter.name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default))
    parameters += (one for key, one in inspect.signature(sql).parameters.items() if key in {"output", "limit"})
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    commands = typer.Typer(add_completion=False)
    commands.command(name.replace("_", "-"), help=procedure.summary)(call)
    return typer.main.get_command(commands)


@app.command(rich_help_panel=SERVER)
def serve(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option(help="Port of Spark Connect; 0 selects a free one.", min=0, max=65535)] = 15002,
    thrift: Annotated[
        int | None, typer.Option(help="Port of a Thrift server, for JDBC; not started by default.", min=1, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SPARK_CONNECT_AUTHENTICATE_TOKEN",
            show_envvar=True,
            help="Token that Spark Connect clients must send. Prefer the variable: others can read command lines.",
        ),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow unauthenticated remote clients.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", "-c", help="Setting of Spark, KEY=VALUE; may be repeated.")
    ] = None,
) -> None:
    """Serve the tables to Spark Connect and JDBC clients without RowDelta, until Ctrl-C."""
    connection: Connection = context.obj
    listen = dml.serve.Listen(host=host, port=port, thrift_port=thrift, token=token, insecure=insecure)
    code = dml.serve.run(
        listen,
        sys.stdout,
        warehouse=connection.warehouse,
        catalog=connection.catalog,
        settings=pairs_of(settings, "--conf", "setting"),
        properties=connection.properties,
    )
    raise typer.Exit(code)


@app.command(rich_help_panel=MORE)
def demo(context: typer.Context) -> None:
    """Correct 336,776 real flights with DELETE, UPDATE and MERGE, and let other engines check every row."""
    connection: Connection = context.obj
    if connection.catalog is not None:
        raise SetupError("The demo creates its own tables", hint="Leave --catalog out; --warehouse names its folder")
    dml.demo.run(Console(), connection.warehouse)


def pairs_of(texts: Sequence[str] | None, option: str, what: str) -> dict[str, str]:
    """Parse a repeated option of the form KEY=VALUE."""
    pairs = [text.partition("=") for text in texts or ()]
    for key, equals, value in pairs:
        if not key:
            raise SetupError(f"The {what} '={value}' has no name", hint=f"Write {option} KEY=VALUE")
        if not equals:
            raise SetupError(f"The {what} '{key}' has no value", hint=f"Write {option} KEY=VALUE")
    return {key: value for key, _, value in pairs}


def statements_text(statements: str | None, file: str | None) -> str:
    """Return the statements of an argument, a file or standard input; both are UTF-8 in any locale.

    Args:
        statements: The argument; `-` for standard input.
        file: The path of the file; `-` for standard input.

    Raises:
        SetupError: There are no statements, or both an argument and a file.
        SqlError: The file cannot be read, or the text is not valid UTF-8.
    """
    if statements is not None and file is not None:
        hint = "Write --format to choose how rows are printed" if file in {*OutputFormat} else "Use one of them"
        raise SetupError("Statements were given both as an argument and as a file", hint=hint)
    if "-" in {statements, file} or (statements is None and file is None and not sys.stdin.isatty()):
        return str(dml.shell.utf8_text(sys.stdin.buffer.read(), "The text on standard input"))
    if file is not None:
        return str(dml.shell.read_script(file))
    if statements is None:
        raise SetupError(
            "No statement was given", hint='Write dml sql "SELECT ...", give a file with -f, or start dml shell'
        )
    return statements


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that Python could not decode: Spark and catalogs fail on lone surrogates."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError as error:
            place = ascii(argument[max(0, error.start - 20) : error.end + 20])
            raise SqlError(
                f"The command line is not valid text in {sys.getfilesystemencoding()}, near {place}",
                hint="Use a UTF-8 locale, or give the statement on standard input",
            ) from error


def main() -> None:
    """Run the command line; print errors as one message, or with a traceback if ROWDELTA_DEBUG is set."""
    with guarded_stdout() as output:
        # Flushing may fail, which must not hide the exit code of the command.
        sys.exit(max(exit_code(run), exit_code(output.flush)))


def run() -> None:
    """Run the command of the arguments."""
    check_arguments(sys.argv[1:])
    app()


def exit_code(step: Callable[[], None]) -> int:
    """Run a step, print its error, and return its exit code."""
    try:
        step()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if is_debugging():
            raise
        print_error(error)
        return 1
    return 0


def print_error(error: Exception) -> None:
    """Print an error for the user on standard error."""
    # Soft wrap: terminals wrap the line, logs keep it whole.
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("Error: ", "bold red"), error_message(error)))


def package_of(error: ImportError) -> str | None:
    """Return the package that PySpark reports as missing in its own check for Spark Connect."""
    parameters: dict[str, str] = getattr(error, "getMessageParameters", dict)() or {}
    return parameters.get("package_name")


def error_message(error: Exception) -> str:
    """Format an error for the user."""
    if isinstance(error, DmlError):
        return str(error)
    if isinstance(error, ImportError) and (package := package_of(error)):
        return f"{error} {install_hint(package)}"
    if isinstance(error, ModuleNotFoundError):
        return f"The Python package '{error.name}' is not installed. {install_hint(str(error.name))}"
    return f"{type(error).__name__}: {error}. Set ROWDELTA_DEBUG=1 to see where"
