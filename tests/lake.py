"""A session on an embedded catalog, with helpers to create and inspect test tables."""

import itertools
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
)
from pyspark.sql import SparkSession

import dml
from dml.engine.engine import Engine
from dml.iceberg import metadata_json
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.session import Session, runner_of

__all__ = ["COMMANDS", "Lake", "new_lake"]

COMMANDS = ("delete", "update", "merge")
TABLE_NAME = re.compile(r"db\.\w+")
PLAIN_TYPES = (BooleanType, IntegerType, LongType, FloatType, DoubleType, StringType, DateType, DecimalType)
"""Types that PyIceberg and PySpark return as equal Python objects."""


def read_with_pyiceberg(table: Table) -> list[tuple] | None:
    """Return a table's rows as PyIceberg reads them, or None if PySpark has to read the table.

    Returns:
        None for other types, other file formats and column defaults, and for WAP tables, where `spark.wap.branch` may
        select a branch.
    """
    if table.properties.get("write.wap.enabled") == "true":
        return None
    fields = table.schema().fields
    if any(not isinstance(field.field_type, PLAIN_TYPES) or field.initial_default is not None for field in fields):
        return None
    tasks = list(table.scan().plan_files())
    if any(task.file.file_format is not FileFormat.PARQUET for task in tasks):
        return None
    read = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
    return list(zip(*(column.to_pylist() for column in read.columns), strict=True))


@dataclass
class Lake:
    """A session, and names for new tables.

    Attributes:
        session: The session.
        catalog: The catalog's name in the session.
        numbers: The numbers of new tables.
        computed: What `once` has computed, by key.
    """

    session: Session
    catalog: str = "lake"
    numbers: Iterator[int] = field(default_factory=itertools.count)
    computed: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        """Return the engine that runs the session's statements."""
        return runner_of(self.session).engine

    def new_name(self) -> str:
        return f"db.t{next(self.numbers)}"

    def create(
        self, columns: str, clauses: str = "", *, version: int | None = None, mode: str = "", **properties: str
    ) -> str:
        """Create a table and return its name.

        Args:
            columns: Column definitions, as SQL.
            clauses: SQL between the column list and TBLPROPERTIES.
            version: The format version.
            mode: The write mode of DELETE, UPDATE and MERGE.
            **properties: Table properties.
        """
        name = self.new_name()
        chosen = dict.fromkeys((f"write.{command}.mode" for command in COMMANDS), mode) if mode else {}
        chosen |= {} if version is None else {"format-version": str(version)}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**chosen, **properties}.items())
        self.session.sql(
            f"CREATE TABLE {name} ({columns}) {clauses}" + (f" TBLPROPERTIES ({listed})" if listed else "")
        )
        return name

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Compute a value at the first call with a key, and return it at each later one."""
        if key not in self.computed:
            self.computed[key] = compute()
        return self.computed[key]

    def copy(self, name: str, **properties: str) -> str:
        """Return a new table with the rows and the history of another one, and further properties.

        The copy reads the other table's files and writes to a location of its own, so it costs one metadata file.
        Never drop it with PURGE, which deletes the shared files.
        """
        original, copied = self.table(name).metadata, self.new_name()
        location = f"{original.location}-{copied.partition('.')[2]}"
        folder = Path(location.removeprefix("file://"))
        for inner in ("metadata", "data"):
            (folder / inner).mkdir(parents=True)
        path = folder / "metadata" / "00000.metadata.json"
        changes = {
            "location": location,
            "table_uuid": uuid4(),
            "properties": {**original.properties, **properties},
        }
        path.write_text(metadata_json(original.model_copy(update=changes)))
        self.session.registry.catalogs[self.catalog].register_table(tuple(copied.split(".")), f"file://{path}")
        return copied

    def copy_of(self, key: Hashable, make: Callable[[], str], **properties: str) -> str:
        """Return a copy of the table that `make` creates at the first call with a key, with further properties."""
        return self.copy(self.once(key, make), **properties)

    def table(self, name: str) -> Table:
        """Load a table by its name, with or without the catalog's."""
        parts = name.removeprefix(f"{self.catalog}.").split(".")
        return self.session.registry.catalogs[self.catalog].load_table(tuple(parts))

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a table or query, in order of their text.

        PyIceberg reads a table of plain types that is given by its name, in a tenth of the time of a Spark job. A test
        of what Spark reads gives a query.
        """
        if " " not in query:
            read = read_with_pyiceberg(self.table(query)) if TABLE_NAME.fullmatch(query) else None
            if read is not None:
                return sorted(read, key=repr)
            query = f"SELECT * FROM {query}"
        return sorted((tuple(row) for row in self.session.sql(query).collect()), key=repr)

    def files(self, name: str, content: FileContent) -> list[ContentFile]:
        """Return the live files with this content type."""
        table = self.table(name)
        manifests = manifests_of(table.io, table.current_snapshot())
        entries = (entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True))
        return [entry.data_file for entry in entries if entry.data_file.content is content]

    def data_files(self, name: str) -> list[ContentFile]:
        """Return the live data files."""
        return self.files(name, FileContent.DATA)

    def delete_files(self, name: str) -> list[ContentFile]:
        """Return the live position delete files and deletion vectors."""
        return self.files(name, FileContent.POSITION_DELETES)

    def folder(self, name: str) -> Path:
        return Path(self.table(name).location().removeprefix("file://"))

    def state(self, name: str) -> tuple[str, frozenset[Path]]:
        """Return the metadata location and all file paths. Equal states mean that nothing was committed or written."""
        paths = frozenset(path for path in self.folder(name).rglob("*") if path.is_file())
        return self.table(name).metadata_location, paths

    @contextmanager
    def enabled(self) -> Iterator["Lake"]:
        """Enable the session for the block, and disable it afterwards."""
        self.session.enable()
        try:
            yield self
        finally:
            self.session.disable()


def new_lake(spark: SparkSession, folder: Path, **properties: str) -> Lake:
    """Return a lake on a new catalog with the namespace `db`. Its session is disabled.

    Args:
        spark: The Spark session.
        folder: The warehouse.
        **properties: Catalog properties.
    """
    session = dml.connect(str(folder), spark=spark, progress=False, **properties)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    session.disable()
    return Lake(session)
