"""Parquet footers with flipped bits: no exception but ours, little memory, and an end."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.damage import footers
from tests.damage.samples import Sample

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_flipped_bit_of_a_footer_is_refused_or_changes_what_the_footer_says(
    samples: dict[int, Sample], tried: Counter[str], tmp_path: Path, step: int
) -> None:
    """Names and types of columns are values like others. What ends the process is counted: Spark starts another one."""
    content = samples[2].content["data"]
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    place = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    ended = 0
    while place < len(content):
        command = [sys.executable, "-m", "tests.damage.footers", str(path), str(place), str(step)]
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env={**os.environ}
        )
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
