"""`Changes` programs: a join, clauses and new values of random rows are those of DuckDB's join."""

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.model.columns import BY_SOURCE, RowOperation
from dml.rows.changes import ChangesRun
from dml.rows.expressions import Arithmetic, Column, Comparison, Literal, Operator
from dml.rows.program import Changes, Clause, Join, source_id

LONG = pa.int64()
KEY, NUMBER = 1, 2
TARGET_KEY, TARGET_NUMBER = Column(field_id=KEY, type=LONG), Column(field_id=NUMBER, type=LONG)
SOURCE_NUMBER, IS_DELETED = Column(field_id=source_id(0), type=LONG), Column(field_id=source_id(1), type=pa.bool_())
PROGRAM = Changes(
    value_types=(LONG,),
    join=Join(key_ids=(KEY,), residual=Comparison(operator="<=", left=TARGET_NUMBER, right=SOURCE_NUMBER, type=LONG)),
    matched=(
        Clause(
            operation=RowOperation.DELETE,
            condition=Comparison(
                operator="=", left=IS_DELETED, right=Literal(value=True, type=pa.bool_()), type=pa.bool_()
            ),
            values=(None,),
        ),
        Clause(
            operation=RowOperation.UPDATE,
            condition=Comparison(operator="<>", left=TARGET_NUMBER, right=Literal(value=0, type=LONG), type=LONG),
            values=(Arithmetic(operator=Operator.ADD, left=TARGET_NUMBER, right=SOURCE_NUMBER, type=LONG),),
        ),
    ),
    not_matched=(
        Clause(
            operation=RowOperation.INSERT,
            condition=Comparison(operator=">", left=SOURCE_NUMBER, right=Literal(value=-2, type=LONG), type=LONG),
            values=(SOURCE_NUMBER,),
        ),
    ),
)
BY_SOURCE_CLAUSES = (
    Clause(
        operation=RowOperation.UPDATE | BY_SOURCE,
        condition=Comparison(operator=">", left=TARGET_NUMBER, right=Literal(value=1, type=LONG), type=LONG),
        values=(Arithmetic(operator=Operator.MULTIPLY, left=TARGET_NUMBER, right=TARGET_NUMBER, type=LONG),),
    ),
    Clause(
        operation=RowOperation.DELETE | BY_SOURCE,
        condition=Comparison(operator="<", left=TARGET_NUMBER, right=Literal(value=0, type=LONG), type=LONG),
        values=(None,),
    ),
)
CHANGED = """
    SELECT t.place, CASE WHEN s.d THEN $delete WHEN t.n <> 0 THEN $update ELSE 0 END,
      CASE WHEN s.d THEN NULL WHEN t.n <> 0 THEN t.n + s.n END
    FROM target t JOIN source s ON t.k = s.k AND t.n <= s.n WHERE $matched
    UNION ALL
    SELECT t.place, CASE WHEN t.n > 1 THEN $update + 4 ELSE $delete + 4 END, CASE WHEN t.n > 1 THEN t.n * t.n END
    FROM target t WHERE $by_source AND (t.n > 1 OR t.n < 0)
      AND NOT EXISTS (SELECT 1 FROM source s WHERE t.k = s.k AND t.n <= s.n)
    ORDER BY place
"""
NEW = """
    SELECT s.place, s.n FROM source s
    WHERE s.n > -2 AND NOT EXISTS (SELECT 1 FROM target t WHERE t.k = s.k AND t.n <= s.n) ORDER BY s.place
"""
SMALL = st.none() | st.integers(-3, 3)
KEYS = st.sampled_from([None, -(2**63), 0, 2**40])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(KEYS, SMALL), max_size=12),
    st.lists(
        st.tuples(KEYS, SMALL, st.none() | st.booleans()),
        max_size=6,
        unique_by=lambda row: object() if row[0] is None else row[0],
    ),
    st.booleans(),
    st.booleans(),
)
def test_changes_are_those_of_a_join(
    target: list[tuple[Any, ...]], source: list[tuple[Any, ...]], matched: bool, by_source: bool
) -> None:
    program = replace(
        PROGRAM,
        matched=PROGRAM.matched if matched else (),
        not_matched_by_source=BY_SOURCE_CLAUSES if by_source else (),
    )
    keys, numbers = (pa.array([row[place] for row in target], LONG) for place in range(2))
    given_source = [
        pa.array([row[place] for row in source], kind) for place, kind in enumerate((LONG, LONG, pa.bool_()))
    ]
    run = ChangesRun(program, pa.RecordBatch.from_arrays(given_source, names=["k", "c0", "c1"]))
    found = run.change({KEY: keys, NUMBER: numbers}, len(target))
    assert found.places is not None
    operations = found.operations.to_pylist()
    # The writers do not read the values of deleted rows, nor those of rows that no clause takes.
    values = [
        value if operation & ~BY_SOURCE == RowOperation.UPDATE else None
        for operation, value in zip(operations, found.values[0].to_pylist(), strict=True)
    ]
    unmatched = [place for place, is_matched in enumerate(run.matched) if not is_matched]
    new = [row for rows in run.insert(pa.array(unmatched, LONG).to_numpy()) for row in listed(rows)]
    with duckdb.connect() as database:
        database.register("target", pa.table([list(range(len(target))), keys, numbers], ["place", "k", "n"]))
        database.register("source", pa.table([list(range(len(source))), *given_source], ["place", "k", "n", "d"]))
        codes = {"delete": int(RowOperation.DELETE), "update": int(RowOperation.UPDATE)}
        codes |= {"matched": matched, "by_source": by_source}
        expected = database.execute(CHANGED, codes).fetchall()
        assert list(zip(found.places.tolist(), operations, values, strict=True)) == expected
        assert new == database.execute(NEW).fetchall()


def listed(rows: Any) -> list[tuple[int, int]]:
    return list(zip(rows.places.tolist(), rows.values[0].to_pylist(), strict=True))


def test_clauses_may_differ_by_the_sign_of_zero() -> None:
    double, column = pa.float64(), Column(field_id=1, type=pa.float64())

    def update(zero: float, least: float) -> Clause:
        return Clause(
            operation=RowOperation.UPDATE,
            condition=Comparison(operator=">=", left=column, right=Literal(value=least, type=double), type=double),
            values=(Literal(value=zero, type=double),),
        )

    program = Changes(value_types=(double,), matched=(update(0.0, 5.0), update(-0.0, 0.0)))
    found = ChangesRun(program).change({1: pa.array([9.0, 1.0])}, 2)
    assert list(map(str, found.values[0].to_pylist())) == ["0.0", "-0.0"]


def test_null_safe_keys_of_a_join() -> None:
    """NULL matches NULL, and a row of the source with it is matched."""
    update = Clause(operation=RowOperation.UPDATE, values=(SOURCE_NUMBER,))
    program = Changes(value_types=(LONG,), matched=(update,), join=Join(key_ids=(KEY,), null_safe=(0,)))
    source = pa.RecordBatch.from_arrays([pa.array([1, None], LONG), pa.array([10, 20], LONG)], names=["k", "c0"])
    run = ChangesRun(program, source)
    found = run.change({KEY: pa.array([None, 2, 1], LONG)}, 3)
    assert found.places is not None
    assert (found.places.tolist(), found.values[0].to_pylist()) == ([0, 2], [20, 10])
    assert run.matched.all()


def test_values_of_nested_columns_have_one_type_in_all_batches() -> None:
    """Rows of the source name the elements of an array differently than a column of NULLs does."""
    of_source, of_column = pa.list_(pa.field("element", LONG)), pa.list_(pa.field("item", LONG))
    program = Changes(
        value_types=(of_column,),
        join=Join(key_ids=(KEY,)),
        matched=(Clause(operation=RowOperation.UPDATE, values=(Column(field_id=source_id(0), type=of_column),)),),
        not_matched_by_source=(Clause(operation=RowOperation.DELETE | BY_SOURCE, values=(None,)),),
    )
    source = pa.RecordBatch.from_arrays([pa.array([1], LONG), pa.array([[7]], of_source)], names=["k", "c0"])
    run = ChangesRun(program, source)
    for keys in ([5], [0, 1, 2], [1], []):
        found = run.change({KEY: pa.array(keys, LONG)}, len(keys))
        assert found.values[0].type == of_source
        assert found.values[0].to_pylist() == [[7] if key == 1 else None for key in keys]
