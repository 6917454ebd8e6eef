"""Triton kernel of `quail_frames.kernels.merge_attention`."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.quantize import GROUPS_A_PROGRAM, quantized_like, store_quantized
from quail_frames.kernels.device.target import power_of_two
from quail_frames.kernels.quantize import GROUP


@triton.jit
def _shares(lse_a, lse_b, head, inside):
    """What each part's output counts for in the union."""
    a = tl.load(lse_a + head, mask=inside, other=0.0)
    b = tl.load(lse_b + head, mask=inside, other=0.0)
    top = tl.maximum(tl.maximum(a, b), -3.0e38)  # both empty: 0 / tiny, not NaN
    a, b = tl.exp(a - top), tl.exp(b - top)
    total = tl.maximum(a + b, 1.2e-38)
    return a / total, b / total


@triton.jit
def _merge_attention(
    out_a,
    lse_a,
    out_b,
    lse_b,
    merged,
    scales,
    features,
    heads,
    HEAD_DIM: tl.constexpr,
    GROUPS: tl.constexpr,
    QUANTIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    column = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    inside = column < features
    if HEAD_DIM % 128 == 0:
        # A group lies inside one head: two log-sum-exps for 128 values.
        weight_a, weight_b = _shares(lse_a, lse_b, row * heads + group * 128 // HEAD_DIM, group * 128 < features)
        weight_a, weight_b = weight_a[:, None], weight_b[:, None]
    else:
        weight_a, weight_b = _shares(lse_a, lse_b, row * heads + column // HEAD_DIM, inside)
    place = row * features + column
    x = tl.load(out_a + place, mask=inside, other=0.0).to(tl.float32) * weight_a
    x += tl.load(out_b + place, mask=inside, other=0.0).to(tl.float32) * weight_b
    if QUANTIZE:
        store_quantized(x, merged, scales, row, features, column, inside, group)
    else:
        tl.store(merged + place, x.to(merged.dtype.element_ty), mask=inside)


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    """See `quail_frames.kernels.merge_attention.merge_attention`; all contiguous."""
    merged = torch.empty_like(out_a)
    _launch(out_a, lse_a, out_b, lse_b, merged, None)
    return merged


def merge_attention_quantize(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.merge_attention.merge_attention_quantize`; all contiguous."""
    values, scales, _ = quantized_like(out_a, out_a.shape[1] * out_a.shape[2], value_dtype)
    _launch(out_a, lse_a, out_b, lse_b, values, scales)
    return values, scales


def _launch(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, merged: Tensor, scales: Tensor | None) -> None:
    rows, heads, head_dim = out_a.shape
    if not rows:
        return
    groups = triton.cdiv(heads * head_dim, GROUP)
    block = min(power_of_two(groups), GROUPS_A_PROGRAM)
    _merge_attention[(rows, triton.cdiv(groups, block))](
        out_a.contiguous(),
        lse_a.contiguous(),
        out_b.contiguous(),
        lse_b.contiguous(),
        merged,
        merged if scales is None else scales,
        heads * head_dim,
        heads,
        head_dim,
        block,
        scales is not None,
        num_warps=4,
        enable_fp_fusion=True,
    )
