"""Find the starts of the records in an Avro file, and decode the records in lockstep. Worker-safe.

Input: blocks, and the fields of a record, one of which is the path of a file. Output: all records decoded side by side,
or `UnsureError`.

In Avro the start of a record is known only after the previous one is decoded. But each record has a file path, the
paths of a table share a prefix, and searching bytes is fast. So the search guesses record starts from path prefixes and
decodes all records from there. The guess is right if each record ends where the next one starts, from the first byte of
each block to its last. A wrong guess costs only time.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from dml import limits
from dml.manifests.lockstep_decoder import Lanes, Pieces, Places, Read, RecordColumn, Step, UnsureError

__all__ = ["ReadFrom", "Records", "Search", "UnsureError", "group_blocks", "lockstep_lines", "scalar", "struct_bytes"]

MANIFEST_PATH: Final = 500
"""The field id of the path in a line of a manifest list."""


START: Final = re.compile(rb"(?:[^/]*/){1,3}")
MAX_START: Final = 24
"""The maximum length of a path prefix to search for. A longer one would find hardly fewer wrong places."""

MIN_RECORD: Final = 16
"""The minimum size of a record: it has a path, and at least one byte for each field."""


MAX_LENGTH_BYTES: Final = 3
"""The maximum number of bytes that encode the length of a path."""

ReadFrom = Callable[[Lanes, Places], tuple[Read, Places]]


@dataclass(frozen=True, slots=True)
class TrialDecoding:
    """Records decoded from guessed positions of their paths.

    Attributes:
        paths: The guessed positions.
        columns: The fields from the path on.
        ends: The end of each record.
        reached: Positions of the paths of the records that start at the block starts, then of those that start at
            `ends`.
    """

    paths: Places
    columns: list[RecordColumn]
    ends: Places
    reached: Places


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a file.

    Attributes:
        starts: The start of each record in `data`.
        ends: The end of each record in `data`.
        columns: Fields by field id.
        data: The bytes of all blocks, concatenated.
    """

    starts: Places
    ends: Places
    columns: dict[int, RecordColumn]
    data: bytes

    @property
    def rows(self) -> int:
        """The number of records."""
        return len(self.starts)


class Search:
    """Finds where the records of a file start.

    Args:
        steps: The fields of a record in the order of the file.
        path_id: Field id of the path; all fields before it are numbers.
        blocks: The number of records and the bytes of each block.

    Raises:
        UnsureError: the fields or blocks do not qualify for lockstep decoding.
    """

    def __init__(self, steps: Sequence[Step], path_id: int, blocks: Sequence[tuple[int, bytes]]) -> None:
        path = next((place for place, step in enumerate(steps) if step.field_id == path_id and step.required), None)
        if path is None or any(step.read is not Lanes.number for step in steps[:path]):
            raise UnsureError
        if not blocks or not all(
            0 < count * MIN_RECORD <= len(block) <= limits.MAX_LOCKSTEP_BLOCK_BYTES for count, block in blocks
        ):
            raise UnsureError
        self.head, self.tail = steps[:path], steps[path:]
        self.data = b"".join(block for _, block in blocks)
        self.lanes = Lanes(self.data)
        counts = np.array([count for count, _ in blocks], np.int64)
        self.rows = int(counts.sum())
        self.block_ends = np.cumsum([len(block) for _, block in blocks])
        self.block_starts = np.append(0, self.block_ends[:-1])
        self.lasts = np.cumsum(counts) - 1
        # For each record the index in `TrialDecoding.reached` of the block or record before it.
        self.before = np.arange(self.rows) + (len(blocks) - 1)
        self.before[np.append(0, self.lasts[:-1] + 1)] = np.arange(len(blocks))

    def records(self) -> Records:
        """Find and decode all records.

        Raises:
            UnsureError: the record starts were not found.
        """
        examples = self.first_paths()
        paths = self.find_paths(examples)
        for _ in range(limits.MAX_LOCKSTEP_ATTEMPTS):
            attempt = self.decode(paths)
            if self.is_valid(attempt):
                starts = np.append(self.block_starts, attempt.ends)[self.before]
                head, _ = self.lanes.fields(starts, self.head)
                named = zip((*self.head, *self.tail), (*head, *attempt.columns), strict=True)
                return Records(starts, attempt.ends, {step.field_id: found for step, found in named}, self.data)
            chosen, missed = self.walk(attempt)
            if missed is None:
                paths = paths[chosen]
            else:
                examples.append(self.path_at(missed))
                paths = self.find_paths(examples)
        raise UnsureError

    def first_paths(self) -> list[bytes]:
        """Return the paths of the first records of some blocks."""
        _, places = self.lanes.fields(self.block_starts[: limits.LOCKSTEP_EXAMPLES], self.head)
        return [self.path_at(place) for place in places.tolist()]

    def path_at(self, place: int) -> bytes:
        """Decode the path, preceded by its length, at a position."""
        piece, _ = self.lanes.piece(np.array([place]))
        return self.data[int(piece.starts[0]) : int(piece.ends[0])]

    def find_paths(self, examples: Sequence[bytes]) -> Places:
        """Return the positions of possible paths: lengths followed by the prefix of an example."""
        starts = {start_of(path) for path in examples}
        if b"" in starts:
            raise UnsureError
        found = places_of(
            sorted(starts), self.data, min(4 * self.rows + limits.LOCKSTEP_EXAMPLES, limits.MAX_LOCKSTEP_RECORDS)
        )
        # The byte before the length is the last one of a number, without the continuation bit: of a field, or of the
        # previous record, which ends with a number or a null unless it is encrypted.
        places = found - 1
        for _ in range(MAX_LENGTH_BYTES - 1):
            places = np.where(self.lanes.continues(places - 1), places - 1, places)
        return places[places >= 0]

    def decode(self, paths: Places) -> TrialDecoding:
        """Decode records from the positions of their paths."""
        self.lanes.start()
        columns, ends = self.lanes.fields(paths, self.tail)
        _, reached = self.lanes.fields(np.append(self.block_starts, ends), self.head)
        return TrialDecoding(paths, columns, ends, reached)

    def is_valid(self, attempt: TrialDecoding) -> bool:
        """Return whether these are exactly the file's records: each starts where the previous one ends."""
        return (
            len(attempt.paths) == self.rows
            and bool((attempt.reached[self.before] == attempt.paths).all())
            and bool((attempt.ends[self.lasts] == self.block_ends).all())
        )

    def walk(self, attempt: TrialDecoding) -> tuple[list[int], int | None]:
        """Follow the records from each block's start.

        Returns:
            The indexes of the paths that belong to records, and the first position of a path that was not guessed, or
            None.

        Raises:
            UnsureError: a block does not end where its last record does.
        """
        blocks = len(self.block_starts)
        place_of = {place: number for number, place in enumerate(attempt.paths.tolist())}
        reached, ends = attempt.reached.tolist(), attempt.ends.tolist()
        chosen: list[int] = []
        for block, last in enumerate(self.lasts.tolist()):
            before = block
            while len(chosen) <= last:
                number = place_of.get(reached[before])
                if number is None:
                    return chosen, reached[before]
                chosen.append(number)
                before = blocks + number
            if ends[chosen[-1]] != self.block_ends[block]:
                raise UnsureError
        return chosen, None


def places_of(texts: Sequence[bytes], data: bytes, most: int) -> Places:
    """Return the positions of some texts in data.

    Raises:
        UnsureError: there are more than `most`.
    """
    if len(texts) == 1:
        # Splitting takes a third of the time of a regular expression.
        *before, _ = data.split(texts[0], most + 1)
        lengths = np.fromiter(map(len, before), np.int64, len(before))
        found = np.cumsum(lengths) + np.arange(len(before)) * len(texts[0])
    else:
        matches = itertools.islice(re.finditer(b"|".join(map(re.escape, texts)), data), most + 1)
        found = np.array([match.start() for match in matches], np.int64)
    if len(found) > most:
        raise UnsureError
    return found


def group_blocks(blocks: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield blocks in groups that are decoded together."""
    group: list[tuple[int, bytes]] = []
    size = 0
    for count, block in blocks:
        if group and size + len(block) > limits.LOCKSTEP_GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append((count, block))
        size += len(block)
    if group:
        yield group


def start_of(path: bytes) -> bytes:
    """Return the prefix of a path to search for: its scheme and bucket, as far as it has them."""
    found = START.match(path)
    return (path if found is None else found.group())[:MAX_START]


# ---- readers of fields ------------------------------------------------------------------------------------------


def plain_step(found: NestedField) -> Step:
    """Return the step for a field of a primitive type.

    Raises:
        UnsureError: lockstep does not read the type.
    """
    return Step(found.field_id, found.required, scalar(found.field_type))


def scalar(kind: IcebergType) -> ReadFrom:
    """Return the reader of a primitive type.

    Raises:
        UnsureError: lockstep does not read the type.
    """
    match kind:
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return Lanes.number
        case StringType() | BinaryType():
            return Lanes.piece
        case BooleanType():
            return bytes_of(1)
        case FloatType():
            return bytes_of(4)
        case DoubleType():
            return bytes_of(8)
        case UUIDType():
            return bytes_of(16)
        case FixedType():
            return bytes_of(len(kind))
        case DecimalType():
            return bytes_of(decimal_required_bytes(kind.precision))
        case _:
            raise UnsureError


def bytes_of(width: int) -> ReadFrom:
    """Return a reader of a fixed number of bytes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        ends = lanes.after(places, width)
        return Pieces(places, ends), ends

    return read


def struct_bytes(steps: Sequence[Step]) -> ReadFrom:
    """Return a reader of a struct as undecoded bytes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        _, ends = lanes.fields(places, steps)
        return Pieces(places, ends), ends

    return read


def list_bytes(steps: Sequence[Step]) -> ReadFrom:
    """Return a reader of a list of structs as undecoded bytes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        ends = lanes.after_list(places, steps)
        return Pieces(places, ends), ends

    return read


# ---- manifest lists ---------------------------------------------------------------------------------------------


def lockstep_lines(file_type: StructType, blocks: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """Return the bytes of each line of a manifest list. Most lines equal those of the previous list and are cached.

    Args:
        file_type: The type of the lines.
        blocks: The number of lines and the bytes of each block.

    Raises:
        UnsureError: The lines must be decoded one by one.
    """
    steps = [line_step(part) for part in file_type.fields]
    lines: list[bytes] = []
    for group in group_blocks(blocks):
        found = Search(steps, MANIFEST_PATH, group).records()
        places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        lines.extend(found.data[start:end] for start, end in places)
    return lines


def line_step(found: NestedField) -> Step:
    kind = found.field_type
    if not isinstance(kind, ListType):
        return plain_step(found)
    if not kind.element_required or not isinstance(kind.element_type, StructType):
        raise UnsureError
    steps = [plain_step(part) for part in kind.element_type.fields]
    return Step(found.field_id, found.required, list_bytes(steps))
