"""Labels as a model's tokens: their trie, and where words end in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quail_frames.errors import CallError
from quail_frames.plan.label_trie import LabelTrie
from quail_frames.runtime.batch import Int32
from quail_frames.runtime.tokens.ragged import Ragged


class LabelTokenizer(Protocol):
    """What label scoring needs of a tokenizer."""

    def encode(self, texts: list[str]) -> Ragged:
        """Plain-text token ids of each text."""
        ...

    def decode(self, ids: Int32) -> str:
        """The text of these tokens."""
        ...


@dataclass(frozen=True, eq=False)
class LabelTokens:
    """Labels as they follow the cue: `" " + label`, tokenised alone.

    `word_ends[i][k]`: a word ends with token k of label i, because the next token begins one or the label ends.
    """

    names: tuple[str, ...]
    trie: LabelTrie
    word_ends: tuple[tuple[bool, ...], ...]

    @staticmethod
    def of(tokenizer: LabelTokenizer, names: Sequence[str]) -> LabelTokens:
        """Tokens of the labels.

        Raises
        ------
        CallError
            Two labels have the same tokens.
        """
        lists = tokenizer.encode([f" {name}" for name in names])
        sequences = [tuple(lists[number].tolist()) for number in range(len(names))]
        _check_distinct(names, sequences)
        begins = {token: begins_word(tokenizer, token) for token in set(lists.values.tolist())}
        ends = tuple((*(begins[token] for token in sequence[1:]), True) for sequence in sequences)
        return LabelTokens(tuple(names), LabelTrie.of(sequences), ends)


def begins_word(tokenizer: LabelTokenizer, token: int) -> bool:
    """Whether the token's text starts with a space.

    It is read behind another token: some tokenizers drop the space at the start of a text.
    """
    once, twice = tokenizer.decode(Ragged.of([[token]]).values), tokenizer.decode(Ragged.of([[token, token]]).values)
    return twice[len(once) :].startswith(" ")


def _check_distinct(names: Sequence[str], sequences: Sequence[tuple[int, ...]]) -> None:
    first: dict[tuple[int, ...], str] = {}
    for name, sequence in zip(names, sequences, strict=True):
        if sequence in first:
            raise CallError(f"labels {first[sequence]!r} and {name!r} are the same tokens to this model; rename one")
        first[sequence] = name
