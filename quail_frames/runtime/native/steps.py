"""What a decoder computes between two attentions, by the C kernels: products with the groups between them fused in."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_float, c_int64, c_void_p

import torch
from torch import Tensor

from quail_frames.runtime.models.step import Layer, Steps, StepShape, turn
from quail_frames.runtime.native.library import kernels
from quail_frames.runtime.native.products import PANEL, SCRATCH, STEP, at, tiled

VECTORS = ("attention_norm", "qkv", "qkv_bias", "output", "output_bias")
MLP = ("mlp_norm", "gate_up", "gate_up_bias", "down", "down_bias")


class _Layer(ctypes.Structure):
    """`Layer` of source/products.c."""

    _fields_ = (
        *((name, c_void_p) for name in (*VECTORS, *MLP)),
        *((name, c_int64) for name in ("hidden", "queries", "qkv_width", "inner", "turned", "half")),
        ("eps", c_float),
    )


class FusedSteps(Steps):
    """The steps of a decoder whose layers are all `fusible`."""

    task_rows = 288

    def __init__(self, library: ctypes.CDLL, shape: StepShape, layers: Sequence[Layer]) -> None:
        super().__init__(shape)
        self._library = library
        self._weights = tuple(layers)  # what the kernels are told points there
        self._layers = {id(layer): _told(layer, shape) for layer in layers}

    def first(self, layer: Layer, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
        self._open(layer, residual, cos, sin, qkv)

    def between(
        self, layer: Layer, following: Layer, attended: Tensor, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor
    ) -> None:
        self._close(layer, attended, residual)
        self._open(following, residual, cos, sin, qkv)

    def last(self, layer: Layer, attended: Tensor, residual: Tensor, norm: Tensor) -> Tensor:
        self._close(layer, attended, residual)
        return self.shape.elementwise.add_rms_norm(residual, None, norm, self.shape.eps)

    def _close(self, layer: Layer, attended: Tensor, residual: Tensor) -> None:
        told, attended = self._layers[id(layer)], attended.contiguous()
        with SCRATCH.of(self._library, len(residual), max(told.hidden, told.queries) + told.inner) as scratch:
            self._library.close_layer(byref(told), at(attended), at(residual), c_int64(len(residual)), scratch)

    def _open(self, layer: Layer, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
        told, fused = self._layers[id(layer)], layer.qk_norm is None and self.shape.head_dim % STEP == 0
        turns = (at(cos), at(sin)) if fused else (at(None), at(None))
        with SCRATCH.of(self._library, len(residual), told.hidden) as scratch:
            self._library.open_layer(byref(told), at(residual), *turns, at(qkv), c_int64(len(residual)), scratch)
        if not fused:
            turn(self.shape, layer, cos, sin, qkv)


def steps(shape: StepShape, layers: Sequence[Layer]) -> Steps:
    """The fused steps where every layer allows them, else the usual ones."""
    library = kernels() if all(fusible(layer, shape) for layer in layers) else "not so"
    return Steps(shape) if isinstance(library, str) else FusedSteps(library, shape, layers)


def fusible(layer: Layer, shape: StepShape) -> bool:
    """Whether the kernels compute such a layer: weights in tiles, silu, and no norms but the usual two."""
    matrices = (layer.qkv, layer.output, layer.gate_up, layer.down)
    usual = layer.attended_norm is None and layer.down_norm is None and layer.mlp_norm.dtype == torch.bfloat16
    return all(map(tiled, matrices)) and usual and shape.activation == "silu"


def _told(layer: Layer, shape: StepShape) -> _Layer:
    """The layer for the kernels; its tensors must live on."""
    pointers = (at(getattr(layer, name)) for name in (*VECTORS, *MLP))
    widths = (len(layer.output) * PANEL, layer.output.shape[1] * STEP, len(layer.qkv) * PANEL)
    turned = (shape.heads + shape.kv_heads) * shape.head_dim
    return _Layer(*pointers, *widths, layer.down.shape[1] * STEP, turned, shape.head_dim // 2, shape.eps)
