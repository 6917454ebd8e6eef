"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) over a decoder's fused matrices, and the decision head.

The forward pass multiplies with base + adapter, merged once per step; only the backward pass sees the factors, so a
token costs little more than in inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.weights import LayerWeights

FUSED = ("qkv", "output", "gate_up", "down")
MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@dataclass(frozen=True)
class LoraShape:
    """Rank, and alpha: the adapter adds `alpha / rank * B @ A` to a matrix."""

    rank: int = 16
    alpha: float = 32.0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, eq=False)
class Adapter:
    """The factors of one fused matrix, a part for each projection in it: A (rank, inputs), B (outputs, rank)."""

    a: tuple[Tensor, ...]
    b: tuple[Tensor, ...]

    def delta(self, scale: float) -> Tensor:
        """What is added to the fused matrix, (outputs, inputs)."""
        return torch.cat([scale * (b @ a) for a, b in zip(self.a, self.b, strict=True)])


def output_rows(config: ModelConfig, fused: str) -> tuple[int, ...]:
    """Outputs of each projection in a fused matrix."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "qkv": (queries, keys, keys),
        "output": (config.hidden_size,),
        "gate_up": (config.intermediate_size,) * 2,
        "down": (config.hidden_size,),
    }[fused]


def input_columns(config: ModelConfig, fused: str) -> int:
    """Inputs of a fused matrix."""
    queries = config.num_heads * config.head_dim
    return {"output": queries, "down": config.intermediate_size}.get(fused, config.hidden_size)


def new_adapters(config: ModelConfig, shape: LoraShape, generator: torch.Generator) -> dict[str, Tensor]:
    """Trainable factors by their names in the adapter file; B is zero, so nothing changes yet."""
    tensors: dict[str, Tensor] = {}
    for layer in range(config.num_layers):
        for fused in FUSED:
            inputs = input_columns(config, fused)
            for module, rows in zip(MODULES[fused], output_rows(config, fused), strict=True):
                name = f"model.layers.{layer}.{module}"
                spread = 1 / math.sqrt(inputs)
                tensors[f"{name}.lora_a"] = torch.empty(shape.rank, inputs).uniform_(
                    -spread, spread, generator=generator
                )
                tensors[f"{name}.lora_b"] = torch.zeros(rows, shape.rank)
    return tensors


def layer_adapter(tensors: dict[str, Tensor], layer: int, fused: str) -> Adapter:
    """The factors of a layer's fused matrix."""
    names = [f"model.layers.{layer}.{module}" for module in MODULES[fused]]
    return Adapter(
        tuple(tensors[f"{name}.lora_a"] for name in names), tuple(tensors[f"{name}.lora_b"] for name in names)
    )


def base_matrix(weights: LayerWeights[Tensor], fused: str) -> Tensor:
    """The frozen matrix, (outputs, inputs)."""
    matrix: Tensor = getattr(weights, fused)
    return matrix


def times(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` without gradients.

    On one thread NumPy's OpenBLAS multiplies float32 matrices of these shapes 20% faster than torch's MKL (on the AVX2
    machine that the shipped adapter was trained on). On several, its threads and torch's would stand in each other's
    way: a step then took twice as long.
    """
    if torch.get_num_threads() > 1:
        return a.detach() @ b.detach()
    return torch.from_numpy(np.matmul(a.detach().numpy(), b.detach().numpy()))


class MergedLinear(torch.autograd.Function):
    """`x @ merged.T`, whose gradient goes to x and to the factors that `merged` was made of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, merged: Tensor, scale: float, parts: int, *factors: Tensor) -> Tensor:
        ctx.save_for_backward(x, merged, *factors)
        ctx.scale, ctx.parts = scale, parts
        return times(x, merged.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy,) = gradients
        x, merged, *factors = ctx.saved_tensors
        a, b = factors[: ctx.parts], factors[ctx.parts :]
        dx = times(dy, merged) if ctx.needs_input_grad[0] else None
        slices = dy.split([part.shape[0] for part in b], dim=1)
        inner = x @ torch.cat(a).t()
        outer = torch.cat([piece @ part for piece, part in zip(slices, b, strict=True)], dim=1)
        da = (outer.t() @ x).mul_(ctx.scale).split([part.shape[0] for part in a])
        pairs = zip(slices, inner.split([part.shape[0] for part in a], dim=1), strict=True)
        db = [(piece.t() @ low).mul_(ctx.scale) for piece, low in pairs]
        return (dx, None, None, None, *da, *db)


def merged_linear(x: Tensor, merged: Tensor, adapter: Adapter, scale: float) -> Tensor:
    """The adapted projection of x (tokens, inputs)."""
    result: Tensor = MergedLinear.apply(x, merged, scale, len(adapter.a), *adapter.a, *adapter.b)
    return result


def merge(base: Sequence[Tensor], adapters: Sequence[Adapter], scale: float, out: Sequence[Tensor]) -> None:
    """Write base + adapter into `out`, matrix by matrix."""
    with torch.no_grad():
        for matrix, adapter, target in zip(base, adapters, out, strict=True):
            row = 0
            for a, b in zip(adapter.a, adapter.b, strict=True):
                part = slice(row, row + b.shape[0])
                torch.addmm(matrix[part], b, a, alpha=scale, out=target[part])
                row += b.shape[0]
