"""One row, a logit for each label: the answer is the label with the highest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quail_frames.runtime.batch import Float32, Int64, ReadoutSpec
from quail_frames.runtime.readouts.one_row import OneRow
from quail_frames.runtime.readouts.true_false import Float64


@dataclass(frozen=True, eq=False)
class OneOfMany(OneRow):
    """Logits in label order."""

    spec: ReadoutSpec
    temperature: float = 1.0

    def best(self, logits: Float32) -> Int64:
        """Each ask's label, [A], from logits [A, labels], or from the one column of a device that did this."""
        return logits[:, 0].astype(np.int64) if self.spec.answered(logits) else logits.argmax(axis=1)

    def probabilities(self, logits: Float32) -> Float64:
        """Softmax over the labels' logits divided by the temperature, [A, labels]."""
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        weights = np.exp(shifted / self.temperature)
        return weights / weights.sum(axis=1, keepdims=True)
