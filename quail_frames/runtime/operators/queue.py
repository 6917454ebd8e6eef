"""Units that wait for a call, first come, first asked."""

from __future__ import annotations

from collections import deque

import numpy as np

from quail_frames.runtime.tokens.ragged import Int64


class UnitQueue:
    """Units in the order they came, taken from the front."""

    def __init__(self) -> None:
        self._parts: deque[Int64] = deque()
        self.size = 0

    def push(self, units: Int64) -> None:
        """Add to the end."""
        if len(units):
            self._parts.append(units)
            self.size += len(units)

    def peek(self, most: int) -> Int64:
        """Up to `most` units from the front, left in place."""
        if len(self._parts) > 1:
            self._parts = deque([np.concatenate(self._parts)])
        return self._parts[0][:most] if self._parts else np.zeros(0, dtype=np.int64)

    def put_back(self, count: int, units: Int64) -> None:
        """Replace `count` units at the front (after `peek`) by these."""
        self.drop(count)
        if len(units):
            self._parts.appendleft(units)
            self.size += len(units)

    def drop(self, count: int) -> None:
        """Remove `count` units from the front (after `peek`)."""
        if count:
            rest = self._parts.popleft()[count:]
            self.size -= count
            if len(rest):
                self._parts.appendleft(rest)

    def take_all(self) -> Int64:
        """All units; the queue is empty then."""
        units = self.peek(self.size)
        self.drop(len(units))
        return units
