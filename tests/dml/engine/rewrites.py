"""Tables with a random past and their compaction in this process: without a Spark session a test takes milliseconds."""

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from pyspark.sql import SparkSession

import dml.engine.rewrite_data_files as rewriting
from dml.catalog import create_table
from dml.catalog.registry import ResolvedTable
from dml.commit import AppendFiles, RowDelta, commit
from dml.engine.engine import Engine, StatementSettings
from dml.engine.range_sort import RangeSort
from dml.engine.rewrite_data_files import Rewrite, RewriteDataFiles, counters, sort_order_of, strategy_of
from dml.engine.writes import write_context
from dml.maintenance import RewriteOptions
from dml.model.columns import FILE_ORDINAL, LAST_UPDATED_SEQUENCE_NUMBER, POS, ROW_ID, ROW_OPERATION, DeltaLayout
from dml.model.scan_task import ScanContext, ScanTask
from dml.model.write_task import TaskCommit, TaskReport, report_from_bytes
from dml.options import Command
from dml.read.reader import TargetFiles, TaskReader
from dml.scan.planner import plan_scan
from dml.scan.table_scan import TableScan
from dml.verification import verify
from dml.write.delta_writer import write_task
from dml.write.file_layout import arrow_field
from dml.write.output_files import TaskIdentity
from dml.write.ranged_rows import PIECE_SCHEMA, range_bounds
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.commit.builders import equality_deletes

NAME = ("db", "t")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "n", IntegerType(), required=False),
    NestedField(
        4,
        "s",
        StructType(
            NestedField(5, "a", IntegerType(), required=False), NestedField(6, "b", StringType(), required=False)
        ),
        required=False,
    ),
    NestedField(7, "l", ListType(8, IntegerType(), element_required=False), required=False),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "id_bucket"), spec_id=0)

ALL = {"rewrite-all": "true"}


class NoSpark:
    """The parts of an engine that a compaction needs. Its tasks are small, so the driver runs them."""

    spark = None
    lazy_session = SimpleNamespace(is_deferred=True)

    @staticmethod
    def commit_summary() -> dict[str, str]:
        return {}

    @staticmethod
    def max_failures() -> int:
        return 1


def sort_in_process(spark: SparkSession | None, sort: RangeSort) -> list[TaskReport]:
    """`sort_by_ranges`, each stage as one task of this process."""
    assert spark is None
    sample, tasks = sort.sample()
    found = [row for batch in sample([numbers(tasks)]) for row in zip(*batch.to_pydict().values(), strict=True)]
    split, tasks = sort.split(range_bounds(found, sort.ranges))
    pieces = pa.Table.from_batches(split([numbers(tasks)]), PIECE_SCHEMA)
    (report,) = sort.write()(pieces.to_batches(max_chunksize=3))
    return [report_from_bytes(report.column(0)[0].as_py())]


def numbers(count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(count))], names=["n"])


def in_process(patch: pytest.MonkeyPatch) -> None:
    """Let compactions of this test run without Spark."""
    patch.setattr(rewriting, "sort_by_ranges", sort_in_process)
    patch.setattr(rewriting, "inherit_job_properties", lambda _, function: function)
    patch.setattr(rewriting, "check_reads", lambda *_: None)
    patch.setattr(rewriting, "cancel_tagged_jobs", lambda *_: None)
    patch.setattr(rewriting, "tag_jobs", lambda *_, **__: nullcontext())


def rewrite(
    table: Table, given: Mapping[str, Any] | None = None, branch: str = MAIN_BRANCH, order: str | None = None
) -> Rewrite:
    """A compaction of the newest state of a table; with an order, by the strategy `sort`."""
    table = table.catalog.load_table(NAME)
    snapshot = table.snapshot_by_name(branch)
    assert snapshot is not None
    texts = {key: str(value) for key, value in (given or {}).items()}
    found = sort_order_of(RewriteDataFiles(sort_order=order), table)
    return Rewrite(
        engine=cast("Engine", NoSpark()),
        settings=StatementSettings(),
        resolved=ResolvedTable(catalog_name="lake", catalog=table.catalog, identifier=NAME, table=table),
        branch=branch,
        snapshot=snapshot,
        options=RewriteOptions.of(
            texts, table.properties, table.spec().spec_id, table.specs().keys(), strategy=strategy_of(found)
        ),
        order=found,
    )


def compact(
    table: Table, given: Mapping[str, Any] | None = None, branch: str = MAIN_BRANCH, order: str | None = None
) -> tuple[int, ...]:
    """Compact a table, and return the counters."""
    rewritten, failed = rewrite(table, given, branch, order).run()
    return counters(rewritten, failed=failed)


def rows(table: Table, snapshot_id: int | None = None) -> list[str]:
    """All rows, with their ids and sequence numbers on version 3, in the order of their text."""
    table = table.catalog.load_table(NAME)
    names = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if table.format_version > 2 else ()
    current = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    scan = TableScan(
        table=table,
        snapshot_id=current,
        schema=table.schema(),
        columns=tuple(column.field_id for column in table.schema().fields),
        metadata_columns=names,
    )
    tasks = scan.plan().tasks
    reader = TaskReader(scan.context(tasks), spark_types=False)
    return sorted(str(row) for task in tasks for batch in reader.read(task) for row in batch.to_pylist())


def files(table: Table) -> set[Path]:
    """All files below the table's data folder."""
    folder = Path(table.location().removeprefix("file://")) / "data"
    return {path for path in folder.rglob("*") if path.is_file()}


def assert_sound(table: Table) -> None:
    """The snapshot's files hold what its metadata says."""
    table = table.catalog.load_table(NAME)
    assert verify(table, table.current_snapshot(), "t", every_file=True).ok


@dataclass
class History:
    """A table, and random changes of it.

    Attributes:
        table: The table.
        random: Decides.
        next_id: The next value of `id`.
    """

    table: Table
    random: random.Random
    next_id: int = 0
    steps: list[str] = field(default_factory=list)

    @staticmethod
    def new(
        catalog: Catalog, version: int, seed: int = 0, spec: PartitionSpec | None = None, **properties: str
    ) -> "History":
        chosen = random.Random(seed)
        if spec is None:
            spec = chosen.choice([UNPARTITIONED_PARTITION_SPEC, BY_P, BY_BUCKET])
        given = {"format-version": str(version), **properties}
        return History(create_table(catalog, NAME, SCHEMA, partition_spec=spec, properties=given), chosen)

    def reload(self) -> Table:
        self.table = self.table.catalog.load_table(NAME)
        return self.table

    def value(self, kind: IcebergType) -> Any:
        if self.random.random() < 0.1:
            return None
        match kind:
            case StructType():
                return {inner.name: self.value(inner.field_type) for inner in kind.fields}
            case ListType():
                return [self.value(kind.element_type) for _ in range(self.random.randrange(4))]
            case StringType():
                return self.random.choice("abc") * self.random.randrange(1, 4)
            case _:
                return self.random.randrange(1000)

    def batch(self, number: int, **fixed: Any) -> pa.RecordBatch:
        columns = []
        for column in self.table.schema().fields:
            made: list[Any] = [fixed.get(column.name, self.value(column.field_type)) for _ in range(number)]
            if column.name == "id":
                made = list(range(self.next_id, self.next_id + number))
                self.next_id += number
            elif column.name == "p" and "p" not in fixed:
                made = [self.random.choice([None, "a", "b"]) for _ in range(number)]
            columns.append(pa.array(made, arrow_field(column).type))
        return pa.RecordBatch.from_arrays(columns, names=[f"v{place}" for place in range(len(columns))])

    def append(self, number: int = 10, file_format: str = "parquet", branch: str = MAIN_BRANCH, **fixed: Any) -> None:
        table = self.reload()
        context = write_context(table, str(uuid.uuid4()), overriding={"write.format.default": file_format})
        ids = tuple(column.field_id for column in table.schema().fields)
        spec = WriterSpec(job=WriteJob.ROWS, context=context, layout=DeltaLayout(value_ids=ids, insert_ids=ids))
        written = write_task([self.batch(number, **fixed)], spec, TaskIdentity())
        assert isinstance(written, TaskCommit), written
        commit(table, AppendFiles(data_files=written.data_files), branch=branch, create_branch=True)

    def tasks(self) -> tuple[ScanTask, ...]:
        table = self.reload()
        return plan_scan(table, table.metadata.current_snapshot_id).tasks

    def delete(self, places: Iterable[tuple[int, Sequence[int]]] = ()) -> None:
        """Mark rows of data files as deleted: ordinals and positions, or random ones."""
        tasks, table = self.tasks(), self.table
        context = write_context(table, str(uuid.uuid4()))
        scan = TableScan(
            table=table, snapshot_id=table.metadata.current_snapshot_id, schema=table.schema(), columns=()
        ).context(tasks)
        chosen = dict(places) or {
            place: self.live(task, scan) for place, task in enumerate(tasks) if self.random.random() < 0.6
        }
        pairs = [(place, position) for place, positions in sorted(chosen.items()) for position in positions]
        if not pairs:
            return
        delta = pa.RecordBatch.from_arrays(
            [
                pa.array([1] * len(pairs), pa.int32()),
                pa.array([place for place, _ in pairs], pa.int32()),
                pa.array([position for _, position in pairs], pa.int64()),
            ],
            names=[ROW_OPERATION, FILE_ORDINAL, POS],
        )
        spec = WriterSpec(
            job=WriteJob.MERGE_ON_READ,
            context=context,
            layout=DeltaLayout(),
            files=TargetFiles.of(tasks, scan),
            deletes=True,
        )
        written = write_task([delta], spec, TaskIdentity())
        assert isinstance(written, TaskCommit), written
        action = RowDelta(
            command=Command.DELETE,
            delete_files=written.delete_files,
            rewritten_delete_files=frozenset(written.rewritten_delete_files),
            referenced_data_files=frozenset(written.referenced_data_files),
            starting_snapshot_id=table.metadata.current_snapshot_id,
        )
        commit(table, action)

    def live(self, task: ScanTask, context: ScanContext) -> list[int]:
        """Some positions of live rows."""
        from_file = TaskReader(
            ScanContext(**{name: getattr(context, name) for name in context.__slots__} | {"metadata_columns": (POS,)}),
            spark_types=False,
        )
        positions = [place for batch in from_file.read(task) for place in batch.column(0).to_pylist()]
        return sorted(self.random.sample(positions, self.random.randrange(len(positions) + 1)))

    def delete_by_key(self) -> None:
        """An equality delete of one id, in the partition of a data file."""
        tasks = self.tasks()
        if not tasks:
            return
        of = self.random.choice(tasks)
        delete = equality_deletes(self.table, cast("Any", of), self.random.randrange(self.next_id + 1))
        head = self.table.metadata.current_snapshot_id
        commit(self.table, RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=head))

    def evolve_schema(self) -> None:
        names = [column.name for column in self.reload().schema().fields]
        with self.table.update_schema() as update:
            match self.random.randrange(4):
                case 0 if "n" in names and isinstance(self.table.schema().find_type("n"), IntegerType):
                    update.update_column("n", LongType())
                case 1 if "n" in names:
                    update.rename_column("n", "m")
                case 2 if "l" in names:
                    update.delete_column("l")
                case _:
                    update.add_column(f"c{self.table.metadata.last_column_id}", StringType())

    def evolve_spec(self) -> None:
        """Remove a field, or add a bucket of its own number."""
        fields = [one for one in self.reload().spec().fields if not isinstance(one.transform, VoidTransform)]
        with self.table.update_spec() as update:
            if fields and self.random.random() < 0.5:
                update.remove_field(fields[0].name)
            else:
                number = 10 + len(self.table.specs())
                update.add_field("id", BucketTransform(number), f"id_bucket_{number}")

    def run(self, steps: int) -> None:
        """Change the table at random."""
        formats = ["parquet", "parquet", "orc", "avro"]
        choices = ["append"] * 5 + ["evolve_schema", "evolve_spec"]
        if self.table.format_version > 1:
            choices += ["delete"] * 3 + ["delete_by_key"]
        self.append(self.random.randrange(1, 30))
        for _ in range(steps):
            step = self.random.choice(choices)
            self.steps.append(step)
            if step == "append":
                self.append(self.random.randrange(1, 30), self.random.choice(formats))
            else:
                getattr(self, step)()
