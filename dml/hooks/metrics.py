"""One line of JSON for each statement, and a span of OpenTelemetry where its API is installed. Driver.

Input: a `Result`, and what its statement says of itself. Output: a record of level INFO at the logger `dml.metrics`; it
is not made where nobody listens. There are counts, sizes, times and names in it; no text of SQL, no values of rows, and
of a snapshot's summary only the keys of streams, for users put there what they like.
"""

import importlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final

from dml.model.summary_keys import EPOCH_ID, QUERY_ID
from dml.result import Result

__all__ = ["METRICS", "record_metrics"]

METRICS: Final = logging.getLogger("dml.metrics")

COUNTS: Final = tuple(
    field.name for field in fields(Result) if field.type in {int, int | None} and field.name != "snapshot_id"
)
"""The counts of rows, files and bytes of a result, derived from its fields so that none is missing."""


def tracer() -> Any:
    """OpenTelemetry's tracer; None where its API is not installed."""
    try:
        return importlib.import_module("opentelemetry.trace").get_tracer("rowdelta")
    except ImportError:
        return None


TRACER: Final = tracer()


def record_metrics(result: Result, failed_hooks: Sequence[str] = (), *, trace: Any = TRACER) -> None:
    """Tell whoever listens what a statement did.

    Args:
        result: What it did.
        failed_hooks: What was to be done after its commit, and failed.
        trace: OpenTelemetry's tracer; None where there is none.
    """
    listens = METRICS.isEnabledFor(logging.INFO)
    if not listens and trace is None:
        return
    now = time.time()
    facts = facts_of(result, failed_hooks)
    if listens:
        METRICS.info("%s", json.dumps({"time": datetime.fromtimestamp(now, UTC).isoformat(), **facts}))
    if trace is not None:
        attributes = {f"rowdelta.{key}": value for key, value in flat(facts).items() if value is not None}
        started = int((now - result.seconds.total) * 1e9)
        trace.start_span(f"rowdelta {result.command}", start_time=started, attributes=attributes).end(int(now * 1e9))


def facts_of(result: Result, failed_hooks: Sequence[str]) -> dict[str, Any]:
    """What a line says, without the time."""
    stream = {"query_id": result.summary.get(QUERY_ID), "epoch_id": result.summary.get(EPOCH_ID)}
    return {
        "command": result.command,
        "table": result.table,
        "branch": result.branch,
        "mode": result.mode,
        "snapshot_id": result.snapshot_id,
        "operation": result.summary.get("operation"),
        "replayed": result.replayed,
        **{name: getattr(result, name) for name in COUNTS},
        "seconds": {
            "plan": round(result.seconds.plan, 6),
            "execute": round(result.seconds.execute, 6),
            "commit": round(result.seconds.commit, 6),
            "total": round(result.seconds.total, 6),
        },
        **{key: value for key, value in stream.items() if value is not None},
        **({"failed_hooks": list(failed_hooks)} if failed_hooks else {}),
    }


def flat(facts: dict[str, Any]) -> dict[str, Any]:
    """With the seconds of each phase beside the others: attributes of a span are not nested."""
    return {
        **{key: value for key, value in facts.items() if key != "seconds"},
        **{f"seconds.{phase}": value for phase, value in facts["seconds"].items()},
    }
