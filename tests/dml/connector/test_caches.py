"""What Spark has cached of a table, after a statement that changed it. Without Spark."""

from types import SimpleNamespace

import pytest

from dml.connector import caches
from dml.errors import ExecutionError


def test_a_catalog_that_does_not_answer_afterwards_is_no_failure_of_a_committed_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its user would run it again. What Spark has cached goes all the same."""
    cleared: list[bool] = []

    def refuse(_: tuple[str, ...]) -> None:
        raise ExecutionError("The catalog does not answer")

    engine = SimpleNamespace(
        runtime=SimpleNamespace(is_connect=False),
        spark=SimpleNamespace(catalog=SimpleNamespace(clearCache=lambda: cleared.append(True))),
        registry=SimpleNamespace(split=lambda parts: (parts[0], parts[1:]), resolve=refuse),
    )
    monkeypatch.setattr(caches, "cache_manager", lambda _: SimpleNamespace(isEmpty=lambda: False))
    caches.refresh_caches(engine, ("lake", "db", "t"), columns_may_differ=False)  # type: ignore[arg-type]
    assert cleared == [True]
