"""Joins two parts of one attention, over disjoint keys, by their log-sum-exps.

The softmax over the union is the mean of the parts' outputs weighted by exp(lse) (Milakov and Gimelshein 2018,
arXiv 1805.02867; used between prefix and suffix by Juravsky et al. 2024, arXiv 2402.05099).
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import Quantized, quantize_reference, wide_dtype


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    """The attention over the keys of both parts: (tokens, heads, head_dim).

    Outputs (tokens, heads, head_dim) and natural log-sum-exps (tokens, heads) float32; -inf where a part saw no key.
    """
    out: Tensor = implementation("merge_attention", out_a.device)(out_a, lse_a, out_b, lse_b)
    return out


def merge_attention_quantize(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """`quantize` of the merged (tokens, heads x head_dim), as the output projection reads it."""
    run = implementation("merge_attention_quantize", out_a.device)
    return Quantized(*run(out_a, lse_a, out_b, lse_b, value_dtype))


def merge_attention_reference(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    """See `merge_attention`."""
    return _wide(out_a, lse_a, out_b, lse_b).to(out_a.dtype)


def merge_attention_quantize_reference(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """See `merge_attention_quantize`."""
    return quantize_reference(_wide(out_a, lse_a, out_b, lse_b).flatten(1), value_dtype)


def _wide(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    wide = wide_dtype(out_a)
    top = torch.maximum(lse_a, lse_b).clamp(min=torch.finfo(torch.float32).min)  # both empty: 0 weights, not NaN
    weight_a, weight_b = (lse_a - top).to(wide).exp(), (lse_b - top).to(wide).exp()
    total = (weight_a + weight_b).clamp(min=torch.finfo(torch.float32).tiny)
    return out_a.to(wide) * (weight_a / total)[..., None] + out_b.to(wide) * (weight_b / total)[..., None]
