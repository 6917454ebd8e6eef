"""Triton kernel of `quail_frames.kernels.add_rms_norm`: a program holds one token's row, read and written once."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.quantize import quantized_like, store_quantized
from quail_frames.kernels.device.target import power_of_two
from quail_frames.kernels.quantize import GROUP, Quantized


@triton.jit
def _add_rms_norm(
    hidden,
    residual,
    weight,
    total,
    normed,
    scales,
    hidden_stride,
    residual_stride,
    features,
    eps,
    GROUPS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    QUANTIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    column = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    inside = column < features
    x = tl.load(hidden + row * hidden_stride + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        added = tl.load(residual + row * residual_stride + column, mask=inside, other=0.0)
        x = (x.to(tl.float32) + added.to(tl.float32)).to(x.dtype)
        tl.store(total + row * features + column, x, mask=inside)
    wide = x.to(tl.float32)
    rms = tl.rsqrt(tl.sum(tl.sum(wide * wide, axis=1), axis=0) / features + eps)
    out = wide * rms * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if QUANTIZE:
        store_quantized(out, normed, scales, row, features, column, inside, group)
    else:
        tl.store(normed + row * features + column, out.to(normed.dtype.element_ty), mask=inside)


def add_rms_norm(hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.add_rms_norm.add_rms_norm`; rows may be strided."""
    normed = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    return normed, _launch(hidden, residual, weight, eps, normed, None)


def add_rms_norm_quantize(
    hidden: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    value_dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[Quantized, Tensor]:
    """See `quail_frames.kernels.add_rms_norm.add_rms_norm_quantize`; rows may be strided."""
    values, scales, _ = quantized_like(hidden, hidden.shape[1], value_dtype)
    return Quantized(values, scales), _launch(hidden, residual, weight, eps, values, scales)


def _launch(
    hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float, normed: Tensor, scales: Tensor | None
) -> Tensor:
    rows, features = hidden.shape
    total = hidden if residual is None else torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    if not rows:
        return total
    groups = power_of_two(triton.cdiv(features, GROUP))
    added = hidden if residual is None else residual
    _add_rms_norm[(rows,)](
        hidden,
        added,
        weight,
        total,
        normed,
        normed if scales is None else scales,
        hidden.stride(0),
        added.stride(0),
        features,
        eps,
        groups,
        residual is not None,
        scales is not None,
        num_warps=min(max(groups // 4, 1), 16),
        enable_fp_fusion=True,
    )
    return total
