"""trie_tree: all needed nodes of the label trie in one tree-masked ask, read over the whole vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quail_frames.plan.label_scoring import TreeProgram, tree_program
from quail_frames.runtime.batch import Float32, Int64, ReadoutSpec, TokenTree
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.readouts.true_false import Float64
from quail_frames.runtime.tokens.ragged import Ragged


@dataclass(frozen=True, eq=False)
class TrieTreeReadout:
    """The cue's last row and every tree token's row; `columns[e]` is the logit column of the program's entry e."""

    program: TreeProgram
    spec: ReadoutSpec
    columns: Int64
    reads: tuple[int, ...]
    tails: Ragged
    tree: TokenTree | None
    depth: int

    @staticmethod
    def of(labels: LabelTokens) -> TrieTreeReadout:
        """The read-out of these labels."""
        program = tree_program(labels.trie, labels.word_ends)
        ids, columns = np.unique(program.entry_tokens, return_inverse=True)
        return TrieTreeReadout(
            program,
            ReadoutSpec(ids.astype(np.int32), normalize=True),
            columns.astype(np.int64),
            reads=tuple(range(-program.rows, 0)),
            tails=Ragged.of([program.tokens]),
            tree=TokenTree(program.parents) if len(program.tokens) else None,
            depth=int(program.depths.max(initial=0)),
        )

    def entries(self, logits: Float32) -> Float64:
        """Log-probabilities of the program's entries, [A, entries], from logits [A * rows, ids + 1]."""
        rows = logits.reshape(-1, self.program.rows, logits.shape[1]).astype(np.float64)
        where = self.program.entry_rows
        return rows[:, where, self.columns] - rows[:, where, -1]
