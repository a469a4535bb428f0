"""The health of tables whose figures are counted by hand. Their data files do not exist: only metadata is read."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType

from dml.catalog import create_table
from dml.commit import AppendFiles, RewriteFiles, RowDelta, commit
from dml.errors import CorruptFileError, ExecutionError
from dml.maintenance import RewriteOptions, plan_rewrite, worthwhile_groups
from dml.maintenance.retention import RetentionRules, plan_retention
from dml.manifests.read import manifests_of
from dml.metadata_tables.entry_scan import PartitionTest
from dml.metadata_tables.partition_rows import partition_rows
from dml.metadata_tables.tables import unified_partition
from dml.model.manifest import ContentFile, FileContent
from dml.options import Command
from dml.scan.planner import plan_scan
from dml.table_health import Certainty, TableHealth, measure_health
from dml.table_health.figures import Advice, PartitionFiles
from dml.table_health.measure import day_of
from dml.table_health.view import bytes_text, days_text, printable
from tests.dml.commit.builders import BY_P, SCHEMA, new_table

NUMBERS = itertools.count()
TARGET = {"write.target-file-size-bytes": "1000"}
BY_ID = SortOrder(SortField(1, IdentityTransform()))
DAY_MS = 24 * 60 * 60 * 1000


def listed(
    table: Table, size: int = 1000, rows: int = 10, p: str | None = "a", ids: tuple[int, int] | None = None
) -> ContentFile:
    """A data file that exists in manifests only."""
    bounds = {} if ids is None else {1: ids}
    return ContentFile(
        content=FileContent.DATA,
        path=f"{table.location()}/data/{next(NUMBERS):05}.parquet",
        file_format="parquet",
        spec_id=table.spec().spec_id,
        partition=(p,) if table.spec().fields else (),
        record_count=rows,
        file_size_in_bytes=size,
        lower_bounds={column: to_bytes(LongType(), low) for column, (low, _) in bounds.items()},
        upper_bounds={column: to_bytes(LongType(), high) for column, (_, high) in bounds.items()},
        split_offsets=(4,),
        sort_order_id=0,
    )


def deletes(table: Table, of: ContentFile, rows: int) -> ContentFile:
    """Deleted rows of one data file, in the form of the table's version, that exist in manifests only."""
    path = f"{table.location()}/data/{next(NUMBERS):05}-deletes"
    bounds = {2147483546: of.path.encode()}
    file = replace(
        of,
        content=FileContent.POSITION_DELETES,
        path=f"{path}.parquet",
        record_count=rows,
        file_size_in_bytes=100,
        lower_bounds=bounds,
        upper_bounds=bounds,
        sort_order_id=None,
    )
    if table.format_version < 3:
        return file
    vector = {"content_offset": 4, "content_size_in_bytes": 40, "referenced_data_file": of.path}
    return replace(file, path=f"{path}.puffin", file_format="puffin", lower_bounds={}, upper_bounds={}, **vector)


def equality_deletes(table: Table, of: ContentFile) -> ContentFile:
    """An equality delete file that exists in manifests only."""
    file = replace(of, content=FileContent.EQUALITY_DELETES, path=f"{of.path}-equality", equality_ids=(1,))
    return replace(file, record_count=3, file_size_in_bytes=100)


def append(table: Table, *files: ContentFile, **options: Any) -> int:
    return commit(table.refresh(), AppendFiles(data_files=files), **options).snapshot_id


def delete(table: Table, *files: ContentFile) -> int:
    action = RowDelta(
        command=Command.DELETE,
        delete_files=files,
        starting_snapshot_id=table.refresh().current_snapshot().snapshot_id,
    )
    return commit(table, action).snapshot_id


def health(table: Table, branch: str | None = None, *, after_ms: int = 0, **plan: Any) -> TableHealth:
    """The health of a table, some time after its last commit."""
    table.refresh()
    snapshot = table.current_snapshot() if branch is None else table.snapshot_by_name(branch)
    now = table.metadata.last_updated_ms + after_ms
    return measure_health(table, snapshot, "lake.db.t", now_ms=now, reference=branch, **plan)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_without_snapshots_has_figures_of_0(catalog: Catalog, version: int) -> None:
    found = health(new_table(catalog, version, partitioned=version == 2))
    assert (found.snapshot_id, found.format_version) == (None, version)
    assert (found.files.files, found.files.rows, found.files.max_bytes, found.deletes.files) == (0, 0, 0, 0)
    assert (found.partitions.partitions, found.manifests.manifests, found.snapshots.snapshots) == (0, 0, 0)
    assert found.deletes.certainty is Certainty.EXACT
    assert found.advice == ()
    assert "Nothing to do" in str(found)
    assert "Nothing to do" in found._repr_html_()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_sizes_are_counted_around_the_target(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, **TARGET)
    sizes = (14, 15, 62, 249, 250, 749, 750, 999, 1000, 1800, 1801)
    append(table, *(listed(table, size, rows=size) for size in sizes))
    files = health(table).files
    assert (files.files, files.bytes, files.rows, files.target_bytes) == (11, sum(sizes), sum(sizes), 1000)
    assert (files.small_files, files.small_bytes, files.large_files) == (6, 14 + 15 + 62 + 249 + 250 + 749, 1)
    assert (files.min_bytes, files.median_bytes, files.max_bytes) == (14, 749, 1801)
    assert [(one.from_bytes, one.to_bytes, one.files, one.bytes) for one in files.histogram] == [
        (0, 15, 1, 14),
        (15, 62, 1, 15),
        (62, 250, 2, 62 + 249),
        (250, 500, 1, 250),
        (500, 750, 1, 749),
        (750, 1000, 2, 750 + 999),
        (1000, 1801, 2, 1000 + 1800),
        (1801, None, 1, 1801),
    ]
    assert [one.is_rewritten for one in files.histogram] == [True] * 5 + [False] * 2 + [True]


@pytest.mark.parametrize("key", ["write.target-file-size-bytes", "maintenance.rewrite.target-file-size-bytes"])
@pytest.mark.parametrize("target", [1, 2, 3, 7, 64, 2**40])
def test_the_histogram_of_any_target_has_each_file_once(catalog: Catalog, target: int, key: str) -> None:
    table = new_table(catalog, 2, **{key: str(target)})
    append(table, *(listed(table, size) for size in range(1, 9)))
    if target == 1:  # nothing is both above and below
        with pytest.raises(Exception, match="target-file-size-bytes"):
            health(table)
        return
    found = health(table)
    assert sum(one.files for one in found.files.histogram) == 8
    assert sum(one.files for one in found.files.histogram if one.from_bytes >= target) == sum(
        size >= target for size in range(1, 9)
    )
    assert "target" in str(found)


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_are_exact_with_vectors_and_a_maximum_with_position_deletes(
    catalog: Catalog, version: int
) -> None:
    table = new_table(catalog, version, **TARGET)
    first, second, third = (listed(table) for _ in range(3))
    append(table, first, second, third)
    delete(table, deletes(table, first, 3), deletes(table, second, 1))
    found = health(table).deletes
    assert found.bytes == (80 if version == 3 else 200)
    assert (found.deletion_vectors, found.position_delete_files) == ((2, 0) if version == 3 else (0, 2))
    assert (found.deleted_rows, found.deleted_ratio) == (4, 4 / 30)
    assert found.certainty is (Certainty.EXACT if version == 3 else Certainty.AT_MOST)
    assert (found.affected_files, found.dangling_files) == (2, 0)
    assert [(one.path, one.deleted_rows, one.rows, one.delete_files) for one in found.most_deleted] == [
        (first.path, 3, 10, 1),
        (second.path, 1, 10, 1),
    ]
    assert ("at most 4, 13.3 %" in str(health(table))) == (version == 2)


def test_position_deletes_of_several_files_count_once(catalog: Catalog) -> None:
    """Their rows cannot be attributed to a data file, and they may name other ones."""
    table = new_table(catalog, 2)
    files = [listed(table) for _ in range(3)]
    append(table, *files)
    shared = deletes(table, files[0], 7)
    delete(table, replace(shared, lower_bounds={}, upper_bounds={}))
    found = health(table).deletes
    assert (found.deleted_rows, found.affected_files, found.certainty) == (7, 3, Certainty.AT_MOST)
    assert [one.deleted_rows for one in found.most_deleted] == [0, 0, 0]


def test_equality_deletes_make_deleted_rows_an_estimate(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    old = listed(table)
    append(table, old)
    delete(table, equality_deletes(table, old))
    append(table, listed(table))  # newer: not affected
    found = health(table)
    assert (found.deletes.equality_delete_files, found.deletes.deleted_rows) == (1, 0)
    assert (found.deletes.certainty, found.deletes.affected_files) == (Certainty.ESTIMATE, 1)
    assert "about 0" in str(found)


def test_dangling_deletes_are_counted(catalog: Catalog) -> None:
    """A rewrite leaves position delete files; vectors go with their data file."""
    table = new_table(catalog, 2, **TARGET)
    old, other = listed(table), listed(table)
    append(table, old, other)
    delete(table, deletes(table, old, 1))
    action = RewriteFiles(
        data_files=(listed(table, rows=9),),
        removed_data_files=frozenset({old.path}),
        starting_snapshot_id=table.refresh().current_snapshot().snapshot_id,
    )
    commit(table, action)
    found = health(table)
    assert (found.deletes.files, found.deletes.dangling_files, found.deletes.deleted_rows) == (1, 1, 0)


def sorted_table(catalog: Catalog, order: SortOrder = BY_ID) -> Table:
    return create_table(
        catalog,
        ("db", "t"),
        SCHEMA,
        partition_spec=BY_P,
        sort_order=order,
        properties={"format-version": "2", **TARGET},
    )


def test_overlap_is_that_of_the_first_sort_column_in_each_partition(catalog: Catalog) -> None:
    table = sorted_table(catalog)
    append(
        table,
        listed(table, p="a", ids=(0, 10)),
        listed(table, p="a", ids=(5, 20)),
        listed(table, p="b", ids=(0, 100)),
        listed(table, p="b"),
    )
    append(table, listed(table, p="a", ids=(7, 7)), listed(table, p="a", ids=(9, 8)))  # the last one is damaged
    found = health(table)
    # at their begins, a: 0 → 1, 5 → 2, 7 → 3; b: 0 → 1
    assert (found.overlap.column, found.overlap.max_depth) == ("id", 3)
    assert found.overlap.mean_depth == pytest.approx(7 / 4)
    assert (found.overlap.overlapping_partitions, found.overlap.files_without_bounds) == (1, 2)
    assert [(one.name, one.max_depth, one.manifests) for one in found.overlap.deepest] == [
        ("p=a", 3, 2),
        ("p=b", 1, 1),
    ]
    assert (found.manifests.mean_spread, found.manifests.max_spread) == (1.5, 2)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (SortOrder(SortField(1, BucketTransform(4))), "does not keep the order"),
        (SortOrder(SortField(2, TruncateTransform(4))), ""),
    ],
)
def test_an_order_without_comparable_bounds_has_a_reason(catalog: Catalog, order: SortOrder, reason: str) -> None:
    table = sorted_table(catalog, order)
    append(table, listed(table, ids=(0, 9)))
    found = health(table).overlap
    assert (found.column is None) == bool(reason)
    assert reason in found.reason
    if not reason:
        assert found.files_without_bounds == 1, "the file has no bounds of p"


def rows_by_metadata_table(table: Table) -> list[tuple[Any, ...]]:
    """The rows of `db.t.partitions`."""
    found = manifests_of(table.io, table.current_snapshot())
    tests = PartitionTest(table.schema(), AlwaysTrue(), case_sensitive=True)
    return partition_rows(found, table.io, unified_partition(table.metadata), {}, tests)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_partitions_of_evolved_specs_are_those_of_the_metadata_table(catalog: Catalog, version: int) -> None:
    """A file of the first spec, in which b has another field, is in the partition of equal values."""
    table = new_table(catalog, version, partitioned=True)
    append(table, listed(table, 500, p="a"), listed(table, 100, p="b"), listed(table, 10, p=None))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    for p, bucket in (("a", None), ("a", 1), (None, None)):
        append(table.refresh(), replace(listed(table, 1000), partition=(p, bucket)))
    with table.update_spec() as update:
        update.remove_field("p")
    table.refresh()
    values = [None if term.name == "p" else 1 for term in table.spec().fields]
    append(table, replace(listed(table, 7), partition=tuple(values)))
    found = health(table)
    expected = rows_by_metadata_table(table)
    assert found.partitions.partitions == len(expected) == 5
    assert sorted((one.files, one.rows, one.bytes) for one in found.partitions.largest) == sorted(
        (row[3], row[2], row[4]) for row in expected
    )
    first = found.partitions.largest[0]
    assert first == PartitionFiles(name="p=a/id_bucket=null", files=2, bytes=1500, rows=20, manifests=2, max_depth=None)
    assert found.partitions.skew == pytest.approx(1500 / (3617 / 5))


def test_figures_are_those_of_the_branch(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    first = append(table, listed(table, rows=1))
    append(table, listed(table, rows=2), branch="side", create_branch=True)
    append(table, listed(table, rows=4))
    assert (health(table).files.rows, health(table, "side").files.rows) == (5, 3)
    found = health(table, "side", after_ms=3 * DAY_MS)
    assert found.reference == "side"
    assert found.title == "Health of lake.db.t, side"
    assert {ref.name: ref.kind for ref in found.snapshots.refs} == {"main": "branch", "side": "branch"}
    assert min(ref.age_ms or 0 for ref in found.snapshots.refs) == 3 * DAY_MS
    assert found.snapshots.snapshots == 3
    assert first in {snapshot.snapshot_id for snapshot in table.metadata.snapshots}


def test_expiry_is_that_of_the_properties(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **{"history.expire.max-ref-age-ms": str(2 * DAY_MS)}, **TARGET)
    for _ in range(4):
        snapshot_id = append(table, listed(table))
    with table.refresh().manage_snapshots() as change:
        change.create_tag(snapshot_id, "old")
    now = health(table)
    assert (now.snapshots.expiring, now.snapshots.expiring_refs) == (0, 0)
    found = health(table, after_ms=6 * DAY_MS)
    plan = plan_retention(table.metadata, RetentionRules.of(table.properties, found.measured_ms))
    assert (found.snapshots.expiring, found.snapshots.expiring_refs) == (len(plan.expired), 1) == (3, 1)
    assert [(ref.name, ref.expires) for ref in found.snapshots.refs] == [("main", False), ("old", True)]
    days = Counter(found.snapshots.by_day)
    assert sum(count for _, count in days) == 4


def test_the_gain_is_that_of_the_groups_that_pay(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True, **TARGET)
    files = [listed(table, 300, p="a", ids=(9 - n, 9 - n)) for n in range(7)]
    append(table, *files, listed(table, 300, p="b"), listed(table, 900, p="b"), listed(table, 5000, p="c"))
    append(table, *(listed(table, 700, p="e") for _ in range(5)))
    full = listed(table, 1000, rows=10, p="d")
    append(table, full)
    delete(table, deletes(table, full, 3))
    table.refresh()
    options = RewriteOptions.of({}, table.properties, 0, {0})
    groups = plan_rewrite(plan_scan(table, None).tasks, options, 0).groups
    assert len(groups) == 4
    gain = health(table, compaction=worthwhile_groups(groups, options)).gain
    assert (gain.groups, gain.rewritten_files, gain.rewritten_bytes) == (3, 9, 7 * 300 + 5000 + 1000)
    assert (gain.new_files, gain.files_before, gain.files_after) == (2 + 5 + 1, 16, 16 - 9 + 8)
    assert 0 < gain.manifest_bytes_after < gain.manifest_bytes


def test_what_is_not_the_head_of_a_branch_has_no_advice(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **{"write.metadata.previous-versions-max": "1"})
    append(table, listed(table))
    assert health(table).advice
    found = health(table, advice=None)
    assert (found.is_maintained, found.advice) == (False, ())
    for text in (str(found), found._repr_html_()):
        assert "No advice: only the head of a branch is maintained" in text
        assert "Nothing to do" not in text
        assert "What compaction would change" not in text


def test_a_table_of_good_files_needs_no_compaction(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **TARGET)
    append(table, *(listed(table) for _ in range(9)))
    found = health(table)
    assert (found.gain.groups, found.gain.files_after, found.advice) == (0, 9, ())
    assert found.gain.manifest_bytes_after == found.gain.manifest_bytes == found.manifests.bytes


def test_manifests_are_measured(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True, **TARGET)
    for p in "abab":
        append(table, listed(table, p=p))
    lengths = sorted(one.manifest_length for one in manifests_of(table.io, table.refresh().current_snapshot()))
    found = health(table).manifests
    assert (found.data_manifests, found.delete_manifests, found.manifests) == (4, 0, 4)
    assert (found.bytes, found.min_bytes, found.median_bytes, found.max_bytes) == (
        sum(lengths),
        lengths[0],
        lengths[1],
        lengths[3],
    )
    assert (found.mean_spread, found.max_spread, found.without_live_files) == (2.0, 2, 0)


def test_old_metadata_files_are_advised_once_the_list_is_full(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **{"write.metadata.previous-versions-max": "3"}, **TARGET)
    append(table, listed(table))
    assert health(table).metadata.old_files == 1
    for _ in range(3):
        append(table, listed(table))
    found = health(table)
    local = Path(table.metadata_location.removeprefix("file://"))
    assert found.metadata.bytes == local.stat().st_size
    assert (found.metadata.old_files, found.metadata.previous_versions_max) == (3, 3)
    assert [one.action for one in found.advice] == ["set write.metadata.delete-after-commit.enabled"]
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
    assert health(table).advice == ()


def test_statistics_are_as_old_as_the_commits_since(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **TARGET)
    ids = [append(table, listed(table)) for _ in range(3)]
    table.refresh()
    for snapshot_id in ids[:2]:
        file = StatisticsFile(
            snapshot_id=snapshot_id,
            statistics_path=f"{table.location()}/metadata/{snapshot_id}.stats",
            file_size_in_bytes=9,
            file_footer_size_in_bytes=1,
            blob_metadata=[],
        )
        with table.update_statistics() as update:
            update.set_statistics(file)
    assert [one.snapshots_behind for one in health(table).statistics] == [1, None]


def test_a_file_that_is_listed_twice_is_reported(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = listed(table)
    append(table, file)
    append(table, file)
    with pytest.raises(CorruptFileError, match="twice"):
        health(table)


# ---- how it is shown ------------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\n\u202eevil"


class Tags(HTMLParser):
    """Collects tags, their attributes and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_health(catalog: Catalog) -> TableHealth:
    """A report in which everything that users and other engines name is hostile, and long."""
    table = sorted_table(catalog)
    long = HOSTILE + "x" * 200
    file = replace(listed(table, 10, p=long, ids=(0, 5)), path=f"{table.location()}/data/{long}.parquet")
    other = listed(table, 20, p="b", ids=(0, 5))
    append(table, file, other, listed(table, 30, p=long, ids=(2, 5)))
    delete(table, deletes(table, file, 4), deletes(table, other, 1))
    with table.refresh().manage_snapshots() as change:
        change.create_tag(table.current_snapshot().snapshot_id, HOSTILE + "tag")
    advice = (Advice(action="rewrite_data_files", reason=HOSTILE),)
    return replace(health(table, after_ms=400 * DAY_MS, advice=advice), table=f"lake.db.{long}", reference=HOSTILE)


def test_html_escapes_names_and_loads_nothing(catalog: Catalog, tmp_path: Path) -> None:
    found = hostile_health(catalog)
    found.to_html(tmp_path / "health.html")
    page = (tmp_path / "health.html").read_text("utf-8")
    assert found._repr_html_() in page
    parsed = Tags()
    parsed.feed(page)
    assert parsed.tags.isdisjoint({"script", "img", "link", "iframe", "a", "object", "base", "form", "input"})
    known = {"class", "style", "scope", "lang", "charset", "content", "http-equiv", "name"}
    assert parsed.attributes <= known
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert "://" not in page.replace("file://", "")
    assert "url(" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    shown = parsed.text
    assert "<script>alert(1)</script>\"'&\\x1b[31m\\n\\u202eevil" in shown
    assert "4" in shown


def test_text_fits_80_columns_and_has_no_control_characters(catalog: Catalog) -> None:
    text = str(hostile_health(catalog))
    assert max(map(len, text.splitlines())) <= 80
    assert all(line.isprintable() for line in text.split("\n"))
    assert "What to do" in text
    assert "█" in text


def test_json_has_all_figures(catalog: Catalog) -> None:
    found = hostile_health(catalog)
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["table"] == found.table
    assert plain["files"]["small_files"] == 3
    assert plain["deletes"]["certainty"] == "at most"
    assert plain["advice"][-1].keys() == {"action", "reason"}
    assert plain == found.as_dict()


def test_a_page_that_cannot_be_written_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match=r"no/health\.html"):
        health(new_table(catalog, 2)).to_html(tmp_path / "no" / "health.html")


def test_units() -> None:
    assert [bytes_text(size) for size in (0, 1, 1023, 1024, 1536, 2**20, 5 * 2**40)] == [
        "0 bytes",
        "1 byte",
        "1,023 bytes",
        "1 kB",
        "1.5 kB",
        "1 MB",
        "5 TB",
    ]
    assert [days_text(one) for one in (None, 60_000, DAY_MS // 2, 2 * DAY_MS)] == [
        "unknown",
        "1 minutes",
        "12.0 hours",
        "2.0 days",
    ]
    assert printable("a\tb") == "a\\tb"


def test_the_day_of_a_wrong_clock_is_no_error() -> None:
    assert [day_of(millis) for millis in (-(2**63), 0, 2**63 - 1)] == ["0001-01-01", "1970-01-01", "9999-12-31"]
