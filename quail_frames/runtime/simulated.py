"""A device that is not at hand: answers like the null model, on a clock that advances by the roofline.

Shows how a plan behaves on large hardware (batches, reuse, eviction, seconds) from this machine.
"""

from __future__ import annotations

from quail_frames.cost.devices import Device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import ModelShape
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.batch_work import batch_work
from quail_frames.runtime.oracle import NullModel


class SimulatedModel(NullModel):
    """The null model with a clock, in seconds of the simulated device."""

    def __init__(self, shape: ModelShape, device: Device) -> None:
        self._shape = shape
        self._device = device
        self._now = 0.0

    def run(self, batch: Batch) -> list[Float32]:
        """Answers of the null model; the clock advances by the batch's roofline."""
        self._now += roofline(batch_work(batch, self._shape.vocabulary), self._shape, self._device).seconds
        return super().run(batch)

    def clock(self) -> float:
        """Seconds that the device has worked."""
        return self._now
