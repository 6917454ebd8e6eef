"""Label tries: which tokens decide between the labels of a classification.

Labels arrive as token ids (`" " + label`, tokenised alone). The root stands for the last token of the prompt's cue.
How a trie is asked and scored is in `quail_frames.plan.label_scoring`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError

Int32 = npt.NDArray[np.int32]

ROOT = 0
MAX_LABELS = 255


@dataclass(frozen=True)
class LabelTrie:
    """The prefix tree of the labels' token ids.

    Nodes are numbered so that a parent comes before its children; node 0 is the root (no token, depth 0).
    Children are in the order of the earliest label below them, so that a first-of-the-largest rule breaks ties
    toward the earlier label.

    >>> trie = LabelTrie.of([[1], [2, 3], [2, 4]])
    >>> trie.tokens.tolist(), trie.parents.tolist(), trie.branching
    ([-1, 1, 2, 3, 4], [-1, 0, 0, 2, 2], (0, 2))
    """

    labels: tuple[tuple[int, ...], ...]
    parents: Int32
    """Parent of each node, -1 for the root."""
    tokens: Int32
    """Token that leads from the parent to the node, -1 for the root."""
    depths: Int32
    children: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[int, ...], ...]
    """For each label its nodes, the root left out: `paths[label][i]` is the node after token i."""
    labels_below: Int32
    """How many labels end at or below each node."""

    @staticmethod
    def of(labels: Sequence[Sequence[int]]) -> LabelTrie:
        """Trie of 2 to 255 distinct, non-empty token sequences.

        Raises
        ------
        CallError
            Too few or too many labels, an empty one, or two with the same tokens.
        """
        sequences = tuple(tuple(int(token) for token in label) for label in labels)
        _check(sequences)
        index: dict[tuple[int, int], int] = {}
        parents, tokens, depths, paths = [-1], [-1], [0], []
        for sequence in sequences:
            node, path = ROOT, []
            for token in sequence:
                parent = node
                node = index.setdefault((parent, token), len(parents))
                if node == len(parents):
                    parents.append(parent)
                    tokens.append(token)
                    depths.append(depths[parent] + 1)
                path.append(node)
            paths.append(tuple(path))
        return LabelTrie(
            labels=sequences,
            parents=np.array(parents, dtype=np.int32),
            tokens=np.array(tokens, dtype=np.int32),
            depths=np.array(depths, dtype=np.int32),
            children=_children(parents),
            paths=tuple(paths),
            labels_below=_labels_below(len(parents), paths),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children."""
        return tuple(node for node, below in enumerate(self.children) if not below)

    @cached_property
    def branching(self) -> tuple[int, ...]:
        """Nodes where more than one answer is left: two children, or an end of a label with a child."""
        ends = {path[-1] for path in self.paths}
        return tuple(node for node, below in enumerate(self.children) if len(below) > 1 or (below and node in ends))

    @cached_property
    def starts_another(self) -> tuple[bool, ...]:
        """For each label, whether it is the start of another."""
        return tuple(bool(self.children[path[-1]]) for path in self.paths)

    @cached_property
    def parting_depths(self) -> tuple[int, ...]:
        """For each label the number of tokens after which no other label is left (its length if it starts another)."""
        return tuple(
            next((i + 1 for i, node in enumerate(path) if self.labels_below[node] == 1), len(path))
            for path in self.paths
        )


def _check(labels: tuple[tuple[int, ...], ...]) -> None:
    if not 2 <= len(labels) <= MAX_LABELS:
        raise CallError(f"a classification takes 2 to {MAX_LABELS} labels, got {len(labels)}")
    first: dict[tuple[int, ...], int] = {}
    for number, label in enumerate(labels):
        if not label:
            raise CallError(f"label number {number} has no tokens; give it a name")
        if label in first:
            raise CallError(f"labels number {first[label]} and {number} have the same tokens; rename one")
        first[label] = number


def _children(parents: list[int]) -> tuple[tuple[int, ...], ...]:
    below: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        below[parent].append(node)
    return tuple(tuple(nodes) for nodes in below)


def _labels_below(nodes: int, paths: list[tuple[int, ...]]) -> Int32:
    counts = np.zeros(nodes, dtype=np.int32)
    counts[ROOT] = len(paths)
    for path in paths:
        counts[list(path)] += 1
    return counts
