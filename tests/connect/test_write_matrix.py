"""Every way to write on every kind of table, on Spark Connect."""

import pytest

from tests.dml.spark.write_story import CELLS, Story

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_way_to_write_and_what_others_read(lake, spark, tmp_path, cell):
    Story(lake=lake.session, spark=spark, cell=cell, name=lake.new_name(), folder=tmp_path).tell()
