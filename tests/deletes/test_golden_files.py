"""Golden files: bytes that other Iceberg implementations write for the same positions, checked in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dml.deletes.deletion_vector import PuffinWriter, decode, deletion_vector_blob, encode
from dml.deletes.position_index import PositionDeleteIndex

FOLDER = Path(__file__).parent / "golden"
GOLDEN = json.loads((FOLDER / "golden.json").read_text())
VECTORS: dict[str, Any] = GOLDEN["deletion_vectors"]
PUFFINS: dict[str, Any] = GOLDEN["puffin"]


def positions_of(ranges: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    if isinstance(ranges, dict):
        return np.arange(ranges["start"], ranges["stop"], ranges["step"])
    return np.array([position for start, stop in ranges for position in range(start, stop)], dtype=np.int64)


@pytest.mark.parametrize("name", VECTORS)
def test_golden_vector_decodes_to_its_positions(name):
    positions = positions_of(VECTORS[name]["ranges"])
    index = decode((FOLDER / name).read_bytes(), file=name, cardinality=len(positions))
    np.testing.assert_array_equal(index.to_numpy(), positions)


@pytest.mark.parametrize("name", VECTORS)
def test_positions_encode_to_the_golden_bytes(name):
    index = PositionDeleteIndex.from_positions(positions_of(VECTORS[name]["ranges"]))
    assert encode(index) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", VECTORS)
def test_decoded_vector_encodes_to_the_same_bytes(name):
    blob = (FOLDER / name).read_bytes()
    assert encode(decode(blob, file=name, cardinality=None)) == blob


def test_vector_of_the_first_row_has_the_bytes_of_the_reference():
    """Known from Iceberg's Java library, byte by byte."""
    expected = "00000022 d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0000 10000000 0000 f7a6b4b5"
    assert encode(PositionDeleteIndex.from_positions([0])) == bytes.fromhex(expected)


@pytest.mark.parametrize("name", PUFFINS)
def test_writer_gives_the_golden_puffin_bytes(name, tmp_path):
    case, path = PUFFINS[name], tmp_path / name
    with path.open("wb") as stream:
        writer = PuffinWriter(stream.write, case["created_by"])
        for blob in case["blobs"]:
            index = PositionDeleteIndex.from_positions(positions_of(VECTORS[blob["vector"]]["ranges"]))
            writer.write_blob(deletion_vector_blob(blob["data_file"], len(index)), encode(index))
        size = writer.close()
    assert path.read_bytes() == (FOLDER / name).read_bytes()
    assert size == path.stat().st_size
