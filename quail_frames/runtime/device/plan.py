"""A batch as the kernels read it: flat arrays of the host, worked out before the device is free.

The kernels' tree mask is one interval a token, which needs trees in preorder; rows of other trees are moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.kernels.attention_inputs import NEVER, preorder, subtree_ends
from quail_frames.runtime.batch import Batch, Int32, Int64, ReadoutSpec, Segments, TokenTree

Arrays = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """What one batch tells the device.

    arrays      go to the device: tokens, positions, slots, copies, rows (read), ids (of all read-outs), pages;
                asks and readers (offsets of the two groupings), and per group starts and lengths of its context;
                order (rows by reader), until and again (tree mask) where they are needed
    asks        offsets of the asks' rows, on the host
    readers     offsets of the rows that read each unit (the last group reads nothing); None: no ask reads any
    reads       of each read-out: how many rows, and what is read in them
    """

    arrays: Arrays
    asks: Int64
    readers: Int64 | None
    reads: tuple[tuple[int, ReadoutSpec], ...]


def plan_batch(batch: Batch, unified: bool = False) -> DevicePlan:
    """The plan of a batch; `unified` groups contexts by ask instead of by what they share."""
    order = in_preorder(batch)
    place = np.argsort(order) if order is not None else None  # where each row of the batch went
    lengths = np.concatenate([part.lengths for part in batch.segments])
    rows = np.concatenate([read.rows for read in batch.reads]) if batch.reads else np.zeros(0, dtype=np.int64)
    ids = [read.readout.token_ids.astype(np.int64) for read in batch.reads]
    arrays: Arrays = {
        "tokens": batch.tokens if order is None else batch.tokens[order],
        "positions": batch.positions if order is None else batch.positions[order],
        "slots": batch.slots if order is None else batch.slots[order],
        "copies": np.ascontiguousarray(batch.copies.T),
        "rows": rows if place is None else place[rows],
        "ids": np.concatenate(ids) if ids else np.zeros(0, dtype=np.int64),
    }
    asks = _offsets(lengths)
    arrays["asks"] = asks.astype(np.int32)
    if any(part.tree is not None for part in batch.segments):
        arrays["until"] = _until(batch)
    if any(part.tree is not None and part.tree.closing for part in batch.segments):
        arrays["again"] = _again(batch)
    readers = _add_readers(batch, lengths, arrays, unified)
    return DevicePlan(arrays, asks, readers, tuple((len(read.rows), read.readout) for read in batch.reads))


def _add_readers(batch: Batch, lengths: Int64, arrays: Arrays, unified: bool) -> Int64 | None:
    """Adds pages, starts and lengths of the contexts, and which rows read them; gives the groups' offsets."""
    units, width = batch.unit_pages.shape
    if not units:
        return None
    unit = np.concatenate([part.unit for part in batch.segments])
    unit = np.where(unit < 0, units, unit)
    arrays["pages"] = batch.unit_pages.reshape(-1)
    starts = np.append(np.arange(units, dtype=np.int64) * width, 0)
    tokens = np.append(batch.unit_lengths, 0).astype(np.int32)
    if unified:
        arrays["starts"], arrays["lengths"] = starts[unit], tokens[unit]
        return _offsets(lengths)
    arrays["starts"], arrays["lengths"] = starts, tokens
    of_row = np.repeat(unit, lengths)
    if (np.diff(of_row) < 0).any():
        arrays["order"] = np.argsort(of_row, kind="stable").astype(np.int32)
    offsets = _offsets(np.bincount(of_row, minlength=units + 1))
    arrays["readers"] = offsets.astype(np.int32)
    return offsets


def _offsets(lengths: npt.NDArray[np.integer]) -> Int64:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def in_preorder(batch: Batch) -> Int64 | None:
    """The batch's rows with every tree in preorder; None where they are."""
    order: Int64 | None = None
    for part in batch.segments:
        moved = None if part.tree is None else preorder(part.tree.parents)
        if part.tree is None or moved is None or (moved == np.arange(len(moved))).all():
            continue
        order = np.arange(len(batch)) if order is None else order
        nodes = _nodes(part, part.tree)
        order[nodes] = nodes[:, moved]
    return order


def _nodes(part: Segments, tree: TokenTree) -> Int64:
    """Rows of each ask's tree without the tokens that close it, [asks, nodes]."""
    return (part.starts + part.lengths - len(tree))[:, None] + np.arange(len(tree.parents))


def _until(batch: Batch) -> Int32:
    """For every row, the end of the rows that see it: its ask's, or in a tree (in preorder) its subtree's."""
    until = np.empty(len(batch), dtype=np.int64)
    for part in batch.segments:
        first, rows = int(part.starts[0]), int(part.lengths.sum())
        until[first : first + rows] = np.repeat(part.starts + part.lengths, part.lengths)
        if part.tree is not None:
            nodes = _nodes(part, part.tree)
            until[nodes] = nodes[:, :1] + _ends_in_preorder(part.tree.parents)
    return until.astype(np.int32)


def _again(batch: Batch) -> Int32:
    """For every row of a tree, the first of the rows that close it and see all of it."""
    again = np.full(len(batch), NEVER, dtype=np.int64)
    for part in batch.segments:
        if part.tree is not None and part.tree.closing:
            again[_nodes(part, part.tree)] = (part.starts + part.lengths - part.tree.closing)[:, None]
    return again.astype(np.int32)


def _ends_in_preorder(parents: Int32) -> npt.NDArray[np.int32]:
    """`subtree_ends` of the tree once it is brought into preorder."""
    order = preorder(parents)
    place = np.argsort(order)
    above = parents[order]
    return subtree_ends(np.where(above >= 0, place[above], -1))
