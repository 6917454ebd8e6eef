"""A tokenizer for texts that leave as texts: the UTF-8 bytes, from which the text comes back exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quail_frames.runtime.tokens.ragged import Int32, Ragged, offsets_of

BYTES_PER_TOKEN = 4
"""About, of English text in a model's own tokens; used for layouts and rate limits, never for answers."""


class ByteTokenizer:
    """Ids are bytes.

    >>> ByteTokenizer().decode(ByteTokenizer().encode(["é🙂"]).values)
    'é🙂'
    """

    bos_id: int | None = None

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Bytes of each text."""
        encoded = [text.encode() for text in texts]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        return Ragged(np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int32), offsets_of(lengths))

    def decode(self, ids: Int32) -> str:
        """The text of these bytes."""
        return ids.astype(np.uint8).tobytes().decode()
