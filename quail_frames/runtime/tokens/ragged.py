"""Lists of different lengths in two flat arrays, so that nothing loops over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


FEW = 16
"""Lists that follow each other are copied as one, where such runs are so long on average."""


def ranges(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Int64:
    """Concatenation of `arange(start, start + length)` for every pair.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    found = np.repeat(np.asarray(starts, dtype=np.int64) - (ends - lengths), lengths)
    found += np.arange(len(found))
    return found


def common_start(one: Int32, other: Int32) -> int:
    """How many leading tokens are the same.

    >>> common_start(np.array([1, 2, 3]), np.array([1, 2, 5, 6]))
    2
    """
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


@dataclass(frozen=True)
class Ragged:
    """`n` lists of int32: list i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Int32
    offsets: Int64

    @staticmethod
    def of(lists: Iterable[Sequence[int] | Int32]) -> Ragged:
        """From Python lists or arrays."""
        arrays = [np.asarray(item, dtype=np.int32) for item in lists]
        lengths = np.fromiter((len(array) for array in arrays), dtype=np.int64, count=len(arrays))
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int32)
        return Ragged(values, offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int32:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def lists(self) -> Iterator[Int32]:
        """Every list in turn."""
        return (self[index] for index in range(len(self)))

    @cached_property
    def lengths(self) -> Int64:
        """Length of every list, shape (n,)."""
        return np.diff(self.offsets)

    def heads(self, lengths: Int64) -> Ragged:
        """The first `lengths[i]` entries of every list."""
        return Ragged(self.values[ranges(self.offsets[:-1], lengths)], offsets_of(lengths))

    def take(self, indices: npt.NDArray[np.integer]) -> Ragged:
        """The chosen lists, in the order given."""
        lengths = self.lengths[indices]
        borders = np.flatnonzero(np.diff(indices) != 1) + 1
        if len(borders) * FEW >= len(indices):
            return Ragged(self.values[ranges(self.offsets[:-1][indices], lengths)], offsets_of(lengths))
        runs = zip(indices[[0, *borders]].tolist(), indices[[*(borders - 1), -1]].tolist(), strict=True)
        parts = [self.values[self.offsets[first] : self.offsets[last + 1]] for first, last in runs]
        return Ragged(np.concatenate(parts), offsets_of(lengths))


def offsets_of(lengths: npt.NDArray[np.integer]) -> Int64:
    """Offsets (n + 1) of lists with these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
