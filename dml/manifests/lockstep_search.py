"""Where the records of an Avro file start, and what they are made of, found in lockstep. Worker-safe.

Input: blocks, and the fields of a record, one of which is the path of a file. Output: all records decoded side by side,
or `UnsureError`.

Where a record starts is known only when the one before it is decoded. But each names a file, all files of a table have
paths that begin alike, and bytes are searched quickly: so it is guessed where the paths are, everything is decoded from
there, and the guess is right if each record ends where the next one starts, from the first byte of each block to its
last. A guess that is wrong costs time and nothing else.
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

__all__ = ["ReadFrom", "Records", "Search", "UnsureError", "lockstep_lines", "scalar", "together", "whole"]

MANIFEST_PATH: Final = 500
"""The id of the path in a line of a manifest list."""


START: Final = re.compile(rb"(?:[^/]*/){1,3}")
MAX_START: Final = 24
"""So many bytes of a path are searched for: what begins so is hardly anything but a path."""

MIN_RECORD: Final = 16
"""No record takes fewer bytes: it has a path, and a byte at least for each of its fields."""


MAX_LENGTH_BYTES: Final = 3
"""The length of no path takes more."""

ReadFrom = Callable[[Lanes, Places], tuple[Read, Places]]


@dataclass(frozen=True, slots=True)
class TrialDecoding:
    """Records decoded from guessed places: those where a file name seems to start.

    Attributes:
        paths: The places of these names.
        columns: All that follows in a record, the name first.
        ends: Where the records end.
        reached: Where the name is of the record that starts where a block starts, for each block, and then where one of
            these ends.
    """

    paths: Places
    columns: list[RecordColumn]
    ends: Places
    reached: Places


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a file.

    Attributes:
        starts: Where each starts.
        ends: Where it ends.
        columns: Its fields, by field id.
        data: What the places are places in.
    """

    starts: Places
    ends: Places
    columns: dict[int, RecordColumn]
    data: bytes

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.starts)


class Search:
    """Finds where the records of a file start.

    Args:
        steps: The fields of a record in the order of the file.
        path_id: That of the path; all before it are numbers.
        blocks: The number of records, and their bytes.

    Raises:
        UnsureError: the records are not such.
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
        # Behind which record each one starts: blocks, and then records, as in `TrialDecoding.reached`.
        self.before = np.arange(self.rows) + (len(blocks) - 1)
        self.before[np.append(0, self.lasts[:-1] + 1)] = np.arange(len(blocks))

    def records(self) -> Records:
        """The records.

        Raises:
            UnsureError: they were not found.
        """
        examples = self.first_paths()
        paths = self.like(examples)
        for _ in range(limits.MAX_LOCKSTEP_ATTEMPTS):
            attempt = self.decoded(paths)
            if self.is_right(attempt):
                starts = np.append(self.block_starts, attempt.ends)[self.before]
                head, _ = self.lanes.fields(starts, self.head)
                named = zip((*self.head, *self.tail), (*head, *attempt.columns), strict=True)
                return Records(starts, attempt.ends, {step.field_id: found for step, found in named}, self.data)
            chosen, missed = self.walk(attempt)
            if missed is None:
                paths = paths[chosen]
            else:
                examples.append(self.path_at(missed))
                paths = self.like(examples)
        raise UnsureError

    def first_paths(self) -> list[bytes]:
        """The paths of the first files of some blocks."""
        _, places = self.lanes.fields(self.block_starts[: limits.LOCKSTEP_EXAMPLES], self.head)
        return [self.path_at(place) for place in places.tolist()]

    def path_at(self, place: int) -> bytes:
        """The path whose length stands at a place."""
        piece, _ = self.lanes.piece(np.array([place]))
        return self.data[int(piece.starts[0]) : int(piece.ends[0])]

    def like(self, examples: Sequence[bytes]) -> Places:
        """Where something stands that begins as one of these paths does, and has a length before it."""
        starts = {start_of(path) for path in examples}
        if b"" in starts:
            raise UnsureError
        found = places_of(
            sorted(starts), self.data, min(4 * self.rows + limits.LOCKSTEP_EXAMPLES, limits.MAX_LOCKSTEP_RECORDS)
        )
        # Before the length stands a number, whose last byte says that it ends, or the end of another record, which is
        # a number or a null in all that is written without encryption.
        places = found - 1
        for _ in range(MAX_LENGTH_BYTES - 1):
            places = np.where(self.lanes.goes_on(places - 1), places - 1, places)
        return places[places >= 0]

    def decoded(self, paths: Places) -> TrialDecoding:
        """Records, from their paths on."""
        self.lanes.start()
        columns, ends = self.lanes.fields(paths, self.tail)
        _, reached = self.lanes.fields(np.append(self.block_starts, ends), self.head)
        return TrialDecoding(paths, columns, ends, reached)

    def is_right(self, attempt: TrialDecoding) -> bool:
        """Whether these are the records, all of them and no others: each starts where the one before it ends."""
        return (
            len(attempt.paths) == self.rows
            and bool((attempt.reached[self.before] == attempt.paths).all())
            and bool((attempt.ends[self.lasts] == self.block_ends).all())
        )

    def walk(self, attempt: TrialDecoding) -> tuple[list[int], int | None]:
        """From record to record: which of the paths are theirs, and where one is that is not among the paths.

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
    """Where some texts stand in data.

    Raises:
        UnsureError: at more than so many places.
    """
    if len(texts) == 1:
        # To cut the data apart takes a third of the time that a regular expression does.
        *before, _ = data.split(texts[0], most + 1)
        lengths = np.fromiter(map(len, before), np.int64, len(before))
        found = np.cumsum(lengths) + np.arange(len(before)) * len(texts[0])
    else:
        matches = itertools.islice(re.finditer(b"|".join(map(re.escape, texts)), data), most + 1)
        found = np.array([match.start() for match in matches], np.int64)
    if len(found) > most:
        raise UnsureError
    return found


def together(blocks: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Blocks in groups that are decoded together."""
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
    """How a path begins: its scheme and its bucket, as far as it has them."""
    found = START.match(path)
    return (path if found is None else found.group())[:MAX_START]


# ---- what records are made of -----------------------------------------------------------------------------------


def plain_step(found: NestedField) -> Step:
    """A field that is one value.

    Raises:
        UnsureError: it is of a type that is not read here.
    """
    return Step(found.field_id, found.required, scalar(found.field_type))


def scalar(kind: IcebergType) -> ReadFrom:
    """How a field that is one value is read.

    Raises:
        UnsureError: it is of a type that is not read here.
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
    """Reads so many bytes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        ends = lanes.after(places, width)
        return Pieces(places, ends), ends

    return read


def whole(steps: Sequence[Step]) -> ReadFrom:
    """Reads a struct as the bytes that it takes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        _, ends = lanes.fields(places, steps)
        return Pieces(places, ends), ends

    return read


def whole_list(steps: Sequence[Step]) -> ReadFrom:
    """Reads a list of structs as the bytes that it takes."""

    def read(lanes: Lanes, places: Places) -> tuple[Read, Places]:
        ends = lanes.after_list(places, steps)
        return Pieces(places, ends), ends

    return read


# ---- manifest lists ---------------------------------------------------------------------------------------------


def lockstep_lines(file_type: StructType, blocks: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """Return the bytes of each line of a manifest list. Most are those of the list before, and need no decoding.

    Args:
        file_type: The type of the lines.
        blocks: For each block the number of lines, and their bytes.

    Raises:
        UnsureError: Only decoding them one by one is sure.
    """
    steps = [line_step(part) for part in file_type.fields]
    lines: list[bytes] = []
    for group in together(blocks):
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
    return Step(found.field_id, found.required, whole_list(steps))
