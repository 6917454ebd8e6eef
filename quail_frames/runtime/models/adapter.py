"""Adapters: a small file of low-rank changes to a base model (LoRA), a decision head and a calibration.

The changes are added to the weights as they are read, so an adapted model runs as fast as its base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.runtime.models.adapter_file import DECISION_HEAD, read_header, unreadable
from quail_frames.runtime.models.weights import BlockScaled, WeightSource


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter file in memory.

    Attributes
    ----------
    base
        Name of the model that it changes.
    scale
        alpha / rank: a matrix W becomes `W + scale * B @ A` (Hu et al. 2021, arXiv:2106.09685).
    spec
        Fields of `ModelSpec` that the file gives: pooling, calibration, label scoring.
    tensors
        As stored: of each matrix `.lora_a` (rank, inputs) and `.lora_b` (outputs, rank) in int8, each with a float32
        `_scale` for every row; and the decision head.
    """

    path: Path
    base: str
    scale: float
    spec: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def factor(self, name: str) -> Tensor:
        """A factor or a part of the head in float32."""
        stored, scales = self.tensors[name], self.tensors.get(f"{name}_scale")
        wide = stored.to(torch.float32)
        return wide if scales is None else wide * scales[:, None]

    def delta(self, matrix: str) -> Tensor | None:
        """What is added to a weight matrix, float32; None where the adapter leaves it alone."""
        a, b = f"{matrix}.lora_a", f"{matrix}.lora_b"
        return self.scale * (self.factor(b) @ self.factor(a)) if a in self.tensors else None

    def bytes_of(self, start: str) -> bytes:
        """Stored bytes of the tensors whose names start so, for the model's identity."""
        names = sorted(name for name in self.tensors if name.startswith(start))
        flat = (self.tensors[name].contiguous().reshape(-1) for name in names)
        return b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in flat)


class AdaptedWeights:
    """A `WeightSource`: the base's tensors with an adapter's changes, and its decision head.

    Raises
    ------
    ModelError
        The adapter changes a tensor that the base has not, or one of another shape.
    """

    def __init__(self, base: WeightSource, adapter: Adapter) -> None:
        self._base, self._adapter = base, adapter
        self._head = frozenset(name for name in adapter.tensors if name.startswith(DECISION_HEAD))
        for name in adapter.tensors:
            if name.endswith(".lora_a"):
                self._check(name.removesuffix(".lora_a"))

    def names(self) -> frozenset[str]:
        return self._base.names() | self._head

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._adapter.tensors[name].shape) if name in self._head else self._base.shape(name)

    def read(self, name: str) -> Tensor:
        if name in self._head:
            return self._adapter.factor(name)
        delta = self._adapter.delta(name.removesuffix(".weight"))
        weights = self._base.read(name)
        return weights if delta is None else weights.to(torch.float32) + delta

    def scaled(self, name: str) -> BlockScaled | None:
        changed = name in self._head or f"{name.removesuffix('.weight')}.lora_a" in self._adapter.tensors
        return None if changed else self._base.scaled(name)

    def place(self, name: str) -> str:
        return f"{name!r} of {self._adapter.path}" if name in self._head else self._base.place(name)

    def sample(self, name: str) -> bytes:
        if name in self._head:
            return self._adapter.bytes_of(name)
        return self._base.sample(name) + self._adapter.bytes_of(name.removesuffix("weight") + "lora_")

    def _check(self, matrix: str) -> None:
        name, path = f"{matrix}.weight", self._adapter.path
        if name not in self._base.names():
            raise ModelError(f"The adapter {path} changes {name!r}, which its base {self._adapter.base!r} has not.")
        sizes = {part: tuple(getattr(self._adapter.tensors.get(f"{matrix}.lora_{part}"), "shape", ())) for part in "ab"}
        rows, columns = self._base.shape(name)
        rank = sizes["a"][0]
        if sizes != {"a": (rank, columns), "b": (rows, rank)}:
            raise ModelError(
                f"The factors of {name!r} in the adapter {path} have the shapes {sizes['a']} and {sizes['b']}; the "
                f"base {self._adapter.base!r} needs ({rank}, {columns}) and ({rows}, {rank}). It is of another model."
            )


def read_adapter(path: Path) -> Adapter:
    """The adapter in a safetensors file.

    Raises
    ------
    ModelError
        The file cannot be read, or is no adapter.
    """
    header = read_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from error
    return Adapter(path, header.base, header.scale, header.spec, tensors)
