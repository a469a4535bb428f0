"""Theta sketches: hashes and bytes are those that Iceberg 1.10.2 for Java wrote for the same values."""

import hashlib
import struct
from datetime import date
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml import limits
from dml.rows.theta_sketch import NOMINAL_ENTRIES, ThetaSketch, hash_values

JAVA = [
    (pa.array([2919, None, 311760], pa.int64()), [7911506913728067229, 4348254796823432368]),
    (pa.array([True, False, True, None]), [281545475159531364, 288748328603632468]),
    (pa.array([-869, 340], pa.int32()), [4972958517071234607, 5630271599823813742]),
    (
        pa.array([-1.875, float("nan"), -0.0], pa.float32()),
        [7213024577005791834, 1723904191651871429, 3543503756869641605],
    ),
    (pa.array([float("-inf"), 11.0], pa.float64()), [5089619618233012696, 7027097983443176484]),
    (pa.array([date(1961, 2, 4), date(2003, 10, 22)]), [4454391215000959498, 2459524112161500991]),
    (pa.array([-42_999_979, 230_000_840], pa.timestamp("us", "UTC")), [3680006591059511446, 8656424825065520443]),
    (pa.array([99_999_999], pa.timestamp("us")), [4488830279882740093]),
    (pa.array(["ééxx-ü", "", None, "é" * 4 + "x" * 40 + "-ü"]), [2536070267995238835, 3252265182425593203]),
    (pa.array([b"b", b"", b"n" * 33, b"a" * 40]), [3811672053921120133, 9070176073418594884, 7020376095585901341]),
    (pa.array([Decimal("-28.73"), Decimal("20.80")], pa.decimal128(9, 2)), [1091329496335564871, 6253294430217451936]),
    (
        pa.array([Decimal(-37037036703703703670), Decimal(11111111011111111101)], pa.decimal128(38, 10)),
        [59767150925829249, 1172068623769741731],
    ),
    (pa.nulls(3), []),
    (pa.array([], pa.string()), []),
]
"""Values, and the hashes that Java's sketches of them hold."""


@pytest.mark.parametrize(("values", "hashes"), JAVA, ids=[str(values.type) for values, _ in JAVA])
def test_values_have_javas_hashes(values: pa.Array, hashes: list[int]) -> None:
    """Wherever the values lie in their buffers."""
    found = hash_values(values)
    assert sorted(found.tolist()) == sorted(hashes)
    padded = pa.concat_arrays([values.slice(0, 1), values, values.slice(0, 1)]).slice(1, len(values))
    assert padded.offset == (1 if len(values) else 0)
    assert sorted(hash_values(padded).tolist()) == sorted(hashes)


def test_uuids_and_fixed_are_their_bytes() -> None:
    """As Iceberg serializes single values."""
    raw = [UUID(int=7).bytes, UUID(int=2**127).bytes]
    of_bytes = hash_values(pa.array(raw, pa.binary())).tolist()
    assert hash_values(pa.array(raw, pa.binary(16))).tolist() == of_bytes
    assert hash_values(pa.array(raw, pa.binary(16)).slice(1)).tolist() == of_bytes[1:]
    assert hash_values(pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16)))).tolist() == of_bytes


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-70_000, 70_000), max_size=20))
def test_decimals_are_the_shortest_bytes(numbers: list[int]) -> None:
    """Big-endian, as `BigInteger.toByteArray` gives them."""
    shortest = [
        number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
        for number in numbers
    ]
    decimals = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))
    assert hash_values(decimals).tolist() == hash_values(pa.array(shortest, pa.binary())).tolist()


@given(st.lists(st.binary(max_size=70), max_size=30), st.integers(0, 31))
def test_long_values_one_by_one_have_the_same_hashes(texts: list[bytes], alone: int) -> None:
    values = pa.array(texts, pa.large_binary())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_VALUES_HASHED_ALONE", 0)
        together = hash_values(values).tolist()
        patch.setattr(limits, "MAX_VALUES_HASHED_ALONE", alone)
        patch.setattr(limits, "HASHED_PIECE_BYTES", 32)
        assert hash_values(values).tolist() == together


def sketch_of(*parts: pa.Array) -> ThetaSketch:
    sketch = ThetaSketch()
    for part in parts:
        sketch.update(part)
    return sketch


def test_exact_sketches_are_javas_to_the_byte() -> None:
    assert sketch_of(pa.nulls(2, pa.int64())).to_bytes().hex() == "01030300001e0000"
    assert sketch_of(pa.array([0])).to_bytes().hex() == "01030300003acc93e56b61eec8804420"
    assert sketch_of(pa.array(["v0", "v1"])).to_bytes().hex() == (
        "02030300001acc93020000000000803f08a06c56d6aba515ad50444f08f3f163"
    )
    most = sketch_of(pa.array([f"v{number}" for number in range(NOMINAL_ENTRIES)]))
    assert (most.estimate, most.is_estimating) == (4096, False)
    assert hashlib.sha256(most.to_bytes()).hexdigest() == (
        "b9d3e8aaf9c59aafa369ee174a8ada189173b64dcd60a09922a98fa3fe1b8cd8"
    )


def test_larger_sketches_estimate_and_hold_javas_hashes() -> None:
    """Java's sketch of the same 200,000 numbers holds 4,074 hashes below a lower theta; ours holds them too."""
    numbers = np.arange(200_000)
    sketch = sketch_of(pa.array(numbers * numbers + numbers))
    theta = 187582641976165248
    assert (sketch.is_estimating, len(sketch.hashes)) == (True, NOMINAL_ENTRIES)
    assert abs(sketch.estimate / 200_000 - 1) < 0.01
    assert sketch.theta > theta
    shared = sketch.hashes[sketch.hashes < theta]
    assert len(shared) == 4074
    assert hashlib.sha256(shared.tobytes()).hexdigest() == (
        "ede1e51b9ef4acfcd8d760eb752dc09fc7b432593acac739f3f1c0d731c4f492"
    )
    preamble = struct.unpack("<BBBBBBHifQ", sketch.to_bytes()[:24])
    assert preamble == (3, 3, 3, 0, 0, 0x1A, 0x93CC, 4096, 1.0, sketch.theta)
    assert sketch.to_bytes()[24:] == sketch.hashes.tobytes()


def test_merged_sketches_are_those_of_all_values() -> None:
    """However the values are divided among tasks, and in any order."""
    numbers = pa.array(np.arange(9_000))
    whole = sketch_of(numbers)
    parts = [sketch_of(numbers.slice(start, 5_000)) for start in (0, 4_000)]
    parts += [sketch_of(numbers.slice(0, 10)), ThetaSketch()]
    for order in (parts, parts[::-1]):
        merged = ThetaSketch()
        for part in order:
            merged.merge(part)
        assert (merged.theta, merged.hashes.tolist()) == (whole.theta, whole.hashes.tolist())
