"""Which delete files apply to which data file: the rules of scan planning, and against a plain reading of them."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.deletes.delete_file_index import DeleteEntry, DeleteFileIndex, DeleteKind, partition_key
from dml.errors import CorruptFileError

DV, POSITIONS, EQUALITY = DeleteKind.DELETION_VECTOR, DeleteKind.POSITION_DELETES, DeleteKind.EQUALITY_DELETES


def entry(kind, sequence_number, *, spec_id=0, partition=(), payload=None, **fields):
    return DeleteEntry(
        payload=payload, kind=kind, spec_id=spec_id, partition=partition, data_sequence_number=sequence_number, **fields
    )


def applied(entries, *, path="a", spec_id=0, partition=(), sequence_number=5, unpartitioned=()):
    return DeleteFileIndex(entries, unpartitioned).for_data_file(path, spec_id, partition, sequence_number)


def test_nothing_applies_where_nothing_is():
    assert DeleteFileIndex([]).is_empty
    assert not applied([])
    assert not applied([entry(DV, 9, referenced_data_file="other")])


@pytest.mark.parametrize("kind", DeleteKind)
def test_index_with_one_entry_is_not_empty(kind):
    assert not DeleteFileIndex([entry(kind, 1, referenced_data_file="a" if kind is DV else None)]).is_empty
    assert not DeleteFileIndex(
        [entry(kind, 1, partition=(1,), referenced_data_file="a" if kind is DV else None)]
    ).is_empty


@pytest.mark.proves("S3", "S5")
def test_position_deletes_apply_from_the_data_file_s_own_commit_on():
    entries = [entry(POSITIONS, number) for number in (6, 4, 5)]
    assert [found.data_sequence_number for found in applied(entries).position_deletes] == [5, 6]


@pytest.mark.proves("S4", "S5")
def test_equality_deletes_apply_to_older_data_only():
    entries = [entry(EQUALITY, number, equality_ids=(1,)) for number in (6, 4, 5, 7)]
    assert [found.data_sequence_number for found in applied(entries).equality_deletes] == [6, 7]


@pytest.mark.proves("S3")
def test_position_deletes_stay_in_their_spec_and_partition():
    entries = [
        entry(POSITIONS, 9, spec_id=1, partition=(1,), payload="same"),
        entry(POSITIONS, 9, spec_id=1, partition=(2,), payload="other partition"),
        entry(POSITIONS, 9, spec_id=2, partition=(1,), payload="other spec"),
        entry(POSITIONS, 9, spec_id=1, partition=(None,), payload="null partition"),
        entry(POSITIONS, 9, payload="unpartitioned"),
    ]
    assert [found.payload for found in applied(entries, spec_id=1, partition=(1,)).position_deletes] == ["same"]


@pytest.mark.proves("S4")
def test_equality_deletes_of_an_unpartitioned_spec_apply_everywhere():
    entries = [
        entry(EQUALITY, 8, spec_id=1, partition=(1,), payload="same"),
        entry(EQUALITY, 9, spec_id=1, partition=(2,), payload="other partition"),
        entry(EQUALITY, 7, spec_id=0, payload="global"),
        entry(EQUALITY, 9, spec_id=3, partition=(None,), payload="void"),
        entry(EQUALITY, 5, spec_id=0, payload="too old"),
    ]
    found = applied(entries, spec_id=1, partition=(1,), unpartitioned={3}).equality_deletes
    assert [each.payload for each in found] == ["global", "same", "void"]
    assert [each.payload for each in applied(entries, spec_id=1, partition=(1,)).equality_deletes] == ["global", "same"]


@pytest.mark.proves("P5")
def test_position_delete_file_that_names_a_data_file_applies_to_it_alone():
    path = "s3://bucket/ü.parquet"
    entries = [
        entry(POSITIONS, 9, referenced_data_file=path, payload="named"),
        entry(POSITIONS, 7, lower_file_path=path.encode(), upper_file_path=path.encode(), payload="equal bounds"),
        entry(POSITIONS, 8, lower_file_path=b"a", upper_file_path=b"z", payload="whole partition"),
        entry(POSITIONS, 8, lower_file_path=b"x", payload="half bounds"),
        entry(POSITIONS, 4, referenced_data_file=path, payload="too old"),
        entry(POSITIONS, 9, referenced_data_file="s3://bucket/other.parquet", payload="other"),
    ]
    found = applied(entries, path=path).position_deletes
    assert [each.payload for each in found] == ["equal bounds", "whole partition", "half bounds", "named"]
    assert [each.payload for each in applied(entries, path="b").position_deletes] == ["whole partition", "half bounds"]


@pytest.mark.proves("DV3", "S2", "S3")
def test_deletion_vector_hides_position_deletes_but_not_equality_deletes():
    entries = [
        entry(POSITIONS, 9),
        entry(POSITIONS, 9, referenced_data_file="a"),
        entry(EQUALITY, 9, equality_ids=(1,)),
        entry(DV, 5, referenced_data_file="a", payload="dv"),
    ]
    found = applied(entries)
    assert found.deletion_vector.payload == "dv"
    assert not found.position_deletes
    assert len(found.equality_deletes) == 1
    other = applied(entries, path="b")
    assert other.deletion_vector is None
    assert len(other.position_deletes) == 1


@pytest.mark.proves("DV7", "S2")
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [entry(DV, 9, referenced_data_file="a"), entry(DV, 8, referenced_data_file="a")],
            "Two deletion vectors name .* a;",
        ),
        ([entry(DV, 9)], "does not name its data file"),
        ([entry(DV, 4, referenced_data_file="a")], "sequence number 4, older than the data file's 5"),
        ([entry(DV, 9, referenced_data_file="a", spec_id=1)], "spec 1 and partition"),
        ([entry(DV, 9, referenced_data_file="a", partition=(1,))], "spec 0 and partition"),
        ([entry(POSITIONS, 9, referenced_data_file="a", partition=(1,))], "position-deletes file of a has spec 0"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(entries, message):
    with pytest.raises(CorruptFileError, match=message):
        applied(entries)


NANS = [math.nan, -math.nan, struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0]]


@pytest.mark.parametrize("nan", NANS)
def test_every_nan_is_one_partition(nan):
    assert applied([entry(POSITIONS, 9, partition=(nan,))], partition=(math.nan,)).position_deletes


def test_negative_zero_is_a_partition_of_its_own():
    assert not applied([entry(POSITIONS, 9, partition=(-0.0,))], partition=(0.0,))
    assert applied([entry(POSITIONS, 9, partition=(-0.0,))], partition=(-0.0,))
    assert partition_key(0, (1, "x", None, b"y", 0.5)) == partition_key(0, (1, "x", None, b"y", 0.5))


PARTITIONS = st.sampled_from([(0, ()), (1, (1,)), (1, (2,)), (1, (None,)), (2, (math.nan,)), (2, (-0.0,)), (2, (0.0,))])


@st.composite
def entries_of_any_kind(draw):
    spec_id, partition = draw(PARTITIONS)
    kind = draw(st.sampled_from([POSITIONS, EQUALITY]))
    return entry(kind, draw(st.integers(0, 6)), spec_id=spec_id, partition=partition)


@given(st.lists(entries_of_any_kind(), max_size=20), PARTITIONS, st.integers(0, 6))
def test_index_agrees_with_the_rules_read_one_by_one(entries, data_partition, data_number):
    spec_id, partition = data_partition

    def same(found):
        return repr((found.spec_id, found.partition)) == repr(data_partition)

    found = applied(entries, path="a", spec_id=spec_id, partition=partition, sequence_number=data_number)
    by_number = sorted(entries, key=lambda each: each.data_sequence_number)
    assert list(found.position_deletes) == [
        each for each in by_number if each.kind is POSITIONS and same(each) and each.data_sequence_number >= data_number
    ]
    expected = [
        each
        for each in by_number
        if each.kind is EQUALITY and (same(each) or not each.partition) and each.data_sequence_number > data_number
    ]
    assert sorted(map(id, found.equality_deletes)) == sorted(map(id, expected))
    numbers = [each.data_sequence_number for each in found.equality_deletes]
    assert numbers == sorted(numbers)
