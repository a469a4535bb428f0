"""Parquet footers with flipped bits: no exception but ours, little memory, and an end."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.damage import footers
from tests.damage.conftest import Program
from tests.damage.samples import Sample


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_flipped_bit_of_a_footer_is_refused_or_changes_what_the_footer_says(
    samples: dict[int, Sample], program: Program, tried: Counter[str], tmp_path: Path, step: int
) -> None:
    """Names and types of columns are values like others. What ends the process is counted: Spark starts another one."""
    content = samples[2].content["data"]
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    place = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    ended = 0
    while place < len(content):
        ran = program.run("footers", str(path), str(place), str(step))
        lines = ran.stdout.splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        for case in told:
            assert case["bytes"] < footers.LIMIT_BYTES, case
            tried[f"data (Parquet footer), flipped: {case['outcome']}"] += 1
        if ran.returncode == 0:
            break
        assert "terminate called after throwing" in ran.stderr, ran.stderr[-2000:]
        ended += 1
        place = int(lines[-1]) + step
    tried["data (Parquet footer), flipped: PyArrow ends the process"] += ended
