"""What a decoder computes between two attentions: everything that is the same for every token.

Functions of tensors only, so that `torch.compile` can fuse the elementwise groups between
the matrix products (`quail_frames.runtime.models.fused`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor
from torch.nn.functional import linear

from quail_frames.runtime.models.layers import add_rms_norm, gated, rms_norm
from quail_frames.runtime.models.rope import rotate
from quail_frames.runtime.models.weights import LayerWeights

Layer = LayerWeights[Tensor]
Between = Callable[["StepShape", Layer, Layer, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""See `between`."""


class StepShape(NamedTuple):
    """Heads, KV heads, their size, RMSNorm's epsilon, and the MLP's activation."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    activation: Literal["silu", "gelu_tanh"] = "silu"


def open_layer(shape: StepShape, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """q, k and v of normed states x (T, hidden), with QK-norm and RoPE: (T, heads + 2 KV heads, head_dim)."""
    rows = shape.heads + 2 * shape.kv_heads
    qkv = linear(x, layer.qkv, layer.qkv_bias).view(-1, rows, shape.head_dim)
    qk = qkv[:, : shape.heads + shape.kv_heads]
    normed = qk if layer.qk_norm is None else rms_norm(qk, layer.qk_norm, shape.eps)
    rotate(normed, cos, sin, out=qk)
    return qkv


def close_layer(
    shape: StepShape, layer: Layer, attended: Tensor, residual: Tensor, following_norm: Tensor
) -> tuple[Tensor, Tensor]:
    """The residual after a layer whose heads gave `attended` (T, heads x head_dim), and its norm by the next weights.

    `residual` itself is overwritten.
    """
    attended = linear(attended, layer.output, layer.output_bias)
    if layer.attended_norm is not None:
        attended = rms_norm(attended, layer.attended_norm, shape.eps)
    residual, x = add_rms_norm(residual, attended, layer.mlp_norm, shape.eps)
    inner = gated(linear(x, layer.gate_up, layer.gate_up_bias), shape.activation)
    out = linear(inner, layer.down, layer.down_bias)
    if layer.down_norm is not None:
        out = rms_norm(out, layer.down_norm, shape.eps)
    return add_rms_norm(residual, out, following_norm, shape.eps)


def between(
    shape: StepShape,
    layer: Layer,
    following: Layer,
    attended: Tensor,
    residual: Tensor,
    cos: Tensor,
    sin: Tensor,
) -> tuple[Tensor, Tensor]:
    """The residual after a layer, and q, k and v of the following one; see `close_layer` and `open_layer`.

    `cos` and `sin` are those of the following layer.
    """
    residual, x = close_layer(shape, layer, attended, residual, following.attention_norm)
    return residual, open_layer(shape, following, x, cos, sin)
