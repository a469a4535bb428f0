"""Rows of scan tasks: deletes, positions, filters, splits, errors."""

import math
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNaN, IsNull, LessThan, Or
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, NestedField, StringType

from dml.errors import CorruptFileError, NotSupportedError
from dml.model import columns
from dml.model.scan_task import KeyFilter
from dml.read.reader import TaskReader, scan_file
from dml.scan.split import split

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
)
ROWS = 1000


@pytest.fixture
def table(field):
    ids = np.arange(ROWS)
    names = pa.array([None if i % 10 == 9 else f"n{i % 7}" for i in ids.tolist()])
    amounts = pa.array([float("nan") if i % 100 == 50 else i / 2 for i in ids.tolist()])
    schema = pa.schema([field(1, "id", pa.int64()), field(2, "name", pa.string()), field(3, "amount", pa.float64())])
    return pa.table([pa.array(ids), names, amounts], schema=schema)


@pytest.fixture
def path(lake, table):
    return lake.parquet(table, row_group_size=64)


def ipc(*arrays):
    batch = pa.RecordBatch.from_arrays(list(arrays), names=[f"k{n}" for n in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


POSITION = {"metadata_columns": (columns.POS,)}


def test_a_file_is_read_as_it_is(lake, path, table):
    found = lake.read(lake.task(path), lake.context(SCHEMA))
    assert found.drop_columns("amount").equals(table.drop_columns("amount").cast(found.schema.remove(2)))
    np.testing.assert_array_equal(found.column("amount").to_numpy(), table.column("amount").to_numpy())


def test_columns_come_in_the_order_asked_for(lake, path):
    found = lake.read(lake.task(path), lake.context(SCHEMA, projected_ids=(3, 1)))
    assert found.column_names == ["amount", "id"]
    assert found.column("id").to_pylist() == list(range(ROWS))


def test_batches_have_at_most_the_rows_asked_for(lake, path):
    reader = TaskReader(lake.context(SCHEMA, batch_rows=100))
    sizes = [batch.num_rows for batch in reader.read(lake.task(path))]
    assert sum(sizes) == ROWS
    assert max(sizes) <= 100


def test_deleted_positions_are_ordinals_of_the_physical_file(lake, path):
    deleted = [0, 63, 64, 500, 999]
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, deleted))
    found = lake.read(task, lake.context(SCHEMA, projected_ids=(1,), **POSITION))
    assert found.column("id").to_pylist() == [i for i in range(ROWS) if i not in deleted]
    assert found.column(columns.POS).to_pylist() == found.column("id").to_pylist()


def test_positions_hold_under_pruned_row_groups_splits_and_deletes(lake, path):
    """Row groups that are skipped count for positions all the same."""
    deleted = [101, 700]
    vector = lake.deletion_vector(path, deleted)
    context = lake.context(SCHEMA, row_filter=GreaterThanOrEqual("id", 100), **POSITION)
    offsets = tuple(
        metadata.column(0).dictionary_page_offset or metadata.column(0).data_page_offset
        for metadata in map(pq.ParquetFile(path).metadata.row_group, range(16))
    )
    whole = lake.task(path, deletion_vector=vector, split_offsets=offsets)
    parts = [part for group in split([whole], 1, 8, open_file_cost=1) for part in group]
    assert len(parts) > 5
    found = sorted(pair for part in parts for pair in pairs(lake.read(part, context)))
    assert found == [(i, i) for i in range(100, ROWS) if i not in deleted]


def pairs(table):
    return list(zip(table.column("id").to_pylist(), table.column(columns.POS).to_pylist(), strict=True))


def test_every_row_is_in_exactly_one_split_whatever_the_offsets(lake, path):
    size = Path(path).stat().st_size
    for offsets in ((), (4,), (4, 10**9), (9, 4), tuple(range(4, size, 100))):
        parts = [p for g in split([lake.task(path, split_offsets=offsets)], 500, 3, open_file_cost=1) for p in g]
        ids = [i for part in parts for i in lake.read(part, lake.context(SCHEMA)).column("id").to_pylist()]
        assert sorted(ids) == list(range(ROWS)), offsets


def test_position_delete_files_apply_to_the_file_they_name(lake, path):
    other = path.replace("data.parquet", "other.parquet")
    deletes = pa.table({"file_path": [path, other, path, other], "pos": [3, 4, 5, 6]})
    whole = lake.parquet(deletes, "partition-deletes.parquet")
    own = lake.parquet(pa.table({"file_path": [path], "pos": [7]}), "file-deletes.parquet")
    task = lake.task(
        path, position_deletes=(lake.delete_ref(whole, 4), lake.delete_ref(own, 1, referenced_data_file=path))
    )
    reader = TaskReader(lake.context(SCHEMA))
    for _ in range(2):
        ids = pa.Table.from_batches(reader.read(task)).column("id").to_pylist()
        assert sorted(set(range(ROWS)) - set(ids)) == [3, 5, 7]


def test_equality_deletes_apply_though_their_column_is_not_read(lake, path, field):
    keys = pa.table([pa.array([3, 500])], schema=pa.schema([field(1, "id", pa.int64())]))
    names = pa.table(
        [pa.array(["n1", None]), pa.array([8, 9], pa.int64())],
        schema=pa.schema([field(2, "name", pa.string()), field(1, "id", pa.int64())]),
    )
    task = lake.task(
        path,
        equality_deletes=(
            lake.delete_ref(lake.parquet(keys, "eq1.parquet"), 2, equality_ids=(1,)),
            lake.delete_ref(lake.parquet(names, "eq2.parquet"), 2, equality_ids=(2, 1)),
        ),
    )
    found = lake.read(task, lake.context(SCHEMA, projected_ids=(3,), **POSITION))
    assert set(range(ROWS)) - set(found.column(columns.POS).to_pylist()) == {3, 500, 8, 9}


def test_all_rows_deleted_gives_nothing(lake, path):
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, list(range(ROWS))))
    assert lake.read(task, lake.context(SCHEMA)).num_rows == 0


def test_metadata_columns_alone_need_no_column_of_the_file(lake, path):
    names = (columns.FILE, columns.POS, columns.SPEC_ID, columns.FILE_ORDINAL)
    context = lake.context(SCHEMA, projected_ids=(), metadata_columns=names)
    found = lake.read(lake.task(path, file_ordinal=7, deletion_vector=lake.deletion_vector(path, [1])), context)
    assert found.column(columns.POS).to_pylist() == [0, *range(2, ROWS)]
    assert found.slice(0, 1).to_pylist() == [
        {columns.FILE: path, columns.POS: 0, columns.SPEC_ID: 0, columns.FILE_ORDINAL: 7}
    ]


# ---- filters --------------------------------------------------------------------------------------------------

FILTERS = [
    (EqualTo("id", 70), lambda r: r["id"] == 70),
    (In("id", [1, 999, 5000]), lambda r: r["id"] in {1, 999}),
    (And(GreaterThan("id", 10), LessThan("id", 13)), lambda r: 10 < r["id"] < 13),
    (IsNull("name"), lambda r: r["name"] is None),
    (EqualTo("name", "n3"), lambda r: r["name"] == "n3"),
    (Or(EqualTo("name", "n3"), IsNull("name")), lambda r: r["name"] in {"n3", None}),
    (GreaterThan("amount", 498.0), lambda r: not r["amount"] <= 498.0),
    (IsNaN("amount"), lambda r: r["amount"] != r["amount"]),
    (LessThan("amount", 1.0), lambda r: r["amount"] < 1.0),
    (EqualTo("id", 5000), lambda r: False),
]


@pytest.mark.parametrize(("row_filter", "expected"), FILTERS, ids=[str(f) for f, _ in FILTERS])
@pytest.mark.parametrize("projected", [(1, 2, 3), (1,), (2,), ()])
def test_rows_that_cannot_match_stay_in_the_worker(lake, path, table, row_filter, expected, projected):
    context = lake.context(SCHEMA, projected_ids=projected, row_filter=row_filter, **POSITION)
    found = lake.read(lake.task(path), context).column(columns.POS).to_pylist()
    assert found == [row["id"] for row in table.to_pylist() if expected(row)]


def test_a_filter_survives_pickling_with_its_context(lake, path):
    context = lake.context(SCHEMA, row_filter=EqualTo("ID", 70))
    assert lake.read(lake.task(path), pickle.loads(pickle.dumps(context))).num_rows == 1


@pytest.mark.parametrize("keys", [[5, 70, 70, None, 100_000], [], [-(2**62), 2**62, 999]])
def test_a_key_filter_keeps_the_rows_whose_key_is_in_the_set(lake, path, keys):
    values = ipc(pa.array(keys, pa.int64()))
    context = lake.context(SCHEMA, projected_ids=(3,), key_filter=KeyFilter(column_ids=(1,), values=values), **POSITION)
    found = lake.read(lake.task(path), context).column(columns.POS).to_pylist()
    assert found == sorted({key for key in keys if key is not None and 0 <= key < ROWS})


def test_a_key_with_a_null_matches_no_row(lake, path):
    values = ipc(pa.array(["n3", None]))
    context = lake.context(SCHEMA, key_filter=KeyFilter(column_ids=(2,), values=values))
    assert set(lake.read(lake.task(path), context).column("name").to_pylist()) == {"n3"}


def test_a_key_of_several_columns_matches_as_a_whole(lake, path):
    values = ipc(pa.array([3, 4, 9], pa.int64()), pa.array(["n3", "n3", None]))
    context = lake.context(SCHEMA, key_filter=KeyFilter(column_ids=(1, 2), values=values))
    assert lake.read(lake.task(path), context).column("id").to_pylist() == [3]


def test_a_key_of_floats_keeps_what_sparks_join_takes_for_equal(lake, path):
    """-0.0 and 0.0 are one key to a join, but two to Arrow."""
    keys = KeyFilter(column_ids=(3,), values=ipc(pa.array([0.5, -0.0, -math.nan, 2000])))
    found = lake.read(lake.task(path), lake.context(SCHEMA, projected_ids=(1,), key_filter=keys))
    assert found.column("id").to_pylist() == [0, 1, *range(50, ROWS, 100)]


def test_a_null_safe_key_keeps_the_rows_with_a_null(lake, path):
    keys = KeyFilter(column_ids=(2,), values=ipc(pa.array(["n3", None])), null_safe=(0,))
    found = lake.read(lake.task(path), lake.context(SCHEMA, key_filter=keys)).column("name").to_pylist()
    assert set(found) == {"n3", None}
    assert found.count(None) == ROWS // 10


def test_filters_and_deletes_apply_together(lake, path):
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, [70, 71]))
    assert lake.read(task, lake.context(SCHEMA, row_filter=In("id", [70, 72]))).column("id").to_pylist() == [72]


# ---- whole files, for writers ---------------------------------------------------------------------------------


def test_scan_file_has_all_rows_and_says_which_are_live(lake, path):
    deleted = [0, 200, 999]
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, deleted))
    context = lake.context(SCHEMA, row_filter=EqualTo("id", 1), batch_rows=128)
    seen = []
    for part in scan_file(task, context):
        ids = part.batch.column("id").to_numpy()
        assert part.start_position == ids[0]
        assert part.batch.schema == TaskReader(context, spark_types=False).output_schema
        live = np.ones(len(ids), bool) if part.live is None else part.live
        assert ids[~live].tolist() == [i for i in deleted if ids[0] <= i <= ids[-1]]
        seen += ids.tolist()
    assert seen == list(range(ROWS))


# ---- errors ---------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(lake):
    with pytest.raises(CorruptFileError, match=r"gone\.parquet") as caught:
        lake.read(lake.task(str(lake.folder / "gone.parquet")), lake.context(SCHEMA))
    assert caught.value.context["file"].endswith("gone.parquet")


@pytest.mark.parametrize("name", ["x.parquet", "x.orc", "x.avro"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"Obj\x01" + b"\xff" * 30, b"x" * 1000, b"PAR1" + b"\0" * 100 + b"PAR1"]
)
def test_a_broken_file_is_named(lake, name, content):
    file = lake.folder / name
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=name):
        lake.read(lake.task(str(file)), lake.context(SCHEMA))


def test_a_damaged_page_is_reported(lake, path):
    data = bytearray(Path(path).read_bytes())
    data[4:400] = b"\xff" * 396
    Path(path).write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"data\.parquet"):
        lake.read(lake.task(path), lake.context(SCHEMA))


def test_a_deletion_vector_outside_its_file_is_reported(lake, path):
    for changes in ({"content_offset": 10**12}, {"content_size_in_bytes": 10**12}, {"content_size_in_bytes": None}):
        task = lake.task(path, deletion_vector=lake.deletion_vector(path, [1], **changes))
        with pytest.raises(CorruptFileError, match="puffin"):
            lake.read(task, lake.context(SCHEMA))


def test_a_deletion_vector_must_have_the_cardinality_of_its_entry(lake, path):
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, [1, 2], record_count=3))
    with pytest.raises(CorruptFileError, match="puffin"):
        lake.read(task, lake.context(SCHEMA))


def test_an_equality_delete_of_an_unknown_column_is_reported(lake, path):
    other = lake.parquet(pa.table({"x": [1]}), "eq.parquet")
    task = lake.task(path, equality_deletes=(lake.delete_ref(other, 1, equality_ids=(77,)),))
    with pytest.raises(CorruptFileError, match=r"eq\.parquet"):
        lake.read(task, lake.context(SCHEMA))


def test_an_equality_delete_of_a_nested_column_is_refused(lake, path, field):
    nested = ListType(5, LongType(), element_required=False)
    schema = Schema(*SCHEMA.fields, NestedField(4, "tags", nested, required=False))
    keys = pa.table([pa.array([[1]])], schema=pa.schema([field(4, "tags", pa.list_(field(5, "element", pa.int64())))]))
    task = lake.task(path, equality_deletes=(lake.delete_ref(lake.parquet(keys, "eq.parquet"), 1, equality_ids=(4,)),))
    with pytest.raises(NotSupportedError, match=r"eq\.parquet.*'tags' of type list<long>"):
        lake.read(task, lake.context(schema))


def test_equality_deletes_from_before_a_column_became_long(lake, path, field):
    keys = pa.table([pa.array([7, 8, None], pa.int32())], schema=pa.schema([field(1, "id", pa.int32())]))
    task = lake.task(path, equality_deletes=(lake.delete_ref(lake.parquet(keys, "eq.parquet"), 3, equality_ids=(1,)),))
    found = lake.read(task, lake.context(SCHEMA, projected_ids=(1,)))
    assert found.column("id").to_pylist() == [i for i in range(ROWS) if i not in {7, 8}]


def test_a_required_column_that_is_not_there_is_reported(lake, path):
    schema = Schema(*SCHEMA.fields, NestedField(4, "must", IntegerType(), required=True))
    with pytest.raises(CorruptFileError, match="must"):
        lake.read(lake.task(path), lake.context(schema))


def test_another_format_is_refused(lake, path):
    with pytest.raises(NotSupportedError, match="csv"):
        lake.read(lake.task(path, file_format="csv"), lake.context(SCHEMA))
