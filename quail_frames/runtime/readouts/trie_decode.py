"""trie_decode: greedy over the label trie, a round for each branching node that a row comes to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError
from quail_frames.plan.label_scoring import DecodeProgram, decode_program
from quail_frames.runtime.batch import Float32, Int32, Int64, ReadoutSpec, TokenTree
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.tokens.ragged import Ragged

FIRST = 0
"""The step that every row begins with."""


@dataclass(frozen=True, eq=False)
class TrieDecodeReadout:
    """One row, read at the choices of the step that the row stands at.

    columns   [steps, widest] logit column of each choice; where there are fewer choices, one past the last
    tails     for each step all tokens between the cue and its branching node
    goes_on   [steps] whether another step may follow
    """

    program: DecodeProgram
    spec: ReadoutSpec
    columns: Int64
    tails: Ragged
    goes_on: npt.NDArray[np.bool_]
    reads: tuple[int, ...] = (-1,)
    tree: TokenTree | None = None

    @staticmethod
    def of(labels: LabelTokens) -> TrieDecodeReadout:
        """The read-out of these labels.

        Raises
        ------
        CallError
            A label is the start of another.
        """
        _check_ends(labels)
        program = decode_program(labels.trie)
        ids, columns = np.unique(np.concatenate([step.choices for step in program.steps]), return_inverse=True)
        choices = Ragged.of([step.choices for step in program.steps])
        table = np.full((len(choices), int(choices.lengths.max())), len(ids), dtype=np.int64)
        table[np.arange(table.shape[1]) < choices.lengths[:, None]] = columns
        return TrieDecodeReadout(
            program,
            ReadoutSpec(ids.astype(np.int32)),
            table,
            tails=Ragged.of([_path(labels, step.node) for step in program.steps]),
            goes_on=np.array([bool((step.steps >= 0).any()) for step in program.steps]),
        )

    @property
    def depth(self) -> int:
        """Positions after the cue that the longest answer needs."""
        return int(self.tails.lengths.max())

    def advance(self, steps: Int64, logits: Float32) -> tuple[Int32, Int32]:
        """(label or -1, next step or -1) of the asks at these steps with these logits [A, ids]."""
        padded = np.concatenate([logits, np.full((len(logits), 1), -np.inf, dtype=np.float32)], axis=1)
        chosen = padded[np.arange(len(steps))[:, None], self.columns[steps]]
        return self.program.advance(steps, chosen.astype(np.float64))


def _path(labels: LabelTokens, node: int) -> list[int]:
    """Tokens from the cue to a node."""
    trie, path = labels.trie, []
    while trie.parents[node] >= 0:
        path.append(int(trie.tokens[node]))
        node = int(trie.parents[node])
    return path[::-1]


def _check_ends(labels: LabelTokens) -> None:
    sequences = labels.trie.labels
    for number in np.flatnonzero(labels.trie.starts_another).tolist():
        start = sequences[number]
        longer = next(n for n, own in enumerate(sequences) if n != number and own[: len(start)] == start)
        raise CallError(
            f"scoring='trie_decode' cannot tell label {labels.names[number]!r} from {labels.names[longer]!r}, which "
            "begins with the same tokens; use scoring='trie_tree' or 'letters', or rename one"
        )
