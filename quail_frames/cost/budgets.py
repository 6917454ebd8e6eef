"""Token budget and KV budget: how many tokens one batch may hold, and how many stay resident.

Both follow from the device's memory, the weights and the activations. `published_conventions` reproduces the
published engine's figures; `own_conventions` are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quail_frames.cost.devices import Device
from quail_frames.cost.shapes import DTYPE_BYTES, ModelShape
from quail_frames.errors import PlanError

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Conventions:
    """What an engine decides about memory before it counts tokens."""

    free_share: float
    """Share of the memory that stays free."""
    activation_bytes_per_token: float
    """Most bytes of activations alive at once for each token of a batch."""
    reserved_batches: int
    """Batches whose activations are set aside."""
    batch_cap: int
    """Most tokens of a batch, whatever the memory."""
    page_tokens: int = 16
    weight_bytes: float | None = None
    """Bytes of the resident weights; None: by the shape's formula."""


@dataclass(frozen=True)
class Budgets:
    """What a batch and the arena may hold, in tokens, with the bytes behind it."""

    tokens: int
    """Token budget: most new tokens of one batch."""
    kv_tokens: int
    """KV budget: tokens of the arena, whole pages."""
    page_tokens: int
    weight_bytes: float
    activation_bytes: float
    kv_bytes: float

    @property
    def pages(self) -> int:
        """Pages of the arena."""
        return self.kv_tokens // self.page_tokens

    def batches(self, new_tokens: float) -> float:
        """Full batches for that many new tokens, at least one; not rounded, so that prices stay smooth."""
        return max(1.0, new_tokens / self.tokens)


def budgets(shape: ModelShape, device: Device, conventions: Conventions | None = None) -> Budgets:
    """Budgets of a model on a device; by `own_conventions` unless others are given.

    Notes
    -----
    usable = memory * (1 - free_share) - weights.
    token budget = the most tokens b <= batch_cap whose activations, in reserved batches, and KV fit:
    `b * (reserved_batches * activation_bytes_per_token + kv_bytes_per_token) <= usable`.
    KV budget = what is left after the reserved activations of b tokens, in whole pages.

    Raises
    ------
    PlanError
        The weights and one page of KV do not fit.
    """
    rules = conventions or own_conventions(shape, device)
    weights = shape.weight_bytes if rules.weight_bytes is None else rules.weight_bytes
    usable = device.memory_bytes * (1 - rules.free_share) - weights
    activation = rules.reserved_batches * rules.activation_bytes_per_token
    tokens = min(rules.batch_cap, math.floor(usable / (activation + shape.kv_bytes_per_token)))
    if tokens < rules.page_tokens:
        raise PlanError(
            f"model {shape.name} does not fit on {device.name}: its weights take {weights / 1e9:.1f} GB, and "
            f"{device.memory_bytes * (1 - rules.free_share) / 1e9:.1f} GB may be used; "
            "choose a smaller model, a narrower dtype or a larger device"
        )
    pages = math.floor((usable - activation * tokens) / (shape.kv_bytes_per_token * rules.page_tokens))
    kv_tokens = pages * rules.page_tokens
    return Budgets(
        tokens, kv_tokens, rules.page_tokens, weights, activation * tokens, float(kv_tokens * shape.kv_bytes_per_token)
    )


def published_conventions(shape: ModelShape, weight_bytes: float | None = None) -> Conventions:
    """The published engine's: 5% free, `32 * hidden` activation bytes a token, two batches in reserve.

    A batch's gate and up activations are addressed by 32-bit offsets, so it holds at most
    `(2^31 - 1) // (2 * mlp)` rows.
    """
    return Conventions(
        free_share=0.05,
        activation_bytes_per_token=32 * shape.hidden,
        reserved_batches=2,
        batch_cap=INT32_MAX // (2 * shape.mlp),
        weight_bytes=weight_bytes,
    )


def own_conventions(shape: ModelShape, device: Device, weight_read_share: float = 0.01) -> Conventions:
    """Ours: a batch is so large that reading the weights takes at most `weight_read_share` of its arithmetic.

    Larger batches would gain no more than that share and take memory from the KV. Memory that other programs
    share is left to them by half. Two batches' activations are set aside: the running one, and one that the
    allocator has not given back.
    """
    return Conventions(
        free_share=0.5 if device.shared_memory else 0.05,
        activation_bytes_per_token=activation_bytes_per_token(shape),
        reserved_batches=2,
        batch_cap=math.ceil(knee(shape, device) / weight_read_share),
    )


def knee(shape: ModelShape, device: Device) -> float:
    """Tokens of a batch at which its matrix arithmetic takes as long as reading the weights.

    `bytes * peak / (2 * bandwidth)` for a weight of so many bytes and two FLOPs for each token.
    """
    return shape.matrix_bytes_per_parameter * device.peak(shape.matrix_dtype) / (2 * device.bandwidth)


def activation_bytes_per_token(shape: ModelShape) -> int:
    """Most bytes of one token alive at once inside a layer.

    The residual and the normed input, and the larger of (query, key, value, attention output) and
    (gate, up, their product).
    """
    attention = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return DTYPE_BYTES[shape.dtype] * (2 * shape.hidden + max(attention, 3 * shape.mlp))
