"""Decode many Avro records in lockstep: the first field of all of them, then the second, as arrays. Worker-safe.

Input: bytes, the starts of the records, and their fields. Output: the values as arrays, and the end of each record.
Spec: Avro 1.11, "Binary Encoding".

A record with invalid bytes gets an end behind all bytes, and so do its later fields: lengths are never trusted, and no
byte outside is read. The caller compares the ends with the expected ones to verify the starts.
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
"""A position in the bytes for each record."""

MORE: Final = 0x80
"""The continuation bit: it is set in every byte of a number but the last."""

LOW: Final = 0x7F
MAX_SHIFT: Final = 63


class UnsureError(Exception):
    """Lockstep decoding does not apply; the records must be decoded one by one."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number of each record."""

    values: Places


@dataclass(frozen=True, slots=True)
class Pieces:
    """A byte range of each record: a text, or a value to decode later."""

    starts: Places
    ends: Places

    def array(self, data: bytes) -> pa.LargeBinaryArray:
        """Return the pieces as an array.

        Args:
            data: The decoded bytes. Pieces are in ascending order and do not overlap.
        """
        if not len(self.starts):
            return pa.array([], pa.large_binary())
        # Pieces and the gaps between them are the elements of one array without a copy; `take` drops the gaps.
        offsets = np.empty(2 * len(self.starts), np.int64)
        offsets[::2], offsets[1::2] = self.starts, self.ends
        pieces = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return pieces.take(pa.array(np.arange(0, len(offsets), 2)))


@dataclass(frozen=True, slots=True)
class Items:
    """The pairs of a map of each record, or the elements of a list, concatenated.

    Attributes:
        sizes: The number of items of each record.
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
        present: The records with a value; None for all.
        read: The values of these records.
    """

    present: Places | None
    read: Read


def decode_zigzag(value: npt.NDArray[np.uint64]) -> Places:
    """Decode zigzag numbers: 0, 1, 2, 3 are 0, -1, 1, -2."""
    return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)


SHORT: Final = decode_zigzag(np.arange(MORE, dtype=np.uint64))
"""The decoded numbers of one byte."""


class Lanes:
    """Reads values at many positions of some bytes at once."""

    def __init__(self, data: bytes) -> None:
        # Positions outside are clipped to the last byte, which is padding.
        self._bytes = np.frombuffer(data + b"\0", np.uint8)
        self.size = len(data)
        self.nowhere = self.size + 1
        self.start()

    def start(self) -> None:
        """Reset the limits of steps and bytes for a new attempt.

        Wrongly guessed records may overlap. Real records take at least one byte for each field and two for a pair, so
        the limits bound the work for any data.
        """
        self._steps_left = limits.MAX_LOCKSTEP_STEPS
        self._bytes_left = self.size

    def take(self, nbytes: int) -> None:
        """Count the minimum number of bytes of the next read.

        Raises:
            UnsureError: all records together would take more bytes than there are.
        """
        self._bytes_left -= nbytes
        if self._bytes_left < 0:
            raise UnsureError

    def continues(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return whether the byte at each position has the continuation bit."""
        return (self._bytes.take(places, mode="clip") >= MORE) & (places >= 0)

    def numbers(self, places: Places) -> tuple[Places, Places]:
        """Decode a number at each position, and return the numbers and their ends."""
        byte = self._bytes.take(places, mode="clip")
        ends = places + 1
        if byte.max(initial=0) < MORE:
            return SHORT.take(byte), ends
        value = (byte & LOW).astype(np.uint64)
        lanes, shift = np.flatnonzero(byte >= MORE), 7
        while len(lanes):
            byte = self._bytes.take(ends[lanes], mode="clip")
            ends[lanes] += 1
            continues = byte >= MORE
            if shift == MAX_SHIFT and (byte > 1).any():  # the number has more than 64 bits
                ends[lanes[byte > 1]] = self.nowhere
                continues[:] = False
            value[lanes] |= (byte & LOW).astype(np.uint64) << np.uint64(shift)
            lanes, shift = lanes[continues], shift + 7
        return decode_zigzag(value), ends

    def number(self, places: Places) -> tuple[Numbers, Places]:
        """Read a number at each position."""
        values, ends = self.numbers(places)
        return Numbers(values), ends

    def piece(self, places: Places) -> tuple[Pieces, Places]:
        """Read a length and that many bytes at each position."""
        lengths, starts = self.numbers(places)
        ends = self.after(starts, lengths)
        return Pieces(np.minimum(starts, ends), ends), ends

    def after(self, places: Places, lengths: Places | int) -> Places:
        """Return the ends of byte ranges; `nowhere` for those that exceed the data."""
        wrong = (lengths < 0) | (lengths > self.size - places)
        return np.where(wrong, self.nowhere, places + lengths) if wrong.any() else places + lengths

    def items(self, places: Places, values: type[Numbers | Pieces] | None) -> tuple[Items, Places]:
        """Read a map from numbers, or a list of numbers, at each position.

        Args:
            places: The starts.
            values: The kind of a map's values; None for a list.
        """
        found: list[FoundPair] = []
        sizes = np.zeros(len(places), np.int64)

        def one(those: Places, starts: Places) -> Places:
            key, following = self.numbers(starts)
            value: Numbers | Pieces | None = None
            if values is Pieces:
                value, following = self.piece(following)
            elif values is Numbers:
                value, following = self.number(following)
            rank = sizes[those]
            found.append(FoundPair(those, rank, key, value))
            sizes[those] += 1
            return following

        ends = self.elements(places, one)
        return order_pairs(sizes, found, values), ends

    def after_list(self, places: Places, steps: Sequence["Step"]) -> Places:
        """Return the end of the list of structs at each position."""
        return self.elements(places, lambda _, starts: self.fields(starts, steps)[1])

    def elements(self, places: Places, one: Callable[[Places, Places], Places]) -> Places:
        """Walk through a list or a map at each position.

        Args:
            places: The starts.
            one: Reads one element of some lanes, given the lanes and the starts; returns the ends.

        Returns:
            The ends.

        Raises:
            UnsureError: the limits of steps or bytes are exceeded, as by damaged data.
        """
        ends, lanes = places, np.arange(len(places))
        while len(lanes):
            counts, following = self.numbers(select_lanes(ends, lanes))
            # A negative count is followed by the number of bytes. No writer of manifests uses that form.
            wrong = (counts < 0) | (counts > np.minimum(limits.MAX_LOCKSTEP_ITEMS, self.size - following))
            if wrong.any():
                counts[wrong], following[wrong] = 0, self.nowhere
            ends = replace_lanes(ends, lanes, following)
            if not counts.all():
                lanes, counts = lanes[counts > 0], counts[counts > 0]
            fewest, most = int(counts.min(initial=limits.MAX_LOCKSTEP_ITEMS)), int(counts.max(initial=0))
            self.take(int(counts.sum()))
            self._steps_left -= most + 1
            if self._steps_left < 0:
                raise UnsureError
            for number in range(most):
                those = lanes if number < fewest else lanes[counts > number]
                ends = replace_lanes(ends, those, one(those, select_lanes(ends, those)))
        return ends

    def fields(self, places: Places, steps: Iterable["Step"]) -> tuple[list[RecordColumn], Places]:
        """Read consecutive fields at each position."""
        columns = []
        for step in steps:
            column, places = self.field(places, step)
            columns.append(column)
        return columns, places

    def field(self, places: Places, step: "Step") -> tuple[RecordColumn, Places]:
        """Read a field at each position.

        Raises:
            UnsureError: the limits of steps or bytes are exceeded, as by damaged data.
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
        return RecordColumn(present, read), replace_lanes(inner, present, ends)


@dataclass(frozen=True, slots=True)
class Step:
    """A field of a record.

    Attributes:
        field_id: Its id.
        required: True if every record has it; otherwise a union branch precedes the value.
        read: Reads the value.
    """

    field_id: int
    required: bool
    read: Callable[[Lanes, Places], tuple[Read, Places]]


@dataclass(frozen=True, slots=True)
class FoundPair:
    """One pair of some records.

    Attributes:
        lanes: The records.
        rank: The index of the pair within its record.
        key: The key, or the element.
        value: The value; None in a list.
    """

    lanes: Places
    rank: Places
    key: Places
    value: Numbers | Pieces | None


def select_lanes(values: Places, lanes: Places) -> Places:
    """Return the values of some lanes, which are in ascending order."""
    return values if len(lanes) == len(values) else values[lanes]


def replace_lanes(values: Places, lanes: Places, by: Places) -> Places:
    """Return the values with those of some lanes, which are in ascending order, replaced."""
    if len(lanes) == len(values):
        return by
    changed = values.copy()
    changed[lanes] = by
    return changed


def order_pairs(sizes: Places, found: Sequence[FoundPair], values: type[Numbers | Pieces] | None) -> Items:
    """Reorder pairs record by record: `found` has the first pair of all records, then the second, and so on."""
    starts = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    places = [select_lanes(starts, one.lanes) + one.rank for one in found]

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
