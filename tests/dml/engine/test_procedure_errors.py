"""Mistakes in calls of procedures: each has the class that callers react to, says where it is and what to do."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyiceberg.schema import Schema

import dml
from dml.catalog.views import ViewDefinition, save_view
from dml.engine.procedures import PROCEDURES
from tests.dml.engine.conftest import Lake

pytestmark = pytest.mark.spark

VALUES: dict[str, Any] = {
    "snapshot_id": 5,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "wap_id": "nope",
    "branch": "nope",
    "to": "nope",
    "source_table": "parquet.`/nope`",
    "source_prefix": "/a",
    "target_prefix": "/b",
}
"""A value for each required parameter."""

OF_TABLES = sorted(PROCEDURES.keys() - {"register_table", "snapshot", "migrate"})
"""The procedures that need an existing table."""


def test_a_name_that_is_no_table_is_refused_by_every_procedure(lake: Lake) -> None:
    name, view = lake.create("id BIGINT"), lake.new_name()
    definition = ViewDefinition(sql="SELECT 1", schema=Schema(), catalog="lake", namespace=("db",), properties={})
    save_view(lake.table(name).catalog, tuple(view.split(".")), definition, replaces=None)
    for procedure in map(PROCEDURES.__getitem__, OF_TABLES):
        required = {one.name: VALUES[one.name] for one in procedure.parameters if one.required and one.name in VALUES}
        if procedure.name == "set_current_snapshot":
            required["snapshot_id"] = 5  # it or `ref`
        for text, error, message in (
            ("db.no_such_table", dml.NotFoundError, "There is no table 'lake.db.no_such_table'"),
            (view, dml.NotSupportedError, f"'lake.{view}' is a view"),
            (f"{name}.snapshots", dml.NotSupportedError, "snapshots|metadata table"),
        ):
            parts = ("lake", *text.split("."))
            with pytest.raises(error, match=message) as raised:
                list(procedure.run(lake.engine, parts, required))
            assert raised.value.hint, (procedure.name, text)


@pytest.mark.parametrize(
    ("statement", "procedures"),
    [
        ("OPTIMIZE {}", ["rewrite_data_files"]),
        ("VACUUM {} RETAIN 168 HOURS", ["expire_snapshots", "remove_orphan_files"]),
        ("RESTORE TABLE {} TO VERSION AS OF 1", ["rollback_to_snapshot", "rollback_to_timestamp"]),
    ],
)
def test_statements_of_other_engines_name_the_procedures_to_call(
    lake: Lake, statement: str, procedures: list[str]
) -> None:
    name = lake.once("of other engines", lambda: lake.create("id BIGINT"))
    with pytest.raises(dml.NotSupportedError) as caught:
        lake.session.sql(statement.format(name))
    for procedure in procedures:
        assert f"CALL lake.system.{procedure}('{name}', ...)" in str(caught.value)
