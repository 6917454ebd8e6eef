"""Which partners each anchor is paired with: ranges of partner rows, never a list of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quail_frames.runtime.tokens.ragged import Int64, offsets_of, ranges


@dataclass(frozen=True, eq=False)
class Candidates:
    """Anchor a is paired with partner rows `starts[r]:stops[r]` for r in `offsets[a]:offsets[a + 1]`.

    The ranges of an anchor are ascending and do not touch.
    """

    offsets: Int64
    starts: Int64
    stops: Int64

    @staticmethod
    def of_rows(rows: npt.ArrayLike, offsets: Int64) -> Candidates:
        """From sorted partner rows of every anchor, `rows[offsets[a]:offsets[a + 1]]`: runs become ranges."""
        flat = np.asarray(rows, dtype=np.int64)
        begins = np.ones(len(flat), dtype=np.bool_)
        begins[1:] = flat[1:] != flat[:-1] + 1
        begins[offsets[:-1][offsets[:-1] < len(flat)]] = True
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(flat))[: len(first)] - 1
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(begins)])
        return Candidates(before[offsets], flat[first], flat[last] + 1)

    def rows(self, anchor: int) -> Int64:
        """Partner rows of one anchor, ascending."""
        own = slice(self.offsets[anchor], self.offsets[anchor + 1])
        return ranges(self.starts[own], self.stops[own] - self.starts[own])


@dataclass(frozen=True, eq=False)
class AnchorBatch:
    """Anchor rows and their candidates; None pairs each with every partner."""

    rows: pa.RecordBatch
    candidates: Candidates | None = None


class PartnerSide:
    """Partner rows and their distinct inputs ("units"); rows with a null input have no unit."""

    def __init__(self, unit_of_row: Int64, units: int) -> None:
        self.unit_of_row = unit_of_row
        self.units = units
        self._all = np.arange(units)
        self.plain = units == len(unit_of_row) and np.array_equal(unit_of_row, self._all)
        order = np.argsort(unit_of_row, kind="stable")
        self._rows = order[int((unit_of_row < 0).sum()) :]
        self._offsets = offsets_of(np.bincount(unit_of_row[unit_of_row >= 0], minlength=units).astype(np.int64))

    def units_of(self, rows: Int64 | None) -> Int64:
        """Distinct units of these partner rows (None: of all), ascending."""
        if rows is None:
            return self._all
        if self.plain:
            return rows
        units = np.unique(self.unit_of_row[rows])
        return units[units >= 0]

    def rows_of(self, units: Int64, among: Int64 | None) -> Int64:
        """Partner rows that have one of these units, ascending; only those in `among`, if given."""
        if self.plain:
            return units if among is None else np.intersect1d(units, among, assume_unique=True)
        lengths = np.diff(self._offsets)[units]
        rows = np.sort(self._rows[ranges(self._offsets[:-1][units], lengths)])
        return rows if among is None else np.intersect1d(rows, among, assume_unique=True)
