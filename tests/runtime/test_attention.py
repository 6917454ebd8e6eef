"""Both attention paths give what every token sees by definition, in float64, over random contexts, asks and trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quail_frames.runtime.attention import KvArena, TreeAttention
from quail_frames.runtime.batch import Batch
from quail_frames.runtime.device.attention import KernelAttention
from quail_frames.runtime.device.plan import in_preorder, plan_batch
from quail_frames.runtime.device.staging import Stager
from quail_frames.runtime.lanes import Lanes
from quail_frames.runtime.unified_attention import UnifiedAttention
from tests.support.attention_cases import HEAD_DIM, LAYER, Case, World, cases


class KernelPath:
    """`KernelAttention` with the writing that `qk_norm_rope_write` does before it, for rows in the batch's order."""

    unified = False

    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = (None, None)) -> None:
        plan = plan_batch(batch, self.unified)
        tensors = Stager(torch.device("cpu")).stage(plan.arrays).tensors()
        self._attention = KernelAttention(plan, tensors, arena, windows, self.unified)
        order = in_preorder(batch)
        self._order = torch.arange(len(batch)) if order is None else torch.from_numpy(order)

    def __call__(self, layer: int, *qkv: Tensor) -> Tensor:
        q, k, v = (part[self._order] for part in qkv)
        kept = self._attention.slots >= 0
        for store, own in zip(self._attention.store(layer), (k, v), strict=True):
            store[self._attention.slots[kept]] = own[kept]
        out = torch.empty_like(q)
        out[self._order] = self._attention.attend(layer, q, k, v, quantize=False).view(q.shape)
        return out


class UnifiedKernelPath(KernelPath):
    unified = True


LANES = Lanes(3)


class TreeInLanes(TreeAttention):
    long = 4

    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = ()) -> None:
        super().__init__(batch, arena, windows, LANES)


class UnifiedInLanes(UnifiedAttention):
    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = ()) -> None:
        super().__init__(batch, arena, windows, LANES)


PATHS = pytest.mark.parametrize(
    "path", [TreeAttention, UnifiedAttention, TreeInLanes, UnifiedInLanes, KernelPath, UnifiedKernelPath]
)


@PATHS
@settings(max_examples=60)
@given(case=cases(), window=st.sampled_from([None, None, 1, 7, 20, 45]))
def test_every_token_attends_to_what_it_sees(path: type, case: Case, window: int | None) -> None:
    world = World(case)
    rows, heads = len(world.batch), case.kv_heads * case.group
    q, kv = world.draw(rows, heads), world.draw(2, rows, case.kv_heads)
    attend = path(world.batch, world.arena, [None, window])
    got = attend(LAYER, *(torch.from_numpy(x).float() for x in (q, *kv))).numpy()
    for own, attended in world.expected(q, kv, window):
        np.testing.assert_allclose(got[own], attended, atol=1e-5)


@PATHS
@settings(max_examples=40)
@given(case=cases())
def test_only_what_asks_keep_and_rows_take_is_written(path: type, case: Case) -> None:
    world = World(case)
    kv = world.draw(2, len(world.batch), case.kv_heads).astype(np.float32)
    expected = torch.stack([world.arena.k, world.arena.v])
    for ask, _, own in world.asks():
        if ask.keep:
            slots = world.contexts.slots(world.numbers[[ask.context]], ask.prefix, ask.keep)
            expected[:, LAYER, slots] = torch.from_numpy(kv[:, own][:, : ask.keep])
    sources, targets = torch.from_numpy(world.batch.copies).T
    expected[:, LAYER, targets] = expected[:, LAYER, sources]
    q = torch.zeros(len(world.batch), case.kv_heads * case.group, HEAD_DIM)
    path(world.batch, world.arena)(LAYER, q, *torch.from_numpy(kv))
    torch.testing.assert_close(torch.stack([world.arena.k, world.arena.v]), expected, rtol=0, atol=0, equal_nan=True)
