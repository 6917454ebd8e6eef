"""The decoder's forward pass with gradients: whole token trees, a layer at a time, in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, silu

from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.rope import inverse_frequencies, rotation
from quail_frames.tuning.examples import Example
from quail_frames.tuning.lora import FUSED, LoraShape, base_matrix, layer_adapter, merge, merged_linear
from quail_frames.tuning.tree import TokenTree


@dataclass(frozen=True, eq=False)
class Batch:
    """Trees one after the other: tokens and positions (T,), and for each tree its length and additive mask."""

    tokens: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    masks: tuple[Tensor, ...]
    rows: Tensor
    """Rows that are read, (R,), answer by answer."""


def batch_of(examples: Sequence[Example]) -> Batch:
    """The trees of the examples as tensors."""
    trees = [example.tree for example in examples]
    lengths = tuple(len(tree) for tree in trees)
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    rows = [
        start + row
        for start, example in zip(starts, examples, strict=True)
        for answer in example.answers
        for row in answer.rows
    ]
    masks = [torch.zeros(len(tree), len(tree)).masked_fill_(_unseen(tree), -math.inf) for tree in trees]
    return Batch(
        torch.cat([torch.from_numpy(tree.tokens()).long() for tree in trees]),
        torch.cat([torch.from_numpy(tree.positions()) for tree in trees]),
        lengths,
        tuple(masks),
        torch.tensor(rows, dtype=torch.long),
    )


def _unseen(tree: TokenTree) -> Tensor:
    return ~torch.from_numpy(tree.visible())


class RmsNorm(torch.autograd.Function):
    """RMSNorm with frozen weights, in few passes over memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        weighted = gradients[0] * weight
        along = (weighted * x).sum(dim=-1, keepdim=True).mul_(scale.pow(3)).div_(-x.shape[-1])
        return weighted.mul_(scale).addcmul_(x, along), None, None


class GatedSilu(torch.autograd.Function):
    """`silu(gate) * up` of both in one tensor."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.empty_like(gate_up)
        half = gate.shape[-1]
        sigmoid = torch.sigmoid(gate)
        activated = gate * sigmoid
        torch.mul(gradients[0], activated, out=out[..., half:])
        slope = activated.neg_().add_(gate).add_(1).mul_(sigmoid).mul_(up)
        torch.mul(gradients[0], slope, out=out[..., :half])
        return out


class TrainingDecoder:
    """A loaded decoder with adapters; `hidden` gives states with gradients to the adapters' factors.

    Attributes
    ----------
    tensors
        The factors by name; change them in place and call `refresh` to use them.
    """

    def __init__(self, decoder: Decoder, tensors: dict[str, Tensor], shape: LoraShape) -> None:
        self.config, self.weights, self.lora, self.tensors = decoder.config, decoder.weights, shape, tensors
        self._frequencies = inverse_frequencies(decoder.config, torch.device("cpu"))
        self._merged = [{name: base_matrix(layer, name).clone() for name in FUSED} for layer in self.weights.layers]
        self.refresh()

    def refresh(self) -> None:
        """Merge the factors as they are now."""
        for number, (layer, merged) in enumerate(zip(self.weights.layers, self._merged, strict=True)):
            adapters = [layer_adapter(self.tensors, number, name) for name in FUSED]
            base = [base_matrix(layer, name) for name in FUSED]
            merge(base, adapters, self.lora.scale, [merged[name] for name in FUSED])

    def hidden(self, batch: Batch) -> Tensor:
        """States of the read rows after the final norm, (R, hidden)."""
        eps = self.config.rms_norm_eps
        cos, sin = rotation(batch.positions, self._frequencies)
        residual = embedding(batch.tokens, self.weights.embedding)
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            x = _norm(residual, layer.attention_norm, eps)
            attended = self._attend(self._linear(number, "qkv", x), layer.qk_norm, cos, sin, batch)
            if number == last:
                attended, residual = attended[batch.rows], residual[batch.rows]
            residual = residual + self._linear(number, "output", attended)
            inner = GatedSilu.apply(self._linear(number, "gate_up", _norm(residual, layer.mlp_norm, eps)))
            residual = residual + self._linear(number, "down", inner)
        return _norm(residual, self.weights.norm, eps)

    def _linear(self, layer: int, name: str, x: Tensor) -> Tensor:
        adapter = layer_adapter(self.tensors, layer, name)
        out = merged_linear(x, self._merged[layer][name], adapter, self.lora.scale)
        bias: Tensor | None = getattr(self.weights.layers[layer], f"{name}_bias")
        return out if bias is None else out + bias

    def _attend(self, qkv: Tensor, qk_norm: Tensor | None, cos: Tensor, sin: Tensor, batch: Batch) -> Tensor:
        """Attention inside each tree, (T, heads x head_dim)."""
        config = self.config
        heads = qkv.view(len(qkv), -1, config.head_dim)
        qk = heads[:, : config.num_heads + config.num_kv_heads]
        if qk_norm is not None:
            qk = rms_norm(qk, (config.head_dim,), None, config.rms_norm_eps) * qk_norm
        q, k = _turn(qk, cos, sin).split([config.num_heads, config.num_kv_heads], dim=1)
        v = heads[:, config.num_heads + config.num_kv_heads :]
        parts = zip(q.split(batch.lengths), k.split(batch.lengths), v.split(batch.lengths), batch.masks, strict=True)
        return torch.cat([_one_tree(*part) for part in parts])


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    result: Tensor = RmsNorm.apply(x, weight, eps)
    return result


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE, see `quail_frames.runtime.models.rope.rotate`."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _one_tree(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q (L, heads, d), k and v (L, KV heads, d), mask (L, L): the attended values (L, heads x d)."""
    length, heads, size = q.shape
    groups = k.shape[1]
    grouped = q.view(length, groups, heads // groups, size).permute(1, 2, 0, 3).reshape(groups, -1, size)
    scores = grouped @ (k * size**-0.5).permute(1, 2, 0)
    weights = torch.softmax(scores.view(groups, -1, length, length) + mask, dim=-1)
    out = weights.view(groups, -1, length) @ v.transpose(0, 1)
    return out.view(groups, heads // groups, length, size).permute(2, 0, 1, 3).reshape(length, heads * size)
