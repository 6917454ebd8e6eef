"""Prefix, suffix and unified attention agree with their references on ragged batches, trees and windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quail_frames.kernels import PagedContexts, QueryGroups, SuffixMask, Window
from tests.kernels.comparison import DEVICE, agree, close, randn, run

SCALE = 0.3
HEADS = st.sampled_from([(1, 1), (3, 1), (4, 2), (6, 2)])
HEAD_DIMS = st.sampled_from([16, 24, 64])


@dataclass
class Batch:
    """Groups with contexts on shuffled pages; whatever no context holds is NaN in the arena."""

    q: Tensor
    k: Tensor
    v: Tensor
    k_arena: Tensor
    v_arena: Tensor
    contexts: PagedContexts
    groups: QueryGroups
    positions: Tensor


def batch(
    lengths: list[int], context_lengths: list[int], heads: tuple[int, int], head_dim: int, seed: int, page: int = 16
) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    counts = [-(-length // page) for length in context_lengths]
    pages = torch.randperm(sum(counts) + 2, generator=generator)[: sum(counts)].int()
    starts = torch.tensor(np.cumsum([0, *counts[:-1]]))
    contexts = PagedContexts(
        pages.to(DEVICE), starts.to(DEVICE), torch.tensor(context_lengths, dtype=torch.int32).to(DEVICE), page
    )
    arenas = [torch.full(((sum(counts) + 2) * page, heads[1], head_dim), torch.nan, device=DEVICE) for _ in range(2)]
    for group, length in enumerate(context_lengths):
        for index, arena in enumerate(arenas):
            arena[contexts.slots(group)] = randn(seed + 10 * group + index, length, heads[1], head_dim)
    positions = torch.cat([c + torch.arange(n) for c, n in zip(context_lengths, lengths, strict=True)])
    return Batch(
        q=randn(seed + 1, tokens, heads[0], head_dim),
        k=randn(seed + 2, tokens, heads[1], head_dim),
        v=randn(seed + 3, tokens, heads[1], head_dim),
        k_arena=arenas[0],
        v_arena=arenas[1],
        contexts=contexts,
        groups=QueryGroups.of(lengths, DEVICE),
        positions=positions.int().to(DEVICE),
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    groups = draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, 20), min_size=groups, max_size=groups).filter(any))
    contexts = draw(st.lists(st.integers(0, 40), min_size=groups, max_size=groups))
    return batch(lengths, contexts, draw(HEADS), draw(HEAD_DIMS), draw(st.integers(0, 999)))


def trees(groups: QueryGroups, seed: int) -> SuffixMask:
    """A random forest in preorder inside each group."""
    random = np.random.default_rng(seed)
    parents = []
    for start, end in groups.bounds():
        path: list[int] = []
        for token in range(start, end):
            path = path[: random.integers(0, len(path) + 1)]
            parents.append(path[-1] if path else -1)
            path.append(token)
    return SuffixMask.from_parents(np.array(parents), DEVICE)


@given(batches(), st.sampled_from([None, 1, 7]))
def test_prefix_agrees(b: Batch, width: int | None) -> None:
    window = None if width is None else Window(b.positions, width)
    agree("prefix_attention", b.q, b.k_arena, b.v_arena, b.contexts, b.groups, SCALE, window)


@given(batches(), st.sampled_from(["causal", "tree"]), st.sampled_from([None, 1, 7]), st.integers(0, 999))
def test_suffix_agrees(b: Batch, kind: str, width: int | None, seed: int) -> None:
    window = None if width is None else Window(b.positions, width)
    mask = trees(b.groups, seed) if kind == "tree" else None
    agree("suffix_attention", b.q, b.k, b.v, b.groups, SCALE, mask, window)


@given(batches(), st.sampled_from(["causal", "tree"]), st.sampled_from([None, 7]), st.integers(0, 999))
def test_unified_agrees(b: Batch, kind: str, width: int | None, seed: int) -> None:
    window = None if width is None else Window(b.positions, width)
    mask = trees(b.groups, seed) if kind == "tree" else None
    agree("unified_attention", b.q, b.k, b.v, b.k_arena, b.v_arena, b.contexts, b.groups, SCALE, mask, window)


def test_tokens_that_close_the_branches_see_them_all() -> None:
    b = batch([9], [5], (4, 2), 16, 1)
    # Two option blocks of three tokens that do not see each other, then three closing tokens that see both.
    until = torch.tensor([3, 3, 3, 6, 6, 6, 9, 9, 9], dtype=torch.int32, device=DEVICE)
    mask = SuffixMask(until, torch.full_like(until, 6))
    agree("suffix_attention", b.q, b.k, b.v, b.groups, SCALE, mask)


def test_merged_parts_are_the_unified_attention() -> None:
    b = batch([17, 3], [33, 20], (6, 2), 24, 5)
    mask = trees(b.groups, 3)
    prefix = run("prefix_attention", "triton", b.q, b.k_arena, b.v_arena, b.contexts, b.groups, SCALE)
    suffix = run("suffix_attention", "triton", b.q, b.k, b.v, b.groups, SCALE, mask)
    whole, _ = run(
        *("unified_attention", "triton", b.q, b.k, b.v, b.k_arena, b.v_arena, b.contexts, b.groups, SCALE, mask)
    )
    close(run("merge_attention", "triton", *prefix, *suffix)[0], whole, 1e-5)


def test_asks_of_a_context_need_not_stand_together() -> None:
    b = batch([7, 12], [33, 20], (4, 2), 16, 6)
    rows = np.random.default_rng(0).permutation(19)
    scattered = QueryGroups.of([7, 12], DEVICE, rows)
    window = Window(b.positions[torch.from_numpy(rows).argsort()], 30)
    for seen in (None, window):
        agree("prefix_attention", b.q, b.k_arena, b.v_arena, b.contexts, scattered, SCALE, seen)


def test_an_ask_is_answered_alike_alone_and_among_others() -> None:
    b = batch([6, 20], [33, 40], (4, 2), 16, 8)
    together = run("unified_attention", "triton", b.q, b.k, b.v, b.k_arena, b.v_arena, b.contexts, b.groups, SCALE)
    alone = QueryGroups.of([6], DEVICE)
    first = run(
        *("unified_attention", "triton", b.q[:6], b.k[:6], b.v[:6], b.k_arena, b.v_arena, b.contexts, alone, SCALE)
    )
    assert torch.equal(first[0], together[0][:6])
    assert torch.equal(first[1], together[1][:6])


def test_asks_of_one_context_may_repeat_its_pages() -> None:
    b = batch([4, 6], [25, 25], (2, 1), 16, 2)
    shared = PagedContexts(b.contexts.pages, b.contexts.starts[[0, 0]], b.contexts.lengths)
    agree("unified_attention", b.q, b.k, b.v, b.k_arena, b.v_arena, shared, b.groups, SCALE)


def test_half_precision() -> None:
    # Triton 3.9's interpreter multiplies the bit patterns of bfloat16, so it takes the other 16-bit type.
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16
    b = batch([18], [37], (4, 2), 32, 3)
    q, k, v, k_arena, v_arena = (x.to(dtype) for x in (b.q, b.k, b.v, b.k_arena, b.v_arena))
    agree("unified_attention", q, k, v, k_arena, v_arena, b.contexts, b.groups, SCALE, tolerance=2**-7)


def test_large_scores_do_not_overflow() -> None:
    b = batch([5], [20], (2, 1), 16, 4)
    agree("prefix_attention", b.q * 100, b.k_arena * 100, b.v_arena, b.contexts, b.groups, 1.0)
