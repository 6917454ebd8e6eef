"""Triton kernel of `quail_frames.kernels.attention`: one kernel, of which each entry uses the parts it needs.

A program takes a run of one group's queries with all query heads of one KV head (GQA), so that the group's keys and
values are read once for all of them. Online softmax in base 2 (Dao et al. 2022, arXiv 2205.14135).
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.attention_inputs import PagedContexts, QueryGroups, SuffixMask, Window
from quail_frames.kernels.device.target import INTERPRETER, architecture, power_of_two

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Blocks:
    """Rows (queries x heads of one KV head) and keys of a tile, and how it is scheduled."""

    rows: int
    keys: int
    warps: int
    stages: int


def blocks_for(rows: int, head_dim: int, heads_a_kv: int, target: int, item: int) -> Blocks:
    """Block sizes, the largest that the compiler fits into registers without spills (docs/kernels.md).

    `rows` is what the longest group offers; a tile of rows holds whole queries. `item` is the bytes of an element.
    """
    least = power_of_two(heads_a_kv)
    if target == INTERPRETER:
        return Blocks(rows=max(16, least), keys=16, warps=1, stages=1)
    if item > 2:
        return Blocks(rows=max(32, least), keys=16, warps=8, stages=2)
    if target < 90 or head_dim > 128:
        return Blocks(rows=max(64, least), keys=32, warps=8 if head_dim > 128 else 4, stages=2)
    if rows <= 64 and least <= 64:
        return Blocks(rows=64, keys=64, warps=4, stages=3)
    return Blocks(rows=max(128, least), keys=64, warps=8, stages=3)


@triton.jit
def _step(q, k, v, visible, total, peak, mass, scale):
    """One tile of keys into the running softmax: (output sum, largest score, sum of weights)."""
    scores = tl.dot(q, k, input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    safe = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet: -inf - -inf would be NaN
    weights = tl.exp2(scores - safe[:, None])
    shrink = tl.exp2(peak - safe)
    total = tl.dot(weights.to(v.dtype), v, total * shrink[:, None], input_precision="ieee")
    return total, higher, mass * shrink + tl.sum(weights, axis=1)


@triton.jit
def _attention(
    q,
    k,
    v,
    k_arena,
    v_arena,
    pages,
    page_starts,
    context_lengths,
    group_offsets,
    tile_group,
    tile_first,
    until,
    again,
    positions,
    rows,
    out,
    lse,
    k_stride,
    v_stride,
    k_arena_stride,
    v_arena_stride,
    scale,
    width,
    kv_heads,
    HEADS_A_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    HAS_ROWS: tl.constexpr,
    HAS_PREFIX: tl.constexpr,
    HAS_SUFFIX: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_AGAIN: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    group = tl.load(tile_group + tile)
    first = tl.load(tile_first + tile)
    QUERIES: tl.constexpr = BLOCK_ROWS // HEADS_A_KV
    start = tl.load(group_offsets + group)
    end = tl.minimum(first + QUERIES, tl.load(group_offsets + group + 1))
    row = tl.arange(0, BLOCK_ROWS)
    query = first + row // HEADS_A_KV
    present = (query < end) & (row < QUERIES * HEADS_A_KV)
    head = kv_head * HEADS_A_KV + row % HEADS_A_KV
    dim = tl.arange(0, BLOCK_DIM)
    in_dim = dim < HEAD_DIM
    token_of = query
    if HAS_ROWS:
        token_of = tl.load(rows + query, mask=present, other=0)
    answer = token_of.to(tl.int64) * (kv_heads * HEADS_A_KV) + head
    inside = present[:, None] & in_dim[None, :]
    queries = tl.load(q + answer[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    total = tl.zeros([BLOCK_ROWS, BLOCK_DIM], tl.float32)
    peak = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([BLOCK_ROWS], tl.float32)
    position = query
    if HAS_WINDOW:
        position = tl.load(positions + token_of, mask=present, other=2147483647)
    key = tl.arange(0, BLOCK_KEYS)
    within = kv_head * HEAD_DIM + dim

    if HAS_PREFIX:
        length = tl.load(context_lengths + group)
        page_start = pages + tl.load(page_starts + group)
        low = 0
        if HAS_WINDOW:
            low = tl.maximum(tl.min(position, axis=0) - width + 1, 0) // BLOCK_KEYS * BLOCK_KEYS
        for place in range(low, length, BLOCK_KEYS):
            at = place + key
            there = at < length
            page = tl.load(page_start + at // PAGE, mask=there, other=0).to(tl.int64)
            slot = page * PAGE + at % PAGE
            k_tile = tl.load(
                k_arena + slot[None, :] * k_arena_stride + within[:, None],
                mask=there[None, :] & in_dim[:, None],
                other=0.0,
            )
            v_tile = tl.load(
                v_arena + slot[:, None] * v_arena_stride + within[None, :],
                mask=there[:, None] & in_dim[None, :],
                other=0.0,
            )
            visible = there[None, :]
            if HAS_WINDOW:
                visible = visible & (position[:, None] - at[None, :] < width)
            total, peak, mass = _step(
                queries, k_tile.to(queries.dtype), v_tile.to(queries.dtype), visible, total, peak, mass, scale
            )

    if HAS_SUFFIX:
        for place in range(start, end, BLOCK_KEYS):
            at = place + key
            there = at < end
            token = at.to(tl.int64)
            k_tile = tl.load(
                k + token[None, :] * k_stride + within[:, None], mask=there[None, :] & in_dim[:, None], other=0.0
            )
            v_tile = tl.load(
                v + token[:, None] * v_stride + within[None, :], mask=there[:, None] & in_dim[None, :], other=0.0
            )
            visible = at[None, :] <= query[:, None]
            if HAS_MASK:
                seen = query[:, None] < tl.load(until + at, mask=there, other=0)[None, :]
                if HAS_AGAIN:
                    seen = seen | (query[:, None] >= tl.load(again + at, mask=there, other=2147483647)[None, :])
                visible = visible & seen
            if HAS_WINDOW:
                key_position = tl.load(positions + at, mask=there, other=0)
                visible = visible & (position[:, None] - key_position[None, :] < width)
            total, peak, mass = _step(queries, k_tile, v_tile, visible & there[None, :], total, peak, mass, scale)

    seen_any = mass > 0.0
    mass = tl.where(seen_any, mass, 1.0)
    total = total / mass[:, None]
    tl.store(out + answer[:, None] * HEAD_DIM + dim[None, :], total.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + answer, tl.where(seen_any, (peak + tl.log2(mass)) * 0.6931471805599453, float("-inf")), mask=present)


def prefix_attention(
    q: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.prefix_attention`."""
    return _launch(q, None, None, k_arena, v_arena, contexts, groups, scale, None, window)


def suffix_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.suffix_attention`."""
    return _launch(q, k, v, None, None, None, groups, scale, mask, window)


def unified_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.unified_attention`."""
    return _launch(q, k, v, k_arena, v_arena, contexts, groups, scale, mask, window)


def _launch(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    k_arena: Tensor | None,
    v_arena: Tensor | None,
    contexts: PagedContexts | None,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None,
    window: Window | None,
) -> tuple[Tensor, Tensor]:
    q = q.contiguous()
    tokens, heads, head_dim = q.shape
    out, lse = torch.empty_like(q), torch.empty(tokens, heads, dtype=torch.float32, device=q.device)
    if not tokens:
        return out, lse
    keys = k if k is not None else k_arena
    assert keys is not None
    kv_heads = keys.shape[1]
    heads_a_kv = heads // kv_heads
    blocks = blocks_for(groups.longest() * heads_a_kv, head_dim, heads_a_kv, architecture(), q.element_size())
    tile_group, tile_first = groups.tiles(blocks.rows // heads_a_kv)
    offsets = groups.device_offsets
    _attention[(len(tile_group), kv_heads)](
        q,
        q if k is None else k,
        q if v is None else v,
        q if k_arena is None else k_arena,
        q if v_arena is None else v_arena,
        offsets if contexts is None else contexts.pages,
        offsets if contexts is None else contexts.starts,
        offsets if contexts is None else contexts.lengths,
        offsets,
        tile_group,
        tile_first,
        offsets if mask is None else mask.until,
        offsets if mask is None or mask.again is None else mask.again,
        offsets if window is None else window.positions,
        offsets if groups.rows is None else groups.rows,
        out,
        lse,
        0 if k is None else k.stride(0),
        0 if v is None else v.stride(0),
        0 if k_arena is None else k_arena.stride(0),
        0 if v_arena is None else v_arena.stride(0),
        scale * LOG2_E,
        0 if window is None else window.width,
        kv_heads,
        HEADS_A_KV=heads_a_kv,
        HEAD_DIM=head_dim,
        PAGE=16 if contexts is None else contexts.page_size,
        BLOCK_DIM=max(power_of_two(head_dim), 16),
        BLOCK_ROWS=blocks.rows,
        BLOCK_KEYS=blocks.keys,
        HAS_ROWS=groups.rows is not None,
        HAS_PREFIX=contexts is not None,
        HAS_SUFFIX=k is not None,
        HAS_MASK=mask is not None,
        HAS_AGAIN=mask is not None and mask.again is not None,
        HAS_WINDOW=window is not None,
        num_warps=blocks.warps,
        enable_fp_fusion=True,
        num_stages=blocks.stages,
    )
    return out, lse
