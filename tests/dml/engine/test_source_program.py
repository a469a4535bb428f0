"""What a MERGE computes from a source that RowDelta's scan reads, without Spark."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, IntegerType, LongType, NestedField, StringType
from pyspark.sql import types as spark

from dml.engine.merge_source import MergeSourceFrame, join_keys, source_fields, source_fragment
from dml.engine.scanned_rows import PlainRows
from dml.engine.source_scan import SourceProgram, source_program
from dml.plan.merge import plan_merge
from dml.plan.names import SqlRules, TargetNames
from dml.plan.plain_scan import PlainScan, plain_scan
from dml.plan.row_delta_plan import JoinKey, MergeSource, PlanContext, SentSourcePlan, ThroughSpark, raw_name
from dml.rows.evaluate import UncomputableValueError
from dml.spark.store_assignment import StoreAssignmentPolicy
from dml.sqlparse import parse
from dml.sqlparse.quoting import unquoted
from dml.sqlparse.statements import MergeStatement

TARGET = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", IntegerType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
    NestedField(4, "s", StringType(), required=False),
    NestedField(5, "p", DecimalType(9, 2), required=False),
)
READ = Schema(
    NestedField(7, "k", IntegerType(), required=False),
    NestedField(8, "x", IntegerType(), required=False),
    NestedField(9, "op", StringType(), required=False),
)
KINDS = {
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
}


def program(source: str, columns: str, clauses: str) -> SourceProgram | ThroughSpark:
    """Return the program of a MERGE from a source whose columns have names; Spark's types are those of our values."""
    sql = f"MERGE INTO db.t t USING {source} ON {clauses}"
    statement, rules = parse(sql), SqlRules()
    assert isinstance(statement, MergeStatement)
    fragment = source_fragment(statement, sql)
    (reference,) = fragment.tables
    plain = plain_scan(fragment, reference, READ, rules)
    assert isinstance(plain, PlainScan)
    rows = PlainRows(table=None, snapshot_id=1, schema=READ, plain=plain, case_sensitive=False, parallelism=1)  # type: ignore[arg-type]
    kinds = [
        spark.StructField(name, KINDS[value.type]) for name, value in zip(columns.split(), plain.values, strict=True)
    ]
    schema = spark.StructType(kinds)
    context = PlanContext(
        target_view="v",
        target="t",
        names=TargetNames(schema=TARGET, qualifiers=(("t",),), rules=rules, sql=sql),
        render=lambda fragment, _: fragment.text,
    )
    pairs, keys = join_keys(statement, context, "s", schema)
    described = MergeSource(
        view="source",
        alias="s",
        columns=tuple(schema.names),
        fields=source_fields(schema, context),
        keys=tuple(JoinKey(field_id=column.field_id, source_column=unquoted(name).lower()) for column, name in pairs),
    )
    plan = plan_merge(statement, context, described).tasks
    assert isinstance(plan, SentSourcePlan)
    of_source = MergeSourceFrame(
        described=described, schema=schema, rows=None, scan=rows, pushable=pairs, pruning_keys=keys
    )
    found = {
        raw_name(place): KINDS[column.value.type]
        for place, column in enumerate(plan.columns)
        if column.value is not None and column.value_of is not None
    }
    return source_program(plan, of_source, found, StoreAssignmentPolicy.ANSI)


def computed(source: str, columns: str, clauses: str, *fields: pa.Array) -> list[list[Any]]:
    found = program(source, columns, clauses)
    assert isinstance(found, SourceProgram)
    return [array.to_pylist() for array in found.compute(fields)]


K = pa.array([1, 2, None], pa.int32())
X = pa.array([2**31 - 1, 5, 7], pa.int32())
OP = pa.array(["u", "d", None])


def test_keys_conditions_and_values_in_the_types_of_the_target() -> None:
    found = computed(
        "db.s s",
        "k x op",
        "t.ID = s.K WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET d = s.x, s = upper(op), p = 3",
        K,
        X,
        OP,
    )
    assert found == [[1, 2, None], [False, True, False], [2**31 - 1, 5, 7], ["U", "D", None], [3, 3, 3]]


def test_a_value_is_computed_for_the_rows_of_its_clause() -> None:
    clauses = "t.id = s.k WHEN MATCHED AND s.op = 'd' THEN UPDATE SET n = s.x + 1"
    assert computed("db.s s", "k x op", clauses, K, X, OP) == [[1, 2, None], [False, True, False], [None, 6, None]]
    with pytest.raises(UncomputableValueError):
        computed("db.s s", "k x op", clauses.replace("'d'", "'u'"), K, X, OP)
    with pytest.raises(UncomputableValueError):
        computed("db.s s", "k x", clauses.replace("AND s.op = 'd' ", ""), K, X)


def test_a_column_of_the_source_is_null_beside_the_target() -> None:
    clauses = "t.id = s.k AND s.x IS NOT NULL WHEN MATCHED AND (t.n = 1 OR s.op IS NULL) THEN DELETE"
    assert computed("db.s s", "k x op", clauses, K, X, OP) == [[1, 2, None], X.to_pylist(), OP.to_pylist()]


def test_only_columns_that_the_statement_needs_are_read() -> None:
    source = "(SELECT x AS id, x * 2 AS y, lower(op) AS z, k FROM db.s WHERE abs(x) > 3) s"
    found = program(source, "id y z k", "t.id = s.id AND t.n < s.y WHEN MATCHED THEN DELETE")
    assert isinstance(found, SourceProgram)
    assert found.field_ids == (1, 2)
    assert [array.to_pylist() for array in found.compute([X, K])] == [[2**31 - 1, 5, 7], [1, 2, None]]
    assert found.rows.scan(found.fields).columns == (8,)


@pytest.mark.parametrize(
    ("source", "columns", "clauses", "reason"),
    [
        ("db.s s", "k op", "t.n = s.k WHEN MATCHED THEN UPDATE SET s = initcap(s.op)", "initcap"),
        (
            "(SELECT CAST(k AS BIGINT) AS k FROM db.s) s",
            "k",
            "t.n = s.k WHEN MATCHED THEN DELETE",
            "cannot convert `k` into int",
        ),
        ("db.s s", "k x", "t.n = s.k WHEN MATCHED THEN UPDATE SET s = s.x", "store int into string"),
        ("db.s s", "k op", "t.n = s.k WHEN MATCHED AND op LIKE '%y' THEN DELETE", "LIKE"),
    ],
)
def test_what_only_spark_computes(source: str, columns: str, clauses: str, reason: str) -> None:
    found = program(source, columns, clauses)
    assert isinstance(found, ThroughSpark)
    assert reason in found.reason
