"""Triton kernel of `quail_frames.kernels.gated_activation`."""

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
def _gated_activation(
    gate_up, out, scales, stride, features, GROUPS: tl.constexpr, GELU: tl.constexpr, QUANTIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    column = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    inside = column < features
    source = gate_up + row * stride + column
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + features, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        # 0.5 (1 + tanh y) = sigmoid(2 y)
        gate = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        gate = gate * tl.sigmoid(gate)
    x = gate * up
    if QUANTIZE:
        store_quantized(x, out, scales, row, features, column, inside, group)
    else:
        tl.store(out + row * features + column, x.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: Tensor, activation: str = "silu") -> Tensor:
    """See `quail_frames.kernels.gated_activation.silu_mul`; rows may be strided."""
    out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2, dtype=gate_up.dtype, device=gate_up.device)
    _launch(gate_up, out, None, activation)
    return out


def silu_mul_quantize(
    gate_up: Tensor, activation: str = "silu", value_dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.gated_activation.silu_mul_quantize`; rows may be strided."""
    values, scales, _ = quantized_like(gate_up, gate_up.shape[1] // 2, value_dtype)
    _launch(gate_up, values, scales, activation)
    return values, scales


def _launch(gate_up: Tensor, out: Tensor, scales: Tensor | None, activation: str) -> None:
    rows, features = out.shape
    if not rows:
        return
    groups = triton.cdiv(features, GROUP)
    block = min(power_of_two(groups), GROUPS_A_PROGRAM)
    _gated_activation[(rows, triton.cdiv(groups, block))](
        gate_up,
        out,
        out if scales is None else scales,
        gate_up.stride(0),
        features,
        block,
        activation == "gelu_tanh",
        scales is not None,
        num_warps=4,
        enable_fp_fusion=True,
    )
