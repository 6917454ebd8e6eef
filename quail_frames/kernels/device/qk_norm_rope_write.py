"""Triton kernel of `quail_frames.kernels.qk_norm_rope_write`: a program holds one token's queries, keys and values."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.target import power_of_two


@triton.jit
def _norm_rotate(
    source,
    weight,
    cos,
    sin,
    eps,
    head,
    half,
    inside,
    HEAD_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_ROPE: tl.constexpr,
):
    """The two halves (heads, head_dim / 2) of normed and rotated heads, float32."""
    place = head[:, None] * HEAD_DIM + half[None, :]
    first = tl.load(source + place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + place + HEAD_DIM // 2, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        mean = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / HEAD_DIM
        rms = tl.rsqrt(mean + eps)[:, None]
        in_half = half < HEAD_DIM // 2
        first *= rms * tl.load(weight + half, mask=in_half, other=0.0).to(tl.float32)[None, :]
        second *= rms * tl.load(weight + HEAD_DIM // 2 + half, mask=in_half, other=0.0).to(tl.float32)[None, :]
    if HAS_ROPE:
        rotated = first * cos[None, :] - second * sin[None, :]
        second = second * cos[None, :] + first * sin[None, :]
        first = rotated
    return first, second


@triton.jit
def _qk_norm_rope_write(
    qkv,
    positions,
    rope,
    q_weight,
    k_weight,
    q,
    k,
    v,
    k_arena,
    v_arena,
    slots,
    qkv_stride,
    k_arena_stride,
    v_arena_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    NORM_Q: tl.constexpr,
    NORM_K: tl.constexpr,
    HAS_ROPE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, BLOCK_HALF)
    in_half = half < HEAD_DIM // 2
    cos = tl.zeros([BLOCK_HALF], tl.float32)
    sin = tl.zeros([BLOCK_HALF], tl.float32)
    if HAS_ROPE:
        turn = rope + tl.load(positions + token).to(tl.int64) * HEAD_DIM + half
        cos = tl.load(turn, mask=in_half, other=0.0)
        sin = tl.load(turn + HEAD_DIM // 2, mask=in_half, other=0.0)
    source = qkv + token * qkv_stride

    head = tl.arange(0, BLOCK_HEADS)
    inside = (head < HEADS)[:, None] & in_half[None, :]
    first, second = _norm_rotate(source, q_weight, cos, sin, eps, head, half, inside, HEAD_DIM, NORM_Q, HAS_ROPE)
    place = q + token * HEADS * HEAD_DIM + head[:, None] * HEAD_DIM + half[None, :]
    tl.store(place, first.to(q.dtype.element_ty), mask=inside)
    tl.store(place + HEAD_DIM // 2, second.to(q.dtype.element_ty), mask=inside)

    head = tl.arange(0, BLOCK_KV)
    inside = (head < KV_HEADS)[:, None] & in_half[None, :]
    source += HEADS * HEAD_DIM
    first, second = _norm_rotate(source, k_weight, cos, sin, eps, head, half, inside, HEAD_DIM, NORM_K, HAS_ROPE)
    first, second = first.to(k.dtype.element_ty), second.to(k.dtype.element_ty)
    source += KV_HEADS * HEAD_DIM
    place = head[:, None] * HEAD_DIM + half[None, :]
    v_first = tl.load(source + place, mask=inside, other=0.0)
    v_second = tl.load(source + place + HEAD_DIM // 2, mask=inside, other=0.0)
    dense = token * KV_HEADS * HEAD_DIM + place
    tl.store(k + dense, first, mask=inside)
    tl.store(k + dense + HEAD_DIM // 2, second, mask=inside)
    tl.store(v + dense, v_first, mask=inside)
    tl.store(v + dense + HEAD_DIM // 2, v_second, mask=inside)

    slot = tl.load(slots + token)
    if slot >= 0:
        kept_k = k_arena + slot * k_arena_stride + place
        kept_v = v_arena + slot * v_arena_stride + place
        tl.store(kept_k, first.to(k_arena.dtype.element_ty), mask=inside)
        tl.store(kept_k + HEAD_DIM // 2, second.to(k_arena.dtype.element_ty), mask=inside)
        tl.store(kept_v, v_first.to(v_arena.dtype.element_ty), mask=inside)
        tl.store(kept_v + HEAD_DIM // 2, v_second.to(v_arena.dtype.element_ty), mask=inside)


def qk_norm_rope_write(
    qkv: Tensor,
    heads: int,
    kv_heads: int,
    positions: Tensor,
    rope: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    k_arena: Tensor,
    v_arena: Tensor,
    slots: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `quail_frames.kernels.qk_norm_rope_write.qk_norm_rope_write`."""
    tokens = qkv.shape[0]
    head_dim = qkv.shape[1] // (heads + 2 * kv_heads)
    q = torch.empty(tokens, heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    k = torch.empty(tokens, kv_heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    v = torch.empty_like(k)
    if not tokens:
        return q, k, v
    _qk_norm_rope_write[(tokens,)](
        qkv,
        positions,
        qkv if rope is None else rope,
        qkv if q_weight is None else q_weight,
        qkv if k_weight is None else k_weight,
        q,
        k,
        v,
        k_arena,
        v_arena,
        slots,
        qkv.stride(0),
        k_arena.stride(0),
        v_arena.stride(0),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_HEADS=power_of_two(heads),
        BLOCK_KV=power_of_two(kv_heads),
        BLOCK_HALF=power_of_two(head_dim // 2),
        NORM_Q=q_weight is not None,
        NORM_K=k_weight is not None,
        HAS_ROPE=rope is not None,
        num_warps=8,
        enable_fp_fusion=True,
    )
    return q, k, v
