"""Create a branch of a table without a snapshot: its first snapshot, without files, is committed to the branch. Driver.

Source: Iceberg's `SnapshotManager.createBranch`.
"""

from pyiceberg.catalog import Catalog

from dml.catalog import CommitBase
from dml.commit import AppendFiles, commit
from dml.ddl import needs_empty_snapshot
from dml.ddl.tables import load_table
from dml.engine.engine import Engine
from dml.errors import CommitConflictError
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import AlterTable, SetReference

__all__ = ["create_empty_branch"]


def create_empty_branch(engine: Engine, statement: AlterTable) -> bool:
    """Create the branch of a statement if its table has no snapshot.

    Args:
        engine: The session and its catalogs.
        statement: The statement.

    Returns:
        False if the statement does something else, which `dml.ddl` runs; also if another commit has added a snapshot or
        this branch meanwhile.

    Raises:
        NotFoundError: The table does not exist.
        CommitConflictError: Other commits landed first on every attempt.
        CommitStateUnknownError: The commit may have landed.
    """
    action = statement.action
    if not isinstance(action, SetReference):
        return False
    catalog_name, identifier = engine.registry.split(statement.table.parts)
    catalog = engine.registry.catalog(catalog_name)
    table = load_table(catalog, identifier)
    if not needs_empty_snapshot(action, table.metadata):
        return False
    try:
        commit(
            table,
            AppendFiles(is_fast=True),
            branch=action.name,
            create_branch=True,
            retention=action.retention,
            summary=engine.commit_summary(),
            load_state=lambda: load_without_snapshot(catalog, identifier, action),
        )
    except CommitConflictError:
        if needs_empty_snapshot(action, load_table(catalog, identifier).metadata):
            raise
        return False
    return True


def load_without_snapshot(catalog: Catalog, identifier: tuple[str, ...], action: SetReference) -> CommitBase:
    table = load_table(catalog, identifier)
    if not needs_empty_snapshot(action, table.metadata):
        raise CommitConflictError(
            f"The table {quote_name(identifier)} got a snapshot or a branch {action.name} while it was created",
            hint="Run the statement again",
            table=quote_name(identifier),
        )
    return CommitBase(table=table)
