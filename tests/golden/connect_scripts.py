"""Golden scripts on Spark Connect, for programs: a process holds a classic session or one of Spark Connect."""

from dml.session import Session
from tests.golden.doors import Door, SparkSql
from tests.golden.runner import GoldenRunner
from tests.golden.turns import runs

__all__ = ["run"]


def run(lake: Session, *, nightly: bool = False) -> None:
    """Run the scripts whose turn it is with every change, or those that are run by night alone.

    Raises:
        AssertionError: some of them failed.
    """
    catalog, door = lake.registry.catalogs["lake"], SparkSql(spark=lake.spark)
    golden = GoldenRunner(catalog=catalog, doors={Door.CONNECT: door}, make=lake.sql)
    failures: list[str] = []
    for one in runs(Door.CONNECT):
        if one.nightly is nightly:
            try:
                golden.run(one.script, one.combination, Door.CONNECT)
            except Exception as error:  # noqa: BLE001  the others run, and all are shown in the end
                text = str(error).partition("JVM stacktrace")[0].strip() or repr(error)
                failures.append("\n".join([f"{type(error).__name__}: {text}", *getattr(error, "__notes__", ())]))
    assert not failures, "golden scripts failed on Spark Connect:\n\n" + "\n\n".join(failures)
