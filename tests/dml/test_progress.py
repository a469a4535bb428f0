"""The progress bar: what it counts, and that it never gets in the way."""

import io
import threading
import time

import pytest

from dml import limits, progress
from dml.progress import JOB_GROUP, progress_bar, task_counts
from dml.spark.lazy_session import LazySession

pytestmark = pytest.mark.spark


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal to draw on."""
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def slow(seconds):
    """A function of batches that takes a while."""

    def function(batches):
        time.sleep(seconds)
        yield from batches

    return function


def test_a_long_statement_shows_its_tasks(spark, terminal):
    with progress_bar(LazySession(spark), "MERGE lake.db.t", stream=terminal):
        spark.range(0, 4, 1, 4).mapInArrow(slow(1), "id BIGINT").count()
    assert "MERGE lake.db.t" in terminal.getvalue()
    assert "/4" in terminal.getvalue() or "/5" in terminal.getvalue()


def test_a_short_statement_shows_nothing(spark, terminal):
    with progress_bar(LazySession(spark), "DELETE lake.db.t", stream=terminal):
        spark.range(3).collect()
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_it_is_not_wanted(spark, terminal, monkeypatch):
    monkeypatch.setattr(limits, "PROGRESS_DELAY_SECONDS", 0.0)
    with progress_bar(LazySession(spark), "DELETE lake.db.t", enabled=False, stream=terminal):
        time.sleep(0.3)
    no_terminal = io.StringIO()
    with progress_bar(LazySession(spark), "DELETE lake.db.t", stream=no_terminal):
        time.sleep(0.3)
    assert terminal.getvalue() == no_terminal.getvalue() == ""


def fail(context, bar):
    """Code that fails under the bar, in a job group of the bar's own."""
    with bar:
        assert context.getLocalProperty(JOB_GROUP).startswith("rowdelta-")
        raise ZeroDivisionError


def test_the_users_own_job_group_comes_back_also_after_an_error(spark, terminal):
    context = spark.sparkContext
    context.setLocalProperty(JOB_GROUP, "mine")
    try:
        with pytest.raises(ZeroDivisionError):
            fail(context, progress_bar(LazySession(spark), "DELETE lake.db.t", stream=terminal))
        assert context.getLocalProperty(JOB_GROUP) == "mine"
    finally:
        context.setLocalProperty(JOB_GROUP, None)
    assert [t for t in threading.enumerate() if t.name == "rowdelta-progress"] == []


def test_a_tracker_that_fails_stops_the_bar_and_nothing_else(spark, terminal, monkeypatch):
    def broken(tracker, group):
        raise RuntimeError("no tracker")

    monkeypatch.setattr(limits, "PROGRESS_DELAY_SECONDS", 0.1)
    monkeypatch.setattr(progress, "task_counts", broken)
    with progress_bar(LazySession(spark), "DELETE lake.db.t", stream=terminal):
        time.sleep(0.8)
        assert spark.range(3).count() == 3


def test_tasks_of_other_jobs_are_not_counted(spark):
    spark.range(10).collect()
    assert task_counts(spark.sparkContext.statusTracker(), "nobody's group") == (0, 0)
