"""The checked decoder returns what was encoded."""

import struct

import pytest

from dml.manifests.avro_decoder import CheckedDecoder


@pytest.mark.parametrize("value", [0.1, 1e300, 5e-324, 123456789.123, -0.0, float("inf")])
def test_doubles_keep_their_precision(value: float) -> None:
    """PyIceberg 0.12.0 rounds them to single precision: copy-on-write would write the rounded values back."""
    data = struct.pack("<d", value)
    assert struct.pack("<d", CheckedDecoder(data).read_double()) == data
