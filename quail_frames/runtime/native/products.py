"""Matrix products in AMX tiles, by the C kernels."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor

from quail_frames.runtime.native.library import kernels

PANEL, STEP = 16, 32
"""Outputs of a panel of weights, and inputs of one of its tiles; see source/products.c."""
ALIGNED = 64


def in_tiles(weight: Tensor) -> Tensor:
    """Weights (outputs, inputs) as the kernels read them: (panels, steps, pairs of inputs, 2 x outputs of a panel).

    Those whose sides are not whole numbers of 32 stay as they are.
    """
    outputs, inputs = weight.shape
    if outputs % (2 * PANEL) or inputs % STEP:
        return weight
    tiles = weight.view(outputs // PANEL, PANEL, inputs // STEP, STEP // 2, 2).permute(0, 2, 3, 1, 4)
    return tiles.reshape(outputs // PANEL, inputs // STEP, STEP // 2, 2 * PANEL)


def tiled(weight: Tensor) -> bool:
    """Whether `in_tiles` has laid the weights out."""
    return weight.dim() > 2


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None) -> Tensor:
    """`x @ weight.T + bias` of weights that `in_tiles` has laid out."""
    library = kernels()
    assert not isinstance(library, str)
    x, inputs, outputs = x.contiguous(), weight.shape[1] * STEP, len(weight) * PANEL
    out = x.new_empty(len(x), outputs) if out is None else out
    sizes = (len(x), inputs, outputs)
    with SCRATCH.of(library, len(x), inputs) as scratch:
        library.product(*map(at, (x, weight, bias, out)), *map(c_int64, sizes), scratch)
    return out


class Scratch:
    """Memory that the kernels use on their way, kept for the next call: fresh memory costs more than what it is for."""

    def __init__(self) -> None:
        self._free: deque[Tensor] = deque()

    @contextmanager
    def of(self, library: ctypes.CDLL, rows: int, numbers: int) -> Iterator[c_void_p]:
        """What `product_scratch_bytes` asks for, aligned, for one thread."""
        size = library.product_scratch_bytes(c_int64(rows), c_int64(numbers)) + ALIGNED
        try:
            memory = self._free.pop()
        except IndexError:  # not looked first: another thread may take the last one in between
            memory = torch.empty(0, dtype=torch.uint8)
        if len(memory) < size:
            memory = torch.empty(size, dtype=torch.uint8)
        try:
            yield c_void_p(-(-memory.data_ptr() // ALIGNED) * ALIGNED)
        finally:
            self._free.append(memory)


SCRATCH = Scratch()
"""As many pieces as threads have ever multiplied at a time."""


def at(x: Tensor | None) -> c_void_p:
    """Where a tensor lies; NULL for none."""
    return c_void_p(None if x is None else x.data_ptr())
