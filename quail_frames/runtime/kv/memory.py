"""The KV memory of an engine: contexts in use, and contexts kept for a later operator or row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.contexts import ContextTable, Int32, Int64
from quail_frames.runtime.kv.pages import pages_for


class Memory:
    """Contexts in a fixed number of pages."""

    def __init__(self, pages: int) -> None:
        self.contexts = ContextTable(pages)
        self._copies: list[tuple[int, int]] = []

    @property
    def pages(self) -> int:
        """Pages in all."""
        return self.contexts.pool.pages

    @property
    def available(self) -> int:
        """Pages that can be had now."""
        return self.contexts.pool.free

    def can_hold(self, lengths: Int64) -> npt.NDArray[np.bool_]:
        """Which contexts of these lengths would fit into the empty memory."""
        return pages_for(lengths) <= self.pages

    def fitting(self, lengths: Int64) -> int:
        """How many new contexts of these lengths, taken in order, fit into the available pages."""
        return int(np.searchsorted(np.cumsum(pages_for(lengths)), self.available, side="right"))

    def open(self, lengths: Int64) -> Int32:
        """New contexts with room for `lengths` tokens; the caller has checked that they fit."""
        contexts = self.contexts.open(len(lengths))
        self.contexts.extend(contexts, lengths)
        return contexts

    def take_copies(self) -> list[tuple[int, int]]:
        """Page copies that the next batch has to do first."""
        copies, self._copies = self._copies, []
        return copies
