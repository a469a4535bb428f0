"""The procedure `create_changelog_view`: a temporary view of the changes between two snapshots. Driver.

Source: Iceberg's `CreateChangelogViewProcedure`, which defines the names, order and defaults of the parameters.
"""

from collections.abc import Mapping
from typing import Any, Final

from dml.catalog.translation import translate_errors
from dml.engine.changelog import Changelog, column_path, identifier_paths
from dml.engine.changelog_range import ChangelogRange
from dml.engine.changelog_rows import ChangelogRows
from dml.engine.engine import Engine, StatementSettings
from dml.engine.procedures.declaration import (
    BOOLEAN,
    STRING,
    STRING_ARRAY,
    STRING_MAP,
    TABLE,
    Parameter,
    Procedure,
    whole_table,
)
from dml.errors import AnalysisError, ErrorKind
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quoted

__all__ = ["CHANGELOG"]


def create_changelog_view(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[str]]:
    """Create or replace the view, and return its name as SQL."""
    resolved = whole_table(engine, parts, "the option end-snapshot-id selects the snapshot of a branch or tag")
    table, settings = resolved.table, StatementSettings.of(engine)
    view = values.get("changelog_view", quoted(f"{resolved.identifier[-1]}_changes"))
    named = name_parts(view)
    if len(named) != 1:
        raise AnalysisError(
            f"'{view}' is not a valid name for a temporary view",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give changelog_view a single name, in backquotes if it is not plain",
        )
    names = values.get("identifier_columns")
    identifiers = (
        identifier_paths(table.schema())
        if names is None
        else tuple(column_path(table.schema(), name, case_sensitive=settings.case_sensitive) for name in names)
    )
    with translate_errors(f"Reading the history of '{resolved.name}'", resolved.catalog):
        changelog = Changelog(
            name=resolved.name,
            table=table,
            snapshots=ChangelogRange.of(values.get("options", {})).snapshots(table.metadata),
            rows=ChangelogRows(
                fields=table.schema().fields,
                identifiers=identifiers,
                computes_updates=values.get("compute_updates", names is not None),
                nets_changes=values.get("net_changes", False),
            ),
        )
        frame = changelog.frame(engine.spark, settings.parallelism)
    frame.createOrReplaceTempView(quoted(named[0]))
    return [(view,)]


CHANGELOG: Final = (
    Procedure(
        name="create_changelog_view",
        summary="Create a temporary view of the rows that changed between two snapshots.",
        parameters=(
            TABLE,
            Parameter(
                name="changelog_view",
                type=STRING,
                doc="The name of the view; that of the table and _changes by default",
            ),
            Parameter(name="options", type=STRING_MAP, doc="The range, such as start-snapshot-id=1"),
            Parameter(
                name="compute_updates",
                type=BOOLEAN,
                doc="Show a deleted and an inserted row with equal identifiers as an update",
            ),
            Parameter(
                name="identifier_columns",
                type=STRING_ARRAY,
                doc="A column of the identifier; the identifier fields by default",
            ),
            Parameter(name="net_changes", type=BOOLEAN, doc="Leave out changes that later snapshots undo"),
        ),
        columns="changelog_view string",
        run=create_changelog_view,
        in_session=True,
    ),
)
