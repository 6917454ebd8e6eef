"""Triton kernel of `quail_frames.kernels.quantize`, and the step that other kernels end with."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.target import power_of_two
from quail_frames.kernels.quantize import GROUP

GROUPS_A_PROGRAM = 8


@triton.jit
def store_quantized(x, values, scales, row, features, column, inside, group):
    """Stores one row's tile `x` (groups, 128), float32 and 0 outside, as e4m3 with a scale for each group."""
    scale = tl.maximum(tl.div_rn(tl.max(tl.abs(x), axis=1), 448.0), 1e-12)
    scaled = x * tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)[:, None]
    groups = (features + 127) // 128
    tl.store(values + row * features + column, scaled.to(values.dtype.element_ty), mask=inside)
    tl.store(scales + row * groups + group, scale, mask=group < groups)


@triton.jit
def _quantize(x, values, scales, x_stride, features, GROUPS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    column = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    inside = column < features
    tile = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    store_quantized(tile, values, scales, row, features, column, inside, group)


def quantize(x: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.quantize.quantize`; rows may be strided."""
    values, scales, groups = quantized_like(x, x.shape[1], value_dtype)
    if x.shape[0]:
        block = min(power_of_two(groups), GROUPS_A_PROGRAM)
        grid = (x.shape[0], triton.cdiv(groups, block))
        _quantize[grid](x, values, scales, x.stride(0), x.shape[1], block, num_warps=4, enable_fp_fusion=True)
    return values, scales


def quantized_like(x: Tensor, features: int, value_dtype: torch.dtype) -> tuple[Tensor, Tensor, int]:
    """Room for `features` quantised values for each row of `x`, their scales, and the groups of a row."""
    groups = triton.cdiv(features, GROUP)
    values = torch.empty(x.shape[0], features, dtype=value_dtype, device=x.device)
    return values, torch.empty(x.shape[0], groups, dtype=torch.float32, device=x.device), groups
