"""Label scoring over a trie: what is asked, and how log-probabilities become label scores.

`trie_decode` walks the trie greedily and runs the model only where labels branch; `trie_tree` scores all labels in
one tree-masked ask; `letters` reads one row; `decision_choice` reads the last row of every option through a head of
its own. Definitions: docs/prompts.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError
from quail_frames.plan.label_trie import ROOT, Int32, LabelTrie

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ScoringFigures:
    """What one document costs beyond the prompt it would have anyway; expected values under uniform labels.

    The root row is the last token of the cue: it counts as a position, but feeds no token of a label.
    """

    requests: float
    """Asks."""
    positions: float
    """Rows that the model computes for the answer, the last token of the cue included."""
    head_rows: float
    """Rows that are read through the head."""
    tree_pairs: float
    """Attention pairs among the fed label tokens (each with its ancestors and itself, the root left out)."""
    head_entries: float
    """Vocabulary entries read, over all head rows."""


@dataclass(frozen=True)
class DecodeStep:
    """One branching node of `trie_decode`.

    Feed `path` after what was fed before, read the last row at `choices`, take the first of the largest.
    `labels[i]` is the label that choice i decides, or -1, then `steps[i]` is the step that follows.
    """

    node: int
    path: tuple[int, ...]
    choices: Int32
    labels: Int32
    steps: Int32


@dataclass(frozen=True)
class DecodeProgram:
    """`trie_decode` as a table of steps; step 0 is asked of every document.

    >>> program = decode_program(LabelTrie.of([[1], [2, 3], [2, 4]]))
    >>> [(step.path, step.choices.tolist(), step.labels.tolist()) for step in program.steps]
    [((), [1, 2], [0, -1]), ((2,), [3, 4], [1, 2])]
    """

    steps: tuple[DecodeStep, ...]
    reach: Float64
    """Share of the documents that arrive at each step under uniform labels, shape (steps,)."""
    figures: ScoringFigures

    @cached_property
    def _table(self) -> tuple[Int32, Int32]:
        """Labels and following steps padded to the widest step, shape (steps, choices)."""
        shape = (len(self.steps), max(len(step.choices) for step in self.steps))
        labels, following = np.full(shape, -1, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
        for number, step in enumerate(self.steps):
            labels[number, : len(step.labels)] = step.labels
            following[number, : len(step.steps)] = step.steps
        return labels, following

    def advance(self, steps: npt.NDArray[np.integer], logits: Float64) -> tuple[Int32, Int32]:
        """Decide the choice of every document.

        Parameters
        ----------
        steps
            The step each document stands at, shape (documents,).
        logits
            Logits (or log-probabilities) of the step's choices, shape (documents, widest step), padded with -inf.

        Returns
        -------
        (labels, following)
            Shape (documents,) each: the decided label or -1, and the next step or -1.
        """
        chosen = np.argmax(logits, axis=1)
        labels, following = self._table
        return labels[steps, chosen], following[steps, chosen]


def decode_program(trie: LabelTrie) -> DecodeProgram:
    """The steps of `trie_decode`: the model runs only where labels branch and stops when one is left.

    Raises
    ------
    CallError
        A label is the start of another: greedy decoding cannot say where it ends.
    """
    if any(trie.starts_another):
        label = trie.starts_another.index(True)
        raise CallError(
            f"trie_decode: label number {label} is the start of another label, so greedy decoding cannot end it; "
            "use scoring='trie_tree' or 'letters', or rename the label"
        )
    nodes = trie.branching
    number = {node: step for step, node in enumerate(nodes)}
    end_of = {path[-1]: label for label, path in enumerate(trie.paths)}
    steps = tuple(_decode_step(trie, node, number, end_of) for node in nodes)
    reach = trie.labels_below[list(nodes)] / len(trie)
    lengths = np.array([len(step.path) for step in steps])
    first_depths = trie.depths[list(nodes)] - lengths + 1
    pairs = lengths * (first_depths + trie.depths[list(nodes)]) / 2
    figures = ScoringFigures(
        requests=float(reach.sum()),
        positions=1.0 + float(reach @ lengths),
        head_rows=float(reach.sum()),
        tree_pairs=float(reach @ pairs),
        head_entries=float(reach @ np.array([len(step.choices) for step in steps])),
    )
    return DecodeProgram(steps, reach.astype(np.float64), figures)


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


def letter_figures(labels: int) -> ScoringFigures:
    """What the answer of `letters` costs: one row, one entry for each label (its longer instruction is not in it)."""
    return ScoringFigures(requests=1.0, positions=1.0, head_rows=1.0, tree_pairs=0.0, head_entries=float(labels))


def decision_figures(blocks: Sequence[int], cue: int, width: int) -> ScoringFigures:
    """What `decision_choice` feeds after the prompt: option blocks of these token counts side by side, then the cue.

    A head of this width multiplies the final state once and every option's three times, as rows of the model's width.
    """
    inside, options = sum(blocks), len(blocks)
    pairs = sum(length * (length + 1) / 2 for length in blocks) + cue * inside + cue * (cue + 1) / 2
    return ScoringFigures(1.0, inside + cue + 1.0, options + 1.0, pairs, float(width * (3 * options + 1)))


def _decode_step(trie: LabelTrie, node: int, number: dict[int, int], end_of: dict[int, int]) -> DecodeStep:
    path: list[int] = []
    above = node
    while above != ROOT and (above == node or above not in number):
        path.append(int(trie.tokens[above]))
        above = int(trie.parents[above])
    labels, steps = [], []
    for child in trie.children[node]:
        while trie.children[child] and child not in number:
            child = trie.children[child][0]
        labels.append(end_of.get(child, -1))
        steps.append(number.get(child, -1))
    return DecodeStep(
        node=node,
        path=tuple(reversed(path)),
        choices=trie.tokens[list(trie.children[node])],
        labels=np.array(labels, dtype=np.int32),
        steps=np.array(steps, dtype=np.int32),
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
