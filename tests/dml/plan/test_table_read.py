"""Which rows a query needs of a table."""

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, StructType

from dml.plan.names import SqlRules
from dml.plan.table_read import TableRead, table_read
from dml.rows.program import TRUE
from dml.sqlparse import parse
from dml.sqlparse.dialect import TreeReading

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "Name", StringType(), required=False),
    NestedField(3, "f", FloatType(), required=False),
    NestedField(4, "g", DoubleType(), required=False),
    NestedField(5, "i", IntegerType(), required=False),
    NestedField(6, "s", StructType(NestedField(7, "a", IntegerType(), required=False)), required=False),
)


def found(query: str) -> TableRead:
    fragment = parse(query).fragment
    (reference,) = fragment.tables
    return table_read(fragment, reference, SCHEMA, SqlRules())


ABOVE = "Comparison(operator='>', left=RowCall(function=<RowFunction.ABS"


@pytest.mark.parametrize(
    ("query", "is_computed"),
    [
        ("SELECT id FROM db.t WHERE abs(i) > 3", True),
        ("SELECT id FROM db.t x WHERE id = 7 AND abs(x.i) > 3 AND initcap(name) = 'A'", True),
        ("SELECT count(*) FROM db.t WHERE abs(i) > 3 GROUP BY id", True),
        ("SELECT 1 FROM other o JOIN db.t ON o.id = t.id AND abs(t.i) > 3", True),
        ("SELECT 1 FROM other o, db.t WHERE abs(t.i) > 3 AND abs(o.i) > 4", True),
        ("SELECT 1 FROM other o LEFT JOIN db.t ON abs(t.i) > 3", False),
        ("SELECT 1 FROM other o LEFT JOIN db.t ON o.id = t.id WHERE abs(t.i) > 3", False),
        ("SELECT 1 FROM other o JOIN db.t ON o.id = t.id WHERE abs(i) > 3", False),
        ("SELECT id FROM db.t WHERE abs(i) > 3 OR initcap(name) = 'A'", False),
        ("SELECT id FROM db.t HAVING abs(max(i)) > 3", False),
        ("SELECT abs(i) > 3 FROM db.t", False),
        ("SELECT id FROM db.t TABLESAMPLE (5 ROWS) WHERE abs(i) > 3", False),
    ],
)
def test_computed_conditions_select_rows(query, is_computed):
    fragment = parse(query).fragment
    (reference,) = (table for table in fragment.tables if table.parts == ("db", "t"))
    read = table_read(fragment, reference, SCHEMA, SqlRules())
    assert (ABOVE in repr(read.row_predicate)) is is_computed
    assert is_computed or read.row_predicate == TRUE


def test_conditions_do_not_choose_the_rows_of_a_sample():
    assert found("SELECT id FROM db.t TABLESAMPLE (5 ROWS) WHERE id = 3").row_filter == AlwaysTrue()


def test_files_are_pruned_by_what_no_row_has_to_be_tested_for():
    read = found("SELECT id FROM db.t WHERE id = 3")
    assert read.row_filter != AlwaysTrue()
    assert read.row_predicate == TRUE


def test_functions_that_a_user_replaced_select_no_rows():
    fragment = parse("SELECT id FROM db.t WHERE abs(i) > 3").fragment
    (reference,) = fragment.tables
    read = table_read(fragment, reference, SCHEMA, SqlRules(trees=TreeReading.OTHERWISE))
    assert read.row_predicate == TRUE
