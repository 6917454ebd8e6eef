"""Letters: every label has a letter; one row is read and softmaxed over the letters' tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase, ascii_uppercase

import numpy as np

from quail_frames.errors import CallError
from quail_frames.runtime.batch import BestColumn, Int32, ReadoutSpec
from quail_frames.runtime.readouts.one_of_many import OneOfMany
from quail_frames.runtime.tokens.layouts import Encode


@dataclass(frozen=True, eq=False)
class LettersReadout(OneOfMany):
    """Tokens of `" " + letter`, in label order."""

    letters: tuple[str, ...] = ()

    @staticmethod
    def of(encode: Encode, labels: int, temperature: float = 1.0, probabilities: bool = True) -> LettersReadout:
        """The read-out of so many labels; where nobody wants `probabilities`, a device may give the best one alone.

        Raises
        ------
        CallError
            The model has not enough one-token letters.
        """
        letters = letter_tokens(encode, labels)
        if len(letters) < labels:
            raise CallError(
                f"scoring='letters' has one-token letters for {len(letters)} labels with this model, not for {labels}; "
                "use scoring='trie_tree' or 'trie_decode'"
            )
        alone = not probabilities and labels > 1
        spec = ReadoutSpec(np.array(list(letters.values()), dtype=np.int32), answer=BestColumn() if alone else None)
        return LettersReadout(spec, temperature, tuple(letters))


def letter_names() -> Iterator[str]:
    """A..Z, a..z, then two letters."""
    yield from (*ascii_uppercase, *ascii_lowercase, *map("".join, product(ascii_uppercase, repeat=2)))


def letter_tokens(encode: Encode, most: int) -> dict[str, int]:
    """Up to `most` letters with their tokens: A..Z, a..z, then two letters, as far as each is one token of its own."""
    found: dict[str, int] = {}
    for name in letter_names():
        if len(found) == most:
            break
        tokens: Int32 = encode(" " + name)
        if len(tokens) == 1 and int(tokens[0]) not in found.values():
            found[name] = int(tokens[0])
    return found
