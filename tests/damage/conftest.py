"""The samples, made once, and how many damaged files were tried."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.damage.samples import Sample, make_sample


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Sample]:
    """A table of each format version that has deletes."""
    return {version: make_sample(tmp_path_factory.mktemp(f"v{version}"), version) for version in (2, 3)}


@pytest.fixture(scope="session")
def tried() -> Iterator[Counter[str]]:
    """Counts damaged files by kind and outcome; the numbers are printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    print("\ndamaged files tried:", sum(counts.values()))
    for name, count in sorted(counts.items()):
        print(f"  {count:6} {name}")
