"""Rows that wait on this side of an engine while it answers, and come back by their numbers."""

from __future__ import annotations

from collections import deque
from typing import Any

import polars as pl


class HeldRows:
    """Rows on their way through an engine, which gives them back by number in ascending order."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, pl.DataFrame]] = deque()
        self._end = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Hold the next rows."""
        self._frames.append((self._end, frame))
        self._end += frame.height

    def take(self, rows: Any) -> pl.DataFrame:
        """The rows of these ascending numbers (integers, n, at least one; a row may come several times)."""
        parts: list[pl.DataFrame] = []
        numbers = rows.astype("int64")
        taken = 0
        for start, frame in self._frames:
            upto = int(numbers.searchsorted(start + frame.height))
            if upto > taken:
                parts.append(frame[numbers[taken:upto] - start])
            taken = upto
            if taken == len(numbers):
                break
        return pl.concat(parts)

    def release(self, decided: int) -> None:
        """Let go of the frames whose rows are all below `decided`."""
        while self._frames and self._frames[0][0] + self._frames[0][1].height <= decided:
            self._frames.popleft()
