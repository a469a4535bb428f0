"""Which statements are ours, while one of ours runs."""

from dml.spark.handlers import find_handler, register_handler, running, unregister_handler


class Everything:
    """Takes every statement."""

    def handles(self, _: str) -> bool:
        return True

    def run(self, text: str, _: object) -> object:
        raise AssertionError(text)


def test_running_nests() -> None:
    """A statement that runs another one is itself still running afterwards: what it gives to Spark is Spark's."""
    handler = Everything()
    register_handler("a session", handler)
    try:
        with running():
            with running():
                assert find_handler("a session", "SELECT 1") is None
            assert find_handler("a session", "SELECT 1") is None
        assert find_handler("a session", "SELECT 1") is handler
    finally:
        unregister_handler("a session")
