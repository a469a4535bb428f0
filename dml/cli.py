"""The command line: `dml sql "..."`, `dml verify`, `dml serve` and `dml demo`. Driver.

Input: arguments. Output: rows or facts on standard output, errors of ours as one readable message on standard error
with exit code 1. The work is in `dml.shell`, `dml.serve` and `dml.demo`, which load Spark: they are taken
from the package when a command runs, so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, cast

import typer
from rich.console import Console
from rich.text import Text

import dml
from dml.errors import DmlError, ExecutionError, SetupError, SqlError
from dml.hints import install_hint

__all__ = ["app", "main"]

BROKEN_PIPE: Final = 141
"""The exit code that shells give a program which SIGPIPE ended, 128 + 13."""


class GuardedOutput:
    """A text stream whose failed writes end the program quietly (nobody reads any more) or are an error of ours.

    Args:
        stream: Where the text goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            SystemExit: the reader has closed the pipe.
            ExecutionError: the text cannot be written.
        """
        if text == "":  # so typer tries what a stream takes, and would swallow the error
            return 0
        with self._explained():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts; raises as `write` does, and what making them raises passes as it is."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered; raises as `write` does."""
        with self._explained():
            self._stream.flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
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
    """Send what is still buffered nowhere: Python tries it once more when it ends, and would complain again."""
    with suppress(OSError):  # not every stream is a file
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


@contextmanager
def guarded_stdout() -> Iterator[GuardedOutput]:
    """Guard what the enclosed code prints."""
    guarded = GuardedOutput(sys.stdout)
    with redirect_stdout(cast("TextIO", guarded)):
        yield guarded


INTERRUPTED = 130

app = typer.Typer(
    name="dml",
    help="Row-level DML for Apache Iceberg tables on PySpark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The global options: where the tables are."""

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
    version: Annotated[  # noqa: ARG001  handled by its callback
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Row-level DML for Apache Iceberg tables on PySpark."""
    context.obj = Connection(
        warehouse=None if warehouse is None else str(warehouse),
        catalog=catalog,
        properties=pairs_of(properties, "--property", "property"),
    )


@app.command()
def sql(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(help="SQL statements, separated by ;  - reads standard input.")],
    *,
    output: Annotated[OutputFormat, typer.Option("--format", "-f", help="How to print rows.")] = OutputFormat.TABLE,
    limit: Annotated[int, typer.Option(help="Rows that a table shows at most.", min=1)] = 100,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Change rows once only: a second run with this key shows what the first one did.")
    ] = None,
) -> None:
    """Run SQL statements and print their rows, or what they changed."""
    text = statement_of_stdin() if statement == "-" else statement
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    dml.shell.run_sql(session, text, output=output, limit=limit, idempotency_key=idempotency_key)


@app.command()
def verify(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, as db.t or db.t.branch_audit.")],
    *,
    snapshot_id: Annotated[int | None, typer.Option(help="The snapshot; the current one if not given.")] = None,
    every_file: Annotated[bool, typer.Option(help="Open all data files, not only those it touched.")] = False,
    output: Annotated[OutputFormat, typer.Option("--format", "-f", help="table or json.")] = OutputFormat.TABLE,
) -> None:
    """Recount a snapshot from its files; the exit code is 1 if something does not agree."""
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    found = session.verify(table, snapshot_id, every_file=every_file)
    dml.shell.print_verification(found, output, sys.stdout)
    raise typer.Exit(0 if found.ok else 1)


@app.command()
def serve(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option(help="Port of Spark Connect; 0 takes a free one.", min=0, max=65535)] = 15002,
    thrift: Annotated[
        int | None, typer.Option(help="Port of a Thrift server, for JDBC; not started by default.", min=1, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SPARK_CONNECT_AUTHENTICATE_TOKEN",
            show_envvar=True,
            help="What clients of Spark Connect have to show. Better in the environment: others see command lines.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let everybody in who reaches the address, without a token.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", "-c", help="Setting of Spark, KEY=VALUE; may be repeated.")
    ] = None,
) -> None:
    """Serve the tables to Spark Connect and JDBC clients that have no RowDelta, until Ctrl-C."""
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


@app.command()
def demo(context: typer.Context) -> None:
    """Correct 336,776 real flights with DELETE, UPDATE and MERGE, and let other engines check every row."""
    connection: Connection = context.obj
    if connection.catalog is not None:
        raise SetupError("The demo makes tables of its own", hint="Leave --catalog out; --warehouse names its folder")
    dml.demo.run(Console(), connection.warehouse)


def pairs_of(texts: Sequence[str] | None, option: str, what: str) -> dict[str, str]:
    """The values of an option that is repeated, KEY=VALUE each."""
    pairs = [text.partition("=") for text in texts or ()]
    for key, equals, value in pairs:
        if not key:
            raise SetupError(f"The {what} '={value}' has no name", hint=f"Write {option} KEY=VALUE")
        if not equals:
            raise SetupError(f"The {what} '{key}' has no value", hint=f"Write {option} KEY=VALUE")
    return {key: value for key, _, value in pairs}


def statement_of_stdin() -> str:
    """The statement on standard input, which is UTF-8 whatever the locale says."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SqlError(f"The statement on standard input is not valid UTF-8, at byte {error.start + 1}") from error


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse bytes that Python could not decode and keeps as lone surrogates: Spark and catalogs fail on them."""
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
    """Run the command line; what goes wrong is one message, not a traceback (unless ROWDELTA_DEBUG is set)."""
    with guarded_stdout() as output:
        # What is left in the buffer fails only now, and must not hide how the command ended.
        sys.exit(max(exit_code(run), exit_code(output.flush)))


def run() -> None:
    """Run the command that the arguments name."""
    check_arguments(sys.argv[1:])
    app()


def exit_code(step: Callable[[], None]) -> int:
    """Do a step and say how it ended; an error is printed."""
    try:
        step()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("ROWDELTA_DEBUG"):
            raise
        # Soft wrap: the terminal breaks the line, a log keeps it whole.
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(Text.assemble(("Error: ", "bold red"), explained(error)))
        return 1
    return 0


def package_of(error: ImportError) -> str | None:
    """Return the package that PySpark reports as missing: it checks for those of Spark Connect itself."""
    parameters: dict[str, str] = getattr(error, "getMessageParameters", dict)() or {}
    return parameters.get("package_name")


def explained(error: Exception) -> str:
    """An error as text for its user."""
    if isinstance(error, DmlError):
        return str(error)
    if isinstance(error, ImportError) and (package := package_of(error)):
        return f"{error} {install_hint(package)}"
    if isinstance(error, ModuleNotFoundError):
        return f"The Python package '{error.name}' is not installed. {install_hint(str(error.name))}"
    return f"{type(error).__name__}: {error}. Set ROWDELTA_DEBUG=1 to see where"
