"""Starts of partners that two joins with one question have in common: each anchor computes them once for both.

The join that asks first leaves a copy of its anchor's context that holds such a start idle in memory, as if it were a
document; the one that asks later sees its pairs on it. Where memory was short it is gone, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quail_frames.runtime.batch import Int32
from quail_frames.runtime.kv.memory import Document, Memory
from quail_frames.runtime.operators.alike_partners import Starts
from quail_frames.runtime.operators.anchors import Anchor, Branch, Picked
from quail_frames.runtime.operators.known import KnownPairs
from quail_frames.runtime.operators.pair_prompts import PairPrompts
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Int64

REUSE = 0.1
"""What a start is worth beside a document that is asked about again: most of its pages are the anchor's own."""


@dataclass(eq=False)
class Branches:
    """What one join leaves to the others, and finds of theirs."""

    known: KnownPairs
    prompts: PairPrompts
    memory: Memory
    report: RunReport

    def __post_init__(self) -> None:
        self._units: dict[bytes, Int64] = {}

    def made(self, starts: Starts, picked: Picked) -> list[Branch]:
        """The copies among a batch's that another join will want."""
        ends = np.cumsum([len(units) for units in picked.units])
        anchors = [picked.anchors[int(np.searchsorted(ends, pair, side="right"))] for _, pair, _ in starts.wanted]
        return [
            Branch(context, anchor.texts, self._document(anchor, start), start)
            for anchor, (context, _, start) in zip(anchors, starts.wanted, strict=True)
        ]

    def leave(self, branches: list[Branch]) -> None:
        """The pairs that saw these are answered: keep them for the other join."""
        for branch in branches:
            self.memory.keep(branch.context, branch.document, self.report, REUSE)
            self.known.branches.setdefault(branch.anchor, []).append(branch.start)

    def find(self, anchor: Anchor) -> None:
        """Take over what another join has left of the anchor; shorter starts first."""
        for start in sorted(self.known.branches.pop(anchor.texts, ()), key=len):
            units = self._units_that_begin(start)
            branch = self._document(anchor, start)
            if len(units) and self.memory.resident(branch) == len(branch.tokens):
                admitted = self.memory.admit(branch, len(branch.tokens), self.report)
                if admitted is not None:
                    anchor.branches.append((admitted[0], len(start), units))

    def seen(self, picked: Picked, context: Int32, prefix: Int64) -> Int64:
        """Let the pairs see the longest start found of each, in place; returns how many tokens each need not feed."""
        skip, begin = np.zeros(len(context), dtype=np.int64), 0
        for anchor, units in zip(picked.anchors, picked.units, strict=True):
            for branch, length, own in anchor.branches:
                pairs = begin + np.flatnonzero(np.isin(units, own))
                context[pairs], prefix[pairs], skip[pairs] = branch, anchor.prefix + length, length
            begin += len(units)
        return skip

    def close(self, anchors: list[Anchor]) -> None:
        """Give back what was found for these anchors."""
        held = [context for anchor in anchors for context, _, _ in anchor.branches]
        self.memory.contexts.close(np.array(held, dtype=np.int32))
        for anchor in anchors:
            anchor.branches = []

    def _document(self, anchor: Anchor, start: Int32) -> Document:
        return Document.of(np.concatenate([self.prompts.document(anchor).tokens, self.prompts.frame, start]))

    def _units_that_begin(self, start: Int32) -> Int64:
        """Partners whose questions begin so and leave enough to be asked."""
        key = start.tobytes()
        if key not in self._units:
            questions, length = self.prompts.question, len(start)
            long = np.flatnonzero(questions.lengths - self.prompts.left >= length).tolist()
            alike = [unit for unit in long if np.array_equal(questions[unit][:length], start)]
            self._units[key] = np.array(alike, dtype=np.int64)
        return self._units[key]
