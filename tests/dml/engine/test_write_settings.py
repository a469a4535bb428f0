"""Which place of a setting counts, and by which partition spec rows are written."""

import pytest

from dml.engine.writes import output_spec, write_properties
from dml.errors import AnalysisError
from dml.options import WriteOptions
from tests.dml.commit.builders import new_table

DATA = "write.{}.compression-codec"
DELETES = "write.delete.{}.compression-codec"


def test_the_option_counts_before_the_session_and_that_before_the_table():
    table = {"write.distribution-mode": "none", DATA.format("parquet"): "gzip"}
    session = {"distribution-mode": "hash", "compression-codec": "snappy", "compression-level": "3"}
    options = {"distribution-mode": "range", "compression-level": "9"}
    found = WriteOptions.from_properties({**table, **write_properties(options, session, table)})
    assert (found.compression, found.compression_level) == ("snappy", 9)
    assert write_properties(options, session, table)["write.distribution-mode"] == "range"
    assert write_properties({}, session, table)["write.distribution-mode"] == "hash"
    assert write_properties({}, {}, table) == {}


def test_variants_are_shredded_where_the_nearest_place_says_so():
    table = {"write.parquet.shred-variants": "true", "write.parquet.variant-inference-buffer-size": "7"}
    for options, session, expected in (
        ({}, {}, (True, 7)),
        ({}, {"shred-variants": "false"}, (False, 7)),
        ({"shred-variants": "true"}, {"shred-variants": "false", "variant-inference-buffer-size": "9"}, (True, 9)),
    ):
        found = WriteOptions.from_properties({**table, **write_properties(options, session, table)})
        assert (found.shred_variants, found.variant_inference_rows) == expected


@pytest.mark.parametrize(
    ("options", "table", "keys"),
    [
        ({}, {}, {DATA.format("parquet"), DELETES.format("parquet")}),
        ({"write-format": "orc"}, {}, {DATA.format("orc"), DELETES.format("orc")}),
        ({}, {"write.format.default": "AVRO"}, {DATA.format("avro"), DELETES.format("avro")}),
        ({}, {"write.delete.format.default": "avro"}, {DATA.format("parquet"), DELETES.format("avro")}),
        ({"write-format": "csv"}, {}, set()),
    ],
)
def test_a_codec_is_that_of_the_format_which_is_written(options, table, keys):
    found = write_properties({**options, "compression-codec": "zstd"}, {}, table)
    assert {key for key in found if "codec" in key} == keys


def test_what_a_session_cannot_say_is_left_out():
    """As in the reference the format, the size of files and open files are the option's and the table's alone."""
    session = {"write-format": "orc", "target-file-size-bytes": "1", "fanout-enabled": "false", "merge-schema": "true"}
    assert write_properties({}, session, {}) == {}


def test_rows_are_written_by_a_spec_of_the_tables_history(catalog):
    table = new_table(catalog, 2, partitioned=True)
    with table.update_spec() as change:
        change.remove_field("p")
    table = catalog.load_table(("db", "t"))
    assert output_spec(table, None).spec_id == 1
    assert [field.name for field in output_spec(table, 0).fields] == ["p"]
    with pytest.raises(AnalysisError, match="no such partition spec") as caught:
        output_spec(table, 7)
    assert "0, 1" in str(caught.value)


def test_a_spec_whose_column_is_gone_is_refused(catalog):
    table = new_table(catalog, 2, partitioned=True)
    with table.update_spec() as change:
        change.remove_field("p")
    with catalog.load_table(("db", "t")).update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("p")
    with pytest.raises(AnalysisError, match="has the field 'p', whose column was dropped from the table"):
        output_spec(catalog.load_table(("db", "t")), 0)
