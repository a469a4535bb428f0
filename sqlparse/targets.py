"""The table that a statement is about. Pure; driver.

Input: a cursor at a table name. Output: its `TableReference`, noted for rendering, or a `SqlError`.
"""

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.fragments import FragmentReader
from dml.sqlparse.names import read_table
from dml.sqlparse.relations import Block, Relation
from dml.sqlparse.statements import TableReference

__all__ = ["read_target", "table_name"]


def read_target(cursor: Cursor, reader: FragmentReader, *, aliased: bool) -> TableReference:
    """Reads the table that a row-level statement writes to.

    Args:
        cursor: Stands at the name.
        reader: Notes the reference; its columns can be named in the whole statement.
        aliased: Whether an alias may follow.

    Returns:
        The reference.

    Raises:
        SqlError: No name stands there, or the name is followed by a time travel clause.
    """
    source = cursor.source
    if not cursor.at_name():
        cursor.fail(expected="the name of a table")
    found = read_table(source, cursor.index, aliased=aliased)
    reference = found.reference
    cursor.index = found.index
    if found.is_function:
        cursor.fail(expected="the name of a table", hint="A function's result cannot be written to.")
    if source.tokens[found.index].key == ".":
        if tuple(part.upper() for part in reference.parts) == ("TABLE",):
            cursor.fail_at(reference.span, "Unexpected 'TABLE'", expected="the name of a table", hint="Leave it out.")
        cursor.index += 1
        cursor.fail(expected="a name after '.'")
    if reference.version is not None or reference.timestamp is not None:
        cursor.fail_at(
            reference.span,
            "Cannot write to a table with time travel",
            hint="Name a branch as the last part of the table's name to write to it: db.t.branch_x.",
        )
    block = Block(0, source.tokens[source.end].end)
    alias_place = found.alias_place if aliased else None
    reader.relations.append(Relation(reference=reference, block=block, alias_place=alias_place))
    return reference


def table_name(cursor: Cursor, reader: FragmentReader) -> TableReference:
    """Reads the table that a DDL statement is about: a name and nothing else."""
    if not cursor.at_name():
        cursor.fail(expected="the name of a table")
    found = read_table(cursor.source, cursor.index, aliased=False)
    cursor.index = found.index
    reference = found.reference
    if reference.version is not None or reference.timestamp is not None:
        cursor.fail_at(reference.span, "Time travel cannot stand here", expected="the plain name of a table")
    reader.relations.append(
        Relation(reference=reference, block=Block(reference.span.start, reference.span.end), alias_place=None)
    )
    return reference
