"""The rows of the reading window: where each stands, and what it waits for."""

from __future__ import annotations

from collections import deque

import numpy as np

from quail_frames.plan.conditions import NULL, Truth
from quail_frames.runtime.operators.lane import Growing
from quail_frames.runtime.tokens.ragged import Int64

WAITING, KEPT, DROPPED, REFUSED = range(4)
"""A row waits for an answer, was kept or dropped by the filter, or needs a prompt that is too long."""


NO_PILOT = -1
"""A row that does not go ahead of the others; else `pilot` is the number of its turn."""


class RowWindow:
    """Rows read and not yet given out, as columns; row numbers count the run's input from zero."""

    def __init__(self, lanes: int, masks: int) -> None:
        self.first = 0
        self.size = 0
        self.units = [Growing(np.int64, -1) for _ in range(lanes)]
        self.masks = [Growing(np.int8, NULL) for _ in range(masks)]
        self.state = Growing(np.int8, WAITING)
        self.awaited = Growing(np.int64, -1)
        self.pilot = Growing(np.int16, NO_PILOT)
        self.blocks: deque[tuple[int, list[int]]] = deque()

    def append(self, units: list[Int64], masks: list[Truth], blocks: list[int]) -> Int64:
        """Positions in the window of the new rows. `blocks` are the lanes' token blocks of these rows."""
        rows = len(units[0])
        stop = self.size + rows
        for store in self._stores():
            store.reach(stop)
        for store, values in zip((*self.units, *self.masks), (*units, *masks), strict=True):
            store.data[self.size : stop] = values
        self.state.data[self.size : stop] = WAITING
        self.awaited.data[self.size : stop] = -1
        self.pilot.data[self.size : stop] = NO_PILOT
        self.blocks.append((self.first + stop, blocks))
        positions = np.arange(self.size, stop)
        self.size = stop
        return positions

    @property
    def waiting(self) -> Int64:
        """Positions of undecided rows."""
        return np.flatnonzero(self.state.data[: self.size] == WAITING)

    def decided(self) -> int:
        """How many rows from the front are decided."""
        states = self.state.data[: self.size]
        open_rows = states == WAITING
        return int(open_rows.argmax()) if open_rows.any() else self.size

    def advance(self, rows: int) -> list[list[int]]:
        """Forget `rows` rows from the front; returns the token blocks that are now done."""
        for store in self._stores():
            store.data[: self.size - rows] = store.data[rows : self.size].copy()
        self.size -= rows
        self.first += rows
        done = []
        while self.blocks and self.blocks[0][0] <= self.first:
            done.append(self.blocks.popleft()[1])
        return done

    def _stores(self) -> tuple[Growing, ...]:
        return (*self.units, *self.masks, self.state, self.awaited, self.pilot)
