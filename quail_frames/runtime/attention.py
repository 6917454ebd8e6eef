"""Attention of one batch over the paged arena: the tree path.

Asks of one unit (a shared prefix) read its KV once, in one call; inside themselves asks
are causal, or follow their token tree; the two parts are joined by log-sum-exp (Flash
Attention's online softmax, Dao et al. 2022). Everything is gathered into padded buckets
of like lengths, planned once for a batch and used in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quail_frames.runtime.attention_plan import (
    InsideBucket,
    Padded,
    PrefixBucket,
    effective_window,
    inside_buckets,
    prefix_buckets,
    run_or_index,
)
from quail_frames.runtime.batch import Batch
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.lanes import Alone, Lanes


class KvArena:
    """K and V of every layer, each [layers, slots, KV heads, head_dim]."""

    def __init__(self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device):
        shape = (layers, pages * PAGE, kv_heads, head_dim)
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)


class KvWriter:
    """Writes what a batch keeps into the arena, and copies what rows take from each other."""

    def __init__(self, batch: Batch, arena: KvArena) -> None:
        self._arena = arena
        kept = np.flatnonzero(batch.slots >= 0)
        self._kept, self._slots = run_or_index(kept), run_or_index(batch.slots[kept])
        self._copies = torch.from_numpy(batch.copies)

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer, then copy the batch's slots; gives the arena's K and V of it."""
        keys, values = self._arena.k[layer], self._arena.v[layer]
        keys[self._slots] = k[self._kept]
        values[self._slots] = v[self._kept]
        if len(self._copies):
            for store in (keys, values):
                store[self._copies[:, 1]] = store[self._copies[:, 0]]
        return keys, values


@dataclass(frozen=True, eq=False)
class TreePlan:
    """What the layers of one window attend to."""

    inside: tuple[InsideBucket, ...]
    prefixes: tuple[PrefixBucket, ...]


class TreeAttention:
    """`Attend` of a batch: writes kept K and V into the arena, then reads prefixes from it.

    `windows` says how many tokens back each layer sees (None: all); empty: no layer has a window. Heads of an ask of
    `long` tokens that stands alone in its bucket are shared out among the lanes.
    """

    long = 128

    def __init__(
        self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = (), lanes: Lanes | Alone | None = None
    ) -> None:
        self._writer = KvWriter(batch, arena)
        self._lanes = lanes or Alone()
        self._windows = [effective_window(batch, window) for window in windows] or [None] * len(arena.k)
        dtype, threads = arena.k.dtype, self._lanes.threads
        self._plans = {
            window: TreePlan(
                tuple(inside_buckets(batch.segments, dtype, window, threads)),
                tuple(prefix_buckets(batch, dtype, window, threads)),
            )
            for window in set(self._windows)
        }

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [T, heads, head_dim], k and v [T, KV heads, head_dim]; gives [T, heads, head_dim]."""
        keys, values = self._writer.write(layer, k, v)
        plan = self._plans[self._windows[layer]]
        out = q.new_empty(q.shape)
        weight = torch.empty(q.shape[:2], dtype=torch.float32) if plan.prefixes else None
        tasks = []
        for inside in plan.inside:
            alone = inside.rows.shape[0] == 1 and inside.rows.shape[1] >= self.long
            for heads in head_parts(q.shape[1], k.shape[1], self._lanes.threads if alone else 1):
                tasks.append(partial(_attend_inside, inside, heads, q, k, v, out, weight))
        self._lanes.run(tasks)
        if weight is not None:
            self._lanes.run([partial(_merge_prefix, each, q, keys, values, out, weight) for each in plan.prefixes])
        return out


class Heads(NamedTuple):
    """Some query heads, and the KV head of each; both slices where their groups are whole."""

    query: slice
    kv: slice | Tensor


def head_parts(heads: int, kv_heads: int, parts: int) -> list[Heads]:
    """The heads in so many parts of like size."""
    if parts == 1:
        return [Heads(slice(None), slice(None))]
    bounds = [heads * part // parts for part in range(parts + 1)]
    of_kv = torch.arange(kv_heads).repeat_interleave(heads // kv_heads)
    spans = [slice(start, stop) for start, stop in pairwise(bounds) if start < stop]
    return [Heads(own, of_kv[own]) for own in spans]


def _attend_inside(
    bucket: InsideBucket, heads: Heads, q: Tensor, k: Tensor, v: Tensor, out: Tensor, weight: Tensor | None
) -> None:
    """Fill `out` (and the log-sum-exp `weight`) at the bucket's rows, for some heads."""
    rows = bucket.rows
    own = (q[:, heads.query], k, v)
    query, key, value = (rows.take(x) for x in own)
    parts = (x.transpose(1, 2) for x in (query, key[:, :, heads.kv], value[:, :, heads.kv]))
    attended, lse = flash(*parts, causal=bucket.mask is None, mask=bucket.mask)
    out[rows.targets, heads.query] = rows.trim(attended.transpose(1, 2))
    if weight is not None:
        weight[rows.targets, heads.query] = rows.trim(lse.transpose(1, 2))


def _merge_prefix(bucket: PrefixBucket, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, weight: Tensor) -> None:
    """Join what the bucket's rows see in their prefix into `out`.

    All query heads of a KV head, and all rows of a unit, are the rows of one attention.
    """
    rows, kv_heads = bucket.rows, keys.shape[1]
    grouped = rows.take(q).unflatten(2, (kv_heads, -1)).transpose(1, 2).flatten(2, 3)
    key, value = (bucket.slots.take(x).transpose(1, 2) for x in (keys, values))
    mask = bucket.mask
    if mask is not None:
        repeats = grouped.shape[2] // rows.shape[1] if mask.shape[2] > 1 else 1
        mask = mask.expand(-1, -1, -1, repeats, -1).flatten(2, 3)
    attended, lse = flash(grouped, key, value, causal=False, mask=mask)
    attended, lse = _by_row(rows, attended), _by_row(rows, lse)
    share = torch.sigmoid(lse - weight[rows.targets]).unsqueeze(-1).to(out.dtype)
    if isinstance(rows.targets, slice):
        out[rows.targets].lerp_(attended, share)
    else:
        out[rows.targets] = torch.lerp(out[rows.targets], attended, share)


def _by_row(rows: Padded, x: Tensor) -> Tensor:
    """[rows, heads, ...] of x [units, KV heads, longest x group, ...]."""
    return rows.trim(x.unflatten(2, (rows.shape[1], -1)).transpose(1, 2)).flatten(1, 2)


def flash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """(attention [B, heads, n, head_dim], log-sum-exp [B, heads, n]); fewer KV heads are shared by query heads."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    attended, lse = kernel(q, k, v, 0.0, causal, attn_mask=mask, scale=q.shape[-1] ** -0.5)
    return attended, lse
