"""Anchors of a pair join: what each still asks, and what was TRUE."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.memory import Document
from quail_frames.runtime.tokens.ragged import Int64, Ragged

NONE = np.zeros(0, dtype=np.int64)


@dataclass(eq=False)
class Anchor:
    """One distinct anchor: what is still to be asked, and what was TRUE."""

    row: int
    values: dict[int, Ragged] = field(default_factory=dict)
    pending: Int64 = field(default_factory=lambda: NONE)
    asked: Int64 = field(default_factory=lambda: NONE)
    true: list[Int64] = field(default_factory=list)
    running: int = 0
    wave: int = 0
    context: int = -1
    prefix: int = 0
    document: Document | None = None
    start: bytes = b""
    texts: Hashable = None
    """What another join knows it by."""
    branches: list[tuple[int, int, Int64]] = field(default_factory=list)
    """(context, tokens of its start, partner units that begin so), left by another join."""

    @property
    def done(self) -> bool:
        """Nothing is pending or under way."""
        return not len(self.pending) and not self.running

    def want(self, units: Int64) -> int:
        """Ask these partner units too, as far as they were not; returns how many are new."""
        fresh = units if not len(self.asked) else np.setdiff1d(units, self.asked, assume_unique=True)
        if len(fresh):
            self.pending = np.concatenate([self.pending, fresh])
            self.asked = units if not len(self.asked) else np.union1d(self.asked, fresh)
        return len(fresh)

    def answer(self, truths: npt.NDArray[np.int8], first: bool) -> None:
        """What is known of the pending partners: 1, 0, or -1 where it has to be asked; `first`: one TRUE will do."""
        passed = self.pending[truths == 1]
        if len(passed):
            self.true.append(passed)
        self.pending = NONE if first and len(passed) else self.pending[truths < 0]


@dataclass(frozen=True, eq=False)
class Branch:
    """A copy of an anchor's context that holds what some partners `start` with; `document`: all that it holds."""

    context: int
    anchor: Hashable
    document: Document
    start: npt.NDArray[np.int32]


@dataclass(eq=False)
class Lent:
    """Contexts that a block's pairs read, to be closed once none of `pairs` pairs waits for its answer.

    Those of `branches` stay for another join instead.
    """

    contexts: npt.NDArray[np.int32]
    pairs: int
    branches: list[Branch] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class AskedPairs:
    """Tag of a block: `counts[i]` partner units of `anchors[i]`, joined in `units`."""

    anchors: list[Anchor]
    counts: list[int]
    units: Int64
    lent: Lent | None = None

    def part(self, rows: Int64) -> AskedPairs:
        """The tag of some of the block's pairs, in ascending order."""
        which = np.searchsorted(np.cumsum(self.counts), rows, side="right")
        numbers, counts = np.unique(which, return_counts=True)
        return AskedPairs(
            [self.anchors[number] for number in numbers.tolist()], counts.tolist(), self.units[rows], self.lent
        )


@dataclass(eq=False)
class Picked:
    """Pairs chosen for the batch being filled."""

    anchors: list[Anchor] = field(default_factory=list)
    units: list[Int64] = field(default_factory=list)
    opened: list[tuple[Anchor, int]] = field(default_factory=list)
    tokens: int = 0
