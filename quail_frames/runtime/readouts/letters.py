"""Letters: every label has a letter; one row is read and softmaxed over the letters' tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase, ascii_uppercase

import numpy as np

from quail_frames.errors import CallError
from quail_frames.runtime.batch import Float32, Int32, ReadoutSpec
from quail_frames.runtime.readouts.true_false import Float64
from quail_frames.runtime.tokens.layouts import Encode


@dataclass(frozen=True, eq=False)
class LettersReadout:
    """Tokens of `" " + letter`, in label order."""

    spec: ReadoutSpec
    letters: tuple[str, ...]

    @staticmethod
    def of(encode: Encode, labels: int) -> LettersReadout:
        """A..Z, a..z, then two-letter names, as far as each is one token of the model."""
        names, ids = [], []
        for name in (*ascii_uppercase, *ascii_lowercase, *map("".join, product(ascii_uppercase, repeat=2))):
            tokens: Int32 = encode(" " + name)
            if len(tokens) == 1 and int(tokens[0]) not in ids:
                names.append(name)
                ids.append(int(tokens[0]))
            if len(names) == labels:
                return LettersReadout(ReadoutSpec(np.array(ids, dtype=np.int32)), tuple(names))
        raise CallError(
            f"this model has one-token letters for {len(names)} labels, not for {labels}; use scoring='trie_tree'"
        )

    def probabilities(self, logits: Float32) -> Float64:
        """Softmax over the letters, [A, labels]."""
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        weights = np.exp(shifted)
        return weights / weights.sum(axis=1, keepdims=True)
