"""The gated MLP's activation: act(gate) x up, with or without the FP8 form that the down projection reads."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import Quantized, quantize_reference, wide_dtype

Activation = Literal["silu", "gelu_tanh"]


def silu_mul(gate_up: Tensor, activation: Activation = "silu") -> Tensor:
    """`act(gate) * up` (tokens, features) of `gate_up` (tokens, 2 x features), gate first; computed in float32.

    `gelu_tanh` is what Gemma uses in the same place.
    """
    out: Tensor = implementation("silu_mul", gate_up.device)(gate_up, activation)
    return out


def silu_mul_quantize(
    gate_up: Tensor, activation: Activation = "silu", value_dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """`quantize(silu_mul(gate_up))` without rounding in between."""
    return Quantized(*implementation("silu_mul_quantize", gate_up.device)(gate_up, activation, value_dtype))


def silu_mul_reference(gate_up: Tensor, activation: Activation = "silu") -> Tensor:
    """See `silu_mul`."""
    return _wide(gate_up, activation).to(gate_up.dtype)


def silu_mul_quantize_reference(
    gate_up: Tensor, activation: Activation = "silu", value_dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """See `silu_mul_quantize`."""
    return quantize_reference(_wide(gate_up, activation), value_dtype)


def _wide(gate_up: Tensor, activation: Activation) -> Tensor:
    gate, up = gate_up.to(wide_dtype(gate_up)).chunk(2, dim=-1)
    if activation == "silu":
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(gate, approximate="tanh") * up
