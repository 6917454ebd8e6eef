"""What happens between the QKV projection and attention: optional QK-norm, RoPE, K and V into the arena.

RoPE: Su et al. 2021, arXiv 2104.09864, in the half-rotated form of Llama and Qwen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import wide_dtype


def rope_table(inverse_frequencies: Tensor, positions: int, scale: float = 1.0) -> Tensor:
    """Cosines, then sines, of every position: (positions, 2 x frequencies) float32.

    `inverse_frequencies` (head_dim / 2) carry the model's RoPE scaling (linear, Llama 3, YaRN); `scale` is YaRN's
    attention factor.
    """
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * inverse_frequencies.double()[None, :]
    return (torch.cat([angles.cos(), angles.sin()], dim=1) * scale).float()


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
    """`(q, k, v)`, ready for attention: (tokens, heads or kv_heads, head_dim); K and V also written to the arena.

    Parameters
    ----------
    qkv
        (tokens, (heads + 2 kv_heads) x head_dim): the projection's output, rows may be strided.
    positions
        (tokens,) int32 or int64: each token's position in its prompt.
    rope
        `rope_table`, or None for layers without RoPE.
    q_weight, k_weight
        (head_dim,) weights of the per-head RMSNorm of queries and keys, or None.
    k_arena, v_arena
        (slots, kv_heads, head_dim): this layer's pages, one slot a token; changed in place.
    slots
        (tokens,) int64: where each token's K and V go; -1 keeps none.
    """
    run = implementation("qk_norm_rope_write", qkv.device)
    q, k, v = run(qkv, heads, kv_heads, positions, rope, q_weight, k_weight, eps, k_arena, v_arena, slots)
    return q, k, v


def qk_norm_rope_write_reference(
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
    """See `qk_norm_rope_write`."""
    split = qkv.unflatten(1, (heads + 2 * kv_heads, -1)).split([heads, kv_heads, kv_heads], dim=1)
    q = _rotate(_norm(split[0], q_weight, eps), positions, rope).to(qkv.dtype)
    k = _rotate(_norm(split[1], k_weight, eps), positions, rope).to(qkv.dtype)
    v = split[2].contiguous()
    kept = (slots >= 0).nonzero()[:, 0]
    k_arena[slots[kept]] = k[kept].to(k_arena.dtype)
    v_arena[slots[kept]] = v[kept].to(v_arena.dtype)
    return q, k, v


def _norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    wide = x.to(wide_dtype(x))
    if weight is None:
        return wide
    return wide * (wide.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * weight.to(wide.dtype)


def _rotate(x: Tensor, positions: Tensor, rope: Tensor | None) -> Tensor:
    if rope is None:
        return x
    cos, sin = rope[positions.long()].to(x.dtype)[:, None, :].chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
