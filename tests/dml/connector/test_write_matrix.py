"""Every way to write on every kind of table, on classic Spark; `connect_matrix.py` is the same on Spark Connect."""

import pytest

from tests.dml.spark.write_story import CELLS, Cell, Story

pytestmark = pytest.mark.spark

BY_DAY = Cell(file_format="parquet", version=3, layout="by k")


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=() if cell == BY_DAY else pytest.mark.nightly) for cell in CELLS], ids=str
)
def test_every_way_to_write_and_what_others_read(lake, spark, tmp_path, cell):
    Story(lake=lake.session, spark=spark, cell=cell, name=lake.new_name(), folder=tmp_path).tell()
