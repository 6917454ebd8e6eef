"""Roofline: the least seconds that some work takes on a device, component by component.

seconds = sum over projections, MLP, attention and head of max(FLOPs / peak, bytes / bandwidth)
(Williams, Waterman, Patterson 2009). Nothing is fitted: the result is a plan's speed of light.
"""

from __future__ import annotations

from dataclasses import dataclass

from quail_frames.cost.devices import Device
from quail_frames.cost.shapes import DTYPE_BYTES, ModelShape
from quail_frames.cost.work import Work


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the model: its arithmetic, its memory traffic, and the seconds of the larger of the two."""

    name: str
    flops: float
    bytes: float
    seconds: float
    bound: str
    """`compute` or `memory`."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Least seconds of some work, by component."""

    projections: Component
    mlp: Component
    attention: Component
    head: Component

    @property
    def components(self) -> tuple[Component, ...]:
        return (self.projections, self.mlp, self.attention, self.head)

    @property
    def seconds(self) -> float:
        return sum(component.seconds for component in self.components)

    @property
    def flops(self) -> float:
        return sum(component.flops for component in self.components)

    @property
    def bytes(self) -> float:
        return sum(component.bytes for component in self.components)

    def lines(self) -> tuple[str, ...]:
        """One line for each component, for `explain`."""
        return tuple(
            f"{part.name:<12}{part.flops / 1e12:>14.3f} TFLOP{part.bytes / 1e9:>12.3f} GB{part.seconds:>12.4f} s"
            f"  ({part.bound})"
            for part in self.components
        )


def roofline(work: Work, shape: ModelShape, device: Device, batches: float = 1.0) -> Roofline:
    """The least seconds of `work`.

    Parameters
    ----------
    batches
        How often the weights are read: the number of forward passes. 1 is the lower bound; `Budgets.batches` gives
        the number for a token budget. A fraction prices a small part of a large query.

    Notes
    -----
    projections, MLP
        `2 * new_tokens * parameters` FLOPs at the peak of `matrix_dtype`; their weights once a batch.
    attention
        `4 * heads * head_dim * layers * attention_pairs` FLOPs at the peak of `dtype`;
        `(kv_read + kv_written) * kv_bytes_per_token` bytes, and for every merged token two partial outputs with
        their log-sum-exp (fp32) written and read.
    head
        `2 * hidden * vocabulary * head_rows` FLOPs at the peak of `dtype`; the head's weights once a batch, or the
        share of them that is read where less than one whole row a batch is.
    """
    size = shape.matrix_bytes_per_parameter
    element = DTYPE_BYTES[shape.dtype]
    matrix_peak, peak = device.peak(shape.matrix_dtype), device.peak(shape.dtype)
    merged = 4 * shape.layers * shape.heads * (shape.head_dim * element + 4) * work.merged_tokens
    kv = (work.kv_read + work.kv_written) * shape.kv_bytes_per_token

    def component(name: str, flops: float, moved: float, flops_per_second: float) -> Component:
        compute, memory = flops / flops_per_second, moved / device.bandwidth
        bound = "compute" if compute >= memory else "memory"
        return Component(name, flops, moved, max(compute, memory), bound)

    projections, mlp = shape.projection_parameters, shape.mlp_parameters
    return Roofline(
        component("projections", 2.0 * projections * work.new_tokens, projections * size * batches, matrix_peak),
        component("mlp", 2.0 * mlp * work.new_tokens, mlp * size * batches, matrix_peak),
        component("attention", shape.flops_per_pair * work.attention_pairs, kv + merged, peak),
        component(
            "head",
            shape.flops_per_head_row * work.head_rows,
            shape.head_parameters * element * min(work.head_rows, batches),
            peak,
        ),
    )
