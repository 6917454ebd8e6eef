"""64-bit marks of tokens at positions: hashes of prefixes, and the oracle's arithmetic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.tokens.ragged import Int32

UInt64 = npt.NDArray[np.uint64]


def mix(values: npt.NDArray[np.integer] | UInt64) -> UInt64:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): 64 bits in, 64 well mixed bits out."""
    with np.errstate(over="ignore"):
        x = np.asarray(values).astype(np.uint64)  # a copy, which is then worked on in place
        x += np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        return x


def token_marks(tokens: Int32, positions: Int32) -> UInt64:
    """One 64-bit mark for each (position, token)."""
    return mix((positions.astype(np.int64) << 32) | tokens.astype(np.int64))
