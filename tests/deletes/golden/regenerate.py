"""Writes the golden files of this folder anew from `golden.json`: run it, then review the difference."""

import io
import json
from pathlib import Path
from typing import Any

from dml.deletes.deletion_vector import PuffinWriter, deletion_vector_blob, encode
from dml.deletes.position_index import PositionDeleteIndex

FOLDER = Path(__file__).parent


def index_of(ranges: Any) -> PositionDeleteIndex:
    """The index that `golden.json` describes."""
    if isinstance(ranges, dict):
        return PositionDeleteIndex.from_positions(range(ranges["start"], ranges["stop"], ranges["step"]))
    index = PositionDeleteIndex()
    for start, stop in ranges:
        index.add_range(start, stop)
    return index


def puffin_of(created_by: str, blobs: list[dict[str, str]], vectors: dict[str, Any]) -> bytes:
    """The Puffin file that `golden.json` describes."""
    stream = io.BytesIO()
    with PuffinWriter(stream.write, created_by) as writer:
        for blob in blobs:
            index = index_of(vectors[blob["vector"]]["ranges"])
            writer.write_blob(deletion_vector_blob(blob["data_file"], len(index)), encode(index))
    return stream.getvalue()


def main() -> None:
    """Writes all files."""
    golden = json.loads((FOLDER / "golden.json").read_text())
    vectors = golden["deletion_vectors"]
    for name, case in vectors.items():
        (FOLDER / name).write_bytes(encode(index_of(case["ranges"])))
    for name, case in golden["puffin"].items():
        (FOLDER / name).write_bytes(puffin_of(case["created_by"], case["blobs"], vectors))


if __name__ == "__main__":
    main()
