"""The lines of a manifest list, each as its bytes. Worker-safe.

Input: the type of the lines of a manifest list, and its blocks. Output: the bytes of each line. Most lines of a list
are those of the list before it, and what the same bytes say need not be found out twice.
"""

from collections.abc import Sequence

from pyiceberg.types import ListType, NestedField, StructType

from dml.manifests.lockstep_decoder import Step, UnsureError
from dml.manifests.lockstep_search import Search, plain_step, together, whole_list

__all__ = ["lockstep_lines"]

MANIFEST_PATH = 500


def lockstep_lines(file_type: StructType, blocks: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """The bytes of each line.

    Args:
        file_type: The type of the lines.
        blocks: For each block the number of lines, and their bytes.

    Raises:
        UnsureError: only to decode them one by one is sure.
    """
    steps = [step_of(part) for part in file_type.fields]
    lines: list[bytes] = []
    for group in together(blocks):
        found = Search(steps, MANIFEST_PATH, group).records()
        places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        lines.extend(found.data[start:end] for start, end in places)
    return lines


def step_of(found: NestedField) -> Step:
    """A field of a line."""
    kind = found.field_type
    if not isinstance(kind, ListType):
        return plain_step(found)
    if not kind.element_required or not isinstance(kind.element_type, StructType):
        raise UnsureError
    steps = [plain_step(part) for part in kind.element_type.fields]
    return Step(found.field_id, found.required, whole_list(steps))
