"""Which columns of new Parquet files have a bloom filter. Worker-safe.

Input: table properties and schema. Output: false-positive probabilities by physical column. Source:
`write.parquet.bloom-filter-*` in Iceberg's documentation; the size follows from the rows of a row group.
"""

from collections.abc import Mapping
from typing import Final

from dml.errors import AnalysisError, ErrorKind

__all__ = ["bloom_filters"]

ENABLED_PREFIX: Final = "write.parquet.bloom-filter-enabled.column."
PROBABILITY_PREFIX: Final = "write.parquet.bloom-filter-fpp.column."
DEFAULT_PROBABILITY: Final = 0.01


def bloom_filters(properties: Mapping[str, str], columns: frozenset[str]) -> dict[str, float]:
    """The false-positive probability of each physical column that is to have a bloom filter.

    Args:
        properties: The table's properties.
        columns: Dotted names of the physical columns; properties that outlived their column do nothing.

    Raises:
        AnalysisError: a probability is none.
    """
    return {
        column: probability(properties, PROBABILITY_PREFIX + column)
        for key, text in properties.items()
        if key.startswith(ENABLED_PREFIX)
        and text.strip().lower() == "true"
        and (column := key.removeprefix(ENABLED_PREFIX)) in columns
    }


def probability(properties: Mapping[str, str], key: str) -> float:
    """A probability between 0 and 1.

    Raises:
        AnalysisError: it is none.
    """
    text = properties.get(key)
    if text is None:
        return DEFAULT_PROBABILITY
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be a number between 0 and 1, both excluded",
            property=key,
        )
    return value
