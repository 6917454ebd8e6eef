"""Which whole pages hold which token prefixes, so that rows which start alike share them.

A page is known by a 64-bit hash of all tokens up to its end. Hashes only propose: the
stored tokens decide, because texts are not ours and may be made to collide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.marks import UInt64, token_marks

Int32 = npt.NDArray[np.int32]


def prefix_hashes(tokens: Int32) -> UInt64:
    """Hash of the first n tokens for n = 1 .. len(tokens)."""
    return np.cumsum(token_marks(tokens, np.arange(len(tokens), dtype=np.int32)), dtype=np.uint64)


class PrefixIndex:
    """Registered pages by the hash of the prefix that ends with them."""

    def __init__(self, pages: int) -> None:
        self._pages: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}
        self._tokens = np.zeros((pages, PAGE), dtype=np.int32)

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, key: int) -> bool:
        return key in self._pages

    def match(self, tokens: Int32, hashes: UInt64) -> Int32:
        """Pages that hold the longest registered prefix of `tokens`, in order."""
        ends = hashes[PAGE - 1 :: PAGE].tolist()
        found = self._longest(ends)
        pages = np.array([self._pages[key] for key in ends[:found]], dtype=np.int32)
        same = (self._tokens[pages] == tokens[: found * PAGE].reshape(-1, PAGE)).all(axis=1)
        return pages if same.all() else pages[: int(same.argmin())]

    def register(self, tokens: Int32, hashes: UInt64, pages: Int32) -> None:
        """Record the whole pages of a context; prefixes already known keep their page."""
        whole = len(tokens) // PAGE
        self._tokens[pages[:whole]] = tokens[: whole * PAGE].reshape(-1, PAGE)
        for key, page in zip(hashes[PAGE - 1 :: PAGE].tolist(), pages[:whole].tolist(), strict=True):
            if key not in self._pages and page not in self._hash_of:
                self._pages[key] = page
                self._hash_of[page] = key

    def forget(self, pages: Int32) -> None:
        """Pages that went back to the pool."""
        if self._pages:
            for page in pages.tolist():
                key = self._hash_of.pop(page, None)
                if key is not None:
                    del self._pages[key]

    def _longest(self, ends: list[int]) -> int:
        """How many leading hashes are registered; they are registered front to back."""
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if ends[middle - 1] in self._pages else (low, middle - 1)
        return low
