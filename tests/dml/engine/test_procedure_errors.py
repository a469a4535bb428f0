"""Mistakes in calls of procedures: each has the class that callers react to, says where it is and what to do."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from pyiceberg.schema import Schema

import dml
from dml.catalog.views import ViewDefinition, save_view
from dml.engine.procedures import PROCEDURES
from tests.lake import Lake

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


WRONG_ARGUMENTS = [
    ("rewrite_data_files('{t}', strategy => '')", "unsupported strategy: . Only", "Leave it out"),
    ("rewrite_data_files('{t}', sort_order => '')", "ends too early", "Write sort_order => 'day, "),
    ("rewrite_data_files('{t}', sort_order => 'id = 1')", "Unexpected '='", r"zorder\(a, b\)"),
    ("rewrite_data_files('{t}', branch => 'kept')", "branch kept: it is a tag, not a branch", "Tags cannot be written"),
    ("rewrite_manifests('{t}', branch => 'kept')", "kept is a tag, not a branch", "Name a branch"),
    ("fast_forward('{t}', '', 'main')", "The name of the branch is empty", "Give branch => 'main'"),
    ("verify('{t}.branch_nope')", "There is no table|has no branch", "main|suffix"),
    ("health('{t}', 'kep')", "has no branch or tag 'kep'", "Did you mean 'kept'?"),
    ("add_files('{t}', 'parquet.`/no/such/folder`')", "There is no file or folder", "Give the full location"),
    ("verify(table => '{t}', table => '{t}')", "The argument 'table' is given twice", "Remove one of them"),
    ("verify('{t}', nonsense => 1)", "no parameter 'nonsense'", "'table', 'snapshot_id', 'every_file'"),
    ("verify('nope')", "There is no table", "Include the namespace, for example 'db.nope'"),
    ("register_table('nope', '{m}')", "has no namespace", "Include the namespace, for example 'db.nope'"),
    ("register_table('nodb.t', '{m}')", "Namespace does not exist", "CREATE NAMESPACE nodb"),
    ("register_table('{t}', '{m}')", "already exists", "Register it under another name"),
]


def tagged_table(lake: Lake) -> str:
    def create() -> str:
        name = lake.create("id BIGINT")
        lake.session.sql(f"INSERT INTO {name} VALUES (1)")
        lake.session.sql(f"ALTER TABLE {name} CREATE TAG kept")
        return name

    return lake.once("wrong arguments", create)


@pytest.mark.parametrize(("call", "message", "hint"), WRONG_ARGUMENTS, ids=[call for call, _, _ in WRONG_ARGUMENTS])
def test_errors_name_the_wrong_argument_and_the_fix(lake: Lake, call: str, message: str, hint: str) -> None:
    name = tagged_table(lake)
    location = lake.table(name).metadata_location
    text = call.replace("{t}", name).replace("{m}", location)
    with pytest.raises(dml.DmlError, match=message) as caught:
        lake.session.sql(f"CALL lake.system.{text}")
    assert re.search(hint, caught.value.hint or ""), caught.value.hint
    assert lake.table(name).metadata_location == location


def test_remove_orphan_files_accepts_stream_results(lake: Lake) -> None:
    name = tagged_table(lake)
    assert lake.session.sql(f"CALL lake.system.remove_orphan_files('{name}', stream_results => true)").collect() == []
