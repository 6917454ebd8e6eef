"""The elementwise groups of a layer by the C kernels; `quail_frames.runtime.models.layers` has the eager forms."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int64, c_void_p
from typing import Literal

import torch
from torch import Tensor

from quail_frames.runtime.models import layers
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.layers import EAGER, Elementwise
from quail_frames.runtime.models.rope import rotate
from quail_frames.runtime.native.library import usable

LINE = 16
"""Numbers that the kernels take at a time: the widths that they compute are whole numbers of it."""


def elementwise(config: ModelConfig, dtype: torch.dtype) -> Elementwise:
    """The C kernels where this machine, the type and the model's widths allow them, else the eager forms."""
    library = usable(dtype)
    widths = (config.hidden_size, config.intermediate_size, config.head_dim // 2)
    return EAGER if library is None or any(width % LINE for width in widths) else Compiled(library)


class Compiled(Elementwise):
    """The kernels of a library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def add_rms_norm(self, residual: Tensor, x: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        if weight.dtype != residual.dtype or not _dense(residual, x):
            return layers.add_rms_norm(residual, x, weight, eps)
        out = torch.empty_like(residual)
        added = None if x is None else c_void_p(x.data_ptr())
        rows, width = residual.shape
        self._library.add_rms_norm(
            _at(residual), added, _at(weight), _at(out), c_int64(rows), c_int64(width), c_float(eps)
        )
        return out

    def gated(self, gate_up: Tensor, activation: Literal["silu", "gelu_tanh"]) -> Tensor:
        if activation != "silu" or not _dense(gate_up):
            return layers.gated(gate_up, activation)
        rows, width = gate_up.shape
        out = gate_up.new_empty(rows, width // 2)
        self._library.gated_silu(_at(gate_up), _at(out), c_int64(rows), c_int64(width // 2))
        return out

    def rotate(self, qkv: Tensor, heads: int, cos: Tensor, sin: Tensor) -> None:
        if not _dense(qkv, cos, sin):
            rotate(qkv[:, :heads], cos, sin, out=qkv[:, :heads])
            return
        sizes = (len(qkv), qkv.shape[1] * qkv.shape[2], heads, qkv.shape[2] // 2)
        self._library.rotate(_at(qkv), _at(cos), _at(sin), *map(c_int64, sizes))


def _at(x: Tensor) -> c_void_p:
    return c_void_p(x.data_ptr())


def _dense(*tensors: Tensor | None) -> bool:
    return all(x is None or x.is_contiguous() for x in tensors)
