"""The kernels' attention and the runtime's batched CPU attention, written apart, agree on the runtime's own batches."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quail_frames import kernels
from quail_frames.kernels import PagedContexts, QueryGroups, SuffixMask, preorder
from quail_frames.runtime.attention import KvArena, TreeAttention
from quail_frames.runtime.batch import Batch, Segments, TokenTree
from quail_frames.runtime.kv.pages import PAGE

HEADS, KV_HEADS, HEAD_DIM, PAGES = 4, 2, 16, 8
TREE = TokenTree(np.array([-1, 0, 1, 0, -1], dtype=np.int32))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Asks that read one of three prefixes or none; some end in a tree, some keep their KV."""
    asks = [draw(st.lists(st.integers(len(TREE), 12), min_size=1, max_size=4)) for _ in (None, TREE)]
    chosen = [draw(st.lists(st.integers(-1, 2), min_size=len(a), max_size=len(a))) for a in asks]
    chosen[0][0] = 0  # a batch numbers only prefixes that are read
    used, unit = np.unique(np.concatenate(chosen), return_inverse=True)
    unit = (unit - int(used[0] == -1)).astype(np.int64)
    count = int(unit.max()) + 1
    units = np.array([draw(st.integers(1, 2 * PAGE)) for _ in range(count)], dtype=np.int64)
    pages = np.arange(2 * count, dtype=np.int32).reshape(count, 2)
    lengths = np.concatenate(asks).astype(np.int64)
    starts, first, cut = np.cumsum(lengths) - lengths, int(lengths.sum()), len(asks[0])
    segments = [
        Segments(starts[own], lengths[own], unit[own], tree)
        for own, tree in ((slice(cut), None), (slice(cut, None), TREE))
    ]
    slots = np.full(first, -1, dtype=np.int64)
    slots[:3] = PAGE * (PAGES - 1) + np.arange(3)
    return Batch(
        tokens=np.zeros(first, dtype=np.int32),
        positions=np.zeros(first, dtype=np.int32),
        slots=slots,
        segments=tuple(segments),
        unit_pages=pages,
        unit_lengths=units,
        reads=(),
        copies=np.zeros((0, 2), dtype=np.int64),
        blocks=(),
    )


def by_kernels(batch: Batch, keys: Tensor, values: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same attention by prefix and suffix parts: every token reads its unit; the last group reads nothing."""
    lengths = np.concatenate([s.lengths for s in batch.segments])
    unit = np.repeat(np.concatenate([s.unit for s in batch.segments]), lengths)
    units, wide = batch.unit_pages.shape
    unit[unit < 0] = units
    readers = QueryGroups.of(np.bincount(unit, minlength=units + 1), rows=np.argsort(unit, kind="stable"))
    contexts = PagedContexts(
        torch.from_numpy(batch.unit_pages.reshape(-1)),
        torch.arange(units + 1) * wide % (units * wide),
        torch.from_numpy(np.append(batch.unit_lengths, 0).astype(np.int32)),
        PAGE,
    )
    parents = np.arange(len(batch)) - 1
    for segments in batch.segments:
        parents[segments.starts] = -1
        if segments.tree is not None:
            chain = segments.starts + segments.lengths - len(segments.tree)
            above = segments.tree.parents
            last = np.where(segments.lengths > len(segments.tree), chain - 1, -1)
            nodes = np.where(above >= 0, chain[:, None] + above, last[:, None])
            parents[chain[:, None] + np.arange(len(above))] = nodes
    scale = HEAD_DIM**-0.5
    prefix = kernels.prefix_attention(q, keys, values, contexts, readers, scale)
    suffix = kernels.suffix_attention(q, k, v, QueryGroups.of(lengths), scale, SuffixMask.from_parents(parents))
    return kernels.merge_attention(*prefix, *suffix)


@settings(max_examples=12)
@given(batches(), st.integers(0, 99))
def test_both_attentions_agree(batch: Batch, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    arena = KvArena(1, PAGES, KV_HEADS, HEAD_DIM, torch.float32, torch.device("cpu"))
    for store in (arena.k, arena.v):
        store.copy_(torch.randn(store.shape, generator=generator))
    q, k, v = (torch.randn(len(batch), heads, HEAD_DIM, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS))
    ours = by_kernels(batch, arena.k[0], arena.v[0], q, k, v)
    torch.testing.assert_close(ours, TreeAttention(batch, arena)(0, q, k, v), rtol=1e-4, atol=1e-5)


def test_a_tree_of_the_runtime_is_already_in_preorder_or_can_be_brought_there() -> None:
    crossed = np.array([-1, -1, 0, 1], dtype=np.int64)
    assert preorder(TREE.parents).tolist() == list(range(len(TREE)))
    assert preorder(crossed).tolist() == [0, 2, 1, 3]
