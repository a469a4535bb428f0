"""The command line: `dml sql "..."`, `dml verify`, `dml serve` and `dml demo`. Driver.

Input: arguments. Output: rows or facts on standard output; errors as one message on standard error, with exit code 1.
`dml.shell`, `dml.serve` and `dml.demo` do the work. They load Spark, so they are imported when a command runs, and
`--help` stays fast.
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

app = typer.Typer(
    name="dml",
    help="Row-level DML for Apache Iceberg tables on PySpark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


@app.command()
def sql(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(help="SQL statements, separated by ;  - reads standard input.")],
    *,
    output: Annotated[OutputFormat, typer.Option("--format", "-f", help="How to print rows.")] = OutputFormat.TABLE,
    limit: Annotated[int, typer.Option(help="Maximum number of rows to print as a table.", min=1)] = 100,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Change rows only once: a second run with this key shows the first result.")
    ] = None,
) -> None:
    """Run SQL statements and print their rows or results."""
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
    """Verify a snapshot against its files; the exit code is 1 if there are problems."""
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    found = session.verify(table, snapshot_id, every_file=every_file)
    dml.shell.print_verification(found, output, sys.stdout)
    raise typer.Exit(0 if found.ok else 1)


@app.command()
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


@app.command()
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


def statement_of_stdin() -> str:
    """Read the statement from standard input, as UTF-8 in any locale."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SqlError(f"The statement on standard input is not valid UTF-8, at byte {error.start + 1}") from error


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
        if os.environ.get("ROWDELTA_DEBUG"):
            raise
        # Soft wrap: terminals wrap the line, logs keep it whole.
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(Text.assemble(("Error: ", "bold red"), error_message(error)))
        return 1
    return 0


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
