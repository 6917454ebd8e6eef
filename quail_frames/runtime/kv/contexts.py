"""Contexts: token prefixes whose KV lies in pages, as rows of one page table.

A context is a number. What a context shares with another (whole pages) is shared by
reference. Operations take arrays of contexts, so a thousand documents cost no more Python than one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.pages import PAGE, PagePool, pages_for
from quail_frames.runtime.tokens.ragged import ranges

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class ContextTable:
    """Page table [contexts, pages] and the number of tokens resident in each context."""

    def __init__(self, pages: int) -> None:
        self.pool = PagePool(pages)
        self.table = np.zeros((64, 8), dtype=np.int32)
        self.lengths = np.zeros(64, dtype=np.int64)
        self.held = np.zeros(64, dtype=np.int64)
        self._unused = list(range(63, -1, -1))

    @property
    def open_contexts(self) -> int:
        """Contexts in use."""
        return len(self.lengths) - len(self._unused)

    def open(self, count: int) -> Int32:
        """`count` new contexts of length zero."""
        while len(self._unused) < count:
            self._grow_rows()
        return np.array([self._unused.pop() for _ in range(count)], dtype=np.int32)

    def missing_pages(self, contexts: Int32, lengths: npt.ArrayLike) -> Int64:
        """Pages that each context lacks to hold `lengths` tokens."""
        return np.maximum(pages_for(lengths) - self.held[contexts], 0)

    def extend(self, contexts: Int32, lengths: npt.ArrayLike) -> None:
        """Make room for `lengths` tokens in all and count them as resident."""
        missing = self.missing_pages(contexts, lengths)
        total = int(missing.sum())
        inside = contexts[self.lengths[contexts] % PAGE != 0]
        last = self.table[inside, self.lengths[inside] // PAGE]
        assert (self.pool.references[last] == 1).all(), "a page that others read is never written"
        if total:
            self._widen(int((self.held[contexts] + missing).max()))
            columns = ranges(self.held[contexts], missing)
            self.table[np.repeat(contexts, missing), columns] = self.pool.take(total)
            self.held[contexts] += missing
        self.lengths[contexts] = lengths

    def slots(self, contexts: Int32, starts: npt.ArrayLike, counts: npt.ArrayLike) -> Int64:
        """Arena slots of positions start .. start + count of each context, concatenated."""
        counts = np.broadcast_to(np.asarray(counts, dtype=np.int64), contexts.shape)
        positions = ranges(np.broadcast_to(np.asarray(starts, dtype=np.int64), contexts.shape), counts)
        pages = self.table[np.repeat(contexts, counts), positions // PAGE]
        return pages.astype(np.int64) * PAGE + positions % PAGE

    def begin(self, contexts: Int32, pages: Int32) -> None:
        """Begin empty contexts with the same whole pages of others; the caller has counted the references."""
        assert not self.held[contexts].any()
        self._widen(len(pages))
        self.table[contexts, : len(pages)] = pages
        self.held[contexts] = len(pages)
        self.lengths[contexts] = len(pages) * PAGE

    def rewind(self, contexts: Int32, lengths: npt.ArrayLike) -> None:
        """Forget tokens from `lengths` on and give their pages back."""
        keep = pages_for(lengths)
        drop = self.held[contexts] - keep
        assert (drop >= 0).all(), "a context rewinds to a length it had"
        if drop.any():
            columns = ranges(np.broadcast_to(keep, contexts.shape), drop)
            self.pool.release(self.table[np.repeat(contexts, drop), columns])
            self.held[contexts] = keep
        self.lengths[contexts] = lengths

    def close(self, contexts: Int32) -> None:
        """Give everything back."""
        if len(contexts):
            self.rewind(contexts, np.zeros(len(contexts), dtype=np.int64))
            self._unused.extend(contexts.tolist())

    def _grow_rows(self) -> None:
        rows = len(self.lengths)
        self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        self.lengths = np.concatenate([self.lengths, np.zeros(rows, dtype=np.int64)])
        self.held = np.concatenate([self.held, np.zeros(rows, dtype=np.int64)])
        self._unused.extend(range(2 * rows - 1, rows - 1, -1))

    def _widen(self, columns: int) -> None:
        width = self.table.shape[1]
        if columns > width:
            new = np.zeros((len(self.table), max(columns, 2 * width)), dtype=np.int32)
            new[:, :width] = self.table
            self.table = new
