"""The order of files in a sorted table, by their lower bounds. Pure; driver.

Input: a table's sort order, and the lower bounds of its first column in each data file. Output: a rank for each file.
"""

from collections.abc import Sequence

from pyiceberg.table import Table
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import BucketTransform, UnknownTransform, VoidTransform

from dml.pruning.file_bounds import metric_columns

__all__ = ["sort_places", "sorting_column"]


def sorting_column(table: Table) -> tuple[int, bool] | None:
    """Return the field id of the first column of the table's sort order, and whether it descends.

    Returns:
        None if the table has no sort order, or one by a transform that does not preserve the order of the column.
    """
    order = table.sort_order()
    if order.is_unsorted or isinstance(order.fields[0].transform, BucketTransform | UnknownTransform | VoidTransform):
        return None
    first = order.fields[0]
    return first.source_id, first.direction is SortDirection.DESC


def sort_places(table: Table, lower_bounds: Sequence[bytes | None]) -> Sequence[float] | None:
    """Return the rank of each file in the table's sort order.

    Args:
        table: The table.
        lower_bounds: The serialized lower bound of the first sort column in each file. Files without one come last.

    Returns:
        The ranks; None if `sorting_column` is None or the column has no bounds.
    """
    first = sorting_column(table)
    column = None if first is None else metric_columns(table.schema()).get(first[0])
    if first is None or column is None:
        return None
    lower = [column.decode(bound) for bound in lower_bounds]
    known = sorted({value for value in lower if value is not None}, reverse=first[1])
    places = {value: float(place) for place, value in enumerate(known)}
    return [len(known) if value is None else places[value] for value in lower]
