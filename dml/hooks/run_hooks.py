"""The one place where things are done after a statement; what fails is a warning. Driver.

Callbacks run in a thread of their own, one after the other, while the statement's thread waits: a statement in one of
them reads the table as it is then, and not as the statement before read it. What a callback's own statements commit
calls no callbacks: they would call each other for ever.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from dml.catalog.credentials import redact
from dml.catalog.tables import load_table
from dml.ddl.commit import commit_change
from dml.errors import AnalysisError
from dml.hook_options import HookOptions, MarkDone, TagCreation
from dml.hooks.mark_done import done_partitions, until_change, write_success_files
from dml.hooks.metrics import record_metrics
from dml.hooks.tags import is_tagged, tag_change
from dml.model.manifest import ContentFile
from dml.options import COMMIT_MARK_DONE, COMMIT_TAG_CREATION
from dml.result import Result
from dml.spark.jobs import local_property, set_local_property

__all__ = ["Callback", "Callbacks", "Finished", "after_statement"]

LOG: Final = logging.getLogger("dml.hooks")

Callback = Callable[[Result], object]


class Callbacks:
    """The callbacks of a session, which any thread may add and remove."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[Callback, ...] = ()

    def add(self, callback: Callback) -> Callable[[], None]:
        """Call a function after each commit from now on.

        Returns:
            Ends it.

        Raises:
            AnalysisError: it is no function.
        """
        if not callable(callback):
            raise AnalysisError(f"A callback is a function that takes a Result, not {type(callback).__name__}")
        with self._lock:
            self._known = (*self._known, callback)

        def remove() -> None:
            with self._lock:
                rest = list(self._known)
                if callback in rest:
                    rest.remove(callback)
                self._known = tuple(rest)

        return remove

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._known)

    def __bool__(self) -> bool:
        return bool(self._known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A statement that has ended well.

    Attributes:
        result: What it did.
        table: The table, as the statement loaded it.
        identifier: Its name in its catalog.
        staged: Whether its snapshot is staged, and on no branch.
        settings: The session's settings, by the names of the table properties that they stand for.
        added: The data files that it added.
        callbacks: Of the session.
    """

    result: Result
    table: Table = field(repr=False)
    identifier: tuple[str, ...]
    staged: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[ContentFile] = field(default=(), repr=False)
    callbacks: Callbacks = field(default_factory=Callbacks)

    @property
    def catalog(self) -> Catalog:
        """The table's catalog."""
        return self.table.catalog


def after_statement(finished: Finished) -> None:
    """Do what is to be done after a statement: tags, marks, callbacks, metrics. Never fails."""
    failed: list[str] = []
    result = finished.result
    if result.changed and not result.replayed:
        if result.branch == MAIN_BRANCH and not finished.staged:
            with warned("table properties", finished, failed):
                options = options_of(finished)
                if options.tag_creation is not TagCreation.NONE:
                    with warned("tag", finished, failed):
                        make_tags(finished, options)
                if options.mark_done is not MarkDone.NONE:
                    with warned("mark-done", finished, failed):
                        mark_done(finished, options)
        if finished.callbacks and not in_callback():
            with warned("callback", finished, failed):
                call_back(finished, failed)
    with warned("metrics", finished, failed):
        record_metrics(result, failed)


NO_HOOKS: Final = HookOptions()


def options_of(finished: Finished) -> HookOptions:
    """What the table, or the session in its place, asks for.

    Raises:
        AnalysisError: a value that cannot be.
    """
    properties = {**finished.table.properties, **finished.settings}
    asks = properties.keys() & {COMMIT_TAG_CREATION, COMMIT_MARK_DONE}
    return HookOptions.from_properties(properties) if asks else NO_HOOKS


@contextmanager
def warned(hook: str, finished: Finished, failed: list[str]) -> Iterator[None]:
    """Turn what goes wrong inside into a warning."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the snapshot is there, whatever fails now
        failed.append(hook)
        result = finished.result
        LOG.warning(
            "After snapshot %s of %s was committed, the hook '%s' failed: %s",
            result.snapshot_id,
            result.table,
            hook,
            redact(f"{type(error).__name__}: {error}", finished.catalog.properties),
        )


def make_tags(finished: Finished, options: HookOptions) -> None:
    """The table's tags, as one change of its metadata."""
    snapshot_id, now_ms = finished.result.snapshot_id, time.time_ns() // 1_000_000
    assert snapshot_id is not None
    if is_tagged(finished.table.metadata, options, now_ms=now_ms):
        return
    commit_change(
        finished.catalog,
        finished.identifier,
        lambda metadata: tag_change(metadata, snapshot_id, options, now_ms=now_ms),
    )


def mark_done(finished: Finished, options: HookOptions) -> None:
    """The files and the property of partitions whose time is over."""
    table = load_table(finished.catalog, finished.identifier)
    snapshot = table.metadata.snapshot_by_id(finished.result.snapshot_id or 0)
    if snapshot is None:
        return  # it has expired already
    with_files = options.mark_done is MarkDone.SUCCESS_FILE
    done = done_partitions(table, snapshot, finished.added, options, with_files=with_files)
    if done.partitions:
        write_success_files(table, done, now_ms=time.time_ns() // 1_000_000)
    if done.moved:
        commit_change(finished.catalog, finished.identifier, lambda metadata: until_change(metadata, done))


# ---- callbacks

IN_CALLBACK: Final = ContextVar("IN_CALLBACK", default=False)
QUERY_ID: Final = "sql.streaming.queryId"
NO_QUERY: Final = "none"
PROPERTY: Final = "spark.rowdelta.callback"
"""The same for the JVM's thread: Spark calls a DataFrame's write back in another thread of Python."""


def in_callback() -> bool:
    """Whether this thread, or that for which the JVM calls it, runs a callback."""
    # A stream that a callback has started inherits the property, and is none of it: its threads have another query.
    return IN_CALLBACK.get() or local_property(PROPERTY) == (local_property(QUERY_ID) or NO_QUERY)


def call_back(finished: Finished, failed: list[str]) -> None:
    """Call the session's callbacks, and wait for them."""
    thread = threading.Thread(target=run_callbacks, args=(finished, failed), name="rowdelta-callbacks", daemon=True)
    thread.start()
    thread.join()


def run_callbacks(finished: Finished, failed: list[str]) -> None:
    """Call them one after the other; what one raises is a warning with its traceback."""
    IN_CALLBACK.set(True)
    set_local_property(PROPERTY, local_property(QUERY_ID) or NO_QUERY)
    try:
        for callback in finished.callbacks:
            try:
                callback(finished.result)
            except BaseException:
                failed.append("callback")
                LOG.warning(
                    "After snapshot %s of %s was committed, the callback %s failed",
                    finished.result.snapshot_id,
                    finished.result.table,
                    getattr(callback, "__qualname__", repr(callback)),
                    exc_info=True,
                )
    finally:
        set_local_property(PROPERTY, None)
