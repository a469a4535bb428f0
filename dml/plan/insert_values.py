"""DEFAULT in the VALUES of an INSERT. Driver.

    INSERT INTO t VALUES (1, DEFAULT)   ->   VALUES (1, CAST(NULL AS int))

Spark resolves DEFAULT against the table that it inserts into; here the table is not Spark's, so the word is replaced by
the column's default before Spark sees it.
"""

from dml.plan.assignments import TargetNames
from dml.plan.values import default_sql
from dml.sqlparse import defaults_in_values
from dml.sqlparse.statements import InsertStatement

__all__ = ["query_with_defaults"]


def query_with_defaults(statement: InsertStatement, names: TargetNames, rendered: str) -> str:
    """The query's text with defaults in the place of DEFAULT.

    Args:
        statement: The statement.
        names: The target's columns.
        rendered: The query's text, its tables replaced.
    """
    places = list(defaults_in_values(rendered))
    if not places:
        return rendered
    given = {names.folded(entry.column) for entry in statement.partition if entry.value is not None}
    columns = (
        [names.column(name) for name in statement.columns]
        if statement.columns
        else [field for field in names.schema.fields if names.folded(field.name) not in given]
    )
    for span, index in sorted(places, key=lambda place: place[0], reverse=True):
        column = columns[index] if index < len(columns) else None
        if column is not None:
            rendered = rendered[: span.start] + default_sql(column) + rendered[span.end :]
    return rendered
