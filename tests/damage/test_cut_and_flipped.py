"""Files that are cut short, and files with flipped bits: the right rows, or an error that names the file.

What can be promised of a flipped bit depends on the format. Deletion vectors and the pages of our Parquet files have
checksums: no flipped bit passes. Avro and JSON have none, so a byte that is a value may become another value, and no
reader can tell; a Parquet footer likewise. There only what says the same thing twice is found.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.damage.samples import Outcome, Sample

WITHOUT_CHECKSUM = ("metadata", "manifest list", "data manifest", "delete manifest")
KINDS = (*WITHOUT_CHECKSUM, "data", "deletes")
STEPS = {"metadata": 67, "manifest list": 53, "data manifest": 97, "delete manifest": 97, "data": 41, "deletes": 11}
RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def flipped(content: bytes, *bits: int) -> bytes:
    damaged = bytearray(content)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def page_bytes(content: bytes) -> int:
    """Where the footer of a Parquet file starts, page indexes included."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def cuts(kind: str, content: bytes) -> list[int]:
    """Some places to cut a file, among them those between the parts of it."""
    sync = content[-16:]
    header = content.find(sync) + 16 if kind.endswith(("list", "manifest")) else 0
    ends = range(len(content) - 20, len(content))
    return sorted({0, 1, 4, header, header + 1, *ends, *range(0, len(content), STEPS[kind])} - {len(content)})


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_short_is_refused(
    samples: dict[int, Sample], tried: Counter[str], version: int, kind: str
) -> None:
    """Wherever it is cut: also between two blocks, and right behind the header, where it looks like a whole one."""
    sample = samples[version]
    content = sample.content[kind]
    for place in cuts(kind, content):
        assert sample.outcome(kind, content[:place]) is Outcome.REFUSED, place
        tried[f"{kind}, cut: refused"] += 1


@pytest.mark.nightly
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_short_anywhere_is_refused(
    samples: dict[int, Sample], tried: Counter[str], version: int, kind: str
) -> None:
    sample = samples[version]
    for place in range(len(sample.content[kind])):
        assert sample.outcome(kind, sample.content[kind][:place]) is Outcome.REFUSED, place
        tried[f"{kind}, cut: refused"] += 1


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_flipped_bit_of_a_deletion_vector_passes(samples: dict[int, Sample], tried: Counter[str], step: int) -> None:
    """Bits of the file, by night every one; its manifest entry says where the vector is: the rest is not even read."""
    sample = samples[3]
    content = sample.content["deletes"]
    for bit in range(0, 8 * len(content), step):
        outcome = sample.outcome("deletes", flipped(content, bit))
        assert outcome is not Outcome.CHANGED, bit
        tried[f"deletion vector, flipped: {outcome}"] += 1


@pytest.mark.parametrize("step", [59, pytest.param(5, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["data", "deletes"])
def test_no_flipped_bit_of_a_page_passes(samples: dict[int, Sample], tried: Counter[str], kind: str, step: int) -> None:
    """Pages have a checksum; their headers do not, and what they say is told twice."""
    sample = samples[2]
    content = sample.content[kind]
    for bit in range(0, 8 * page_bytes(content), step):
        outcome = sample.outcome(kind, flipped(content, bit))
        assert outcome is not Outcome.CHANGED, bit
        tried[f"{kind} (Parquet pages), flipped: {outcome}"] += 1


@RELAXED
@given(data=st.data())
def test_flipped_bits_of_metadata_lead_to_rows_or_to_an_error(
    samples: dict[int, Sample], tried: Counter[str], data: st.DataObject
) -> None:
    """Never to another exception, and to other rows only where one value became another."""
    kind = data.draw(st.sampled_from(WITHOUT_CHECKSUM), label="kind")
    sample = samples[data.draw(st.sampled_from([2, 3]), label="version")]
    content = sample.content[kind]
    bits = data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=3), label="bits")
    outcome = sample.outcome(kind, flipped(content, *bits))
    event(f"{kind}: {outcome}")
    tried[f"{kind}, flipped: {outcome}"] += 1


@RELAXED
@given(data=st.data())
def test_pieces_of_metadata_put_elsewhere_lead_to_rows_or_to_an_error(
    samples: dict[int, Sample], tried: Counter[str], data: st.DataObject
) -> None:
    """Bytes that are left out, doubled, or made up."""
    kind = data.draw(st.sampled_from(WITHOUT_CHECKSUM), label="kind")
    sample = samples[data.draw(st.sampled_from([2, 3]), label="version")]
    content = sample.content[kind]
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2), label="piece"))
    piece = data.draw(st.one_of(st.just(b""), st.just(content[start:end] * 2), st.binary(max_size=40)), label="instead")
    outcome = sample.outcome(kind, content[:start] + piece + content[end:])
    event(f"{kind}: {outcome}")
    tried[f"{kind}, rearranged: {outcome}"] += 1


@RELAXED
@given(data=st.data())
def test_a_file_of_anything_is_refused(samples: dict[int, Sample], tried: Counter[str], data: st.DataObject) -> None:
    """Random bytes, or another file of the table."""
    kind = data.draw(st.sampled_from(KINDS), label="kind")
    sample = samples[data.draw(st.sampled_from([2, 3]), label="version")]
    others = [content for other, content in sample.content.items() if other != kind]
    content = data.draw(st.one_of(st.binary(max_size=200), st.sampled_from(others)), label="content")
    assert sample.outcome(kind, content) is Outcome.REFUSED
    tried[f"{kind}, made up: refused"] += 1
