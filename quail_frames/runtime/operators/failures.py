"""Asks that were not answered: whoever was asked gave no answer, and the row's is null with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from quail_frames.runtime.batch import Float32
from quail_frames.runtime.tokens.ragged import Int64

Failed = Mapping[int, str]
"""Reasons, by the number of the ask in its block."""
NOTHING_FAILED: Failed = MappingProxyType({})


def without_asks(logits: Float32, rows: Int64, asks: int) -> Float32:
    """Logits [asks * reads, N] less those of some asks."""
    each = logits.reshape(asks, -1, logits.shape[1])
    return np.delete(each, rows, axis=0).reshape(-1, logits.shape[1])
