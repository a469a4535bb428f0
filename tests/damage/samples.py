"""A small table of each kind, one of its files replaced by damaged bytes, and what reading it comes to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.catalog import create_namespace, load, load_table
from dml.commit import AppendFiles, RowDelta, commit
from dml.errors import DmlError
from dml.manifests.cache import CACHE_ENABLED
from dml.manifests.read import manifests_of
from dml.model.manifest import ContentFile, ManifestContent
from dml.options import Command
from dml.read.reader import TaskReader
from dml.scan.table_scan import TableScan
from tests.dml.commit.builders import data_file, deletes, new_table

__all__ = ["Outcome", "Sample", "make_sample"]

NAME = ("db", "t")
Rows = list[tuple[Any, ...]]


class Outcome(StrEnum):
    """What became of reading; anything but these fails the test."""

    RIGHT = "right rows"
    REFUSED = "an error of ours"
    CHANGED = "other rows"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A table with deleted rows in two partitions.

    Attributes:
        catalog: Its catalog.
        files: A file of each kind, by kind.
    """

    catalog: Catalog
    files: Mapping[str, Path] = field(repr=False)

    @property
    def table(self) -> Table:
        return load_table(self.catalog, NAME)

    def read(self) -> Rows:
        """All rows, by everything that a statement reads."""
        table = self.table
        ids = tuple(column.field_id for column in table.schema().fields)
        scan = TableScan(
            table=table, snapshot_id=table.metadata.current_snapshot_id, schema=table.schema(), columns=ids
        )
        plan = scan.plan()
        reader = TaskReader(scan.context(plan.tasks))
        found = [tuple(row.values()) for task in plan.tasks for batch in reader.read(task) for row in batch.to_pylist()]
        return sorted(found, key=repr)

    @cached_property
    def rows(self) -> Rows:
        """The right ones."""
        return self.read()

    @cached_property
    def content(self) -> Mapping[str, bytes]:
        """The right bytes of each file."""
        return {kind: path.read_bytes() for kind, path in self.files.items()}

    @contextmanager
    def replaced(self, kind: str, content: bytes) -> Iterator[None]:
        """A file with other bytes, for a while."""
        assert self.rows
        right = self.content[kind]
        self.files[kind].write_bytes(content)
        try:
            yield
        finally:
            self.files[kind].write_bytes(right)

    def outcome(self, kind: str, content: bytes) -> Outcome:
        """What reading comes to when a file has other bytes."""
        refusal: DmlError | None = None
        with self.replaced(kind, content):
            try:
                found = self.read()
            except DmlError as error:
                refusal = error
        if refusal is not None:
            assert refusal.context["file"] in str(refusal)
            return Outcome.REFUSED
        return Outcome.RIGHT if found == self.rows else Outcome.CHANGED


def make_sample(folder: Path, version: int) -> Sample:
    """A table of a format version, which has position delete files up to 2 and deletion vectors from 3 on."""
    catalog = load("lake", str(folder), **{CACHE_ENABLED: "false"})  # what is damaged later is read again
    create_namespace(catalog, ("db",))
    table = new_table(catalog, version, partitioned=True)
    files = (data_file(table, range(50), "a"), data_file(table, range(50, 100), "b"))
    commit(table, AppendFiles(data_files=files))
    table = table.refresh()
    start = table.current_snapshot()
    assert start is not None
    removed: tuple[ContentFile, ...] = tuple(deletes(table, of, [1, 2, 30]) for of in files)
    action = RowDelta(command=Command.DELETE, delete_files=removed, starting_snapshot_id=start.snapshot_id)
    commit(table, action)
    table = table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = {manifest.content: manifest.manifest_path for manifest in manifests_of(table.io, snapshot)}
    locations = {
        "metadata": table.metadata_location,
        "manifest list": snapshot.manifest_list,
        "data manifest": manifests[ManifestContent.DATA],
        "delete manifest": manifests[ManifestContent.DELETES],
        "data": files[0].path,
        "deletes": removed[0].path,
    }
    return Sample(
        catalog=catalog,
        files={kind: Path(location.removeprefix("file://")) for kind, location in locations.items()},
    )
