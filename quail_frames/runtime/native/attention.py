"""Attention of one batch by the C kernels: prefix and own tokens in one softmax, for all asks of a unit."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Sequence
from ctypes import c_float, c_int64, c_void_p
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quail_frames.runtime.attention import KvArena
from quail_frames.runtime.attention_plan import effective_window, prefix_slots
from quail_frames.runtime.batch import Batch, Int64, Segments
from quail_frames.runtime.lanes import Alone, Lanes, spans
from quail_frames.runtime.tokens.ragged import ranges

MOST_TOKENS = 512
"""Tokens of a work item: its own K and V, packed, stay in a core's cache beside those of the prefix."""
KEPT_ROWS = 512
"""Rows of a task that writes K and V to the arena."""
TILE_DIMENSIONS = 32
"""Heads are whole numbers of so many dimensions."""
NO_LINE = -1
LOG2_E = math.log2(math.e)


class _Batch(ctypes.Structure):
    """`Batch` of source/attention.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("q", "k", "v", "keys", "values", "out")),
        *((name, c_int64) for name in ("stride", "slot_stride", "out_stride", "head_dim", "group")),
        ("factor", c_float),
        *((name, c_void_p) for name in ("slots", "rows", "first", "last", "tree_first", "visible_at", "visible")),
    )


@dataclass(frozen=True, eq=False)
class Units:
    """Tokens of a batch by the prefix that they read, and what each sees.

    By unit: `prefix` is the tokens of its prefix, whose arena slots begin at `slots_from` in `slots`; `starts` is where
    its own tokens begin. By token: `rows`, `first`, `last`, `tree_first`, `visible_at`, as in source/attention.c. Asks
    without a prefix are a unit each, so that none looks through another's tokens.
    """

    slots: Int64
    slots_from: Int64
    prefix: Int64
    starts: Int64
    rows: Int64
    first: Int64
    last: Int64
    tree_first: Int64
    visible_at: Int64
    visible: npt.NDArray[np.uint8]

    def items(self, kv_heads: int) -> Int64:
        """[items, 6]: slots, prefix, tokens, begin, end and KV head of every work item."""
        ends = np.diff(np.append(self.starts, len(self.rows)))
        parts = -(-ends // MOST_TOKENS)
        unit = np.repeat(np.arange(len(ends)), parts)
        number = ranges(np.zeros(len(parts), dtype=np.int64), parts)
        begin, end = number * MOST_TOKENS, np.minimum((number + 1) * MOST_TOKENS, ends[unit])
        columns = (self.slots_from[unit], self.prefix[unit], self.starts[unit], begin, end)
        one = np.stack([np.repeat(column, kv_heads) for column in columns], axis=1)
        return np.column_stack([one, np.tile(np.arange(kv_heads), len(unit))]).astype(np.int64)

    def seen(self, items: Int64) -> Int64:
        """Tokens that each item packs at most, padded."""
        first, last = self.first[items[:, 2] + items[:, 3]], self.last[items[:, 2] + items[:, 4] - 1]
        return (items[:, 1] + 31) // 32 * 32 + (last - first + 31) // 32 * 32


def units_of(batch: Batch) -> Units:
    """The units of a batch."""
    starts, lengths, unit = (
        np.concatenate([getattr(part, name) for part in batch.segments]) for name in ("starts", "lengths", "unit")
    )
    key = np.where(unit >= 0, unit, len(batch.unit_lengths) + np.arange(len(unit)))
    order = np.argsort(key, kind="stable")
    begins = np.cumsum(lengths[order]) - lengths[order]  # of each ask, among all tokens in the units' order
    opens = np.diff(key[order], prepend=-1) != 0
    unit_start = begins[opens][np.cumsum(opens) - 1]
    first = np.repeat(begins - unit_start, lengths[order])
    within = ranges(begins - unit_start, lengths[order])
    trees = _Trees(batch.segments, order)
    last, tree_first, visible_at = trees.seen(within, lengths[order], begins, begins - unit_start)
    slots, prefix = _prefixes(batch, unit[order][opens])
    return Units(
        slots=slots,
        slots_from=np.cumsum(prefix) - prefix,
        prefix=prefix,
        starts=begins[opens],
        rows=ranges(starts[order], lengths[order]),
        first=first,
        last=last,
        tree_first=tree_first,
        visible_at=visible_at,
        visible=trees.visible,
    )


class _Trees:
    """The token trees of a batch: all their masks one after another, and which ask has which."""

    def __init__(self, segments: Sequence[Segments], order: Int64) -> None:
        masks = [np.zeros((0, 0), dtype=np.uint8) if part.tree is None else part.tree.visible for part in segments]
        self.visible = np.concatenate([mask.astype(np.uint8).reshape(-1) for mask in masks])
        sizes = np.array([len(mask) for mask in masks], dtype=np.int64)
        segment = np.repeat(np.arange(len(segments)), [len(part.starts) for part in segments])[order]
        self._size, self._at = sizes[segment], (np.cumsum(sizes**2) - sizes**2)[segment]

    def seen(self, within: Int64, lengths: Int64, begins: Int64, first: Int64) -> tuple[Int64, Int64, Int64]:
        """`last`, `tree_first` and `visible_at` of every token; `within`: its place in its unit, the rest by ask."""
        last, tree_first, visible_at = within + 1, within + 1, np.full(len(within), NO_LINE, dtype=np.int64)
        size = self._size
        nodes = ranges(begins + lengths - size, size)
        last[nodes] = np.repeat(first + lengths, size)
        tree_first[nodes] = np.repeat(first + lengths - size, size)
        line = ranges(np.zeros(len(size), dtype=np.int64), size)
        visible_at[nodes] = np.repeat(self._at, size) + line * np.repeat(size, size)
        return last, tree_first, visible_at


def _prefixes(batch: Batch, unit: Int64) -> tuple[Int64, Int64]:
    """Arena slots of the units' prefixes, one after another, and how many each has."""
    found = unit[unit >= 0]
    prefix = np.zeros(len(unit), dtype=np.int64)
    if not len(found):
        return np.zeros(0, dtype=np.int64), prefix
    prefix[unit >= 0] = batch.unit_lengths[found]
    slots, there = prefix_slots(batch, found)
    return slots[there], prefix


class NativeAttention:
    """`Attend` of a batch, as `TreeAttention`: writes kept K and V into the arena, then reads prefixes from it."""

    def __init__(self, library: ctypes.CDLL, batch: Batch, arena: KvArena, lanes: Lanes | Alone) -> None:
        self._library, self._arena, self._lanes = library, arena, lanes
        self._copies = np.ascontiguousarray(batch.copies, dtype=np.int64)
        kept = np.flatnonzero(batch.slots >= 0)
        self._kept = [(kept[own], batch.slots[kept[own]]) for own in spans(len(kept), 1, KEPT_ROWS)]
        self._units = units_of(batch)
        items = self._units.items(arena.k.shape[2])
        self._shares = _shared_out(items, self._units, lanes.threads)
        longest, dim = int(self._units.seen(items).max(initial=0)), arena.k.shape[3]
        size = library.scratch_bytes(c_int64(longest), c_int64(dim)) + 64
        self._out = torch.empty(0)
        self._memory = deque(torch.empty(size, dtype=torch.uint8) for _ in range(lanes.threads))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [T, heads, head_dim], k and v [T, KV heads, head_dim], parts of one tensor.

        Gives [T, heads, head_dim], which the next call writes over.
        """
        keys, values = self._arena.k[layer], self._arena.v[layer]
        if self._out.shape != q.shape:
            self._out = torch.empty(q.shape, dtype=q.dtype)  # for all layers: fresh memory costs more than the sums
        out = self._out
        told = ctypes.byref(self._told(q, k, v, keys, values, out))
        self._lanes.run([partial(self._keep, told, keys, values, *kept) for kept in self._kept])
        pairs = c_void_p(self._copies.ctypes.data)
        self._library.copy(_at(keys), _at(values), pairs, c_int64(len(self._copies)), c_int64(keys.stride(0)))
        self._lanes.run([partial(self._attend, told, items) for items in self._shares])
        return out

    def _keep(self, told: object, keys: Tensor, values: Tensor, rows: Int64, slots: Int64) -> None:
        places = (c_void_p(each.ctypes.data) for each in (rows, slots))
        self._library.keep(told, _at(keys), _at(values), *places, c_int64(len(rows)))

    def _attend(self, told: object, items: Int64) -> None:
        memory = self._memory.pop()  # one for each lane
        aligned = c_void_p(-(-memory.data_ptr() // 64) * 64)
        self._library.attend(told, c_void_p(items.ctypes.data), c_int64(len(items)), aligned)
        self._memory.append(memory)

    def _told(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> _Batch:
        units, dim = self._units, q.shape[2]
        sizes = (q.stride(0), keys.stride(0), out.stride(0), dim, q.shape[1] // k.shape[1])
        tensors = (x.data_ptr() for x in (q, k, v, keys, values, out))
        lists = (units.slots, units.rows, units.first, units.last, units.tree_first, units.visible_at, units.visible)
        return _Batch(*tensors, *sizes, LOG2_E * dim**-0.5, *(each.ctypes.data for each in lists))


def attends(head_dim: int, batch: Batch, windows: Sequence[int | None]) -> bool:
    """Whether the kernels can compute this batch: whole tiles, and no window that hides anything of it."""
    hides = any(effective_window(batch, window) is not None for window in windows)
    return head_dim % TILE_DIMENSIONS == 0 and not hides


def _shared_out(items: Int64, units: Units, lanes: int) -> list[Int64]:
    """Runs of items of like work, one for each lane and a few more."""
    work = np.cumsum((items[:, 4] - items[:, 3]) * (units.seen(items) + 64))
    parts = min(len(items), 1 if lanes == 1 else 4 * lanes)
    bounds = np.searchsorted(work, work[-1] * np.arange(1, parts) / parts) + 1 if parts > 1 else []
    return [part for part in np.split(items, np.unique(bounds).astype(np.int64)) if len(part)]


def _at(x: Tensor) -> c_void_p:
    return c_void_p(x.data_ptr())
