"""Golden scripts on a cluster with object storage and a REST catalog, each in one of its combinations.

Every change runs one script in thirty, the nightly run all of them.
"""

import uuid
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable, Table

from dml.options import WRITE_DATA_PATH
from dml.session import Session
from tests.golden.doors import Door, LakeSql
from tests.golden.runner import GoldenRunner
from tests.golden.script import Combination, Script
from tests.golden.turns import FOLDER, SCRIPTS, in_turn
from tests.marks import by_night
from tests.services.lakes import S3Files, puffin_properties
from tests.services.seaweedfs import SeaweedFs

pytestmark = pytest.mark.spark

EVERY = 30
CASES = [(script, in_turn(script.combinations, number)) for number, script in enumerate(SCRIPTS)]
OFTEN = {script.path for script in SCRIPTS[::EVERY]}


@pytest.fixture(scope="module")
def golden(lake: Session, storage: SeaweedFs) -> GoldenRunner:
    """The runner of scripts in the lake of the cluster."""
    files = S3Files(server=storage, buckets=("tables", "plain"))

    def pyiceberg(metadata_location: str) -> pa.Table:
        return StaticTable.from_metadata(metadata_location, storage.file_io()).scan().to_arrow()

    def duckdb(metadata_location: str) -> pa.Table:
        return files.duckdb().execute("SELECT * FROM iceberg_scan(?)", [metadata_location]).to_arrow_table()

    readers: Mapping[str, Callable[[str], pa.Table]] = {"pyiceberg": pyiceberg, "duckdb": duckdb}

    def files_of(table: Table) -> set[str]:
        folders = (table.location(), table.properties.get(WRITE_DATA_PATH, table.location()))
        return {path for folder in folders for path in files.below(folder)}

    return GoldenRunner(
        catalog=lake.registry.catalogs["lake"],
        doors={Door.LAKE_SQL: LakeSql(spark=lake.spark, lake=lake)},
        make=lake.sql,
        files_of=files_of,
        properties=lambda version: puffin_properties(version, f"golden/{uuid.uuid4().hex}"),
        readers=readers,
        keeps_files=False,
    )


@pytest.mark.parametrize(
    ("script", "combination"),
    by_night(CASES, lambda case: case[0].path in OFTEN),
    ids=[f"{script.path.relative_to(FOLDER).with_suffix('')}-{combination}" for script, combination in CASES],
)
def test_the_script_gives_what_it_says(golden: GoldenRunner, script: Script, combination: Combination) -> None:
    golden.run(script, combination, Door.LAKE_SQL)
