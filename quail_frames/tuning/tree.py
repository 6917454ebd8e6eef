"""Prompts that share their beginnings, as one token tree: a document once, each of its questions a branch.

A segment sees the segments above it and itself, so a branch is computed exactly as its full prompt would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.tokens.ragged import Int32, Int64

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens that stand at `start` and after, and the numbers of the segments they see besides themselves."""

    tokens: Int32
    start: int
    sees: frozenset[int]

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + len(self.tokens)


@dataclass(eq=False)
class TokenTree:
    """Segments added one by one; one with the same key and the same parent is added once.

    >>> tree = TokenTree()
    >>> document = tree.add(np.arange(3, dtype=np.int32), key="document")
    >>> first, second = (tree.add(np.array([7], dtype=np.int32), document) for _ in range(2))
    >>> tree.positions().tolist(), tree.visible().astype(int)[4].tolist()
    ([0, 1, 2, 3, 3], [1, 1, 1, 0, 1])
    """

    segments: list[Segment] = field(default_factory=list)
    _known: dict[tuple[int | None, str], int] = field(default_factory=dict)
    _offset: int = 0
    _offsets: list[int] = field(default_factory=list)

    def add(
        self, tokens: Int32, parent: int | None = None, *, key: str | None = None, after: Sequence[int] = ()
    ) -> int:
        """Number of the segment that follows `parent`, behind the longest of `after`, which it sees too."""
        if key is not None and (parent, key) in self._known:
            return self._known[parent, key]
        above = frozenset() if parent is None else self.segments[parent].sees | {parent}
        start = max((self.segments[number].end for number in (*above, *after)), default=0)
        self.segments.append(Segment(tokens, start, above | frozenset(after)))
        self._offsets.append(self._offset)
        self._offset += len(tokens)
        number = len(self.segments) - 1
        if key is not None:
            self._known[parent, key] = number
        return number

    def __len__(self) -> int:
        """Tokens."""
        return self._offset

    def last_row(self, segment: int) -> int:
        """Row of the segment's last token."""
        return self._offsets[segment] + len(self.segments[segment].tokens) - 1

    def tokens(self) -> Int32:
        """All tokens, [T]."""
        return np.concatenate([segment.tokens for segment in self.segments])

    def positions(self) -> Int64:
        """Place of every token in its prompt, [T]."""
        return np.concatenate([np.arange(segment.start, segment.end) for segment in self.segments])

    def visible(self) -> Bool:
        """[T, T]: token i sees token j."""
        owner = np.repeat(np.arange(len(self.segments)), [len(segment.tokens) for segment in self.segments])
        sees = np.zeros((len(self.segments), len(self.segments)), dtype=np.bool_)
        for number, segment in enumerate(self.segments):
            sees[number, list(segment.sees)] = True
        same = owner[:, None] == owner[None, :]
        visible: Bool = sees[owner][:, owner] | (same & np.tri(len(owner), dtype=np.bool_))
        return visible
