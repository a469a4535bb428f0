"""Rules for the names and literals of a statement, and name resolution against a table. Driver."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.sqlparse.constants import TimeZone
from dml.sqlparse.dialect import TreeReading
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Span

__all__ = ["SqlRules", "TargetNames", "column_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRules:
    """Session rules for the names and literals of a statement.

    Attributes:
        case_sensitive: `spark.sql.caseSensitive`.
        time_zone: `spark.sql.session.timeZone`.
        trees: How closely sqlglot's trees match Spark's reading of the statement.
        catalogs: The names of the session's catalogs, which may qualify `system.bucket`.
    """

    case_sensitive: bool = False
    time_zone: str = "UTC"
    trees: TreeReading = TreeReading.ALIKE
    catalogs: Collection[str] = ()

    @property
    def zone(self) -> TimeZone:
        """The session's time zone."""
        return TimeZone.of(self.time_zone)


def column_text(schema: Schema, name: str) -> str:
    """Return the SQL name of a column or nested field, with backquotes where needed.

    Args:
        schema: The table's schema.
        name: The name in PyIceberg's form, joined with dots.
    """
    return quote_name(path_of(schema.as_struct(), name) or (name,))


def path_of(struct: StructType, name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name, from column to nested field; empty if no field has that name."""
    for one in struct.fields:
        if one.name == name:
            return (name,)
        if isinstance(one.field_type, StructType) and name.startswith(f"{one.name}."):
            below = path_of(one.field_type, name[len(one.name) + 1 :])
            if below:
                return (one.name, *below)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNames:
    """Resolves the column names in a statement against a table.

    Attributes:
        schema: The table's schema.
        qualifiers: The qualifiers of a column: `(("t",),)` for an alias, or the table's own name and its suffixes.
        rules: How names and literals are read.
        sql: The whole statement, for errors; empty where Spark reports an unknown name.
    """

    schema: Schema
    qualifiers: tuple[tuple[str, ...], ...]
    rules: SqlRules
    sql: str = ""
    fields_by_name: Mapping[str, NestedField] = field(init=False)

    def __post_init__(self) -> None:
        names = {self.folded(column.name): column for column in self.schema.fields}
        object.__setattr__(self, "fields_by_name", names)

    def folded(self, name: str) -> str:
        """Return a name in the form in which names are compared."""
        return name if self.rules.case_sensitive else name.lower()

    def column(self, name: str) -> NestedField | None:
        """Return the column with a name, or None."""
        return self.fields_by_name.get(self.folded(name))

    def unqualified(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Remove the table's name or alias from a key. A column takes precedence over a qualifier of the same name."""
        folded = tuple(self.folded(part) for part in key)
        for qualifier in sorted(self.qualifiers, key=len, reverse=True):
            head = tuple(self.folded(part) for part in qualifier)
            if len(key) > len(head) and folded[: len(head)] == head:
                rest = key[len(head) :]
                if self.column(rest[0]) is not None or self.column(key[0]) is None:
                    return rest
        return key

    def resolve(self, key: tuple[str, ...], span: Span) -> tuple[NestedField, ...]:
        """Return the fields along a key, from the column down.

        Raises:
            AnalysisError: A name does not exist, or the key enters an array or a map.
        """
        parts = self.unqualified(key)
        column = self.column(parts[0])
        if column is None:
            raise self.error(
                f"There is no column '{'.'.join(key)}'",
                span,
                did_you_mean(parts[-1], (known.name for known in self.schema.fields)),
            )
        path = [column]
        for part in parts[1:]:
            path.append(self.child(path[-1], part, span))
        return tuple(path)

    def child(self, parent: NestedField, name: str, span: Span) -> NestedField:
        """Return a field of a struct."""
        kind = parent.field_type
        if isinstance(kind, ListType | MapType):
            what = "an array" if isinstance(kind, ListType) else "a map"
            raise self.error(
                f"'{parent.name}' is {what}: only fields of structs can be assigned one by one",
                span,
                "Assign the whole column",
                ErrorKind.INVALID_ASSIGNMENT,
            )
        if isinstance(kind, StructType):
            for nested in kind.fields:
                if self.folded(nested.name) == self.folded(name):
                    return nested
            raise self.error(
                f"The struct '{parent.name}' has no field '{name}'",
                span,
                did_you_mean(name, (nested.name for nested in kind.fields)),
            )
        raise self.error(f"'{parent.name}' is not a struct and has no field '{name}'", span, "Assign the column")

    def error(
        self, message: str, span: Span, hint: str, kind: ErrorKind = ErrorKind.UNRESOLVED_COLUMN
    ) -> AnalysisError:
        """Return an error that points at a position in the statement."""
        return AnalysisError(
            message, sql=self.sql, position=span.start, length=span.end - span.start, kind=kind, hint=hint
        )
