"""`trie_tree`: one tree-masked ask whose rows give every label's score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError
from quail_frames.plan.label_scoring.figures import ScoringFigures
from quail_frames.plan.label_trie import ROOT, Int32, LabelTrie

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreeProgram:
    """`trie_tree`: one tree-masked ask whose rows give every label's score.

    The ask feeds `tokens` after the cue; token i sees the prompt, its ancestors and itself. Row 0 is the last token
    of the cue, row i + 1 is tree token i. Entry e is the log-probability, over the whole vocabulary, of token
    `entry_tokens[e]` in row `entry_rows[e]`.
    """

    tokens: Int32
    """Tokens of the tree, parents before children, shape (nodes,)."""
    parents: Int32
    """Index in `tokens` of each token's parent, -1 where it follows the cue."""
    depths: Int32
    """1 for a token that follows the cue; a token's position is the cue's last position plus its depth."""
    entry_rows: Int32
    entry_tokens: Int32
    label_entries: Int64
    """Entries multiplied for each label, one label after the other; label i starts at `label_offsets[i]`."""
    label_offsets: Int64
    stop_labels: Int64
    """Labels that start another, in ascending order."""
    stop_entries: Int64
    """Entries of the tokens that continue `stop_labels[j]`, from `stop_offsets[j]`."""
    stop_offsets: Int64

    @property
    def rows(self) -> int:
        """Rows read through the head."""
        return len(self.tokens) + 1

    @property
    def figures(self) -> ScoringFigures:
        return ScoringFigures(1.0, self.rows, self.rows, float(self.depths.sum()), len(self.entry_rows))

    def log_scores(self, entries: Float64) -> Float64:
        """Log of each label's score before it is divided by the sum.

        Parameters
        ----------
        entries
            Finite log-probabilities, shape (documents, entries).

        Returns
        -------
        Shape (documents, labels).
        """
        entries = np.asarray(entries, dtype=np.float64)
        scores: Float64 = np.add.reduceat(entries[:, self.label_entries], self.label_offsets, axis=1)
        if len(self.stop_labels):
            going_on = np.logaddexp.reduceat(entries[:, self.stop_entries], self.stop_offsets, axis=1)
            # The floor keeps a score positive where rounding makes the continuations sum to one.
            stop = np.maximum(-np.expm1(np.minimum(going_on, 0.0)), np.finfo(np.float64).eps)
            scores[:, self.stop_labels] += np.log(stop)
        return scores

    def probabilities(self, entries: Float64) -> Float64:
        """Label scores divided by their sum, shape (documents, labels); every row sums to one."""
        scores = self.log_scores(entries)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        total: Float64 = scores / scores.sum(axis=1, keepdims=True)
        return total

    def choose(self, entries: Float64) -> Int64:
        """Number of the best label of each document, shape (documents,); ties go to the earlier label."""
        best: Int64 = np.argmax(self.log_scores(entries), axis=1)
        return best


def tree_program(trie: LabelTrie, word_ends: Sequence[Sequence[bool]] | None = None) -> TreeProgram:
    """The one ask of `trie_tree` and how its rows become label scores.

    A label is scored up to the end of the word in which it parts from all others; one that starts another is scored
    whole and multiplied by the probability that none of the longer labels' next tokens follows.

    Parameters
    ----------
    trie
        The labels.
    word_ends
        For each label and token, whether a word ends there: the next token starts with a space, or the label ends.
        None: every token is a word.

    Raises
    ------
    CallError
        `word_ends` does not match the labels.
    """
    scored = _scored_lengths(trie, word_ends)
    used = sorted({_at(trie, label, i) for label, length in enumerate(scored) for i in range(length)})
    row_of = {node: row for row, node in enumerate(used)}
    entry_of: dict[int, int] = {}
    label_entries = [
        [entry_of.setdefault(node, len(entry_of)) for node in trie.paths[label][:length]]
        for label, length in enumerate(scored)
    ]
    stop_labels = [label for label, starts in enumerate(trie.starts_another) if starts]
    stop_entries = [[entry_of[child] for child in trie.children[trie.paths[label][-1]]] for label in stop_labels]
    entry_nodes, tree = list(entry_of), used[1:]
    label_flat, label_offsets = _flatten(label_entries)
    stop_flat, stop_offsets = _flatten(stop_entries)
    return TreeProgram(
        tokens=trie.tokens[tree],
        parents=np.array([row_of[int(trie.parents[node])] - 1 for node in tree], dtype=np.int32),
        depths=trie.depths[tree],
        entry_rows=np.array([row_of[int(trie.parents[node])] for node in entry_nodes], dtype=np.int32),
        entry_tokens=trie.tokens[entry_nodes],
        label_entries=label_flat,
        label_offsets=label_offsets,
        stop_labels=np.array(stop_labels, dtype=np.int64),
        stop_entries=stop_flat,
        stop_offsets=stop_offsets,
    )


def _scored_lengths(trie: LabelTrie, word_ends: Sequence[Sequence[bool]] | None) -> list[int]:
    """For each label the number of its tokens that are scored."""
    if word_ends is None:
        return list(trie.parting_depths)
    if [len(flags) for flags in word_ends] != [len(label) for label in trie.labels]:
        raise CallError("word_ends must hold one flag for each token of each label")
    return [
        next((i + 1 for i in range(depth - 1, len(flags)) if flags[i]), len(flags))
        for flags, depth in zip(word_ends, trie.parting_depths, strict=True)
    ]


def _at(trie: LabelTrie, label: int, tokens: int) -> int:
    """Node after the first `tokens` tokens of a label."""
    return ROOT if tokens == 0 else trie.paths[label][tokens - 1]


def _flatten(lists: list[list[int]]) -> tuple[Int64, Int64]:
    """Concatenation and the start of each list."""
    lengths = np.array([0, *(len(item) for item in lists)], dtype=np.int64)
    return np.array([entry for item in lists for entry in item], dtype=np.int64), np.cumsum(lengths)[:-1]
