"""FP8 (e4m3) with one scale per token and group of 128 features, as block-scaled checkpoints expect of activations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation

GROUP = 128
"""Features that share an activation scale; also the side of a weight block."""
E4M3_MAX = 448.0
SMALLEST_SCALE = 1e-12
"""Scale of a group of zeros: any positive number will do, a zero would divide by itself."""


class Quantized(NamedTuple):
    """`values` (rows, features) e4m3 and `scales` (rows, ceil(features / 128)) float32; their product is meant."""

    values: Tensor
    scales: Tensor


def quantize(x: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn) -> Quantized:
    """The FP8 form of `x` (rows, features).

    `value_dtype=torch.float32` gives the scaled values before the cast.
    """
    return Quantized(*implementation("quantize", x.device)(x, value_dtype))


def quantize_reference(x: Tensor, value_dtype: torch.dtype = torch.float8_e4m3fn) -> Quantized:
    """Scale of a group = its largest magnitude / 448, so that the group fills the range of e4m3."""
    rows, features = x.shape
    wide = x.to(wide_dtype(x))
    grouped = torch.nn.functional.pad(wide, (0, -features % GROUP)).reshape(rows, -1, GROUP)
    scales = (grouped.abs().amax(dim=-1) / E4M3_MAX).clamp(min=SMALLEST_SCALE)
    scaled = (grouped * scales.reciprocal()[..., None]).reshape(rows, -1)[:, :features]
    return Quantized(scaled.contiguous().to(value_dtype), scales)


def dequantize(x: Quantized, dtype: torch.dtype = torch.float32) -> Tensor:
    """`values * scales`, shape (rows, features)."""
    features = x.values.shape[1]
    return x.values.to(dtype) * x.scales.to(dtype).repeat_interleave(GROUP, dim=1)[:, :features]


def dequantize_weight(values: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A weight (outputs, inputs) from its e4m3 values and the scales of its 128 x 128 blocks."""
    outputs, inputs = values.shape
    wide = scales.to(dtype).repeat_interleave(GROUP, dim=0)[:outputs].repeat_interleave(GROUP, dim=1)[:, :inputs]
    return values.to(dtype) * wide


def wide_dtype(x: Tensor) -> torch.dtype:
    """What a reference computes in: float64 for float64 inputs, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
