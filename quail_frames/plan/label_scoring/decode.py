"""`trie_decode`: a walk through the trie that runs the model only where labels branch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError
from quail_frames.plan.label_scoring.figures import ScoringFigures
from quail_frames.plan.label_trie import ROOT, Int32, LabelTrie

Float64 = npt.NDArray[np.float64]


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
