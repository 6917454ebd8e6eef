"""Attention of one batch over the paged arena: the tree path.

Asks of one unit (a shared prefix) read its KV once, in one call; inside themselves asks
are causal, or follow their token tree; the two parts are joined by log-sum-exp (Flash
Attention's online softmax, Dao et al. 2022). Everything is gathered into padded buckets
of like lengths, planned once for a batch and used in every layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quail_frames.runtime.batch import Batch, Segments, TokenTree
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.tokens.ragged import Int64

STRETCH, SLACK = 1.25, 8
"""A bucket holds lengths up to STRETCH x its shortest + SLACK: padding is cheap, more calls are not."""


class KvArena:
    """K and V of every layer, each [layers, slots, KV heads, head_dim]."""

    def __init__(self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device):
        shape = (layers, pages * PAGE, kv_heads, head_dim)
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)


@dataclass(frozen=True, eq=False)
class InsideBucket:
    """Asks of like lengths attending to themselves.

    rows     [B, n] rows of the batch, padded with row 0 at the end
    used     [tokens] places of `rows.flatten()` that are not padding
    mask     additive, [B, 1, n, n], for trees; None: causal, which never looks at padding behind it
    """

    rows: Tensor
    used: Tensor
    mask: Tensor | None


@dataclass(frozen=True, eq=False)
class PrefixBucket:
    """Units of like lengths read by their asks.

    rows     [U, m] rows of the batch that read each unit, padded with row 0
    used     places of `rows.flatten()` that are not padding
    slots    [U, L] arena slots of each prefix, padded with slot 0
    mask     additive, [U, 1, 1, L]; None where nothing is padded
    """

    rows: Tensor
    used: Tensor
    slots: Tensor
    mask: Tensor | None


class TreeAttention:
    """`Attend` of a batch: writes kept K and V into the arena, then reads prefixes from it."""

    def __init__(self, batch: Batch, arena: KvArena) -> None:
        self._arena = arena
        kept = np.flatnonzero(batch.slots >= 0)
        self._kept, self._slots = torch.from_numpy(kept), torch.from_numpy(batch.slots[kept])
        self._copies = torch.from_numpy(batch.copies)
        self._inside = list(_inside_buckets(batch, arena.k.dtype))
        self._prefixes = list(_prefix_buckets(batch, arena.k.dtype))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [T, heads, head_dim], k and v [T, KV heads, head_dim]; gives [T, heads, head_dim]."""
        keys, values = self._arena.k[layer], self._arena.v[layer]
        keys[self._slots] = k[self._kept]
        values[self._slots] = v[self._kept]
        if len(self._copies):
            for store in (keys, values):
                store[self._copies[:, 1]] = store[self._copies[:, 0]]
        out = torch.empty_like(q)
        weight = torch.empty(q.shape[:2], dtype=torch.float32) if self._prefixes else None
        for inside in self._inside:
            _attend_inside(inside, q, k, v, out, weight)
        for prefix in self._prefixes:
            assert weight is not None
            _merge_prefix(prefix, q, keys, values, out, weight)
        return out


def _attend_inside(bucket: InsideBucket, q: Tensor, k: Tensor, v: Tensor, out: Tensor, weight: Tensor | None) -> None:
    """Fill `out` (and the log-sum-exp `weight`) at the bucket's rows."""
    parts = (x[bucket.rows].transpose(1, 2) for x in (q, k, v))
    attended, lse = _flash(*parts, causal=bucket.mask is None, mask=bucket.mask)
    rows = bucket.rows.flatten()[bucket.used]
    out[rows] = attended.transpose(1, 2).flatten(0, 1)[bucket.used]
    if weight is not None:
        weight[rows] = lse.transpose(1, 2).flatten(0, 1)[bucket.used]


def _merge_prefix(bucket: PrefixBucket, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, weight: Tensor) -> None:
    """Join what the bucket's rows see in their prefix into `out`.

    All query heads of a KV head, and all rows of a unit, are the rows of one attention.
    """
    units, most = bucket.rows.shape
    kv_heads, head_dim = keys.shape[1:]
    grouped = q[bucket.rows].view(units, most, kv_heads, -1, head_dim).transpose(1, 2).flatten(2, 3)
    key, value = (x[bucket.slots].transpose(1, 2) for x in (keys, values))
    attended, lse = _flash(grouped, key, value, causal=False, mask=bucket.mask)
    attended = attended.unflatten(2, (most, -1)).transpose(1, 2).flatten(2, 3).flatten(0, 1)[bucket.used]
    lse = lse.unflatten(2, (most, -1)).transpose(1, 2).flatten(2, 3).flatten(0, 1)[bucket.used]
    rows = bucket.rows.flatten()[bucket.used]
    share = torch.sigmoid(lse - weight[rows]).unsqueeze(-1).to(out.dtype)
    out[rows] = torch.lerp(out[rows], attended, share)


def _flash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """(attention [B, heads, n, head_dim], log-sum-exp [B, heads, n]); fewer KV heads are shared by query heads."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    attended, lse = flash(q, k, v, 0.0, causal, attn_mask=mask, scale=q.shape[-1] ** -0.5)
    return attended, lse


def _inside_buckets(batch: Batch, dtype: torch.dtype) -> Iterator[InsideBucket]:
    plain = [segments for segments in batch.segments if segments.tree is None]
    if plain:
        starts = np.concatenate([segments.starts for segments in plain])
        lengths = np.concatenate([segments.lengths for segments in plain])
        for chosen in buckets(lengths):
            rows, used = _padded(starts[chosen], lengths[chosen])
            yield InsideBucket(rows, used, None)
    for segments in batch.segments:
        if segments.tree is not None:
            yield from _tree_buckets(segments, segments.tree, dtype)


def _tree_buckets(segments: Segments, tree: TokenTree, dtype: torch.dtype) -> Iterator[InsideBucket]:
    for chosen in buckets(segments.lengths):
        lengths = segments.lengths[chosen]
        rows, used = _padded(segments.starts[chosen], lengths)
        yield InsideBucket(rows, used, _tree_mask(lengths, tree, dtype))


def _tree_mask(lengths: Int64, tree: TokenTree, dtype: torch.dtype) -> Tensor:
    """Causal, with the last tokens of each ask seeing only their ancestors among each other."""
    most = int(lengths.max())
    visible = np.tril(np.ones((most, most), dtype=np.bool_))[None].repeat(len(lengths), axis=0)
    nodes = (lengths - len(tree))[:, None] + np.arange(len(tree))
    visible[np.arange(len(lengths))[:, None, None], nodes[:, :, None], nodes[:, None, :]] = tree.visible
    return _additive(visible[:, None], dtype)


def _prefix_buckets(batch: Batch, dtype: torch.dtype) -> Iterator[PrefixBucket]:
    reading = _rows_by_unit(batch)
    if reading is None:
        return
    order, starts, counts = reading
    lengths = batch.unit_lengths
    for alike in buckets(lengths):
        for inner in buckets(counts[alike]):
            chosen = alike[inner]
            places, used = _padded(starts[chosen], counts[chosen])
            slots, mask = _prefix_slots(batch, chosen, dtype)
            yield PrefixBucket(torch.from_numpy(order)[places], used, slots, mask)


def _rows_by_unit(batch: Batch) -> tuple[Int64, Int64, Int64] | None:
    """Rows sorted by the unit they read, and where each unit's rows begin and how many there are."""
    if not len(batch.unit_lengths):
        return None
    unit = np.full(len(batch), -1, dtype=np.int64)
    for segments in batch.segments:
        rows = np.repeat(segments.unit, segments.lengths)
        first = int(segments.starts[0])
        unit[first : first + len(rows)] = rows
    order = np.argsort(unit, kind="stable")
    counts = np.bincount(unit[unit >= 0], minlength=len(batch.unit_lengths)).astype(np.int64)
    starts = len(unit) - int(counts.sum()) + np.cumsum(counts) - counts
    return order, starts, counts


def _prefix_slots(batch: Batch, units: Int64, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    lengths = batch.unit_lengths[units]
    positions = np.arange(int(lengths.max()))
    slots = batch.unit_pages[units][:, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
    visible = positions[None, :] < lengths[:, None]
    slots = np.where(visible, slots, 0)
    mask = None if visible.all() else _additive(visible[:, None, None, :], dtype)
    return torch.from_numpy(slots), mask


def _additive(visible: np.ndarray, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(visible.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(~visible), float("-inf"))


def _padded(starts: Int64, lengths: Int64) -> tuple[Tensor, Tensor]:
    """([B, longest] rows padded with 0, places of the flat form that are not padding)."""
    columns = np.arange(int(lengths.max()))
    valid = columns[None, :] < lengths[:, None]
    rows = np.where(valid, starts[:, None] + columns[None, :], 0)
    return torch.from_numpy(rows), torch.from_numpy(np.flatnonzero(valid.reshape(-1)))


def buckets(lengths: Int64) -> Iterator[Int64]:
    """Groups of indices whose lengths are alike.

    >>> [group.tolist() for group in buckets(np.array([100, 5, 101, 6]))]
    [[1, 3], [0, 2]]
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    start = 0
    while start < len(order):
        stop = int(np.searchsorted(ordered, int(ordered[start] * STRETCH) + SLACK, side="right"))
        yield order[start:stop]
        start = stop
