"""What an attention call is told about its batch: where contexts lie, which queries read them, what a query sees.

Built once a batch on the host and used by every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

NEVER = 2**31 - 1


@dataclass(frozen=True)
class PagedContexts:
    """For each group of queries, the arena pages of the context it reads.

    `pages` int32 holds page numbers; group g reads the first `lengths[g]` (int32) tokens of the pages that start at
    `pages[starts[g]]` (int64). Groups of one context repeat its start. Slot of a token = page x `page_size` + place.
    """

    pages: Tensor
    starts: Tensor
    lengths: Tensor
    page_size: int = 16
    _table: list[Tensor] = field(default_factory=list, repr=False, compare=False)

    def slots(self, group: int) -> Tensor:
        """Slots of the context's tokens in order (lengths[group],) int64."""
        start, length = int(self.starts[group]), int(self.lengths[group])
        pages = self.pages[start : start + -(-length // self.page_size)].long()
        places = torch.arange(self.page_size, device=pages.device)
        return (pages[:, None] * self.page_size + places).flatten()[:length]

    def table(self) -> Tensor:
        """The pages as (groups, most pages of a context) int32, padded with page 0; made once a batch."""
        if not self._table:
            counts = (self.lengths + self.page_size - 1) // self.page_size
            place = torch.arange(max(int(counts.max()), 1), device=self.pages.device)
            there = place < counts[:, None]
            index = torch.where(there, self.starts[:, None] + place, 0)
            self._table.append(torch.where(there, self.pages[index], 0))
        return self._table[0]


@dataclass(frozen=True)
class QueryGroups:
    """The batch's queries cut into runs: group g is queries `offsets[g]` to `offsets[g + 1]`.

    `offsets` (groups + 1,) int64 stays on the host; `device_offsets` is its int32 copy for kernels. Query i is token i
    of the batch, or for prefix attention token `rows[i]` (int32) where rows are given: the asks of a context need not
    stand together.
    """

    offsets: npt.NDArray[np.int64]
    device_offsets: Tensor
    rows: Tensor | None = None
    _tiles: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        lengths: Sequence[int] | npt.NDArray[np.integer],
        device: torch.device | str = "cpu",
        rows: npt.NDArray[np.integer] | None = None,
    ) -> QueryGroups:
        """Groups of these lengths (queries), one after the other; `rows` names the queries' tokens, each once."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(np.asarray(lengths, dtype=np.int64), out=offsets[1:])
        named = None if rows is None else torch.from_numpy(rows.astype(np.int32)).to(device)
        return QueryGroups(offsets, torch.from_numpy(offsets.astype(np.int32)).to(device), named)

    def bounds(self) -> Iterator[tuple[int, int]]:
        """(first token, end) of every group."""
        return zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)

    def longest(self) -> int:
        """Length of the longest group in tokens."""
        return int(np.diff(self.offsets).max(initial=0))

    def tiles(self, queries: int) -> tuple[Tensor, Tensor]:
        """`(group, first token)` of every run of at most `queries` tokens of one group, int32 on the device.

        Longest groups first would balance better, but neighbours share a context, so order keeps it in cache.
        """
        if queries not in self._tiles:
            lengths = np.diff(self.offsets)
            counts = -(-lengths // queries)
            group = np.repeat(np.arange(len(lengths)), counts)
            place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            first = self.offsets[:-1][group] + place * queries
            host = torch.from_numpy(np.stack([group, first]).astype(np.int32))
            on_device = host.to(self.device_offsets.device)
            self._tiles[queries] = (on_device[0], on_device[1])
        return self._tiles[queries]


@dataclass(frozen=True)
class SuffixMask:
    """Which earlier tokens of its ask a query sees: token j is seen by queries j <= i < `until[j]` or i >= `again[j]`.

    One interval a key says any tree whose tokens are laid out in preorder (an ancestor is seen by its subtree only);
    `again` adds tokens that close the branches and see them all. Both (tokens,) int32, numbered in the batch.
    """

    until: Tensor
    again: Tensor | None = None

    @staticmethod
    def from_parents(parents: npt.NDArray[np.integer], device: torch.device | str = "cpu") -> SuffixMask:
        """Tree mask: each token sees its ancestors and itself.

        `parents` (tokens,) numbers each token's parent in the batch, -1 for roots. Raises ValueError unless tokens are
        in preorder (every subtree is one run of tokens).
        """
        return SuffixMask(torch.from_numpy(subtree_ends(parents)).to(device))

    def sees(self, query: Tensor, start: int, end: int) -> Tensor:
        """Whether each query (queries, 1) sees the keys `start` to `end`, given that they stand before it."""
        visible = query < self.until[None, start:end]
        return visible if self.again is None else visible | (query >= self.again[None, start:end])


@dataclass(frozen=True)
class Window:
    """A sliding window: a query sees only keys less than `width` positions before it.

    `positions` (tokens,) int32 are the positions of the queries; context keys have positions 0, 1, 2…
    """

    positions: Tensor
    width: int


def subtree_ends(parents: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """End of each token's subtree in a preorder layout (tokens,) int32.

    >>> subtree_ends(np.array([-1, 0, 1, 0, -1])).tolist()
    [4, 3, 3, 4, 5]
    """
    above, tokens = parents.astype(np.int64), np.arange(len(parents))
    ends = tokens + _subtree_sizes(above, _levels(above))
    outside = (above >= 0) & (tokens >= ends[above])
    if outside.any():
        token = int(np.argmax(outside))
        raise ValueError(
            f"token {token} is cut off from the rest of its parent's subtree; lay the tree out in preorder"
        )
    return ends.astype(np.int32)


def preorder(parents: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The order in which to lay out a forest's tokens so that every subtree is one run: (tokens,) old numbers.

    `parents` numbers each token's parent, which comes before it, or -1. Siblings keep their order.

    >>> preorder(np.array([-1, 0, -1, 0, 1])).tolist()
    [0, 1, 4, 3, 2]
    """
    above = parents.astype(np.int64)
    levels = _levels(above)
    sizes = _subtree_sizes(above, levels)
    place = np.full(len(above) + 1, -1, dtype=np.int64)  # the last entry stands for the parent of roots
    for level in levels:
        siblings = level[np.argsort(above[level], kind="stable")]
        before = np.cumsum(sizes[siblings]) - sizes[siblings]
        _, first, family = np.unique(above[siblings], return_index=True, return_inverse=True)
        place[siblings] = place[above[siblings]] + 1 + before - before[first][family]
    return np.argsort(place[:-1])


def _subtree_sizes(parents: npt.NDArray[np.int64], levels: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    sizes = np.ones(len(parents), dtype=np.int64)
    for level in levels[:0:-1]:
        np.add.at(sizes, parents[level], sizes[level])
    return sizes


def _levels(parents: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Tokens of each depth, roots first. Raises ValueError for a token that stands before its parent."""
    early = parents >= np.arange(len(parents))
    if early.any():
        token = int(np.argmax(early))
        raise ValueError(f"token {token} stands before its parent {int(parents[token])}; lay the tree out in preorder")
    depth, ancestor = (parents >= 0).astype(np.int64), parents.copy()
    while (alive := ancestor >= 0).any():  # pointer doubling: log2(deepest) rounds
        depth[alive] += depth[ancestor[alive]]
        ancestor[alive] = ancestor[ancestor[alive]]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1)))
