"""What a way of scoring labels costs, and the figures of those that need no trie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
