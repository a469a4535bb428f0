"""The entries of a manifest, decoded in lockstep. Worker-safe.

Input: the schema of a manifest and its blocks. Output: its fields as arrays, or None where this is not sure of the
least thing: who asks then decodes entry by entry, which also says what is wrong.

Where an entry starts is known only when the one before it is decoded. But each names its file, all files of a table
have paths that begin alike, and bytes are searched quickly: so it is guessed where the paths are, everything is decoded
from there, and the guess is right if each entry ends where the next one starts, from the first byte of each block to
its last. A guess that is wrong costs time and nothing else.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
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

from dml.manifests.entry_columns import (
    BOUND_MAPS,
    COUNT_MAPS,
    DATA_FILE,
    FILE_PATH,
    KNOWN,
    NUMBER_LISTS,
    NUMBERS,
    PARTITION,
    check_type,
)
from dml.manifests.lockstep_decoder import Column, Lanes, Numbers, Pieces, Places, Read, Step

__all__ = ["LockstepEntries", "UnsureError", "lockstep_entries"]

MAX_ATTEMPTS: Final = 8

START: Final = re.compile(rb"(?:[^/]*/){1,3}")
MAX_START: Final = 24
"""So many bytes of a path are searched for: what begins so is hardly anything but a path."""

EXAMPLES: Final = 16
"""Of so many blocks the first paths are looked at."""

MAX_LENGTH_BYTES: Final = 3
"""The length of no path takes more."""

ReadFrom = Callable[[Lanes, Places], tuple[Read, Places]]


class UnsureError(Exception):
    """The entries are to be decoded one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepEntries:
    """The entries of a manifest as they stand there: nothing is inherited yet.

    Attributes:
        rows: How many.
        columns: By field id, those that the manifest has and that are known.
        data: What the places in the columns are places in.
    """

    rows: int
    columns: dict[int, Column]
    data: pa.Buffer


def lockstep_entries(file_schema: StructType, blocks: Sequence[tuple[int, bytes]]) -> LockstepEntries:
    """The entries of a manifest.

    Args:
        file_schema: The type of its entries.
        blocks: For each block the number of entries, and their bytes.

    Raises:
        UnsureError: only to decode them one by one is sure.
        ValueError: a field is of another type than the specification gives it.
    """
    steps = tuple(steps_of(file_schema.fields))
    known = [step.field_id for step in steps if step.field_id in KNOWN]
    place = next((place for place, step in enumerate(steps) if step.field_id == FILE_PATH), None)
    if place is None or len(known) != len(set(known)) or any(step.field_id not in NUMBERS for step in steps[:place]):
        raise UnsureError
    if not blocks or not all(0 < count <= len(block) for count, block in blocks):
        raise UnsureError
    return Search(steps[:place], steps[place:], blocks).entries()


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was decoded from where entries were thought to name their files.

    Attributes:
        paths: The places of these names.
        columns: All that follows in an entry, the name first.
        ends: Where the entries end.
        reached: Where the name is of the entry that starts where a block starts, for each block, and then where one of
            these ends.
    """

    paths: Places
    columns: list[Column]
    ends: Places
    reached: Places


class Search:
    """Finds where the entries of a manifest start.

    Args:
        head: The fields of an entry before the path of its file, which are numbers.
        tail: The path, and what follows.
        blocks: The number of entries, and their bytes.
    """

    def __init__(self, head: Sequence[Step], tail: Sequence[Step], blocks: Sequence[tuple[int, bytes]]) -> None:
        self.head, self.tail = head, tail
        self.data = b"".join(block for _, block in blocks)
        self.lanes = Lanes(self.data)
        counts = np.array([count for count, _ in blocks], np.int64)
        self.rows = int(counts.sum())
        self.block_ends = np.cumsum([len(block) for _, block in blocks])
        self.block_starts = np.append(0, self.block_ends[:-1])
        self.lasts = np.cumsum(counts) - 1
        # Behind which entry each one starts: blocks, and then entries, as in `Attempt.reached`.
        self.before = np.arange(self.rows) + (len(blocks) - 1)
        self.before[np.append(0, self.lasts[:-1] + 1)] = np.arange(len(blocks))

    def entries(self) -> LockstepEntries:
        """The entries.

        Raises:
            UnsureError: they were not found.
        """
        examples = self.first_paths()
        paths = self.like(examples)
        for _ in range(MAX_ATTEMPTS):
            attempt = self.decoded(paths)
            if self.is_right(attempt):
                starts = np.append(self.block_starts, attempt.ends)[self.before]
                columns = [*self.lanes.fields(starts, self.head)[0], *attempt.columns]
                named = zip((*self.head, *self.tail), columns, strict=True)
                found = {step.field_id: column for step, column in named if step.field_id in KNOWN}
                return LockstepEntries(rows=self.rows, columns=found, data=self.lanes.buffer)
            chosen, missed = self.walk(attempt)
            if missed is None:
                paths = paths[chosen]
            else:
                examples.append(self.path_at(missed))
                paths = self.like(examples)
        raise UnsureError

    def first_paths(self) -> list[bytes]:
        """The paths of the first files of some blocks."""
        _, places = self.lanes.fields(self.block_starts[:EXAMPLES], self.head)
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
        pattern = re.compile(b"|".join(map(re.escape, sorted(starts))))
        found = np.array([match.start() for match in pattern.finditer(self.data)], np.int64)
        # All before the length are numbers, whose last byte says that they end.
        places = found - 1
        for _ in range(MAX_LENGTH_BYTES - 1):
            places = np.where(self.lanes.goes_on(places - 1), places - 1, places)
        return places[places >= 0]

    def decoded(self, paths: Places) -> Attempt:
        """Entries, from their paths on."""
        columns, ends = self.lanes.fields(paths, self.tail)
        _, reached = self.lanes.fields(np.append(self.block_starts, ends), self.head)
        return Attempt(paths, columns, ends, reached)

    def is_right(self, attempt: Attempt) -> bool:
        """Whether these are the entries, all of them and no others: each starts where the one before it ends."""
        return (
            len(attempt.paths) == self.rows
            and bool((attempt.reached[self.before] == attempt.paths).all())
            and bool((attempt.ends[self.lasts] == self.block_ends).all())
        )

    def walk(self, attempt: Attempt) -> tuple[list[int], int | None]:
        """From entry to entry: which of the paths are theirs, and where one is that is not among the paths.

        Raises:
            UnsureError: a block does not end where its last entry does.
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


def start_of(path: bytes) -> bytes:
    """How a path begins: its scheme and its bucket, as far as it has them."""
    found = START.match(path)
    return (path if found is None else found.group())[:MAX_START]


def steps_of(fields: Iterable[NestedField]) -> Iterator[Step]:
    """The fields of an entry in the order of the file, those of its file among them.

    Raises:
        UnsureError: there is one of a kind that is not read here.
    """
    for found in fields:
        if found.field_id == DATA_FILE and found.required and isinstance(found.field_type, StructType):
            yield from steps_of(found.field_type.fields)
        else:
            check_type(found.field_id, found.field_type)
            yield Step(found.field_id, found.required, read_of(found))


def read_of(found: NestedField) -> ReadFrom:
    """How a field is read."""
    match found.field_id:
        case field_id if field_id in COUNT_MAPS:
            return lambda lanes, places: lanes.items(places, Numbers)
        case field_id if field_id in BOUND_MAPS:
            return lambda lanes, places: lanes.items(places, Pieces)
        case field_id if field_id in NUMBER_LISTS:
            return lambda lanes, places: lanes.items(places, None)
        case field_id if field_id == PARTITION and isinstance(found.field_type, StructType):
            return whole(tuple(Step(part.field_id, part.required, scalar(part)) for part in found.field_type.fields))
        case _:
            return scalar(found)


def scalar(found: NestedField) -> ReadFrom:
    """How a field that is one value is read."""
    match found.field_type:
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
        case FixedType() as kind:
            return bytes_of(len(kind))
        case DecimalType() as kind:
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
