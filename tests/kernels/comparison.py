"""Runs an operation's Triton kernel beside its reference in float64 on the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import OPERATIONS, load

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers on the device under test."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def run(operation: str, name: str, *arguments: Any) -> list[Tensor]:
    """The tensors that candidate `name` of the operation returns."""
    target = next(candidate.target for candidate in OPERATIONS[operation] if candidate.name == name)
    return list(tensors(load(target)(*arguments)))


def agree(operation: str, *arguments: Any, tolerance: float = 2e-5, changed: tuple[int, ...] = ()) -> None:
    """Asserts that Triton and the float64 reference give the same, within `tolerance` of the largest magnitude.

    `changed` numbers the arguments that the operation writes to; they are compared too.
    """
    ours = [a.clone() if i in changed else a for i, a in enumerate(arguments)]
    exact = [widened(a.clone() if i in changed else a) for i, a in enumerate(arguments)]
    got = run(operation, "triton", *ours) + [ours[i] for i in changed]
    wanted = run(operation, "torch", *exact) + [exact[i] for i in changed]
    for left, right in zip(got, wanted, strict=True):
        close(left, right, tolerance)


def close(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Asserts equality within `tolerance` x max(1, largest magnitude); infinities and NaN must coincide."""
    size = wanted[wanted.isfinite()].abs().amax().item() if wanted.isfinite().any() else 1.0
    torch.testing.assert_close(got.double(), wanted.double(), rtol=0.0, atol=tolerance * max(1.0, size), equal_nan=True)


def widened(value: Any) -> Any:
    """The same argument with float64 in place of narrower floating types (e4m3 values stay: they are exact)."""
    if isinstance(value, Tensor):
        wide = value.is_floating_point() and value.dtype != torch.float8_e4m3fn
        return value.double() if wide else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(widened(part) for part in value))
    return torch.float64 if value is torch.float32 else value


def tensors(result: Any) -> Iterator[Tensor]:
    """Every tensor of nested tuples, in order."""
    if isinstance(result, Tensor):
        yield result
    else:
        for part in result:
            yield from tensors(part)
