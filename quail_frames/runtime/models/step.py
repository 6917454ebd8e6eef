"""What a decoder computes between two attentions: everything that is the same for every token.

Functions of rows, so that lanes can share the rows out.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

from quail_frames.runtime.lanes import TASK_ROWS
from quail_frames.runtime.models.layers import EAGER, Elementwise, rms_norm
from quail_frames.runtime.models.products import Product, by_torch
from quail_frames.runtime.models.weights import LayerWeights

Layer = LayerWeights[Tensor]


class StepShape(NamedTuple):
    """Heads, KV heads, their size, RMSNorm's epsilon, the MLP's activation, who multiplies, and who does the rest."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    activation: Literal["silu", "gelu_tanh"] = "silu"
    product: Product = by_torch
    elementwise: Elementwise = EAGER


def open_layer(shape: StepShape, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
    """Write q, k and v of normed states x (T, hidden), with QK-norm and RoPE, to qkv (T, heads + 2 KV heads, size)."""
    shape.product(x, layer.qkv, layer.qkv_bias, out=qkv.flatten(1))
    turn(shape, layer, cos, sin, qkv)


def turn(shape: StepShape, layer: Layer, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
    """QK-norm, where the layer has it, and RoPE of qkv in place."""
    turned = shape.heads + shape.kv_heads
    if layer.qk_norm is not None:
        qkv[:, :turned] = rms_norm(qkv[:, :turned], layer.qk_norm, shape.eps)
    shape.elementwise.rotate(qkv, turned, cos, sin)


def close_layer(shape: StepShape, layer: Layer, attended: Tensor, residual: Tensor, following_norm: Tensor) -> Tensor:
    """Add a layer whose heads gave `attended` (T, heads x head_dim) to `residual`; its norm by the next weights."""
    attended = shape.product(attended, layer.output, layer.output_bias)
    if layer.attended_norm is not None:
        attended = rms_norm(attended, layer.attended_norm, shape.eps)
    x = shape.elementwise.add_rms_norm(residual, attended, layer.mlp_norm, shape.eps)
    inner = shape.elementwise.gated(shape.product(x, layer.gate_up, layer.gate_up_bias), shape.activation)
    out = shape.product(inner, layer.down, layer.down_bias)
    if layer.down_norm is not None:
        out = rms_norm(out, layer.down_norm, shape.eps)
    return shape.elementwise.add_rms_norm(residual, out, following_norm, shape.eps)


class Steps:
    """The steps of a decoder between its attentions, so that others may compute them.

    Attributes
    ----------
    task_rows
        About how many rows a lane takes at a time.
    """

    task_rows = TASK_ROWS

    def __init__(self, shape: StepShape) -> None:
        self.shape = shape

    def first(self, layer: Layer, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
        """Write q, k and v of the first layer; see `open_layer`."""
        x = self.shape.elementwise.add_rms_norm(residual, None, layer.attention_norm, self.shape.eps)
        open_layer(self.shape, layer, x, cos, sin, qkv)

    def between(
        self, layer: Layer, following: Layer, attended: Tensor, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor
    ) -> None:
        """Add a layer to `residual`, and write q, k and v of the following one; see `close_layer` and `open_layer`.

        `cos` and `sin` are those of the following layer.
        """
        x = close_layer(self.shape, layer, attended, residual, following.attention_norm)
        open_layer(self.shape, following, x, cos, sin, qkv)

    def last(self, layer: Layer, attended: Tensor, residual: Tensor, norm: Tensor) -> Tensor:
        """The last layer, and the final norm; see `close_layer`."""
        return close_layer(self.shape, layer, attended, residual, norm)
