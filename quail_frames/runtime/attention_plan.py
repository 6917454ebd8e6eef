"""Where the rows of a batch lie for its attention: padded buckets of like lengths, planned once for all layers.

Rows that lie one after another are taken by a slice, which copies nothing, instead of an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quail_frames.runtime.batch import Batch, Segments, TokenTree
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.tokens.ragged import Int64

STRETCH, SLACK = 1.25, 16
"""A bucket holds lengths up to STRETCH x its shortest + SLACK: padding is cheap, more calls are not."""

Rows = slice | Tensor


@dataclass(frozen=True, eq=False)
class Padded:
    """Lists of rows, padded to the longest.

    shape    (lists, longest)
    rows     what takes them from a tensor of rows, flat; padding repeats a list's first row
    used     places of the flat form that are not padding; None where nothing is padded
    targets  the rows without padding
    """

    shape: tuple[int, int]
    rows: Rows
    used: Tensor | None
    targets: Rows

    def take(self, x: Tensor) -> Tensor:
        """[lists, longest, ...] of x [rows, ...]; a view where the rows lie one after another."""
        return x[self.rows].unflatten(0, self.shape)

    def trim(self, x: Tensor) -> Tensor:
        """[targets, ...] of x [lists, longest, ...]."""
        flat = x.flatten(0, 1)
        return flat if self.used is None else flat[self.used]


def padded(rows: Int64, valid: npt.NDArray[np.bool_]) -> Padded:
    """Lists of rows [lists, longest]; `valid` says which are not padding, never the first of a list."""
    if valid.all():
        run = run_or_index(rows.reshape(-1))
        return Padded(rows.shape, run, None, run)
    # What is masked must still be a number: 0 x NaN is NaN, and the arena begins as whatever memory held.
    filled = torch.from_numpy(np.where(valid, rows, rows[:, :1]).reshape(-1))
    return Padded(rows.shape, filled, torch.from_numpy(np.flatnonzero(valid.reshape(-1))), run_or_index(rows[valid]))


def padded_runs(starts: Int64, lengths: Int64) -> Padded:
    """Lists start .. start + length."""
    columns = np.arange(int(lengths.max()))
    return padded(starts[:, None] + columns, columns < lengths[:, None])


def run_or_index(rows: Int64) -> Rows:
    """A slice where `rows` count up by one, else an index.

    >>> run_or_index(np.array([4, 5, 6]))
    slice(4, 7, None)
    >>> run_or_index(np.array([4, 6]))
    tensor([4, 6])
    """
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return torch.from_numpy(rows)


@dataclass(frozen=True, eq=False)
class InsideBucket:
    """Asks of like lengths attending to themselves.

    mask     additive, [asks, 1, n, n], for trees; None: causal, which never looks at padding behind it
    """

    rows: Padded
    mask: Tensor | None


@dataclass(frozen=True, eq=False)
class PrefixBucket:
    """Units of like lengths and the rows that read each of them.

    slots    arena slots of each prefix
    mask     additive, [units, 1, 1 or rows, 1, longest]; None where nothing is padded and no window hides anything
    """

    rows: Padded
    slots: Padded
    mask: Tensor | None


def inside_buckets(
    segments: Sequence[Segments], dtype: torch.dtype, window: int | None = None, lanes: int = 1
) -> Iterator[InsideBucket]:
    """Buckets that hold every ask of the segments once; for several lanes each in parts."""
    plain = [part for part in segments if part.tree is None]
    if plain:
        starts = np.concatenate([part.starts for part in plain])
        lengths = np.concatenate([part.lengths for part in plain])
        for chosen in shared_out(buckets(lengths), lanes):
            hides = window is not None and int(lengths[chosen].max()) > window
            visible = visible_inside(lengths[chosen], None, window)[:, None] if hides else None
            mask = None if visible is None else additive(visible, dtype)
            yield InsideBucket(padded_runs(starts[chosen], lengths[chosen]), mask)
    for part in segments:
        if part.tree is not None:
            for chosen in shared_out(buckets(part.lengths), lanes):
                visible = visible_inside(part.lengths[chosen], part.tree, window)
                rows = padded_runs(part.starts[chosen], part.lengths[chosen])
                yield InsideBucket(rows, additive(visible[:, None], dtype))


def visible_inside(lengths: Int64, tree: TokenTree | None, window: int | None = None) -> npt.NDArray[np.bool_]:
    """[asks, n, n]: causal, with the last tokens of each ask seeing only their ancestors among each other.

    With a window, a token sees only those less than `window` positions before it.
    """
    most = int(lengths.max())
    visible = np.tril(np.ones((most, most), dtype=np.bool_))[None].repeat(len(lengths), axis=0)
    positions = np.arange(most)[None].repeat(len(lengths), axis=0)
    if tree is not None:
        asks, chain = np.arange(len(lengths))[:, None], lengths - len(tree)
        nodes = chain[:, None] + np.arange(len(tree))
        visible[asks[:, :, None], nodes[:, :, None], nodes[:, None, :]] = tree.visible
        positions[asks, nodes] = chain[:, None] + tree.depths
    if window is not None:
        visible &= positions[:, :, None] - positions[:, None, :] < window
    return visible


def prefix_buckets(
    batch: Batch, dtype: torch.dtype, window: int | None = None, lanes: int = 1
) -> Iterator[PrefixBucket]:
    """Buckets that hold every unit of the batch once; for several lanes each in parts, a single unit's rows too."""
    if not len(batch.unit_lengths):
        return
    order, starts, counts = _rows_by_unit(batch)
    for alike in buckets(batch.unit_lengths):
        for units in shared_out((alike[inner] for inner in buckets(counts[alike])), lanes):
            slots, there = prefix_slots(batch, units)
            every = [np.arange(int(counts[units].max()))]
            for columns in shared_out(every, lanes if len(units) == 1 else 1):
                valid = columns < counts[units][:, None]
                rows = order[np.where(valid, starts[units][:, None] + columns, 0)]
                visible = there[:, None, None, None, :]
                if window is not None:
                    visible = visible & in_window(batch, rows, slots.shape[1], window)[:, None, :, None, :]
                mask = None if visible.all() else hidden(visible, dtype)
                yield PrefixBucket(padded(rows, valid), padded(slots, there), mask)


def in_window(batch: Batch, rows: Int64, length: int, window: int) -> npt.NDArray[np.bool_]:
    """[..., length]: which positions from 0 on each of `rows` [...] sees through a window."""
    return batch.positions[rows][..., None] - np.arange(length) < window


def effective_window(batch: Batch, window: int | None) -> int | None:
    """The window, or None where no token of the batch stands so far on that it hides anything."""
    return None if window is None or int(batch.positions.max(initial=0)) < window else window


def _rows_by_unit(batch: Batch) -> tuple[Int64, Int64, Int64]:
    """Rows sorted by the unit they read, and where each unit's rows begin and how many there are."""
    unit = np.full(len(batch), -1, dtype=np.int64)
    for segments in batch.segments:
        rows = np.repeat(segments.unit, segments.lengths)
        first = int(segments.starts[0])
        unit[first : first + len(rows)] = rows
    order = np.argsort(unit, kind="stable")
    counts = np.bincount(unit[unit >= 0], minlength=len(batch.unit_lengths)).astype(np.int64)
    starts = len(unit) - int(counts.sum()) + np.cumsum(counts) - counts
    return order, starts, counts


def prefix_slots(batch: Batch, units: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """Arena slots of each unit's tokens [units, longest], and which of them are not padding."""
    lengths = batch.unit_lengths[units]
    positions = np.arange(int(lengths.max()))
    slots = batch.unit_pages[units][:, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
    return slots, positions < lengths[:, None]


def additive(visible: npt.NDArray[np.bool_], dtype: torch.dtype) -> Tensor:
    """0 where visible, -inf elsewhere."""
    mask = torch.zeros(visible.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(~visible), float("-inf"))


def hidden(visible: npt.NDArray[np.bool_], dtype: torch.dtype) -> Tensor:
    """As `additive`, with the lowest number for -inf: a row that sees nothing gives numbers, which weigh nothing."""
    mask = torch.zeros(visible.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(dtype).min)


def shared_out(groups: Iterable[Int64], lanes: int) -> Iterator[Int64]:
    """The groups, each cut into as many parts as there are lanes, or as it has members.

    >>> [part.tolist() for part in shared_out([np.arange(3), np.arange(1)], 2)]
    [[0, 1], [2], [0]]
    """
    for group in groups:
        yield from np.array_split(group, min(lanes, len(group)))


def buckets(lengths: Int64) -> Iterator[Int64]:
    """Groups of indices whose lengths are alike; the indices of a group count up.

    >>> [group.tolist() for group in buckets(np.array([100, 5, 101, 6]))]
    [[1, 3], [0, 2]]
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    start = 0
    while start < len(order):
        stop = int(np.searchsorted(ordered, int(ordered[start] * STRETCH) + SLACK, side="right"))
        yield np.sort(order[start:stop])
        start = stop
