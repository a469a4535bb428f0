"""What is done after commits by itself: tags, done partitions, callbacks, metrics; and that it cannot fail one."""

import json
import logging
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType

from dml.catalog import create_table
from dml.commit import AppendFiles, commit, snapshot_producer
from dml.errors import AnalysisError
from dml.hook_options import HookOptions
from dml.hooks import Callbacks, Finished, after_statement, metrics
from dml.model.manifest import ContentFile
from dml.result import PhaseSeconds, Result
from tests.dml.commit.builders import data_file, new_table

HOUR_MS = 3_600_000


class Clock:
    """The time at which snapshots are made."""

    def __init__(self, monkeypatch) -> None:
        self.now = datetime(2126, 11, 22, 12, tzinfo=UTC)
        monkeypatch.setattr(snapshot_producer.time, "time", lambda: self.now.timestamp())  # noqa: PLW0108 - it changes
        monkeypatch.setattr(snapshot_producer.time, "time_ns", lambda: int(self.now.timestamp() * 1000) * 1_000_000)

    def at(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def commits(table, *files: ContentFile, settings=None, branch="main", staged=False, callbacks=None) -> int:
    """A commit as a statement makes it, and what follows; the snapshot."""
    table = table.catalog.load_table(table.name())
    added = files or (data_file(table, [1]),)
    made = commit(table, AppendFiles(data_files=added), branch=branch, wap_id="w" if staged else None)
    result = Result(
        command="INSERT",
        table="lake.db.t",
        mode="append",
        snapshot_id=made.snapshot_id,
        branch=branch,
        summary=made.summary,
    )
    after_statement(
        Finished(
            result=result,
            table=table,
            identifier=("db", "t"),
            staged=staged,
            settings=settings or {},
            added=added,
            callbacks=callbacks or Callbacks(),
        )
    )
    return made.snapshot_id


def tags(table) -> dict[str, int]:
    refs = table.catalog.load_table(table.name()).metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.TAG}


# ---- tags


def test_each_commit_gets_a_tag_and_the_oldest_go(catalog, clock, caplog):
    table = new_table(catalog, 2, **{"commit.tag.creation": "commit", "commit.tag.num-retained": "2"})
    made = [commits(table) for _ in range(4)]
    assert tags(table) == {f"commit-{number}": number for number in made[-2:]}
    assert caplog.records == []


def test_a_day_is_tagged_at_its_last_commit_when_the_next_one_begins(catalog, clock):
    table = new_table(catalog, 2, **{"commit.tag.creation": "daily"})
    clock.at("2126-11-20T09:00:00")
    commits(table)
    clock.at("2126-11-20T23:59:59.999")
    last = commits(table)
    assert tags(table) == {}
    clock.at("2126-11-22T00:00:00")
    second = commits(table)
    assert tags(table) == {"daily-2126-11-20": last}
    commits(table)
    assert tags(table) == {"daily-2126-11-20": last}
    clock.at("2126-11-23T01:00:00")
    commits(table, settings={"commit.tag.creation": "none"})
    assert tags(table) == {"daily-2126-11-20": last}
    third = commits(table)  # makes up for the one that the session left out
    assert set(tags(table)) == {"daily-2126-11-20", "daily-2126-11-22"}
    assert tags(table)["daily-2126-11-22"] not in {second, third}


@pytest.mark.parametrize(
    ("zone", "creation", "name"),
    [
        ("UTC", "daily", "daily-2126-10-24"),
        ("Europe/Berlin", "daily", None),
        ("Europe/Berlin", "hourly", "hourly-2126-10-25-01"),
        ("America/New_York", "hourly", "hourly-2126-10-24-19"),
        ("Pacific/Auckland", "daily", None),
    ],
)
def test_days_and_hours_are_those_of_the_time_zone(catalog, clock, zone, creation, name):
    table = new_table(catalog, 2, **{"commit.tag.creation": creation, "commit.time-zone": zone})
    clock.at("2126-10-24T23:30:00")
    first = commits(table)
    clock.at("2126-10-25T00:10:00")
    commits(table)
    assert tags(table) == ({} if name is None else {name: first})


def test_a_commit_in_a_day_that_has_begun_asks_the_catalog_for_nothing(catalog, clock, monkeypatch):
    table = new_table(catalog, 2, **{"commit.tag.creation": "daily"})
    clock.at("2126-11-20T09:00:00")
    commits(table)
    clock.at("2126-11-21T09:00:00")
    commits(table)
    monkeypatch.setattr("dml.hooks.run_hooks.commit_change", lambda *_: pytest.fail("asked"))
    commits(table)


def test_tags_go_when_they_are_too_old(catalog, clock):
    """By the time of their snapshots; tags and branches of others stay, also of a name that might be one of ours."""
    day_ms = 24 * HOUR_MS
    table = new_table(catalog, 2, **{"commit.tag.creation": "commit", "commit.tag.max-ref-age-ms": str(3 * day_ms)})
    for day in (10, 15, 18, 20):
        clock.at(f"2126-11-{day}T09:00:00")
        last = commits(table)
    found = tags(table)
    assert len(found) == 2
    assert table.catalog.load_table(table.name()).metadata.refs[f"commit-{last}"].max_ref_age_ms == 3 * day_ms
    handle = table.catalog.load_table(table.name())
    old = handle.metadata.snapshots[0].snapshot_id
    handle.manage_snapshots().create_tag(old, "mine").create_tag(old, "commit-1").create_branch(
        old, "commit-2"
    ).commit()
    last = commits(table)
    assert {"mine", "commit-1", f"commit-{last}"} < set(tags(table))
    assert "commit-2" in table.catalog.load_table(table.name()).metadata.refs


def test_a_name_that_is_taken_stays_what_it_is(catalog, clock, caplog):
    table = new_table(catalog, 2, **{"commit.tag.creation": "daily", "commit.tag.prefix": ""})
    clock.at("2126-11-20T09:00:00")
    first = commits(table)
    commits(table)
    handle = table.catalog.load_table(table.name())
    handle.manage_snapshots().create_tag(first, "2126-11-20").commit()
    clock.at("2126-11-21T09:00:00")
    commits(table)
    assert tags(table) == {"2126-11-20": first}
    assert caplog.records == []


def test_commits_to_other_branches_and_staged_ones_get_no_tag(catalog, clock):
    table = new_table(catalog, 2, **{"commit.tag.creation": "commit"})
    first = commits(table)
    handle = table.catalog.load_table(table.name())
    handle.manage_snapshots().create_branch(first, "audit").commit()
    commits(table, branch="audit")
    commits(table, staged=True)
    assert tags(table) == {f"commit-{first}": first}


def test_a_session_switches_on_what_a_table_does_not(catalog, clock):
    table = new_table(catalog, 2)
    commits(table)
    made = commits(table, settings={"commit.tag.creation": "commit", "commit.tag.prefix": "v"})
    assert tags(table) == {f"v{made}": made}


# ---- partitions that are done

TIMES = Schema(
    NestedField(1, "at", TimestampType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "text", StringType(), required=False),
    NestedField(5, "number", LongType(), required=False),
)


def timed(catalog, *fields, **properties):
    """A table of TIMES; each field a source id and a transform."""
    spec = PartitionSpec(
        *(
            PartitionField(source, 1000 + number, transform, f"{TIMES.find_column_name(source)}_p")
            for number, (source, transform) in enumerate(fields)
        ),
        spec_id=0,
    )
    return create_table(
        catalog, ("db", "t"), TIMES, partition_spec=spec, properties={"format-version": "2", **properties}
    )


def file_in(table, *partition):
    """A data file of a partition; nobody reads it."""
    return ContentFile(
        content=0,
        path=f"{table.location()}/data/{'-'.join(map(str, partition))}-{datetime.now(UTC).timestamp()}.parquet",
        file_format="parquet",
        spec_id=0,
        partition=partition,
        record_count=1,
        file_size_in_bytes=1,
    )


def marks(table) -> set[str]:
    root = Path(table.location().removeprefix("file://")) / "data"
    return {str(path.parent.relative_to(root)) for path in root.rglob("_SUCCESS")}


def until(table) -> str | None:
    return table.catalog.load_table(table.name()).properties.get("commit.mark-done.until")


SUCCESS = {"commit.mark-done.action": "success-file"}
DAY_22 = (datetime(2126, 11, 22, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days


def test_partitions_become_done_when_their_time_is_over(catalog, clock):
    """With the first commit after it; each once, in each region."""
    table = timed(catalog, (1, DayTransform()), (2, IdentityTransform()), **SUCCESS)
    clock.at("2126-11-22T10:00:00")
    commits(table, file_in(table, DAY_22, "eu"), file_in(table, DAY_22, "a/b"), file_in(table, None, "eu"))
    assert (marks(table), until(table)) == (set(), "2126-11-22T00:00:00Z")
    clock.at("2126-11-23T00:00:00")
    commits(table, file_in(table, DAY_22 + 1, "eu"))
    expected = {"at_p=2126-11-22/region_p=eu", "at_p=2126-11-22/region_p=a%2Fb"}
    assert (marks(table), until(table)) == (expected, "2126-11-23T00:00:00Z")
    written = next(Path(table.location().removeprefix("file://")).rglob("_SUCCESS"))
    before = json.loads(written.read_text())
    commits(table, file_in(table, DAY_22 + 1, "eu"))
    assert json.loads(written.read_text()) == before
    clock.at("2126-11-25T00:00:00")
    commits(table, file_in(table, DAY_22 + 3, "eu"))
    assert marks(table) == expected | {"at_p=2126-11-23/region_p=eu"}


def test_late_rows_mark_their_partition_again(catalog, clock):
    """Also the first rows of a partition that is over when they come: those of a table that is filled from a file."""
    table = timed(catalog, (1, DayTransform()), **SUCCESS)
    clock.at("2126-11-22T10:00:00")
    commits(table, file_in(table, DAY_22 - 30))
    assert marks(table) == {"at_p=2126-10-23"}
    (written,) = Path(table.location().removeprefix("file://")).rglob("_SUCCESS")
    first = json.loads(written.read_text())
    written.write_text(json.dumps({"creationTime": 5, "modificationTime": 5}))
    commits(table, file_in(table, DAY_22 - 30))
    second = json.loads(written.read_text())
    assert second["creationTime"] == 5
    assert second["modificationTime"] >= first["modificationTime"]


@pytest.mark.parametrize(
    ("source", "transform", "delay", "zone", "expected"),
    [
        (1, HourTransform(), 0, "UTC", "2126-11-22T12:00:00Z"),
        (1, HourTransform(), HOUR_MS, "UTC", "2126-11-22T11:00:00Z"),
        (1, DayTransform(), 13 * HOUR_MS, "UTC", "2126-11-21T00:00:00Z"),
        (1, DayTransform(), 0, "Asia/Tokyo", "2126-11-22T00:00:00Z"),
        (1, MonthTransform(), 0, "UTC", "2126-11-01T00:00:00Z"),
        (1, YearTransform(), 0, "UTC", "2126-01-01T00:00:00Z"),
        (3, IdentityTransform(), 0, "Asia/Tokyo", "2126-11-21T15:00:00Z"),
        (4, IdentityTransform(), 0, "America/New_York", "2126-11-22T05:00:00Z"),
    ],
)
def test_the_property_alone_says_until_when(catalog, clock, source, transform, delay, zone, expected):
    """Days of timestamps are UTC's; those of dates are the time zone's."""
    properties = {
        "commit.mark-done.action": "property",
        "commit.mark-done.delay-ms": str(delay),
        "commit.time-zone": zone,
    }
    table = timed(catalog, (source, transform), **properties)
    clock.at("2126-11-22T12:34:00")
    commits(table, file_in(table, None))
    assert (until(table), marks(table)) == (expected, set())
    location = table.catalog.load_table(table.name()).metadata_location
    commits(table, file_in(table, None), settings={"commit.mark-done.delay-ms": str(100 * HOUR_MS)})
    assert until(table) == expected
    assert table.catalog.load_table(table.name()).metadata.snapshots[-1].parent_snapshot_id
    assert location != table.catalog.load_table(table.name()).metadata_location


def test_partitions_that_are_named_by_dates(catalog, clock):
    """Texts that are no dates are never done."""
    table = timed(catalog, (4, IdentityTransform()), **SUCCESS)
    clock.at("2126-11-22T12:00:00")
    files = [file_in(table, text) for text in ("2126-11-21", "21261120", "2126-11-22", "other", None)]
    commits(table, *files)
    assert marks(table) == {"text_p=2126-11-21", "text_p=21261120"}
    clock.at("2126-11-23T12:00:00")
    commits(table, file_in(table, "later"))
    assert marks(table) == {"text_p=2126-11-21", "text_p=21261120", "text_p=2126-11-22"}


def test_numbers_far_away_are_no_times(catalog, clock, caplog):
    table = timed(catalog, (1, HourTransform()), **SUCCESS)
    last_hour = (datetime(9999, 12, 31, 23, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(hours=1)
    commits(table, file_in(table, last_hour), file_in(table, 0))
    assert caplog.records == []
    assert "at_p=1970-01-01-00" in marks(table)


def test_a_table_without_times_says_so(catalog, clock, caplog):
    table = timed(catalog, (5, IdentityTransform()), **SUCCESS)
    made = commits(table, file_in(table, 7))
    (record,) = caplog.records
    assert "the hook 'mark-done' failed" in record.getMessage()
    assert "not partitioned by hours" in record.getMessage()
    assert str(made) in record.getMessage()


# ---- failures


def test_what_fails_is_a_warning_and_the_rest_is_done(catalog, clock, caplog, monkeypatch):
    table = new_table(catalog, 2, **{"commit.tag.creation": "commit", "commit.mark-done.action": "property"})
    caplog.set_level(logging.INFO, logger="dml.metrics")
    callbacks = Callbacks()
    called: list[Any] = []
    callbacks.add(lambda result: sys.exit(3))
    callbacks.add(called.append)
    made = commits(table, callbacks=callbacks)
    assert tags(table) == {f"commit-{made}": made}
    assert [result.snapshot_id for result in called] == [made]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.name for record in warnings] == ["dml.hooks", "dml.hooks"]
    assert "<lambda>" in warnings[1].getMessage()
    (line,) = (record for record in caplog.records if record.name == "dml.metrics")
    assert json.loads(line.getMessage())["failed_hooks"] == ["mark-done", "callback"]


def test_a_thread_that_cannot_be_started_fails_no_statement(catalog, clock, caplog, monkeypatch):
    table, callbacks = new_table(catalog, 2), Callbacks()
    callbacks.add(lambda result: None)

    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert commits(table, callbacks=callbacks)
    assert "the hook 'callback' failed" in caplog.text


def test_secrets_of_the_catalog_are_not_in_a_warning(catalog, clock, caplog, monkeypatch):
    table = new_table(catalog, 2, **{"commit.tag.creation": "commit"})
    catalog.properties["token"] = "very-secret-value"

    def failing(*_: object) -> None:
        raise OSError("no answer from server?token=very-secret-value")

    monkeypatch.setattr("dml.hooks.run_hooks.commit_change", failing)
    commits(table)
    (record,) = caplog.records
    assert "no answer from server?token=***" in record.getMessage()


def test_a_property_that_cannot_be_is_a_warning(catalog, clock, caplog):
    table = new_table(catalog, 2)
    commits(table, settings={"commit.tag.creation": "sometimes"})
    (record,) = caplog.records
    assert "'commit.tag.creation' is 'sometimes'" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit.tag.creation", "weekly"),
        ("commit.tag.num-retained", "0"),
        ("commit.tag.max-ref-age-ms", "soon"),
        ("commit.mark-done.action", "http"),
        ("commit.mark-done.delay-ms", "-1"),
        ("commit.time-zone", "Mars/Olympus"),
        ("commit.time-zone", "../../etc/passwd"),
    ],
)
def test_values_that_cannot_be(name, value):
    with pytest.raises(AnalysisError, match=name):
        HookOptions.from_properties({name: value})


# ---- callbacks


def test_callbacks_are_called_until_they_are_removed(catalog, clock):
    table, callbacks, seen = new_table(catalog, 2), Callbacks(), []
    remove = callbacks.add(lambda result: seen.append((result.snapshot_id, threading.current_thread().name)))
    made = commits(table, callbacks=callbacks)
    assert seen == [(made, "rowdelta-callbacks")]
    remove()
    remove()
    commits(table, callbacks=callbacks)
    assert len(seen) == 1
    with pytest.raises(AnalysisError, match="A callback is a function"):
        callbacks.add("print")


def test_a_callback_that_commits_does_not_call_itself(catalog, clock):
    table, callbacks, seen = new_table(catalog, 2), Callbacks(), []

    def write(result):
        seen.append(result.snapshot_id)
        commits(table, callbacks=callbacks)

    callbacks.add(write)
    made = commits(table, callbacks=callbacks)
    assert seen == [made]
    assert len(table.catalog.load_table(table.name()).metadata.snapshots) == 2


def test_statements_that_change_nothing_or_ran_before_call_nobody(catalog, clock):
    table, callbacks = new_table(catalog, 2, **{"commit.tag.creation": "commit"}), Callbacks()
    seen: list[Any] = []
    callbacks.add(seen.append)
    for result in (
        Result(command="DELETE", table="t", mode="none"),
        Result(command="DELETE", table="t", mode="none", snapshot_id=1, replayed=True),
    ):
        after_statement(Finished(result=result, table=table, identifier=("db", "t"), callbacks=callbacks))
    assert seen == []
    assert tags(table) == {}


# ---- metrics

RESULT = Result(
    command="MERGE",
    table="lake.db.t",
    mode="merge-on-read",
    rows_matched=3,
    rows_updated=2,
    seconds=PhaseSeconds(plan=0.25, execute=1, commit=0.5),
    snapshot_id=17,
    summary={"operation": "overwrite", "spark.sql.streaming.queryId": "q", "secret": "users"},
)


def test_a_statement_is_one_line_of_json(caplog):
    caplog.set_level(logging.INFO, logger="dml.metrics")
    metrics.record_metrics(RESULT, trace=None)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    line = json.loads(record.getMessage())
    assert (line["command"], line["table"], line["rows_updated"], line["operation"]) == (
        "MERGE",
        "lake.db.t",
        2,
        "overwrite",
    )
    assert line["seconds"] == {"plan": 0.25, "execute": 1, "commit": 0.5, "total": 1.75}
    assert (line["query_id"], line["snapshot_id"]) == ("q", 17)
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert "users" not in record.getMessage()


def test_the_line_has_every_count_of_a_result():
    """Each attribute of `Result` that is a number of rows, files or bytes, including future ones."""
    identity = {"snapshot_id"}
    counted = {name for name, value in RESULT.as_dict().items() if type(value) is int} - identity
    assert counted >= {"data_files_spliced", "data_files_marked"}
    facts = metrics.facts_of(replace(RESULT, data_files_spliced=5, rows_matched=None), [])
    assert counted <= facts.keys()
    assert (facts["data_files_spliced"], facts["rows_matched"]) == (5, None)


def test_nothing_is_made_where_nobody_listens(caplog, monkeypatch):
    monkeypatch.setattr(metrics, "facts_of", lambda *_: pytest.fail("made"))
    metrics.record_metrics(RESULT, trace=None)
    assert caplog.records == []


class Tracer:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def start_span(self, name, *, start_time, attributes):
        self.spans.append([name, start_time, attributes])
        return self

    def end(self, end_time):
        self.spans[-1].append(end_time)


def test_a_statement_is_a_span():
    """As long as the statement took, with its numbers; attributes are plain values."""
    trace = Tracer()
    metrics.record_metrics(RESULT, ["tag"], trace=trace)
    ((name, start, attributes, end),) = trace.spans
    assert name == "rowdelta MERGE"
    assert end - start == pytest.approx(1.75e9, abs=1e6)
    assert attributes["rowdelta.seconds.execute"] == 1
    assert attributes["rowdelta.failed_hooks"] == ["tag"]
    assert all(isinstance(value, str | int | float | bool | list) for value in attributes.values())
