"""`partitionBy` and `bucketBy` of an append on Spark Connect must be the table's partitioning."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType

from dml.errors import AnalysisError, ErrorKind
from dml.spark_connect.columns import make_partition_term
from dml.spark_connect.writes import WriteAction, WriteCall, check_partitioning
from dml.sqlparse.statements import TransformTerm

ID = make_partition_term("bucket", ("ID",), 4)
CITY = make_partition_term("identity", ("city",))


def table_of(*fields: tuple[int, Transform[Any, Any], str]) -> Any:
    """Return what is needed of a table whose spec has these source ids, transforms and names."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "city", StringType(), required=False)
    )
    numbered = enumerate(fields, 1000)
    spec = PartitionSpec(*(PartitionField(source, number, kind, name) for number, (source, kind, name) in numbered))
    return SimpleNamespace(schema=lambda: schema, spec=lambda: spec)


def call_of(*terms: TransformTerm) -> WriteCall:
    rows: Any = None
    return WriteCall(rows=rows, table=("lake", "db", "t"), action=WriteAction.APPEND_OR_CREATE, partitioning=terms)


def test_partition_fields_match_by_column_and_transform() -> None:
    """Neither the name of a field counts, nor a field whose column was dropped."""
    table = table_of(
        (2, VoidTransform(), "city"), (1, BucketTransform(4), "id_bucket_4"), (2, IdentityTransform(), "place")
    )
    check_partitioning(call_of(ID, CITY), table)
    check_partitioning(call_of(), table)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ((CITY,), r"\(bucket\(4, id\)\), not by \(city\)"),
        ((ID, CITY), r"\(bucket\(4, id\)\), not by \(bucket\(4, ID\), city\)"),
        ((make_partition_term("bucket", ("id",), 8),), r"not by \(bucket\(8, id\)\)"),
    ],
)
def test_another_partitioning_is_refused(terms: tuple[TransformTerm, ...], named: str) -> None:
    with pytest.raises(AnalysisError, match=named) as caught:
        check_partitioning(call_of(*terms), table_of((1, BucketTransform(4), "id_bucket")))
    assert caught.value.kind is ErrorKind.INVALID_VALUE


def test_an_unpartitioned_table_is_not_partitioned_by_a_column() -> None:
    with pytest.raises(AnalysisError, match=r"is partitioned by nothing, not by \(city\)"):
        check_partitioning(call_of(CITY), table_of())
