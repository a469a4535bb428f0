"""Runs statements for the command line and prints their results. Driver.

Input: the catalog, the text of statements. Output: rows as a table, as JSON lines or as CSV; for a statement that
changes rows, its counts.
"""

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from pyspark.sql import DataFrame, Row
from rich.console import Console
from rich.table import Table

from dml.active_session import DEFAULT_WAREHOUSE, connect
from dml.catalog.loading import embedded_database
from dml.engine.procedures import PROCEDURES
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError
from dml.result import Result
from dml.session import Session
from dml.spark.errors import translate
from dml.spark.jobs import cancel_on_interrupt
from dml.sqlparse import split_statements
from dml.table_health import TableHealth
from dml.verification import Verification

__all__ = [
    "PROCEDURES",
    "open_session",
    "plain",
    "print_health",
    "print_result",
    "print_rows",
    "print_verification",
    "run_procedure",
    "run_sql",
]

NULL: Final = "NULL"


def open_session(
    warehouse: str | None,
    catalog: str | None,
    properties: Mapping[str, str],
    *,
    progress: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Session:
    """Open a session for one command. Report a new warehouse on standard error, because its path may be a typo.

    Args:
        warehouse: The folder of the embedded catalog.
        catalog: The name of another catalog.
        properties: The properties of the catalog.
        progress: Show a progress bar in a terminal for long statements.
        settings: Spark settings.

    Raises:
        SetupError: Java, Spark or the catalog does not start.
    """
    options: dict[str, Any] = {**properties, **({} if warehouse is None else {"warehouse": warehouse})}
    database = embedded_database(warehouse or DEFAULT_WAREHOUSE)
    was_there = database.exists()
    session = connect(catalog=catalog, progress=progress, settings=settings, **options)
    if not was_there and database.exists():
        print(f"Created a new warehouse in {database.parent}", file=sys.stderr)
    return session


def run_sql(session: Session, text: str, *, output: str, limit: int, idempotency_key: str | None = None) -> None:
    """Run the statements of a text and print their results to standard output.

    Args:
        session: The session.
        text: The statements, separated by semicolons.
        output: `table`, `json` (one object per line) or `csv`.
        limit: The maximum number of rows in a table; JSON and CSV have all.
        idempotency_key: Apply the statement only once under this key; the text must be one statement.

    Raises:
        DmlError: A statement is invalid or failed; later ones did not run.
    """
    if idempotency_key is not None:
        run_statement(session, text, output, limit, idempotency_key)
        return
    for statement in split_statements(text):
        with statement.report_position():
            run_statement(session, statement.text, output, limit)


def run_statement(session: Session, text: str, output: str, limit: int, idempotency_key: str | None = None) -> None:
    """Run one statement and print its result."""
    try:
        outcome = session.sql(text, idempotency_key=idempotency_key)
        if isinstance(outcome, Result):
            print_result(outcome, output, sys.stdout)
        elif outcome.columns:
            with cancel_on_interrupt(session.spark):
                print_frame(outcome, output, limit)
    except DmlError:
        raise
    except Exception as error:  # a query only fails when its rows are collected
        raise translate(error) from error


def run_procedure(session: Session, procedure: str, arguments: Mapping[str, Any], *, output: str, limit: int) -> None:
    """Run a procedure and print its rows; `output` and `limit` as for `run_sql`.

    Raises:
        DmlError: An argument is invalid, or the procedure failed.
    """
    print_frame(session.call(procedure, **arguments), output, limit)


def print_frame(frame: DataFrame, output: str, limit: int) -> None:
    """Print the rows of a query."""
    if output == "table":
        rows = frame.limit(limit + 1).collect()
        print_table(frame.columns, rows[:limit])
        if len(rows) > limit:
            Console(stderr=True).print(f"The first {limit} rows; --limit shows more, --format csv shows all")
        return
    print_rows(frame.columns, frame.toLocalIterator(), output, sys.stdout)


def plain_console() -> Console:
    """Return a console for standard output that does not interpret `[red]` or `:heart:` in values."""
    return Console(markup=False, emoji=False)


def print_table(columns: Iterable[str], rows: Iterable[Row]) -> None:
    """Print rows as a table."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(NULL if value is None else str(plain(value)) for value in row))
    plain_console().print(table)


def print_rows(columns: Iterable[str], rows: Iterable[Row], output: str, target: TextIO) -> None:
    """Print rows as JSON, one object per line, or as CSV with a header.

    Args:
        columns: The column names.
        rows: The rows.
        output: `json` or `csv`.
        target: The stream to write to.

    Raises:
        AnalysisError: Two columns have the same name, and the output is JSON.
    """
    names = list(columns)
    if output == "json":
        check_distinct(names)
        target.writelines(json.dumps(plain_object(names, row), ensure_ascii=False) + "\n" for row in rows)
        return
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([as_text(plain(value)) for value in row])


def print_result(result: Result, output: str, target: TextIO) -> None:
    """Print the result of a statement that changes rows: its facts, or its values for programs.

    Args:
        result: The result.
        output: `table`, `json` or `csv`.
        target: The stream for JSON and CSV.
    """
    if output == "json":
        target.write(json.dumps(result.as_dict(), ensure_ascii=False) + "\n")
    elif output == "csv":
        print_rows(result.columns, result.collect(), output, target)
    else:
        table = Table(title=f"{result.command} {result.table} ({result.mode})", show_header=False, title_justify="left")
        for label, value in result.facts().items():
            table.add_row(label, value)
        plain_console().print(table)


def print_verification(found: Verification, output: str, target: TextIO) -> None:
    """Print the verification of a snapshot.

    Args:
        found: The verification.
        output: `table` for text, or `json`.
        target: The stream to write to.

    Raises:
        NotSupportedError: The output is `csv`.
    """
    if output == "csv":
        raise NotSupportedError("A verification cannot be printed as CSV", hint="Use --format table or --format json")
    target.write((json.dumps(found.as_dict(), ensure_ascii=False) if output == "json" else repr(found)) + "\n")


def print_health(found: TableHealth, target: TextIO, *, as_json: bool, html: str | None) -> None:
    """Print the health of a table: as text on standard output, unless it is written to a file or as JSON.

    Args:
        found: The health.
        target: The stream for JSON, and for the name of the HTML file.
        as_json: Print one JSON object.
        html: Write an HTML page to this file.

    Raises:
        ExecutionError: The file cannot be written.
    """
    if html is not None:
        found.to_html(html)
    if as_json:
        target.write(json.dumps(found.as_dict(), ensure_ascii=False) + "\n")
    elif html is not None:
        target.write(f"Wrote {html}\n")
    else:
        plain_console().print(found)


def plain(value: Any) -> Any:
    """Convert a Spark value for JSON: structs to objects, bytes to hexadecimal, other types to text."""
    if isinstance(value, Row):
        check_distinct(value.__fields__)
        return plain_object(value.__fields__, value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and value - value == 0:  # JSON has no NaN and no infinity
        return value
    return str(value)


def plain_object(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """Convert named values to a JSON object."""
    return {name: plain(value) for name, value in zip(names, values, strict=True)}


def check_distinct(names: Sequence[str]) -> None:
    """Refuse duplicate names: in an object, the later value would replace the earlier one."""
    twice = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if twice is not None:
        raise AnalysisError(
            f"Two values are named '{twice}', and a JSON object holds one of each name",
            kind=ErrorKind.AMBIGUOUS_COLUMN,
            hint="Name them apart with AS",
            column=twice,
        )


def as_text(value: Any) -> Any:
    """Convert a value to a CSV cell: nested values become JSON, NULL becomes empty."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
