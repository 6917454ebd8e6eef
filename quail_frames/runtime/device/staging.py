"""Copies a batch's arrays to the device in one piece, from pinned memory and on a stream of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quail_frames.runtime.device.plan import Arrays

ALIGNMENT = 16
"""Bytes; every array begins at a multiple."""


@dataclass(frozen=True, eq=False)
class Staged:
    """Arrays under way to the device.

    `buffer` on the device holds them all; `host` is what is read from, which must live until `ready` has passed.
    """

    buffer: Tensor
    host: Tensor
    layout: dict[str, tuple[int, tuple[int, ...], torch.dtype]]
    ready: torch.cuda.Event | None

    def tensors(self) -> dict[str, Tensor]:
        """The arrays by name on the device; work queued after this call waits for the copy."""
        if self.ready is not None:
            compute = torch.cuda.current_stream(self.buffer.device)
            compute.wait_event(self.ready)
            self.buffer.record_stream(compute)
        return {name: self._view(*place) for name, place in self.layout.items()}

    def _view(self, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = int(np.prod(shape, dtype=np.int64))
        return self.buffer[start : start + count * dtype.itemsize].view(dtype).view(shape)


class Stager:
    """Stages arrays for a device. On a CPU there is nothing to overlap: the buffer is the host's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def stage(self, arrays: Arrays) -> Staged:
        """Begin the copy of these arrays; returns at once."""
        host, layout = _packed(arrays, pinned=self._stream is not None)
        if self._stream is None:
            return Staged(host, host, layout, None)
        with torch.cuda.stream(self._stream):
            buffer = host.to(self._device, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return Staged(buffer, host, layout, ready)


def _packed(arrays: Arrays, pinned: bool) -> tuple[Tensor, dict[str, tuple[int, tuple[int, ...], torch.dtype]]]:
    """One buffer of bytes that holds the arrays, and where each of them lies."""
    layout, size = {}, 0
    for name, array in arrays.items():
        layout[name] = (size, array.shape, torch.from_numpy(array[:0]).dtype)
        size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    content = host.numpy()
    for name, array in arrays.items():
        start = layout[name][0]
        content[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return host, layout
