"""The views of one statement: each table that its text names, as a DataFrame of a pinned snapshot. Driver.

Input: fragments of a statement with their table references. Output: SQL text in which every reference to one of our
tables is a placeholder, and the DataFrames that the placeholders stand for. A table is loaded once for a statement, so
that the target, subqueries on it and a self-merge all see one snapshot.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from dml.catalog.registry import CatalogRegistry, ResolvedTable
from dml.errors import NotFoundError
from dml.spark.iceberg_functions import with_iceberg_functions
from dml.sqlparse.quoting import quoted
from dml.sqlparse.render import relation_aliases, render
from dml.sqlparse.statements import Fragment, Span, TableReference

__all__ = ["StatementViews"]

TableFrame = Callable[[ResolvedTable, TableReference, Fragment], DataFrame]


@dataclass(slots=True, kw_only=True)
class StatementViews:
    """Collects the views of a statement.

    Attributes:
        statement: The statement's text.
        spark: The session.
        registry: The catalogs.
        table_frame: Makes the DataFrame of a table as a fragment reads it (its columns, its filters).
    """

    statement: str
    spark: SparkSession
    registry: CatalogRegistry
    table_frame: TableFrame
    loaded: dict[tuple[str, ...], Table] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)
    places: dict[Span, str] = field(default_factory=dict)
    full_names: dict[Span, tuple[str, ...]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, frame: DataFrame) -> str:
        """A placeholder for a DataFrame, to stand in SQL where a table may."""
        placeholder = self.reserve()
        self.fill(placeholder, frame)
        return placeholder

    def reserve(self) -> str:
        """A placeholder whose DataFrame is given later, with `fill`."""
        return f"__rowdelta_view_{next(self.numbers)}__"

    def fill(self, placeholder: str, frame: DataFrame) -> None:
        """The DataFrame of a reserved placeholder."""
        self.frames[placeholder] = frame

    def bind(self, fragment: Fragment) -> None:
        """Make views of those of a fragment's tables that are ours."""
        for reference in fragment.tables:
            if reference.span not in self.places:
                resolved = self.resolve(reference)
                if resolved is None and len(reference.parts) > 1 and reference.parts[0] in self.registry.catalogs:
                    raise self.missing(reference)
                if resolved is not None:
                    self.place(reference, resolved, self.add(self.table_frame(resolved, reference, fragment)))

    def missing(self, reference: TableReference) -> NotFoundError:
        """The error for a table that none of our catalogs has."""
        return NotFoundError(
            f"There is no table '{'.'.join(reference.parts)}'",
            sql=self.statement,
            position=reference.span.start,
            length=reference.span.end - reference.span.start,
            hint=self.registry.proposal(reference.parts),
        )

    def place(self, reference: TableReference, resolved: ResolvedTable, placeholder: str) -> None:
        """Let a placeholder stand for a reference."""
        self.places[reference.span] = placeholder
        self.full_names[reference.span] = (resolved.catalog_name, *resolved.identifier)

    def alias(self, reference: TableReference, default: str) -> str:
        """The name by which a replaced reference's columns are reached."""
        return relation_aliases(self.statement, frozenset(self.places), self.full_names).get(reference.span, default)

    def text(self, fragment: Fragment, insertions: Mapping[Span, str] | None = None) -> str:
        """A fragment with placeholders in the place of our tables, and text before some of its pieces."""
        self.bind(fragment)
        return render(self.statement, self.places, fragment.span, self.full_names, insertions)

    def resolve(self, reference: TableReference) -> ResolvedTable | None:
        """Our table of a reference; None where it is a view or table of Spark."""
        if len(reference.parts) == 1 and self.is_temporary_view(reference.parts[0]):
            return None
        return self.registry.resolve(reference.parts, self.loaded)

    def is_temporary_view(self, name: str) -> bool:
        """Whether Spark has a temporary view of a bare name: it hides a table of the same name, as in Spark."""
        catalog, quoted_name = self.spark.catalog, quoted(name)
        return catalog.tableExists(quoted_name) and catalog.getTable(quoted_name).isTemporary

    def sql(self, text: str) -> DataFrame:
        """The DataFrame of an SQL text with placeholders; analysed, not run.

        Raises:
            AnalysisError: arguments that a function of Iceberg's does not take.
        """
        return self.frame(with_iceberg_functions(text, lambda probe: self.frame(probe).schema, self.registry.catalogs))

    def frame(self, text: str) -> DataFrame:
        """As `sql`, for a text without functions of Iceberg's."""
        escaped = text.replace("{", "{{").replace("}", "}}")
        used: dict[str, Any] = {}
        for name, frame in self.frames.items():
            if name in escaped:
                escaped = escaped.replace(name, "{" + name + "}")
                used[name] = frame
        # Without a view PySpark does not format the text, so its braces stay single.
        return self.spark.sql(escaped, None, **used) if used else self.spark.sql(text)
