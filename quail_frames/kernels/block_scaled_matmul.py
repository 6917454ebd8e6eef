"""Matmul of FP8 activations (scales 1 x 128) with FP8 weights (scales 128 x 128).

The scheme of DeepSeek-V3 (arXiv 2412.19437, section 3.3) and of the published FP8 checkpoints of Qwen3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import Quantized, dequantize, dequantize_weight


def block_scaled_matmul(
    x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """`x @ weight.T` (tokens, outputs), accumulated in float32.

    `weight` (outputs, inputs) e4m3, `weight_scales` (ceil(outputs / 128), ceil(inputs / 128)) float32, by which the
    values are multiplied (checkpoints call them `weight_scale_inv`).
    """
    out: Tensor = implementation("block_scaled_matmul", weight.device)(x, weight, weight_scales, out_dtype)
    return out


def block_scaled_matmul_reference(
    x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """See `block_scaled_matmul`; both sides are dequantised first."""
    wide = torch.float64 if out_dtype == torch.float64 else torch.float32
    return (dequantize(x, wide) @ dequantize_weight(weight, weight_scales, wide).T).to(out_dtype)
