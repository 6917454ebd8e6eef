"""Residual addition and RMSNorm, with or without the FP8 form that the next matmul reads.

RMSNorm: Zhang and Sennrich 2019, arXiv 1910.07467.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import Quantized, quantize_reference, wide_dtype


def add_rms_norm(hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(normed, total)`, both (tokens, features) in the dtype of `hidden`.

    `total = hidden + residual` (`hidden` itself where there is no residual), rounded to that dtype before the norm
    reads it, as an unfused layer would. `normed = total / rms(total) * weight`, computed in float32.
    """
    normed, total = implementation("add_rms_norm", hidden.device)(hidden, residual, weight, eps)
    return normed, total


def add_rms_norm_quantize(
    hidden: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    value_dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[Quantized, Tensor]:
    """`(quantize(normed), total)`; the normed values are not rounded to the dtype of `hidden` in between."""
    run = implementation("add_rms_norm_quantize", hidden.device)
    quantized, total = run(hidden, residual, weight, eps, value_dtype)
    return quantized, total


def add_rms_norm_reference(
    hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """See `add_rms_norm`."""
    normed, total = _wide(hidden, residual, weight, eps)
    return normed.to(hidden.dtype), total


def add_rms_norm_quantize_reference(
    hidden: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    value_dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[Quantized, Tensor]:
    """See `add_rms_norm_quantize`."""
    normed, total = _wide(hidden, residual, weight, eps)
    return quantize_reference(normed, value_dtype), total


def _wide(hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = hidden if residual is None else hidden + residual
    wide = total.to(wide_dtype(hidden))
    rms = (wide.square().mean(dim=-1, keepdim=True) + eps).rsqrt()
    return wide * rms * weight.to(wide.dtype), total
