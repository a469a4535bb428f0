"""Which statements are ours, while one of ours runs."""

from dml.result import Result
from dml.spark.handlers import StatementHandler, find_handler, register_handler, running, unregister_handler


def refuse(text: str, _: object) -> Result:
    raise AssertionError(text)


def test_running_nests() -> None:
    """A statement that runs another one is itself still running afterwards: what it gives to Spark is Spark's."""
    handler = StatementHandler(handles=lambda _: True, run=refuse)
    register_handler("a session", handler)
    try:
        with running():
            with running():
                assert find_handler("a session", "SELECT 1") is None
            assert find_handler("a session", "SELECT 1") is None
        assert find_handler("a session", "SELECT 1") is handler
    finally:
        unregister_handler("a session")
