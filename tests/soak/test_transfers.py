"""Eight processes move money between the rows of one table, on each kind of catalog, and none of it is lost.

Checked afterwards: every snapshot by time travel, every statement by its idempotency key, every file of the storage.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.soak.client import ClientTask
from tests.soak.conftest import Place
from tests.soak.history import Report, check
from tests.soak.spark_connect import spark_connect
from tests.soak.transfers import ACCOUNTS, BALANCE, FILES
from tests.soak.writers import run_writers

WRITERS = 8
SEED = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(10**6)))
# Of a night: transfers of each writer on each table, and writers killed on the way.
LONG_TRANSFERS = int(os.environ.get("SOAK_TRANSFERS", "40"))
LONG_KILLS = int(os.environ.get("SOAK_KILLS", "12"))
LONG_SECONDS = int(os.environ.get("SOAK_SECONDS", "7200"))
OWN_JVM = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
OPENING = "INSERT INTO {table} SELECT id, " + f"{BALANCE}L, 'opening' FROM range(0, {ACCOUNTS}, 1, {FILES})"
MODES = {"write.update.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}
LEVELS = {"write.update.isolation-level": "snapshot", "write.merge.isolation-level": "serializable"}
LONG_LOG = {"write.metadata.previous-versions-max": "100000"}


def tasks(
    places: dict[str, Place],
    tables: dict[str, tuple[Place, int]],
    folder: Path,
    settings: dict[str, str],
    statements: int,
) -> list[ClientTask]:
    """What each writer does; the first one makes the tables."""
    create = [f"CREATE NAMESPACE IF NOT EXISTS {name}.db" for name in places]
    for name, (place, version) in tables.items():
        create.append(place.create(name.rpartition(".")[2], version, **MODES, **LEVELS, **LONG_LOG))
        create.append(OPENING.format(table=name))
    return [
        ClientTask(
            number=number,
            seed=SEED,
            settings=settings,
            catalogs={name: place.properties for name, place in places.items()},
            create=create if number == 0 else [],
            tables=list(tables),
            statements=statements,
            log=str(folder / f"log-{number}.jsonl"),
            go=str(folder / "go"),
        )
        for number in range(WRITERS)
    ]


def checked(
    tables: dict[str, tuple[Place, int]], log: list[dict[str, Any]], *, may_leave: bool = False
) -> list[Report]:
    """The report of each table."""
    reports = []
    for name, (place, _) in tables.items():
        table = place.catalog().load_table(tuple(name.split(".")[1:]))
        reports.append(check(name, table, place.files, log, may_leave=may_leave))
        print(f"seed {SEED}: {reports[-1]}")
    return reports


@pytest.mark.spark
def test_transfers_of_eight_processes(places: dict[str, Place], tmp_path: Path) -> None:
    """The writers share a Spark Connect server, and nothing else: each plans, checks and commits for itself."""
    tables = {
        "sqlite.db.v3": (places["sqlite"], 3),
        "postgres.db.v2": (places["postgres"], 2),
        "rest.db.v3": (places["rest"], 3),
    }
    with spark_connect(tmp_path) as url:
        log = run_writers(tasks(places, tables, tmp_path, {"spark.remote": url}, 3), tmp_path, seconds=600)
    faults = [line for line in log if line.get("outcome") in {"error", "unknown"}]
    assert faults == [], SEED
    for report in checked(tables, log):
        assert report.statements == 3 * WRITERS
        assert report.outcomes["done"] >= report.statements / 4, SEED
