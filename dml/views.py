"""Make the views of the tables of one statement, each a DataFrame of a pinned snapshot. Driver.

Input: fragments of a statement with their table references. Output: `StatementViews`, a value: SQL text in which every
reference to a RowDelta table is a placeholder, and the DataFrames of the placeholders. Spark has the placeholders only
while it analyzes a text, so there is nothing to release.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import DataFrame

from dml.catalog.registry import CatalogRegistry, ResolvedTable
from dml.errors import NotFoundError, NotSupportedError
from dml.spark.bridge.sessions import named_frames
from dml.spark.foreign_data import ForeignRows
from dml.spark.iceberg_functions import replace_iceberg_functions
from dml.spark.lazy_session import LazySession
from dml.spark.versions import Feature
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.render import relation_aliases, render
from dml.sqlparse.statements import Fragment, Span, TableReference

__all__ = ["StatementTables", "StatementViews", "TableFrame", "views_of"]

TableFrame = Callable[[ResolvedTable, TableReference, Fragment], DataFrame]
"""Makes the DataFrame of a table with the columns and filters of a fragment."""


@dataclass(slots=True, kw_only=True)
class StatementTables:
    """Finds the tables that a statement names.

    A table is loaded once, so that the target, subqueries on it and a self-merge all see one snapshot.

    Attributes:
        statement: The statement's text.
        lazy_session: The Spark session, which starts on first use.
        registry: The catalogs.
        foreign_rows: The foreign rows that the statement names, by view.
    """

    statement: str
    lazy_session: LazySession
    registry: CatalogRegistry
    foreign_rows: Mapping[str, ForeignRows] = field(default_factory=dict, repr=False)
    _loaded: dict[tuple[str, ...], Table] = field(init=False, repr=False, default_factory=dict)
    _frames: dict[str, DataFrame] = field(init=False, repr=False, default_factory=dict)

    def resolve(self, reference: TableReference) -> ResolvedTable | None:
        """Return the RowDelta table of a reference, or None for foreign rows and for Spark's views and tables."""
        if self.rows_of(reference) is not None:
            return None
        if len(reference.parts) == 1 and self.is_temporary_view(reference.parts[0]):
            return None
        return self.registry.resolve(reference.parts, self._loaded)

    def rows_of(self, reference: TableReference) -> ForeignRows | None:
        """Return the foreign rows that a reference names.

        Raises:
            NotSupportedError: It has a time travel clause.
        """
        rows = self.foreign_rows.get(reference.parts[0]) if len(reference.parts) == 1 else None
        if rows is not None and (reference.version is not None or reference.timestamp is not None):
            raise NotSupportedError(
                "Time travel needs a table, not data of the program",
                sql=self.statement,
                position=reference.span.start,
                length=reference.span.end - reference.span.start,
                hint="Remove VERSION AS OF or TIMESTAMP AS OF",
            )
        return rows

    def frame_of_rows(self, name: str) -> DataFrame:
        """Return the DataFrame of foreign rows, the same for all references to them."""
        if name not in self._frames:
            self._frames[name] = self.foreign_rows[name].frame(self.lazy_session.spark)
        return self._frames[name]

    def is_temporary_view(self, name: str) -> bool:
        """Return whether Spark has a temporary view of a bare name: it hides a table of the same name, as in Spark."""
        if self.lazy_session.is_deferred:
            return False
        catalog, quoted_name = self.lazy_session.spark.catalog, quoted(name)
        return catalog.tableExists(quoted_name) and catalog.getTable(quoted_name).isTemporary

    def is_view(self, reference: TableReference) -> bool:
        """Return whether Spark finds a view in a RowDelta catalog."""
        runtime = self.lazy_session.runtime
        if runtime.is_connect or Feature.CATALOG_VIEWS not in runtime.features:
            return False
        return self.lazy_session.spark.catalog.tableExists(quote_name(reference.parts))

    def missing(self, reference: TableReference) -> NotFoundError:
        """Return the error for a table that no RowDelta catalog has."""
        return NotFoundError(
            f"There is no table '{'.'.join(reference.parts)}'",
            sql=self.statement,
            position=reference.span.start,
            length=reference.span.end - reference.span.start,
            hint=self.registry.suggestion(reference.parts),
            table=".".join(map(quoted, reference.parts)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementViews:
    """The placeholders and views of the table references of a statement.

    Attributes:
        statement: The statement's text.
        lazy_session: The Spark session, which starts on first use.
        catalogs: The names of RowDelta's catalogs.
        places: Placeholders by the place of the reference to a RowDelta table or to foreign rows.
        full_names: The full name of the table, or the view's name of foreign rows, by the same places.
        frames: Functions that return the DataFrames, by placeholder. The target of a statement has a place and no
            frame: `with_frame` adds the frame of the planned scan.
    """

    statement: str
    lazy_session: LazySession
    catalogs: tuple[str, ...]
    places: Mapping[Span, str]
    full_names: Mapping[Span, tuple[str, ...]]
    frames: Mapping[str, Callable[[], DataFrame]]

    def free_placeholder(self) -> str:
        """Return an unused placeholder."""
        return placeholder(len({*self.places.values(), *self.frames}))

    def with_frame(self, name: str, frame: Callable[[], DataFrame]) -> "StatementViews":
        """Return these views with a function that returns the DataFrame of a placeholder."""
        return replace(self, frames={**self.frames, name: frame})

    def alias(self, reference: TableReference, default: str) -> str:
        """Return the qualifier of a replaced reference's columns."""
        return relation_aliases(self.statement, frozenset(self.places), self.full_names).get(reference.span, default)

    def text(self, fragment: Fragment, insertions: Mapping[Span, str] | None = None) -> str:
        """Render a fragment with placeholders for RowDelta tables, and inserted text before some of its pieces."""
        return render(self.statement, self.places, fragment.span, self.full_names, insertions)

    def sql(self, text: str) -> DataFrame:
        """Return the DataFrame of an SQL text with placeholders; analyzed, not run.

        Raises:
            AnalysisError: a call of an Iceberg function has invalid arguments.
        """
        return self.frame(replace_iceberg_functions(text, lambda probe: self.frame(probe).schema, self.catalogs))

    def frame(self, text: str) -> DataFrame:
        """Do the work of `sql` for a text without Iceberg functions."""
        spark = self.lazy_session.spark
        used: dict[str, Any] = {name: frame() for name, frame in self.frames.items() if name in text}
        if not used:
            return spark.sql(text)
        if not self.lazy_session.runtime.is_connect:
            # Statements in other threads of this session use the same placeholders.
            unique = uuid.uuid4().hex
            for name in used:
                text = text.replace(name, name + unique)
            with named_frames(spark, {name + unique: frame for name, frame in used.items()}):
                return spark.sql(text)
        escaped = text.replace("{", "{{").replace("}", "}}")
        for name in used:
            escaped = escaped.replace(name, "{" + name + "}")
        return spark.sql(escaped, None, **used)


def views_of(
    tables: StatementTables,
    fragments: Iterable[Fragment | None],
    table_frame: TableFrame,
    target: tuple[TableReference, ResolvedTable] | None = None,
    *,
    is_lazy: bool = False,
) -> StatementViews:
    """Make the views of the RowDelta tables of a statement, and of foreign rows.

    Args:
        tables: The lookup of the tables.
        fragments: The fragments of the statement that Spark evaluates; None for an absent one.
        table_frame: Makes the DataFrame of a table.
        target: The statement's target, if its rows are read: it gets the first placeholder, and no frame.
        is_lazy: Make the DataFrames on first use, because the statement may need none.

    Raises:
        NotFoundError: a name begins with a RowDelta catalog, which has no such table.
    """
    places: dict[Span, str] = {}
    full_names: dict[Span, tuple[str, ...]] = {}
    frames: dict[str, Callable[[], DataFrame]] = {}
    if target is not None:
        reference, resolved = target
        places[reference.span] = placeholder(0)
        full_names[reference.span] = full_name(resolved)
    for fragment in (piece for piece in fragments if piece is not None):
        for reference in fragment.tables:
            if reference.span in places:
                continue
            name, found = placeholder(len(places)), tables.resolve(reference)
            if tables.rows_of(reference) is not None:
                frames[name] = partial(tables.frame_of_rows, *reference.parts)
                places[reference.span] = name
                full_names[reference.span] = reference.parts
            elif found is not None:
                frames[name] = cache(partial(table_frame, found, reference, fragment))
                places[reference.span] = name
                full_names[reference.span] = full_name(found)
            elif (
                len(reference.parts) > 1
                and reference.parts[0] in tables.registry.catalogs
                and not tables.is_view(reference)
            ):
                raise tables.missing(reference)
    if not is_lazy:
        for frame in frames.values():
            frame()
    return StatementViews(
        statement=tables.statement,
        lazy_session=tables.lazy_session,
        catalogs=tuple(tables.registry.catalogs),
        places=places,
        full_names=full_names,
        frames=frames,
    )


def placeholder(number: int) -> str:
    return f"__rowdelta_view_{number}__"


def full_name(resolved: ResolvedTable) -> tuple[str, ...]:
    return (resolved.catalog_name, *resolved.identifier)
