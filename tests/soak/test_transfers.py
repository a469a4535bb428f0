"""Processes move money between the rows of one table, on each kind of catalog, and none of it is lost.

Checked afterwards: every snapshot by time travel, every statement by its idempotency key, every file of the storage.
"""

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dml.maintenance import RemoveOrphanFiles, remove_orphan_files
from dml.spark.launch import LOG_SETTINGS
from tests.class_archive import JVM_OPTIONS
from tests.services.lakes import is_metadata_file, leftovers
from tests.soak.client import UPGRADED, ClientTask
from tests.soak.conftest import Place
from tests.soak.history import Report, check
from tests.soak.spark_connect import spark_connect
from tests.soak.transfers import ACCOUNTS, BALANCE, FILES
from tests.soak.writers import Kills, run_writers

WRITERS, TRANSFERS = 3, 2
MORE_WRITERS = 8
SEED = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(10**6)))
# Of a night: transfers of each writer on each table, and writers killed on the way.
LONG_TRANSFERS = int(os.environ.get("SOAK_TRANSFERS", "40"))
LONG_KILLS = int(os.environ.get("SOAK_KILLS", "12"))
LONG_SECONDS = int(os.environ.get("SOAK_SECONDS", "7200"))
LONG_KILL_SECONDS = float(os.environ.get("SOAK_KILL_SECONDS", "60"))
OWN_JVM = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": (f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} {JVM_OPTIONS}"),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
OPENING = "INSERT INTO {table} SELECT id, " + f"{BALANCE}L, 'opening' FROM range(0, {ACCOUNTS}, 1, {FILES})"
MODES = {"write.update.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}
LEVELS = {"write.update.isolation-level": "snapshot", "write.merge.isolation-level": "serializable"}
LONG_LOG = {"write.metadata.previous-versions-max": "100000"}


def tasks(
    places: dict[str, Place],
    tables: dict[str, tuple[Place, int]],
    folder: Path,
    settings: dict[str, str],
    writers: int,
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
        for number in range(writers)
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
@pytest.mark.parametrize("writers", [WRITERS, pytest.param(MORE_WRITERS, marks=pytest.mark.soak)])
def test_transfers_of_processes(places: dict[str, Place], tmp_path: Path, writers: int) -> None:
    """The writers share a Spark Connect server, and nothing else: each plans, checks and commits for itself."""
    tables = {
        f"sqlite.db.v3_{writers}": (places["sqlite"], 3),
        f"postgres.db.v2_{writers}": (places["postgres"], 2),
        f"rest.db.v3_{writers}": (places["rest"], 3),
    }
    with spark_connect(tmp_path) as url:
        given = tasks(places, tables, tmp_path, {"spark.remote": url}, writers, TRANSFERS)
        log = run_writers(given, tmp_path, seconds=600)
    faults = [line for line in log if line.get("outcome") in {"error", "unknown"}]
    assert faults == [], SEED
    for report in checked(tables, log):
        assert report.statements == TRANSFERS * writers
        # Who fails has lost against somebody who succeeded, so that at least one of each round does.
        assert report.outcomes["done"] >= TRANSFERS, SEED


@pytest.mark.soak
def test_transfers_of_eight_drivers_that_are_killed(places: dict[str, Place], tmp_path: Path) -> None:
    """Each with a JVM of its own; some die, and their successors run the statement again under the same key."""
    tables = {
        f"{name}.db.long_{kind}": (places[name], version)
        for name in places
        for kind, version in (("v2", 2), ("v3", 3), *([(UPGRADED, 2)] if name != "rest" else []))
    }
    settings = {**OWN_JVM, "spark.local.dir": str(tmp_path / "spark")}
    kills = Kills(count=LONG_KILLS, every_seconds=LONG_KILL_SECONDS, draw=random.Random(SEED))
    writers = tasks(places, tables, tmp_path, settings, MORE_WRITERS, LONG_TRANSFERS)
    log = run_writers(writers, tmp_path, seconds=LONG_SECONDS, kills=kills)
    faults = [line for line in log if line.get("outcome") in {"error", "unknown"}]
    assert faults == [], SEED
    reports = checked(tables, log, may_leave=True)
    assert all(report.statements == LONG_TRANSFERS * MORE_WRITERS for report in reports), SEED
    for name, (place, _) in tables.items():
        find_what_is_left(place, name)


def find_what_is_left(place: Place, name: str) -> None:
    """The orphan finder tells the files that killed writers left, and no other."""
    catalog, identifier = place.catalog(), tuple(name.split(".")[1:])
    any_age = RemoveOrphanFiles(older_than=datetime.now(UTC) + timedelta(hours=1), dry_run=True)
    found = set(remove_orphan_files(catalog, identifier, any_age).orphans)
    table = catalog.load_table(identifier)
    left = leftovers(table, place.files) - set(place.files.uploads())
    print(f"{name}: {len(found)} files of killed writers")
    assert {path for path in found if not is_metadata_file(path)} == left
    known = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    assert not found & known
