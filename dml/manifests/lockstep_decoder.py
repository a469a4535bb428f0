"""Many Avro records decoded in lockstep: the first value of all of them, then the second, by arrays. Worker-safe.

Input: bytes, where records start in them, and what a record is made of. Output: the values as arrays, and where each
record ends. Spec: Avro 1.11, "Binary Encoding".

A record whose bytes cannot be what they are read as ends behind all bytes, and so does everything that is read of it
later: no length is trusted, and nothing outside the bytes is looked at. Whoever asks compares the ends with where
records must end, and so learns whether the starts were right.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml import limits

__all__ = ["Items", "Lanes", "Numbers", "Pieces", "Places", "Read", "RecordColumn", "Step", "UnsureError"]

Places = npt.NDArray[np.int64]
"""Where something starts in the bytes, for each record."""

MORE: Final = 0x80
"""The bit of a byte after which a number goes on."""

LOW: Final = 0x7F
MAX_SHIFT: Final = 63


class UnsureError(Exception):
    """The records are to be decoded one by one."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number of each record."""

    values: Places


@dataclass(frozen=True, slots=True)
class Pieces:
    """Some bytes of each record: a text, or something that is decoded later."""

    starts: Places
    ends: Places

    def array(self, data: bytes) -> pa.LargeBinaryArray:
        """The bytes.

        Args:
            data: What the places are places in; one piece starts behind the end of the one before.
        """
        if not len(self.starts):
            return pa.array([], pa.large_binary())
        # What lies between two pieces is a piece as well, and is left out: nothing is copied twice.
        offsets = np.empty(2 * len(self.starts), np.int64)
        offsets[::2], offsets[1::2] = self.starts, self.ends
        pieces = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return pieces.take(pa.array(np.arange(0, len(offsets), 2)))


@dataclass(frozen=True, slots=True)
class Items:
    """The pairs of a map of each record, or the elements of a list, end to end.

    Attributes:
        sizes: How many each record has.
        keys: The keys, or the elements.
        values: The values; None for a list.
    """

    sizes: Places
    keys: Places
    values: Numbers | Pieces | None


Read = Numbers | Pieces | Items


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A field of all records.

    Attributes:
        present: The records that have it; None for all.
        read: What it is there.
    """

    present: Places | None
    read: Read


def turned(value: npt.NDArray[np.uint64]) -> Places:
    """Numbers with a sign: 0, -1, 1, -2 are written as 0, 1, 2, 3."""
    return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)


SHORT: Final = turned(np.arange(MORE, dtype=np.uint64))
"""The numbers of one byte."""


class Lanes:
    """Bytes that are read at many places at once.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        # Places are cut to the last byte, which is none of the data.
        self._bytes = np.frombuffer(data + b"\0", np.uint8)
        self.size = len(data)
        self.nowhere = self.size + 1
        self.start()

    def start(self) -> None:
        """Begin to read all records, anew.

        Records that are none may lie over each other, and each over all others. Records that are some take a byte at
        least for each of their fields, and two for a pair: so no more than these are read, whatever lies there.
        """
        self._steps_left = limits.MAX_LOCKSTEP_STEPS
        self._bytes_left = self.size

    def take(self, nbytes: int) -> None:
        """Count bytes, as many as what is read next takes at least.

        Raises:
            UnsureError: all records together would take more than there are.
        """
        self._bytes_left -= nbytes
        if self._bytes_left < 0:
            raise UnsureError

    def goes_on(self, places: Places) -> npt.NDArray[np.bool_]:
        """Whether the byte at each place is one of a number that does not end there."""
        return (self._bytes.take(places, mode="clip") >= MORE) & (places >= 0)

    def numbers(self, places: Places) -> tuple[Places, Places]:
        """A number at each place, and where it ends."""
        byte = self._bytes.take(places, mode="clip")
        ends = places + 1
        if byte.max(initial=0) < MORE:
            return SHORT.take(byte), ends
        value = (byte & LOW).astype(np.uint64)
        lanes, shift = np.flatnonzero(byte >= MORE), 7
        while len(lanes):
            byte = self._bytes.take(ends[lanes], mode="clip")
            ends[lanes] += 1
            goes_on = byte >= MORE
            if shift == MAX_SHIFT and (byte > 1).any():  # the number has more than 64 bits
                ends[lanes[byte > 1]] = self.nowhere
                goes_on[:] = False
            value[lanes] |= (byte & LOW).astype(np.uint64) << np.uint64(shift)
            lanes, shift = lanes[goes_on], shift + 7
        return turned(value), ends

    def number(self, places: Places) -> tuple[Numbers, Places]:
        """A number at each place."""
        values, ends = self.numbers(places)
        return Numbers(values), ends

    def piece(self, places: Places) -> tuple[Pieces, Places]:
        """A length and so many bytes at each place."""
        lengths, starts = self.numbers(places)
        ends = self.after(starts, lengths)
        return Pieces(np.minimum(starts, ends), ends), ends

    def after(self, places: Places, lengths: Places | int) -> Places:
        """Where so many bytes end; nowhere if there are not as many."""
        wrong = (lengths < 0) | (lengths > self.size - places)
        return np.where(wrong, self.nowhere, places + lengths) if wrong.any() else places + lengths

    def items(self, places: Places, values: type[Numbers | Pieces] | None) -> tuple[Items, Places]:
        """A map from numbers, or a list of numbers, at each place.

        Args:
            places: Where they start.
            values: What the values of a map are; None for a list.
        """
        found: list[Found] = []
        sizes = np.zeros(len(places), np.int64)

        def one(those: Places, starts: Places) -> Places:
            key, following = self.numbers(starts)
            value: Numbers | Pieces | None = None
            if values is Pieces:
                value, following = self.piece(following)
            elif values is Numbers:
                value, following = self.number(following)
            rank = sizes[those]
            found.append(Found(those, rank, key, value))
            sizes[those] += 1
            return following

        ends = self.elements(places, one)
        return in_order(sizes, found, values), ends

    def after_list(self, places: Places, steps: Sequence["Step"]) -> Places:
        """Where the list of structs ends that starts at each place."""
        return self.elements(places, lambda _, starts: self.fields(starts, steps)[1])

    def elements(self, places: Places, one: Callable[[Places, Places], Places]) -> Places:
        """Pass through a list or a map at each place.

        Args:
            places: Where they start.
            one: Is given lanes, and where an element of each starts, and says where it ends.

        Returns:
            Where they end.

        Raises:
            UnsureError: it takes longer than anything honest.
        """
        ends, lanes = places, np.arange(len(places))
        while len(lanes):
            counts, following = self.numbers(of(ends, lanes))
            # A negative count has the number of bytes behind it, which nobody writes here.
            wrong = (counts < 0) | (counts > np.minimum(limits.MAX_LOCKSTEP_ITEMS, self.size - following))
            if wrong.any():
                counts[wrong], following[wrong] = 0, self.nowhere
            ends = replaced(ends, lanes, following)
            if not counts.all():
                lanes, counts = lanes[counts > 0], counts[counts > 0]
            fewest, most = int(counts.min(initial=limits.MAX_LOCKSTEP_ITEMS)), int(counts.max(initial=0))
            self.take(int(counts.sum()))
            self._steps_left -= most + 1
            if self._steps_left < 0:
                raise UnsureError
            for number in range(most):
                those = lanes if number < fewest else lanes[counts > number]
                ends = replaced(ends, those, one(those, of(ends, those)))
        return ends

    def fields(self, places: Places, steps: Iterable["Step"]) -> tuple[list[RecordColumn], Places]:
        """Some fields at each place, one after the other."""
        columns = []
        for step in steps:
            column, places = self.field(places, step)
            columns.append(column)
        return columns, places

    def field(self, places: Places, step: "Step") -> tuple[RecordColumn, Places]:
        """A field at each place.

        Raises:
            UnsureError: it takes longer than anything honest, or more memory.
        """
        self.take(len(places))
        if step.required:
            read, ends = step.read(self, places)
            return RecordColumn(None, read), ends
        branch, inner = self.numbers(places)
        if (branch == 1).all():
            read, ends = step.read(self, inner)
            return RecordColumn(None, read), ends
        inner[(branch != 0) & (branch != 1)] = self.nowhere
        present = np.flatnonzero(branch == 1)
        read, ends = step.read(self, inner[present])
        return RecordColumn(present, read), replaced(inner, present, ends)


@dataclass(frozen=True, slots=True)
class Step:
    """A field of a record.

    Attributes:
        field_id: Its id.
        required: Whether each record has it; else a number says whether it is there.
        read: Reads it.
    """

    field_id: int
    required: bool
    read: Callable[[Lanes, Places], tuple[Read, Places]]


@dataclass(frozen=True, slots=True)
class Found:
    """One pair of some records.

    Attributes:
        lanes: The records.
        rank: The how manieth it is of each.
        key: The key, or the element.
        value: The value; None in a list.
    """

    lanes: Places
    rank: Places
    key: Places
    value: Numbers | Pieces | None


def of(values: Places, lanes: Places) -> Places:
    """The values of some lanes, which ascend."""
    return values if len(lanes) == len(values) else values[lanes]


def replaced(values: Places, lanes: Places, by: Places) -> Places:
    """Values, other ones in some lanes, which ascend."""
    if len(lanes) == len(values):
        return by
    changed = values.copy()
    changed[lanes] = by
    return changed


def in_order(sizes: Places, found: Sequence[Found], values: type[Numbers | Pieces] | None) -> Items:
    """Pairs in the order of the records: the first of all of them were found first, then the second."""
    starts = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    places = [of(starts, one.lanes) + one.rank for one in found]

    def flat(parts: Iterable[Places]) -> Places:
        into = np.empty(total, np.int64)
        for place, part in zip(places, parts, strict=True):
            into[place] = part
        return into

    keys = flat(one.key for one in found)
    if values is None:
        return Items(sizes, keys, None)
    if values is Pieces:
        pieces = [one.value for one in found if isinstance(one.value, Pieces)]
        return Items(sizes, keys, Pieces(flat(one.starts for one in pieces), flat(one.ends for one in pieces)))
    return Items(sizes, keys, Numbers(flat(one.value.values for one in found if isinstance(one.value, Numbers))))
