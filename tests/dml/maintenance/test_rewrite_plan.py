"""The files that a compaction chooses, and how it groups and cuts them: the constants are the reference's results."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from dml.errors import AnalysisError
from dml.maintenance import RewriteOptions, RewritePlan, copied_text, plan_rewrite
from dml.maintenance.rewrite_options import FURTHER, OPTIONS
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.options import MAINTENANCE_REWRITE_OPTIONS

MB = 2**20
SPEC = 1


def options(given: Mapping[str, Any] | None = None, **properties: str) -> RewriteOptions:
    texts = {key: str(value) for key, value in (given or {}).items()}
    return RewriteOptions.of(texts, properties, SPEC, (0, SPEC))


ALL = {"rewrite-all": "true"}


def file(size: int, *, spec_id: int = SPEC, **given: Any) -> ScanTask:
    """A scan task of a whole file; `planned` numbers it."""
    fields = {"record_count": 100, "partition": (), "data_sequence_number": 1, "path": "", "file_format": "parquet"}
    sizes = {"file_size_in_bytes": size, "start": 0, "length": size}
    return ScanTask(**{"file_ordinal": 0, "spec_id": spec_id, **sizes, **fields, **given})


def deletes(rows: int, *, of: str | None = "f", vector: bool = False) -> DeleteFileRef:
    return DeleteFileRef(
        path="d",
        file_format="puffin" if vector else "parquet",
        content_offset=4 if vector else None,
        content_size_in_bytes=8 if vector else None,
        record_count=rows,
        file_size_in_bytes=100,
        referenced_data_file=of,
        data_sequence_number=2,
    )


def numbered(files: Sequence[ScanTask]) -> list[ScanTask]:
    return [
        ScanTask(**{name: getattr(one, name) for name in one.__slots__} | {"file_ordinal": place, "path": f"f{place}"})
        for place, one in enumerate(files)
    ]


def planned(
    files: Sequence[ScanTask], given: Mapping[str, Any], places: Sequence[float] | None = None
) -> tuple[RewritePlan, list[list[int]]]:
    """A plan, and the ordinals of its groups' files."""
    plan = plan_rewrite(numbered(files), options(given), SPEC, places)
    return plan, [[task.file_ordinal for task in group.tasks] for group in plan.groups]


SIZES = {"min-file-size-bytes": 250, "target-file-size-bytes": 500, "max-file-size-bytes": 750}
BUCKETS = [file(10, partition=(0,))] * 3 + [file(11, partition=(1,))] * 2 + [file(50, partition=(2,))]


@pytest.mark.parametrize(
    ("files", "given", "groups"),
    [
        # By size: smaller and larger files, one group.
        ([file(100), file(450), file(1000)], SIZES, [[0, 2]]),
        # Enough files; enough bytes; a single large file.
        ([file(100)] * 4, {**SIZES, "min-input-files": 3, "target-file-size-bytes": 700}, [[0, 1, 2, 3]]),
        ([file(100)] * 3, {"min-file-size-bytes": 200, "target-file-size-bytes": 250}, [[0, 1, 2]]),
        ([file(2000)], {"target-file-size-bytes": 250}, [[0]]),
        # Not enough of either.
        ([file(100)] * 4, {**SIZES, "min-file-size-bytes": 200}, []),
        ([file(100)], {**SIZES, "min-input-files": 1}, []),
        # By deletes.
        (
            [
                file(1000, position_deletes=(deletes(1),) * 3),
                file(1001, position_deletes=(deletes(1),)),
            ],
            {"min-file-size-bytes": 0, "delete-file-threshold": 2},
            [[0]],
        ),
        (
            [
                file(1000, deletion_vector=deletes(20, vector=True)),
                file(1001, deletion_vector=deletes(19, vector=True)),
            ],
            {"min-file-size-bytes": 0, "delete-ratio-threshold": 0.2},
            [[0]],
        ),
        # Deletes that are not of this file alone do not count towards the ratio.
        (
            [file(1000, position_deletes=(deletes(90, of=None),), equality_deletes=(deletes(90, of=None),))],
            {"min-file-size-bytes": 0},
            [],
        ),
        # By partition, by size and number.
        (BUCKETS, ALL, [[0, 1, 2], [3, 4], [5]]),
        (BUCKETS, {**ALL, "max-file-group-size-bytes": 10}, [[0], [1], [2], [3], [4], [5]]),
        (BUCKETS, {**ALL, "max-file-group-input-files": 2}, [[0, 1], [2], [3, 4], [5]]),
        (BUCKETS, {**ALL, "max-files-to-rewrite": 4}, [[0, 1, 2], [3]]),
        (BUCKETS, {**ALL, "max-files-to-rewrite": 500}, [[0, 1, 2], [3, 4], [5]]),
        (BUCKETS, {**ALL, "rewrite-job-order": "files-asc"}, [[5], [3, 4], [0, 1, 2]]),
        (BUCKETS, {**ALL, "rewrite-job-order": "bytes-asc"}, [[3, 4], [0, 1, 2], [5]]),
        (BUCKETS, {**ALL, "rewrite-job-order": "bytes-desc"}, [[5], [0, 1, 2], [3, 4]]),
        (BUCKETS, {**ALL, "rewrite-job-order": "files-desc"}, [[0, 1, 2], [3, 4], [5]]),
        # Files of other specs are one pool, whatever their partitions, with the files of the partition of NULLs.
        (
            [
                file(1, spec_id=0, partition=(7,)),
                file(1, partition=(7,)),
                file(1, spec_id=0),
                file(1, partition=(None,)),
            ],
            ALL,
            [[0, 2, 3], [1]],
        ),
    ],
)
def test_the_files_of_the_reference_are_chosen(
    files: list[ScanTask], given: dict[str, Any], groups: list[list[int]]
) -> None:
    assert planned(files, given)[1] == groups


def test_files_of_a_sorted_table_are_packed_with_their_neighbours() -> None:
    plan, groups = planned([file(10)] * 6, {**ALL, "max-file-group-size-bytes": 20}, [3.0, 0.0, 2.0, 1.0, 5.0, 4.0])
    assert groups == [[1, 3], [2, 0], [5, 4]]
    assert [group.number for group in plan.groups] == [1, 2, 3]


@pytest.mark.parametrize(
    ("target", "size", "files"),
    [(21, 30, 2), (21, 22, 1), (21, 50, 3), (250, 200, 1), (250, 600, 3), (100, 100, 1), (100, 99, 1), (100, 1050, 10)],
)
def test_the_number_of_new_files_is_that_of_the_reference(target: int, size: int, files: int) -> None:
    assert options({"target-file-size-bytes": target}).expected_files(size) == files


def runs(files: Sequence[ScanTask], given: Mapping[str, Any], parallelism: int = 2) -> list[list[tuple[int, int, int]]]:
    """For each run of the only group: file, start and end of each part."""
    plan, _ = planned(files, {**ALL, **given})
    (group,) = plan.groups
    return [
        [(task.file_ordinal, task.start, task.start + task.length) for task in run.tasks]
        for run in group.runs(plan.options, parallelism)
    ]


def test_files_are_cut_where_row_groups_start() -> None:
    """A file of twice the target becomes two; neighbouring row groups of a file are one part."""
    large = file(40 * MB, split_offsets=(4, 10 * MB, 20 * MB, 30 * MB))
    found = runs([large, file(MB)], {"target-file-size-bytes": 20 * MB})
    assert found == [[(0, 0, 20 * MB)], [(0, 20 * MB, 40 * MB), (1, 0, MB)]]


def test_a_file_without_usable_offsets_stays_whole() -> None:
    for offsets in [(), (4,), (4, 4), (4, 50 * MB), (30, 20)]:
        assert runs([file(40 * MB, split_offsets=offsets)], {"target-file-size-bytes": 20 * MB}) == [[(0, 0, 40 * MB)]]


def test_a_small_remainder_joins_the_file_before_it() -> None:
    """2.05 times the target makes two files: the packed runs alone would leave a third one."""
    found = runs([file(3 * MB)] * 41, {"target-file-size-bytes": 60 * MB})
    assert [len(run) for run in found] == [20, 21]


def test_a_remainder_that_counts_stays_a_file() -> None:
    found = runs([file(10 * MB)] * 13, {"target-file-size-bytes": 100 * MB})
    assert [len(run) for run in found] == [10, 3]


def test_files_that_cannot_be_cut_are_streamed_into_full_files() -> None:
    """ORC files of 60 % of the target would each become a file of 60 % again, at every run."""
    files = [file(60 * MB, file_format="orc")] * 10
    plan, _ = planned(files, {**ALL, "target-file-size-bytes": 100 * MB})
    (run,) = plan.groups[0].runs(plan.options, 2)
    assert len(run.tasks) == 10
    assert run.target_file_size == 100 * MB + 5 * 1024


def test_every_byte_of_a_group_is_in_one_run() -> None:
    files = [file(size * MB, split_offsets=tuple(range(4, size * MB, 3 * MB))) for size in (1, 50, 7, 23, 64, 9)]
    for target in (5, 16, 30, 100):
        parts = sorted(part for run in runs(files, {"target-file-size-bytes": target * MB}) for part in run)
        for place, one in enumerate(files):
            mine = [part for part in parts if part[0] == place]
            assert mine[0][1] == 0
            assert mine[-1][2] == one.length
            assert all(left[2] == right[1] for left, right in pairwise(mine))


def test_the_partition_of_new_files_is_known_if_all_rows_are_of_one() -> None:
    plan, _ = planned(BUCKETS, ALL)
    assert [group.partition for group in plan.groups] == [(0,), (1,), (2,)]
    mixed, _ = planned([file(1, spec_id=0, partition=(7,)), file(1, partition=(None,))], ALL)
    assert [group.partition for group in mixed.groups] == [None]
    other, _ = planned([file(1, spec_id=0, partition=(7,))] * 2, {**ALL, "output-spec-id": 0})
    assert [group.partition for group in other.groups] == [(7,)]


def test_groups_are_named_by_their_partition() -> None:
    """Not if its rows belong to several ones, or the table is unpartitioned."""

    def named(files: Sequence[ScanTask], given: Mapping[str, Any]) -> list[str]:
        plan, _ = planned(files, given)
        found = plan.decisions(lambda partition: "/".join(f"b={value}" for value in partition))
        return [one.object for one in found if one.object.startswith("group")]

    assert named(BUCKETS, ALL) == ["group 1 of b=0", "group 2 of b=1", "group 3 of b=2"]
    assert named([file(1, spec_id=0, partition=(7,)), file(1, partition=(None,))], ALL) == ["group 1"]
    assert named([file(1)] * 2, ALL) == ["group 1"]


def reasons(files: Sequence[ScanTask], given: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    plan, _ = planned(files, given)
    return [(one.decision, one.object, one.reason) for one in plan.decisions(lambda _: "")]


def test_every_file_has_a_decision_with_its_reason() -> None:
    files = [
        file(400, deletion_vector=deletes(50, vector=True)),
        file(300),
        file(400, record_count=9, deletion_vector=deletes(2, vector=True)),
    ]
    assert reasons(files, SIZES) == [
        ("rewrite", "group 1", "deletes: 1 file of 400 bytes become 1"),
        ("rewrite", "f0", "50 of 100 rows deleted, at least ratio 0.3: in group 1"),
        ("keep", "f1", "300 bytes, a size from 250 to 750"),
        ("keep", "f2", "400 bytes, a size from 250 to 750; 2 of 9 rows deleted, below ratio 0.3"),
    ]
    few = "only 2 such files of 20 bytes in the group, below min-input-files 5 and the size of one new file"
    assert reasons([file(10)] * 2, SIZES) == [
        ("keep", f"f{place}", f"10 bytes, below min-file-size-bytes 250, but {few}") for place in range(2)
    ]
    assert reasons([file(900)] * 2, {**SIZES, "max-files-to-rewrite": 1})[-1] == (
        "keep",
        "f1",
        "900 bytes, above max-file-size-bytes 750, but max-files-to-rewrite 1 is reached",
    )


def test_the_defaults_are_those_of_the_reference() -> None:
    found = options()
    assert found.target_file_size_bytes == 512 * MB
    assert (found.min_file_size_bytes, found.max_file_size_bytes) == (402653184, 966367641)
    assert found.close_at_size == 751619276
    table = options(None, **{"write.target-file-size-bytes": "1000"})
    assert (table.min_file_size_bytes, table.target_file_size_bytes, table.max_file_size_bytes) == (750, 1000, 1800)
    assert table.output_spec_id == SPEC
    commits = options({"partial-progress.max-commits": 3})
    assert commits.partial_progress_max_failed_commits == 3


def test_the_options_that_a_table_may_set_are_those_of_binpack() -> None:
    assert MAINTENANCE_REWRITE_OPTIONS == OPTIONS - FURTHER


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"targt": 1}, r"Cannot use options \[targt\], they are not supported"),
        ({"target-file-size-bytes": 0}, "'target-file-size-bytes' is set to 0 but must be > 0"),
        ({"target-file-size-bytes": "1 GB"}, "'target-file-size-bytes' is set to '1 GB' but must be a whole number"),
        ({"min-file-size-bytes": -1}, "'min-file-size-bytes' is set to -1 but must be >= 0"),
        ({"target-file-size-bytes": 5, "min-file-size-bytes": 5}, r"\(5\) must be > 'min-file-size-bytes' \(5\)"),
        ({"target-file-size-bytes": 5, "max-file-size-bytes": 5}, r"\(5\) must be < 'max-file-size-bytes' \(5\)"),
        ({"min-input-files": 0}, "'min-input-files' is set to 0 but must be > 0"),
        ({"max-file-group-size-bytes": 0}, "'max-file-group-size-bytes' is set to 0 but must be > 0"),
        ({"max-file-group-input-files": 0}, "'max-file-group-input-files' is set to 0 but must be > 0"),
        ({"max-files-to-rewrite": 0}, "'max-files-to-rewrite' is set to 0 but must be > 0"),
        ({"delete-file-threshold": -1}, "'delete-file-threshold' is set to -1 but must be >= 0"),
        ({"delete-ratio-threshold": 0}, "'delete-ratio-threshold' is set to 0.0 but must be > 0"),
        ({"delete-ratio-threshold": 1.1}, "'delete-ratio-threshold' is set to 1.1 but must be <= 1"),
        ({"delete-ratio-threshold": "nan"}, "'delete-ratio-threshold' is set to 'nan' but must be a number"),
        ({"output-spec-id": 1234}, "Cannot use output spec id 1234 because the table does not contain a reference"),
        ({"rewrite-job-order": "foo"}, "'rewrite-job-order' is set to 'foo' but must be one of none, bytes-asc"),
        ({"max-concurrent-file-group-rewrites": 0}, "'max-concurrent-file-group-rewrites' is set to 0"),
        ({"partial-progress.enabled": True, "partial-progress.max-commits": 0}, "max-commits' is set to 0"),
        ({"rewrite-all": "yes"}, "'rewrite-all' is set to 'yes' but must be true or false"),
    ],
)
def test_options_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        options(given)


def test_sorting_has_options_of_its_own() -> None:
    """Sorted rows may take another size: the number of files follows it, as in the reference."""
    given = {"target-file-size-bytes": "100", "compression-factor": "0.5"}
    found = RewriteOptions.of(given, {}, SPEC, (SPEC,), strategy="sort")
    assert [found.expected_files(size) for size in (100, 400, 1000)] == [1, 2, 5]
    assert found.split_size(400) == 140
    plan = plan_rewrite(numbered([file(200)] * 2), found, SPEC)
    assert [len(group.sorted_run(found).tasks) for group in plan.groups] == [2]
    for wrong in ("0", "-1", "inf", "x"):
        with pytest.raises(AnalysisError, match="'compression-factor' is set to"):
            RewriteOptions.of({"compression-factor": wrong}, {}, SPEC, (SPEC,), strategy="sort")
    with pytest.raises(AnalysisError, match="not supported by the strategy binpack"):
        options(given)


EIGHT = tuple(4 + place * 8 * MB for place in range(4))
SEVEN = tuple(4 + place * 7 * MB for place in range(4))


@pytest.mark.parametrize(
    ("size", "given", "of_call", "copied"),
    [
        (32, {"split_offsets": EIGHT}, {}, True),
        (28, {"split_offsets": SEVEN}, {}, False),
        (8, {}, {}, True),
        (7, {}, {}, False),
        (32, {"split_offsets": EIGHT, "file_format": "orc"}, {}, False),
        (32, {"split_offsets": EIGHT, "equality_deletes": (deletes(1),)}, {}, False),
        (32, {"split_offsets": EIGHT, "position_deletes": (deletes(29),)}, {}, True),
        (32, {"split_offsets": EIGHT, "position_deletes": (deletes(30),)}, {}, False),
        (32, {"split_offsets": EIGHT, "deletion_vector": deletes(29, vector=True)}, {}, True),
        (32, {"split_offsets": EIGHT, "position_deletes": (deletes(1),)}, {"delete-file-threshold": 1}, False),
        (32, {"split_offsets": EIGHT}, ALL, False),
        (32, {"split_offsets": EIGHT, "spec_id": 0}, {}, False),
        (900, {"split_offsets": (4, 300 * MB, 600 * MB)}, {"target-file-size-bytes": 300 * MB}, True),
        # Row groups above the maximum of a file would be rewritten again and again.
        (900, {"split_offsets": (4, 300 * MB, 600 * MB)}, {"target-file-size-bytes": 64 * MB}, False),
    ],
)
def test_large_row_groups_with_few_deletes_are_copied(
    size: int, given: dict[str, Any], of_call: dict[str, Any], copied: bool
) -> None:
    chosen = options(of_call)
    plan = plan_rewrite(numbered([file(size * MB, **given)] * 6), chosen, SPEC, copies=True)
    runs = [run for group in plan.groups for run in group.runs(chosen, 2)]
    assert {run.copies is not None for run in runs} == {copied}
    other = plan_rewrite(numbered([file(size * MB, **given)] * 6), chosen, SPEC)
    assert {run.copies for group in other.groups for run in group.runs(chosen, 2)} == {None}


def test_new_files_are_copied_or_decoded_one_by_one() -> None:
    """The reason tells how many; the average is that of their row groups."""
    small = file(7 * MB)
    large = file(40 * MB, split_offsets=(4, 20 * MB))
    chosen = options({"target-file-size-bytes": 80 * MB, "min-file-size-bytes": 70 * MB})
    plan = plan_rewrite(numbered([large] * 4 + [small] * 10), chosen, SPEC, copies=True)
    (first, *_) = plan.decisions(lambda _: "", lambda group: copied_text(group.runs(chosen, 2)))
    assert first.reason.endswith("row groups of 20 MiB copied into 2 of them")
