"""Asks of a pair join: which pairs the next batch takes, and the contexts that they are asked on.

An anchor's document is admitted to memory with its first pairs; pairs whose anchor cannot stay there are asked by whole
prompts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from quail_frames.runtime.batch import AskBlock
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.operators.alike_partners import share_starts_of_partners, without_heads
from quail_frames.runtime.operators.anchors import NONE, Anchor, AskedPairs, Lent, Picked
from quail_frames.runtime.operators.asks import suffix_block
from quail_frames.runtime.operators.branches import Branches
from quail_frames.runtime.operators.learning import Share
from quail_frames.runtime.operators.pair_prompts import PairPrompts
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.ragged import Ragged

FIRST_WAVE = 4
"""With `stop="first_true"` an anchor asks waves of partners: this many, or 1 / selectivity, then twice as many."""


class PairAsks:
    """Puts pairs into batches. `pending` counts those that are wanted and not asked yet; `share` of them are TRUE."""

    def __init__(
        self,
        stop: Literal["never", "first_true"],
        prompts: PairPrompts,
        memory: Memory,
        report: RunReport,
        share: Share,
        branches: Branches | None = None,
    ) -> None:
        self.pending = 0
        self._stop, self._prompts, self._memory, self._report, self._share = stop, prompts, memory, report, share
        self._longest = int(prompts.question.lengths.max(initial=0))
        self._lent: dict[Lent, None] = {}
        self._branches = branches

    def drop(self, anchor: Anchor) -> None:
        """Ask nothing more of the anchor."""
        self.pending -= len(anchor.pending)
        anchor.pending = NONE

    def fill(self, room: Room, anchors: Iterable[Anchor]) -> None:
        """Add pairs, anchor by anchor; an anchor not resident is computed in the same batch."""
        picked = Picked()
        for anchor in anchors:
            waits = anchor.running and self._stop == "first_true"
            if not waits and not self._pick(room, picked, anchor):
                break
        self._open(room, picked)
        self._ask(room, picked)

    def give_back(self, tag: AskedPairs) -> None:
        """Close the contexts of a block's groups once all its pairs are answered; answers may come in parts."""
        if tag.lent is not None:
            tag.lent.pairs -= len(tag.units)
            if not tag.lent.pairs:
                del self._lent[tag.lent]
                left = [branch.context for branch in tag.lent.branches]
                self._memory.contexts.close(np.setdiff1d(tag.lent.contexts, left))
                if self._branches is not None:
                    self._branches.leave(tag.lent.branches)

    def close(self) -> None:
        """Give the contexts of all blocks back."""
        for lent in self._lent:
            self._memory.contexts.close(lent.contexts)
        self._lent.clear()

    def _pick(self, room: Room, picked: Picked, anchor: Anchor) -> bool:
        """Choose pairs of one anchor for the batch; False where the batch or the memory is full."""
        first = room.empty and not picked.tokens
        left = room.left - picked.tokens
        trunk = 0
        if anchor.context < 0:
            length = self._prompts.trunk_tokens(anchor)
            size = np.array([length])
            stuck = room.forced and first and not self._memory.fitting(size)
            if stuck or length + self._longest > self._prompts.limit or not self._memory.can_hold(size)[0]:
                return self._add_whole(room, anchor, left, first)
            trunk = length - self._memory.resident(self._prompts.document(anchor), self._prompts.frame)
        lengths = self._prompts.question.lengths[anchor.pending[: self._most(anchor, left)]]
        count = int(np.searchsorted(np.cumsum(lengths), left - trunk, side="right"))
        count = count or int(first and len(lengths) > 0)
        if count:
            if not self._take(picked, anchor, count):
                return False
            picked.tokens += trunk + int(lengths[:count].sum())
        return count == len(lengths)

    def _most(self, anchor: Anchor, left: int) -> int:
        """How many pairs of the anchor may be asked now."""
        if self._stop == "never":
            return max(left, 1)
        anchor.wave = min(2 * anchor.wave or max(FIRST_WAVE, round(1 / max(self._share.value, 1e-3))), left)
        return max(anchor.wave, 1)

    def _take(self, picked: Picked, anchor: Anchor, count: int) -> bool:
        """Put pairs of an anchor into the batch; False where its document finds no memory."""
        if anchor.context < 0:
            document = self._prompts.document(anchor)
            length = len(document.tokens) + len(self._prompts.frame)
            admitted = self._memory.admit(document, length, self._report, self._prompts.frame)
            if admitted is None:
                return False
            anchor.context, resident = admitted
            anchor.prefix = length
            if resident < length:
                picked.opened.append((anchor, resident))
            if self._branches is not None:
                self._branches.find(anchor)
        picked.anchors.append(anchor)
        picked.units.append(anchor.pending[:count])
        self._start(anchor, count)
        return True

    def _start(self, anchor: Anchor, count: int) -> None:
        anchor.pending = anchor.pending[count:]
        anchor.running += count
        self.pending -= count

    def _open(self, room: Room, picked: Picked) -> None:
        """Add what is not resident of the anchors' documents and frames."""
        if not picked.opened:
            return
        trunks = Ragged.of(
            np.concatenate([self._prompts.document(anchor).tokens, self._prompts.frame])[resident:]
            for anchor, resident in picked.opened
        )
        contexts = np.array([anchor.context for anchor, _ in picked.opened], dtype=np.int32)
        prefix = np.array([resident for _, resident in picked.opened], dtype=np.int64)
        room.add(AskBlock(contexts, prefix, trunks, trunks.lengths), None)

    def _ask(self, room: Room, picked: Picked) -> None:
        """Add the pairs, each a suffix on its anchor's context or on a start that it shares with others."""
        if not picked.anchors:
            return
        counts = [len(units) for units in picked.units]
        units = np.concatenate(picked.units)
        context = np.repeat(np.array([anchor.context for anchor in picked.anchors], dtype=np.int32), counts)
        prefix = np.repeat(np.array([anchor.prefix for anchor in picked.anchors]), counts)
        skip = None if self._branches is None else self._branches.seen(picked, context, prefix)
        starts = share_starts_of_partners(self._prompts.alike, units, context, prefix, room.memory, skip)
        wanted = [] if self._branches is None else self._branches.made(starts, picked)
        lent = Lent(starts.forks, len(units), wanted)
        self._lent[lent] = None
        for start in starts.blocks:
            room.add(start, None)
        tokens = without_heads(self._prompts.question.take(units), starts.skip)
        none = np.zeros(len(units), dtype=np.int64)
        block = suffix_block(self._prompts.call, starts.context, starts.prefix, tokens, none)
        room.add(block, AskedPairs(picked.anchors, counts, units, lent))

    def _add_whole(self, room: Room, anchor: Anchor, left: int, first: bool) -> bool:
        """Whole prompts, cut to the model's context; for an anchor that cannot stay in memory."""
        lengths = self._prompts.whole_tokens(anchor, anchor.pending)
        count = int(np.searchsorted(np.cumsum(lengths), left, side="right")) or int(first and len(lengths) > 0)
        units = anchor.pending[:count]
        if count:
            self._start(anchor, count)
            room.add(self._prompts.whole_block(anchor, units), AskedPairs([anchor], [count], units))
        return not len(anchor.pending)
