"""The command line: `dml sql "..."` and `dml demo`. Driver.

Input: arguments. Output: rows or facts on standard output, errors of ours as one readable message on standard error
with exit code 1. The work is in `dml.shell` and `dml.demo`, which load Spark: they are taken from the package when a
command runs, so that `--help` answers at once.
"""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import dml
from dml.errors import DmlError, SetupError

__all__ = ["OutputFormat", "app", "main"]

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
        Path | None, typer.Option(help="Folder of the embedded catalog. [default: ./warehouse]", show_default=False)
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
    pairs = [text.partition("=") for text in properties or ()]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise SetupError(f"The property '{key}' has no value", hint="Write --property KEY=VALUE")
    context.obj = Connection(
        warehouse=None if warehouse is None else str(warehouse),
        catalog=catalog,
        properties={key: value for key, _, value in pairs},
    )


@app.command()
def sql(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(help="One SQL statement; - reads it from standard input.")],
    *,
    output: Annotated[OutputFormat, typer.Option("--format", "-f", help="How to print rows.")] = OutputFormat.TABLE,
    limit: Annotated[int, typer.Option(help="Rows that a table shows at most.", min=1)] = 100,
) -> None:
    """Run one SQL statement and print its rows, or what it changed."""
    text = sys.stdin.read() if statement == "-" else statement
    connection: Connection = context.obj
    session = dml.shell.open_session(connection.warehouse, connection.catalog, connection.properties)
    dml.shell.run_sql(session, text, output=output, limit=limit)


@app.command()
def demo(context: typer.Context) -> None:
    """Correct 336,776 real flights with DELETE, UPDATE and MERGE, and let other engines check every row."""
    connection: Connection = context.obj
    if connection.catalog is not None:
        raise SetupError("The demo makes tables of its own", hint="Leave --catalog out; --warehouse names its folder")
    dml.demo.run(Console(), connection.warehouse)


def main() -> None:
    """Run the command line; what goes wrong is one message, not a traceback (unless ROWDELTA_DEBUG is set)."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ROWDELTA_DEBUG"):
            raise
        Console(stderr=True, highlight=False).print(Text.assemble(("Error: ", "bold red"), explained(error)))
        sys.exit(1)


def explained(error: Exception) -> str:
    """An error as text for its user."""
    if isinstance(error, DmlError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"The Python package '{error.name}' is not installed. Install it with: pip install 'rowdelta[dev]'"
    return f"{type(error).__name__}: {error}. Set ROWDELTA_DEBUG=1 to see where"
