"""Attention of one batch over the paged arena: the unified path, one call per ask over prefix and suffix together.

It reads a shared prefix once for every ask and needs a mask, but joins nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quail_frames.runtime.attention import KvArena, KvWriter, flash
from quail_frames.runtime.attention_plan import (
    InsideBucket,
    Padded,
    additive,
    buckets,
    effective_window,
    in_window,
    inside_buckets,
    padded,
    padded_runs,
    prefix_slots,
    shared_out,
    visible_inside,
)
from quail_frames.runtime.batch import Batch, Segments
from quail_frames.runtime.lanes import Alone, Lanes


@dataclass(frozen=True, eq=False)
class UnifiedBucket:
    """Asks of like suffixes and prefixes: their rows, the slots of their prefixes, and what sees what.

    mask     additive, [asks, 1, n, longest prefix + n]
    """

    rows: Padded
    slots: Padded
    mask: Tensor


@dataclass(frozen=True, eq=False)
class UnifiedPlan:
    """What the layers of one window attend to: asks without a prefix, and asks with one."""

    inside: tuple[InsideBucket, ...]
    reading: tuple[UnifiedBucket, ...]


class UnifiedAttention:
    """`Attend` of a batch: writes kept K and V into the arena, then attends once per ask.

    `windows` as in `TreeAttention`.
    """

    def __init__(
        self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = (), lanes: Lanes | Alone | None = None
    ) -> None:
        self._writer = KvWriter(batch, arena)
        self._lanes = lanes or Alone()
        self._windows = [effective_window(batch, window) for window in windows] or [None] * len(arena.k)
        self._plans = {
            window: _plan(batch, arena.k.dtype, window, self._lanes.threads) for window in set(self._windows)
        }

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [T, heads, head_dim], k and v [T, KV heads, head_dim]; gives [T, heads, head_dim]."""
        keys, values = self._writer.write(layer, k, v)
        plan = self._plans[self._windows[layer]]
        out = q.new_empty(q.shape)
        alone = [partial(_attend_inside, bucket, q, k, v, out) for bucket in plan.inside]
        reading = [partial(_attend_all, bucket, q, (keys, k), (values, v), out) for bucket in plan.reading]
        self._lanes.run([*alone, *reading])
        return out


def _attend_inside(bucket: InsideBucket, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
    _attend(bucket.rows, q, bucket.rows.take(k), bucket.rows.take(v), bucket.mask, out)


def _attend_all(
    bucket: UnifiedBucket, q: Tensor, keys: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], out: Tensor
) -> None:
    """`keys` and `values`: those in the arena, and the batch's own."""
    key, value = (
        torch.cat([bucket.slots.take(before), bucket.rows.take(own)], dim=1) for before, own in (keys, values)
    )
    _attend(bucket.rows, q, key, value, bucket.mask, out)


def _plan(batch: Batch, dtype: torch.dtype, window: int | None, lanes: int) -> UnifiedPlan:
    alone = [_asks(part, part.unit < 0) for part in batch.segments]
    reading = [_asks(part, part.unit >= 0) for part in batch.segments]
    inside = inside_buckets([part for part in alone if len(part.starts)], dtype, window, lanes)
    unified = (_unified_buckets(batch, part, dtype, window, lanes) for part in reading)
    return UnifiedPlan(tuple(inside), tuple(bucket for part in unified for bucket in part))


def _attend(rows: Padded, q: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, out: Tensor) -> None:
    parts = (x.transpose(1, 2) for x in (rows.take(q), key, value))
    attended, _ = flash(*parts, causal=mask is None, mask=mask)
    out[rows.targets] = rows.trim(attended.transpose(1, 2))


def _asks(segments: Segments, chosen: npt.NDArray[np.bool_]) -> Segments:
    return Segments(segments.starts[chosen], segments.lengths[chosen], segments.unit[chosen], segments.tree)


def _unified_buckets(
    batch: Batch, segments: Segments, dtype: torch.dtype, window: int | None, lanes: int
) -> Iterator[UnifiedBucket]:
    for alike in buckets(batch.unit_lengths[segments.unit]):
        for chosen in shared_out((alike[inner] for inner in buckets(segments.lengths[alike])), lanes):
            lengths = segments.lengths[chosen]
            slots, visible = prefix_slots(batch, segments.unit[chosen])
            inside = visible_inside(lengths, segments.tree, window)
            before = np.broadcast_to(visible[:, None, :], (len(chosen), inside.shape[1], slots.shape[1]))
            if window is not None:
                columns = np.minimum(np.arange(inside.shape[1]), lengths[:, None] - 1)
                before = before & in_window(batch, segments.starts[chosen][:, None] + columns, slots.shape[1], window)
            mask = additive(np.concatenate([before, inside], axis=2)[:, None], dtype)
            yield UnifiedBucket(padded_runs(segments.starts[chosen], lengths), padded(slots, visible), mask)
