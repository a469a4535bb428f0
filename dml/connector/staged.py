"""Tables that are created or replaced together with their rows. Driver, classic Spark only.

Input: what Spark wants of a new table, and how. Output: a table that nobody else sees before Spark commits it, in one
commit with the rows that are written meanwhile; a table that is replaced stays as it is until then. Where the catalog's
server cannot stage tables, a new one is created first, and dropped again if its rows cannot be written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from dml import ddl
from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState
from dml.connector.table import SparkTable
from dml.connector.write import SparkWriteBuilder, WrittenTable
from dml.engine.create_as_select import drop_empty
from dml.engine.engine import Engine, StatementSettings
from dml.result import Result
from dml.sqlparse.statements import CreateTable

__all__ = ["SparkStagedTable", "StagedCreation", "stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCreation:
    """A table that is being created or replaced.

    Attributes:
        statement: What it is to be: CREATE TABLE without columns.
        schema: Its columns.
        catalog_name: The name of its catalog in the session.
        catalog: Its catalog.
        identifier: Namespace and name.
        time_zone: The session's time zone.
        table: The table as it will be, or as it was created.
        load_state: Finds it as it is for each attempt to commit; None where it is there already.
    """

    statement: CreateTable
    schema: Schema
    catalog_name: str
    catalog: Catalog
    identifier: tuple[str, ...]
    time_zone: str
    table: Table
    load_state: LoadState | None

    @property
    def resolved(self) -> ResolvedTable:
        """The table, as rows are written to it."""
        return ResolvedTable(
            catalog_name=self.catalog_name, catalog=self.catalog, identifier=self.identifier, table=self.table
        )


def stage(provide: Callable[[], Engine], statement: CreateTable, schema: Schema) -> "SparkStagedTable":
    """Prepare a table that is created or replaced.

    Args:
        provide: Gives the session and its catalogs.
        statement: What it is to be, without columns.
        schema: Its columns.

    Raises:
        DmlError: the table is there, is not there, or cannot be so.
    """
    engine = provide()
    catalog_name, identifier = engine.registry.split(statement.table.parts)
    catalog = engine.registry.catalog(catalog_name)
    time_zone = StatementSettings.of(engine).time_zone
    load_state = ddl.stage_table(statement, catalog, identifier, schema, time_zone=time_zone)
    if load_state is None:
        table = ddl.create_table(statement, catalog, identifier, schema, time_zone=time_zone)
    else:
        table = load_state().table
    creation = StagedCreation(
        statement=statement,
        schema=schema,
        catalog_name=catalog_name,
        catalog=catalog,
        identifier=identifier,
        time_zone=time_zone,
        table=table,
        load_state=load_state,
    )
    return SparkStagedTable(provide, creation)


class SparkStagedTable(SparkTable):
    """A table that is created or replaced when Spark says so.

    Args:
        engine: Gives the session and its catalogs.
        creation: The table.
    """

    interfaces: ClassVar[tuple[str, ...]] = (*SparkTable.interfaces, "catalog.StagedTable")

    def __init__(self, engine: Callable[[], Engine], creation: StagedCreation) -> None:
        state = TableState(resolved=creation.resolved, snapshot_id=None, schema=creation.table.schema())
        super().__init__(engine, state)
        self._creation = creation
        self._is_there = creation.load_state is None

    @property
    def _accepts_any_schema(self) -> bool:
        """Never: it is made with the columns of its rows, and Spark fits the rows to them."""
        return False

    def newWriteBuilder(self, info: JavaObject) -> SparkWriteBuilder:
        """A builder of the write of its rows, which commits the table with them."""
        creation = self._creation
        written = WrittenTable(engine=self.engine, resolved=creation.resolved, load_state=creation.load_state)
        return SparkWriteBuilder(written, info, self._note)

    def commitStagedChanges(self) -> None:
        """Create or replace the table, where its rows have not done so: there were none."""
        creation = self._creation
        if not self._is_there:
            ddl.create_table(
                creation.statement,
                creation.catalog,
                creation.identifier,
                creation.schema,
                time_zone=creation.time_zone,
            )

    def abortStagedChanges(self) -> None:
        """Leave nothing: only a table that had to be created before its rows is there."""
        if self._creation.load_state is None:
            drop_empty(self._creation.table)

    def _note(self, result: Result) -> None:
        """Its rows have been written."""
        self._is_there = self._is_there or result.snapshot_id is not None
