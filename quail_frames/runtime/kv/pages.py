"""A fixed pool of reference-counted pages of `PAGE` tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

PAGE = 16
"""Tokens in a page."""

Int32 = npt.NDArray[np.int32]


def pages_for(tokens: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Pages that hold this many tokens."""
    return -(-np.asarray(tokens, dtype=np.int64) // PAGE)


class PagePool:
    """Hands out page numbers; a page returns to the pool when its last reference goes."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.references = np.zeros(pages, dtype=np.int32)
        self._free = np.arange(pages - 1, -1, -1, dtype=np.int32)
        self.free = pages
        self.on_free: Callable[[Int32], None] = lambda pages: None
        """Called with every set of pages that went back to the pool."""

    def take(self, count: int) -> Int32:
        """`count` free pages, each with one reference. The caller has checked `free`."""
        assert count <= self.free, f"asked {count} pages of {self.free} free"
        taken = self._free[self.free - count : self.free][::-1].copy()
        self.free -= count
        self.references[taken] = 1
        return taken

    def share(self, pages: Int32) -> None:
        """One more reference to each page (a page may be named several times)."""
        np.add.at(self.references, pages, 1)

    def release(self, pages: Int32) -> None:
        """One reference less for each mention of a page."""
        np.subtract.at(self.references, pages, 1)
        freed = pages[self.references[pages] == 0]
        if len(freed):
            freed = np.unique(freed)
            self._free[self.free : self.free + len(freed)] = freed[::-1]
            self.free += len(freed)
            self.on_free(freed)
