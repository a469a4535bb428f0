"""Arguments of CALL that are plain constants are read without Spark, and have the values that Spark computes."""

from typing import Any

import pytest

from dml.engine.procedures import binding
from dml.engine.procedures.declaration import (
    BIGINT,
    BIGINT_ARRAY,
    BOOLEAN,
    STRING,
    STRING_ARRAY,
    STRING_MAP,
    TIMESTAMP,
    ArgumentType,
    Parameter,
)
from dml.errors import SqlError
from dml.sqlparse import parse
from dml.sqlparse.statements import CallStatement
from tests.conftest import session_settings
from tests.lake import Lake

pytestmark = pytest.mark.spark

PLAIN: list[tuple[ArgumentType, str]] = [
    (STRING, "'db.t'"),
    (STRING, r"'it\'s \u00e4\n'"),
    (STRING, '"two quotes"'),
    (STRING, "NULL"),
    (BIGINT, "5"),
    (BIGINT, "-9223372036854775807"),
    (BIGINT, "5L"),
    (BOOLEAN, "true"),
    (BOOLEAN, "FALSE"),
    (TIMESTAMP, "TIMESTAMP '2026-01-31 12:00:00.123456'"),
    (TIMESTAMP, "TIMESTAMP '2026-01-31 12:00:00+02:00'"),
    (TIMESTAMP, "'2026-01-31 12:00:00'"),
    (TIMESTAMP, "DATE '2026-01-31'"),
    (BIGINT_ARRAY, "array(1, -2, 3L)"),
    (STRING_ARRAY, "array('a', 'b')"),
    (STRING_MAP, "map('a', 'b', 'c', '')"),
]
UNCERTAIN: list[tuple[ArgumentType, str]] = [
    (STRING, "concat('a', 'b')"),
    (STRING, "5"),
    (BIGINT, "9223372036854775808"),
    (BIGINT, "1 + 1"),
    (BIGINT, "1.5"),
    (BOOLEAN, "'true'"),
    (TIMESTAMP, "'nonsense'"),
    (TIMESTAMP, "current_timestamp()"),
    (BIGINT_ARRAY, "array()"),
    (BIGINT_ARRAY, "array(1, NULL)"),
    (BIGINT_ARRAY, "[1, 2]"),
    (STRING_ARRAY, "array('a', 1)"),
    (STRING_MAP, "map()"),
    (STRING_MAP, "map('a', 1)"),
    (STRING_MAP, "map('a', '1', 'a', '2')"),
    (STRING_MAP, "map_from_arrays(array('a'), array('b'))"),
    (STRING_MAP, "map('a', NULL)"),
    (STRING, "STRING 'x'"),
    (BIGINT, "CAST('1' AS INT64)"),
    (BIGINT_ARRAY, "array(1, 2,)"),
]


def bound(lake: Lake, kind: ArgumentType, text: str) -> tuple[Any, ...]:
    sql = f"CALL lake.system.rewrite_data_files(table => {text})"
    statement = parse(sql)
    assert isinstance(statement, CallStatement)
    parameter = Parameter(name="table", type=kind)
    return lake.engine, {"table": parameter}, {"table": statement.arguments[0]}, sql


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_plain_constant_has_the_value_that_spark_computes(lake: Lake, zone: str) -> None:
    with session_settings(lake.session.spark, {"spark.sql.session.timeZone": zone}):
        for kind, text in PLAIN:
            arguments = bound(lake, kind, text)
            read = binding.read_constants(*arguments)
            assert read is not None, text
            assert read == binding.evaluate_by_spark(*arguments), text


def test_spark_evaluates_everything_else(lake: Lake) -> None:
    for kind, text in UNCERTAIN:
        assert binding.read_constants(*bound(lake, kind, text)) is None, text


def test_brackets_are_an_error_as_in_spark(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    with pytest.raises(SqlError):
        lake.session.sql(f"CALL lake.system.expire_snapshots(table => '{name}', snapshot_ids => [1, 2])")
