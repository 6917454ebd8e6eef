"""Labelled calls about documents, as token trees: the engine's own prompts, with what their answers should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from quail_frames.plan.calls import AiClassify
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.readouts.letters import letter_tokens
from quail_frames.runtime.readouts.true_false import TrueFalseReadout
from quail_frames.runtime.tokens.layouts import (
    CUE,
    Encode,
    Input,
    Piece,
    Prompt,
    build_pair_prompt,
    build_prompt,
    option_lines,
)
from quail_frames.runtime.tokens.ragged import Int32
from quail_frames.runtime.tokens.tokenizer import Tokenizer
from quail_frames.tuning.tree import TokenTree

Kind = Literal["true_false", "letters", "decision_choice"]
LETTERS = 52


@dataclass(frozen=True)
class Item:
    """One call of one row: the texts of its inputs, and the right answer.

    `target` is the probability of TRUE, or the number of the right label. `group` names the task and wording, for
    reports.
    """

    planned: PlannedCall
    values: tuple[str, ...]
    target: float
    weight: float = 1.0
    group: str = ""


@dataclass(frozen=True, eq=False)
class Answer:
    """What is read in a tree: `rows` of the answer (a choice: of every block, then of the cue), and its target."""

    kind: Kind
    rows: tuple[int, ...]
    options: int
    target: float
    weight: float
    group: str


@dataclass(frozen=True, eq=False)
class Example:
    """A tree and its answers."""

    tree: TokenTree
    answers: tuple[Answer, ...]


class Prompter:
    """Builds trees with a model's tokenizer, piece by piece as the engine does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.encode: Encode = lru_cache(maxsize=1 << 14)(lambda text: tokenizer.encode([text]).values)
        letters = letter_tokens(self.encode, LETTERS)
        self.letters = tuple(letters)
        self.letter_ids = np.array(list(letters.values()), dtype=np.int32)
        self.true_false = TrueFalseReadout.of(self.encode, pooling="logsumexp")

    def example(self, items: Sequence[Item]) -> Example:
        """The items as one tree; those that share a document or an instruction share its tokens."""
        tree = TokenTree()
        answers = []
        for item in items:
            rows, options, kind = self._add(tree, item)
            answers.append(Answer(kind, rows, options, item.target, item.weight, item.group))
        return Example(tree, tuple(answers))

    def _add(self, tree: TokenTree, item: Item) -> tuple[tuple[int, ...], int, Kind]:
        planned, call = item.planned, item.planned.call
        build = build_pair_prompt if planned.anchors else build_prompt
        letters = self.letters[: len(call.labels)] if isinstance(call, AiClassify) else None
        if isinstance(call, AiClassify) and planned.scoring == "decision_choice":
            last = self._place(tree, build(planned, self.encode), item.values)
            options = [tree.add(self.encode(line), last) for line in option_lines(call)]
            final = tree.add(self.encode(CUE), last, after=options)
            return (*map(tree.last_row, options), tree.last_row(final)), len(options), "decision_choice"
        last = self._place(tree, build(planned, self.encode, letters=letters), item.values)
        if isinstance(call, AiClassify):
            return (tree.last_row(last),), len(call.labels), "letters"
        return (tree.last_row(last),), 2, "true_false"

    def _place(self, tree: TokenTree, prompt: Prompt, values: Sequence[str]) -> int:
        document = self._join(prompt.document, values)
        number = tree.add(document, key=f"{prompt.document_key} {document.tobytes()!r}")
        number = tree.add(self._join(prompt.instruction, values), number, key=prompt.instruction_key)
        return tree.add(self._join(prompt.question, values), number)

    def _join(self, pieces: Sequence[Piece], values: Sequence[str]) -> Int32:
        parts = [self.encode(values[piece.column]) if isinstance(piece, Input) else piece for piece in pieces]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
