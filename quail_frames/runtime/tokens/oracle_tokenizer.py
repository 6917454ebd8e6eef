"""The oracle's tokenizer: UTF-8 bytes, where a space and the byte after it are one token.

Needs no vocabulary file, loses nothing, and encodes millions of texts a second, so it
measures and proves the rest of the system.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quail_frames.runtime.tokens.ragged import Int32, Ragged, offsets_of

SPACE = 32
AFTER_SPACE = 256
"""Token of a space and byte b is AFTER_SPACE + b."""


class OracleTokenizer:
    """Encodes texts to bytes, with spaces joined to what follows."""

    bos_id: int | None = None
    vocab_size = 512

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Token ids of each text, plain text only.

        >>> OracleTokenizer().encode(["a b"])[0].tolist()
        [97, 354]
        """
        encoded = [text.encode() for text in texts]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        codes = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int32)
        offsets = offsets_of(lengths)
        joined = np.zeros(len(codes), dtype=np.bool_)
        joined[1:] = (codes[:-1] == SPACE) & (codes[1:] != SPACE)
        joined[offsets[:-1][lengths > 0]] = False
        codes[joined] += AFTER_SPACE
        dropped = np.zeros(len(codes), dtype=np.bool_)
        dropped[:-1] = joined[1:]
        kept_before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~dropped)])
        return Ragged(codes[~dropped], kept_before[offsets])

    def decode(self, ids: Int32) -> str:
        """The text of these tokens; bytes that are no character become U+FFFD."""
        parts = [b" " + bytes([code - AFTER_SPACE]) if code >= AFTER_SPACE else bytes([code]) for code in ids.tolist()]
        return b"".join(parts).decode(errors="replace")
