"""Changes computed from added and removed rows: random cases, all in one query, compared with a model in Python."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pyiceberg.types import DoubleType, FloatType, IntegerType, ListType, MapType, NestedField, StringType, StructType
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as spark_types

from dml.engine.changelog_rows import CHANGE, CHANGE_ORDINAL, CHANGE_TYPE, ChangelogRows
from dml.spark.types import spark_type

pytestmark = pytest.mark.spark

VALUE = StructType(
    NestedField(10, "a`b", DoubleType(), required=False),
    NestedField(11, "list", ListType(12, FloatType(), element_required=False), required=False),
    NestedField(13, "map", MapType(14, StringType(), 15, DoubleType(), value_required=False), required=False),
)
ROWS = ChangelogRows(
    fields=(
        NestedField(1, "case", IntegerType(), required=False),
        NestedField(2, "id", IntegerType(), required=False),
        NestedField(3, "value", VALUE, required=False),
        NestedField(4, "d", DoubleType(), required=False),
    )
)
NAN = math.nan
VALUES: tuple[Any, ...] = (
    (None, None),
    ((None, None, None), 0.0),
    ((None, None, None), -0.0),
    ((0.0, [], {}), NAN),
    ((-0.0, [], {}), NAN),
    ((NAN, [None], {"a": None}), 1.5),
    ((NAN, [0.0], {"a": 0.0, "b": 1.0}), 1.5),
    ((NAN, [-0.0], {"a": 0.0, "b": 1.0}), 1.5),
    ((NAN, [0.0], {"a": -0.0, "b": 1.0}), 1.5),
)
"""The last two columns; no two are equal."""

Change = tuple[int, int | None, int, int, int]
"""A case, an id, the place of a value, a snapshot's ordinal, and 1 for an added or -1 for a removed row."""


def random_changes(random: Random, case: int, *, unique: bool) -> Iterator[Change]:
    """The changes of up to four snapshots; with `unique`, each removes and adds at most one row of an id."""
    ids = (1, 2, None) if unique else (1,)
    values = random.sample(range(len(VALUES)), 2)
    for ordinal in range(random.randint(1, 4)):
        for row_id in ids:
            for sign in (1, -1):
                for _ in range(random.randint(0, 1 if unique else 3)):
                    yield case, row_id, random.choice(values), ordinal, sign


def computed(spark: SparkSession, rows: ChangelogRows, changes: Sequence[Change]) -> Counter[tuple[Any, ...]]:
    """What Spark computes: case, id, place of the value, type and ordinal of each change, counted."""
    schema = [
        spark_types.StructField(name, spark_type(field.field_type))
        for name, field in zip(rows.values, rows.fields, strict=True)
    ]
    given = [
        (case, row_id, *VALUES[value], 2 * ordinal + (sign == 1)) for case, row_id, value, ordinal, sign in changes
    ]
    frame = spark.createDataFrame(
        given, spark_types.StructType([*schema, spark_types.StructField(CHANGE, spark_types.IntegerType())])
    )
    found = rows.compared(frame)
    assert [(field.name, field.dataType) for field in found.schema.fields] == [
        *((field.name, field.dataType) for field in schema),
        (CHANGE_TYPE, spark_types.StringType()),
        (CHANGE_ORDINAL, spark_types.IntegerType()),
    ]
    places = {text_of(value): place for place, value in enumerate(VALUES)}
    return Counter((row[0], row[1], places[text_of(row[2:4])], row[4], row[5]) for row in found.collect())


def text_of(value: Any) -> str:
    """A text that is equal for equal values alone: -0.0 is not 0.0, NaN is NaN, maps have no order."""
    if isinstance(value, dict):
        return repr(sorted((key, repr(one)) for key, one in value.items()))
    if isinstance(value, tuple | list | Row):
        return f"[{', '.join(map(text_of, value))}]"
    return repr(value)


def counted(changes: Sequence[Change]) -> dict[tuple[int, int | None, int, int], int]:
    """How many equal rows each snapshot added, without the carry-overs."""
    totals: Counter[tuple[int, int | None, int, int]] = Counter()
    for case, row_id, value, ordinal, sign in changes:
        totals[case, row_id, value, ordinal] += sign
    return {row: total for row, total in sorted(totals.items(), key=repr) if total}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))])
def test_carry_overs_are_removed_as_often_as_they_are(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    changes = [one for case in range(150) for one in random_changes(random, case, unique=False)]
    expected = Counter({
        (case, row_id, value, "INSERT" if total > 0 else "DELETE", ordinal): abs(total)
        for (case, row_id, value, ordinal), total in counted(changes).items()
    })  # fmt: skip
    assert any(count > 1 for count in expected.values())
    assert computed(spark, ROWS, changes) == expected


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))])
def test_net_changes_are_those_that_no_later_one_undoes(spark: SparkSession, seed: int) -> None:
    """A change undoes the newest opposite ones, so as little as possible stays, with its own ordinal."""
    random = Random(seed)
    changes = [one for case in range(150) for one in random_changes(random, case, unique=False)]
    stacks: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for (case, row_id, value, ordinal), total in sorted(counted(changes).items(), key=lambda one: one[0][3]):
        stack, sign = stacks.setdefault((case, row_id, value), []), 1 if total > 0 else -1
        for _ in range(abs(total)):
            if stack and stack[-1][0] == -sign:
                stack.pop()
            else:
                stack.append((sign, ordinal))
    expected = Counter(
        (*row, "INSERT" if sign > 0 else "DELETE", ordinal) for row, stack in stacks.items() for sign, ordinal in stack
    )
    assert computed(spark, replace(ROWS, nets_changes=True), changes) == expected


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))])
def test_a_removed_and_an_added_row_of_an_id_are_an_update(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    changes = [one for case in range(150) for one in random_changes(random, case, unique=True)]
    totals = counted(changes)
    signs: dict[tuple[int, int | None, int], set[int]] = {}
    for (case, row_id, _, ordinal), total in totals.items():
        signs.setdefault((case, row_id, ordinal), set()).add(total)
    types = {(1, False): "INSERT", (-1, False): "DELETE", (1, True): "UPDATE_AFTER", (-1, True): "UPDATE_BEFORE"}
    expected = Counter(
        (case, row_id, value, types[total, len(signs[case, row_id, ordinal]) == 2], ordinal)
        for (case, row_id, value, ordinal), total in totals.items()
    )
    assert {kind for *_, kind, _ in expected} == set(types.values())
    rows = replace(ROWS, computes_updates=True, identifiers=(("id",), ("case",)))
    assert computed(spark, rows, changes) == expected


def test_ambiguous_updates_are_an_error(spark: SparkSession) -> None:
    """Iceberg for Java takes any of several added rows for the new image."""
    rows = replace(ROWS, computes_updates=True, identifiers=(("case",), ("value", "a`b")))
    for signs in ((-1, -1, 1), (-1, 1, 1)):
        changes = [(1, 1, place, 0, sign) for place, sign in zip((6, 7, 8), signs, strict=True)]
        with pytest.raises(
            PySparkException, match=r"multiple rows with the same identifier fields\(\[case,value\.a`b\]\)"
        ):
            computed(spark, rows, changes)
    # Several rows of an id that were only removed, or only added, are no update.
    found = computed(spark, rows, [(1, 1, 6, 0, -1), (1, 1, 7, 0, -1), (1, 1, 6, 1, 1), (1, 1, 7, 1, 1)])
    assert {kind for *_, kind, _ in found} == {"INSERT", "DELETE"}
