"""Runs statements for the command line and prints their results. Driver.

Input: the catalog, the text of statements. Output: rows as a table, as JSON lines or as CSV; for a statement that
changes rows, its counts.
"""

import csv
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from pyspark.sql import DataFrame, Row
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

import dml.engine
from dml.active_session import DEFAULT_CATALOG, DEFAULT_WAREHOUSE, connect
from dml.catalog.loading import embedded_database, is_embedded
from dml.catalog.tables import list_tables, namespace_exists
from dml.ddl import DdlResult
from dml.ddl.namespaces import child_namespaces
from dml.ddl.tables import missing_namespace
from dml.errors import AnalysisError, DmlError, ErrorKind, NotFoundError, NotSupportedError, SqlError
from dml.result import Decision, Result
from dml.session import Session, runner_of
from dml.spark.errors import translate
from dml.spark.jobs import cancel_on_interrupt
from dml.sqlparse import first_keyword, split_statements
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name

if TYPE_CHECKING:
    from dml.engine.procedures import Procedure
    from dml.table_health import TableHealth
    from dml.verification import Verification

__all__ = [
    "creates_objects",
    "missing_warehouse",
    "open_session",
    "parse_budget",
    "plain",
    "print_health",
    "print_result",
    "print_rows",
    "print_table",
    "print_verification",
    "procedures",
    "read_script",
    "run_maintenance",
    "run_procedure",
    "run_sql",
    "tables_in",
    "utf8_text",
]

NULL: Final = "NULL"

NO_WIDTH: Final = 1_000_000
"""The width of output that is no terminal, in columns."""

WIDE: Final = 140
"""The least width of a terminal, in columns, in which decisions have their reasons beside them."""

CELL_BORDER: Final = 3
"""The width of a column's border and padding, in characters."""

MIN_CELL: Final = 8
"""The least width of a column, in characters, below which a terminal shows each row as a table of its own."""

CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""Characters other than line breaks that would move the cursor or change the terminal."""

PATH: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?/")


def open_session(
    warehouse: str | None,
    catalog: str | None,
    properties: Mapping[str, str],
    *,
    progress: bool = True,
    settings: Mapping[str, str] | None = None,
    may_create: bool = False,
) -> Session:
    """Open a session for one command.

    A warehouse is created only on demand and with a message on standard error, because its path may be a typo.

    Args:
        warehouse: The folder of the embedded catalog.
        catalog: The name of another catalog.
        properties: The properties of the catalog.
        progress: Show a progress bar in a terminal for long statements.
        settings: Spark settings.
        may_create: Create the folder of the embedded catalog if it has none.

    Raises:
        NotFoundError: The folder has no warehouse.
        SetupError: The catalog does not start.
    """
    options: dict[str, Any] = {**properties, **({} if warehouse is None else {"warehouse": warehouse})}
    folder = missing_warehouse(warehouse, catalog, properties)
    if folder is not None and not may_create:
        raise NotFoundError(
            f"There is no warehouse in {folder}",
            hint="Check --warehouse, or create a warehouse with CREATE NAMESPACE in dml sql or dml shell",
        )
    session = connect(catalog=catalog, progress=progress, settings=settings, **options)
    if folder is not None:
        print(f"Created a new warehouse in {folder}", file=sys.stderr)
    return session


def missing_warehouse(warehouse: str | None, catalog: str | None, properties: Mapping[str, str]) -> Path | None:
    """Return the folder in which a session would create a warehouse; None if there is one, or for other catalogs."""
    if not is_embedded(catalog or DEFAULT_CATALOG, properties) or (catalog is not None and warehouse is None):
        return None
    database = embedded_database(warehouse or DEFAULT_WAREHOUSE)
    return None if database.exists() else database.parent


def creates_objects(text: str) -> bool:
    """Return True if a text has a CREATE statement, with which a new warehouse may begin.

    Raises:
        SqlError: One of several statements has a syntax error.
    """
    return any(first_keyword(statement.text) == "CREATE" for statement in split_statements(text))


def read_script(path: str) -> str:
    """Return the text of a file in UTF-8.

    Raises:
        SqlError: The file cannot be read, or is not valid UTF-8.
    """
    try:
        return utf8_text(Path(path).expanduser().read_bytes(), f"The file '{path}'")
    except (OSError, RuntimeError) as error:
        raise SqlError(f"The file '{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error


def utf8_text(content: bytes, what: str) -> str:
    """Decode a text; a byte order mark is ignored.

    Raises:
        SqlError: The text is not valid UTF-8.
    """
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise SqlError(f"{what} is not valid UTF-8, at byte {error.start + 1}") from error


def run_sql(
    session: Session,
    text: str,
    *,
    output: str,
    limit: int,
    idempotency_key: str | None = None,
    confirms: bool = False,
) -> None:
    """Run the statements of a text and print their results to standard output.

    Args:
        session: The session.
        text: The statements, separated by semicolons.
        output: `table`, `json` (one object per line) or `csv`.
        limit: The maximum number of rows in a table; JSON and CSV have all.
        idempotency_key: Apply the statement only once under this key; the text must be one statement.
        confirms: Print OK for a statement that returns nothing.

    Raises:
        DmlError: A statement is invalid or failed; later ones did not run.
    """
    if idempotency_key is not None:
        run_statement(session, text, output, limit, idempotency_key=idempotency_key)
        return
    for statement in split_statements(text):
        with statement.report_position():
            run_statement(session, statement.text, output, limit, confirms=confirms)


def run_statement(
    session: Session,
    text: str,
    output: str,
    limit: int,
    *,
    idempotency_key: str | None = None,
    confirms: bool = False,
) -> None:
    """Run one statement and print its result."""
    try:
        outcome = runner_of(session).outcome(text, idempotency_key=idempotency_key)
        if isinstance(outcome, Result):
            print_result(outcome, output, sys.stdout)
        elif not outcome.columns:
            if confirms:
                print("OK")
        elif isinstance(outcome, DdlResult):
            print_listed([name for name, _ in outcome.columns], outcome.rows, output, limit)
        else:
            with cancel_on_interrupt(session.spark):
                print_frame(outcome, output, limit)
    except DmlError:
        raise
    except Exception as error:  # a query only fails when its rows are collected
        raise translate(error) from error


def procedures() -> Mapping[str, "Procedure"]:
    """Return the procedures by name."""
    return dml.engine.procedures.PROCEDURES


def run_procedure(session: Session, procedure: str, arguments: Mapping[str, Any], *, output: str, limit: int) -> None:
    """Run a procedure and print its rows, as a table those of a dry run apart; `output` and `limit` as for `run_sql`.

    Raises:
        DmlError: An argument is invalid, or the procedure failed.
    """
    frame = session.call(procedure, **arguments)
    if output == "table" and set(Decision.__slots__) <= set(frame.columns):
        print_dry_run(frame.columns, frame.collect(), limit)
    else:
        print_frame(frame, output, limit)


BUDGET_ENDED: Final = 3
"""The exit code of a maintenance whose budget ended before all work was done."""


def tables_in(session: Session, name: str | None) -> Iterator[str]:
    """Yield the names of the tables in a namespace and below.

    Args:
        session: The session.
        name: The namespace, with or without a catalog; None for all namespaces of the current catalog.

    Raises:
        NotFoundError: The namespace does not exist.
        AnalysisError: The name is not valid.
    """
    parts = () if name is None else name_parts(name)
    if name is not None and not parts:
        raise AnalysisError(f"'{name}' is not a valid name of a namespace", kind=ErrorKind.INVALID_VALUE)
    registry = session.registry
    catalog_name, catalog, namespace = registry.namespace(parts or (registry.current_catalog,))
    if namespace and not namespace_exists(catalog, namespace):
        raise missing_namespace(catalog, namespace)
    todo = [namespace]
    while todo:
        one = todo.pop()
        if one:
            yield from (quote_name((catalog_name, *identifier)) for identifier in list_tables(catalog, one))
        todo += reversed(child_namespaces(catalog, one))


def parse_budget(text: str) -> float:
    """Parse a time such as `5m`, in seconds.

    Raises:
        AnalysisError: It is none.
    """
    return dml.engine.maintain.parse_budget(text)


def run_maintenance(
    session: Session, tables: Iterable[str], *, plan: bool, budget: str | None, output: str, goes_on: bool
) -> int:
    """Maintain tables, print the decisions of each, and return the exit code.

    Args:
        session: The session.
        tables: The names of the tables.
        plan: Show the decisions, and change nothing.
        budget: The time for all tables together; None for no limit.
        output: `table`, `json` (one object per line) or `csv`.
        goes_on: Whether the next tables are maintained after one that failed.

    Raises:
        DmlError: A table failed, and `goes_on` is False; or the budget is invalid.
    """
    deadline = None if budget is None else time.monotonic() + parse_budget(budget)
    if deadline is not None:
        # In a fixed order, a budget that is always used up would never reach the last tables.
        names = list(tables)
        tables = random.sample(names, len(names))
    columns, codes = ("table", "step", "decision", "object", "reason"), [0]

    def rows_of(table: str) -> Iterator[tuple[str | None, ...]]:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            codes.append(BUDGET_ENDED)
            yield table, None, "left", table, "the budget ended before the table was planned"
            return
        rest = None if left is None else f"{left:.3f}s"
        try:
            report = session.maintain(table, plan=plan, budget=rest)
        except DmlError as error:
            if not goes_on:
                raise
            codes.append(1)
            yield table, None, "failed", table, str(error)
            return
        codes.append(BUDGET_ENDED if report.left else 0)
        for one in report.decisions:
            yield table, one.step, one.decision, one.object, one.reason

    if output == "table":
        for table in tables:
            print_table(columns, rows_of(table))
    else:
        print_rows(columns, (row for table in tables for row in rows_of(table)), output, sys.stdout)
    return 1 if 1 in codes else max(codes)


def print_frame(frame: DataFrame, output: str, limit: int) -> None:
    """Print the rows of a query."""
    is_table = output == "table"
    rows = frame.limit(limit + 1).collect() if is_table else frame.toLocalIterator()
    print_listed(frame.columns, rows, output, limit)


def print_listed(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: str, limit: int) -> None:
    """Print rows; of a table the first `limit`."""
    if output != "table":
        print_rows(columns, rows, output, sys.stdout)
        return
    rows = list(rows)
    print_table(columns, rows[:limit])
    if len(rows) > limit:
        Console(stderr=True).print(f"The first {limit} rows; --limit shows more, --format csv shows all")


def plain_console() -> Console:
    """Return a console for standard output that does not interpret `[red]` or `:heart:` in values.

    A file or pipe has no width, so lines are as long as their values; the variable COLUMNS sets one.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = NO_WIDTH
    return console


def new_table(columns: Iterable[str]) -> Table:
    """Return a table that breaks long values into lines instead of truncating them."""
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_dry_run(columns: Iterable[str], rows: Sequence[Row], limit: int) -> None:
    """Print the expected result of a procedure, then its decisions, with paths relative to their common folder.

    In a terminal of less than `WIDE` columns each reason is below its object.

    Args:
        columns: The columns of the procedure and of decisions.
        rows: The rows; the first one has the result unless it has a decision.
        limit: The maximum number of decisions to print.
    """
    console = plain_console()
    decisions = [row for row in rows if row.decision is not None]
    if rows and rows[0].decision is None:
        table = Table(show_header=False)
        for name in columns:
            if name not in Decision.__slots__:
                table.add_row(name, NULL if rows[0][name] is None else str(plain(rows[0][name])))
        console.print(table)
    shown = decisions[:limit]
    folder = common_folder([row.object for row in shown])
    if folder:
        console.print(f"Paths are relative to {folder}", soft_wrap=True)
    is_wide = console.width >= WIDE
    table = new_table(Decision.__slots__ if is_wide else ("decision", "object and reason"))
    for row in shown:
        cells = [row.object.removeprefix(folder), row.reason.replace(folder, "") if folder else row.reason]
        table.add_row(row.decision, *(cells if is_wide else ["\n".join(cells)]))
    console.print(table)
    if len(decisions) > limit:
        hint = f"The first {limit} of {len(decisions)} decisions; --limit shows more, --format csv shows all"
        Console(stderr=True).print(hint)


def common_folder(objects: Iterable[str]) -> str:
    """Return the folder that all absolute paths share, with a slash at its end; empty if there is none."""
    folders = [one.split("/")[:-1] for one in objects if PATH.match(one)]
    shared = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))]
    return "/".join([*shared, ""]) if any(shared[1:]) else ""


def print_table(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as a table; in a terminal that is too narrow for the columns, each row as a table of its own."""
    console, names = plain_console(), [visible(name) for name in columns]
    cells = [[NULL if value is None else visible(str(plain(value))) for value in row] for row in rows]
    table = new_table(names)
    for row in cells:
        table.add_row(*row)
    unlimited = console.options.update(width=NO_WIDTH)
    fits = Measurement.get(console, unlimited, table).maximum <= console.width
    if fits or len(names) * (MIN_CELL + CELL_BORDER) < console.width:
        console.print(table)
        return
    for number, row in enumerate(cells, 1):
        one = Table(title=f"row {number}", show_header=False, title_justify="left")
        for name, value in zip(names, row, strict=True):
            one.add_row(Text(name, overflow="fold"), Text(value, overflow="fold"))
        console.print(one)
    if not cells:
        console.print(f"No rows. The columns are {', '.join(names)}")


def visible(text: str) -> str:
    """Escape control characters: values of a table must not control the terminal."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_rows(columns: Iterable[str], rows: Iterable[Sequence[Any]], output: str, target: TextIO) -> None:
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


def print_verification(found: "Verification", output: str, target: TextIO) -> None:
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


def print_health(found: "TableHealth", target: TextIO, *, as_json: bool, html: str | None) -> None:
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
        console = plain_console()
        console.print(found) if console.is_terminal else console.print(str(found))


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
