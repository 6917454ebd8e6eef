"""One shape on both sides: chunks in turn, answers compared, tokens counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.common import Spent
from benchmarks.minimum import minimum_tokens
from benchmarks.peers.side import Asks, Outcome, Prompts
from benchmarks.peers.workloads import Workload
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.tokens.assemble import concatenate
from quail_frames.runtime.tokens.ragged import Int64

SETTLE = 0.5
"""Seconds before a turn: OpenMP's threads spin for a while after their last work, on the cores of the next turn."""


class Peer(Asks, Protocol):
    """The other engine, as this module uses it."""

    def gaps(self, prompts: Prompts) -> npt.NDArray[np.float64]:
        """How far the best answer of each prompt is above the second, in logits."""
        ...

    def reset(self) -> None:
        """Forget all cached prefixes."""
        ...


@dataclass(frozen=True)
class Figures:
    """A row of the table. Tokens are those computed; `widest_difference` is the largest logit gap of an answer
    that differs: rounding noise of the dtype, where both sides are right. `ours_exact` and `peer_exact` are the shares
    of answers equal to our engine's in float32, None where nothing differs or no such engine was asked."""

    name: str
    ours_seconds: float
    peer_seconds: float
    speedup: float
    ours_processor_seconds: float
    peer_processor_seconds: float
    agreement: float
    widest_difference: float
    ours_exact: float | None
    peer_exact: float | None
    items: int
    fresh_tokens: int
    peer_tokens: int
    minimum_tokens: int


def measure(name: str, chunks: Sequence[Workload], engine: Engine, peer: Peer, judge: Engine | None = None) -> Figures:
    """Both sides over every chunk; who begins alternates. Where answers differ, `judge` answers too, afterwards.

    The first chunk goes through both sides once before, for memory that is touched the first time comes slowly.
    """
    chunks[0].ours(engine), chunks[0].theirs(peer)
    peer.reset()
    ours: list[Outcome] = []
    theirs: list[Outcome] = []
    for number, chunk in enumerate(chunks):
        for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
            time.sleep(SETTLE)
            if side == "ours":
                ours.append(chunk.ours(engine))
            else:
                theirs.append(chunk.theirs(peer))
    differs = [np.flatnonzero(a.answers != b.answers) for a, b in zip(ours, theirs, strict=True)]
    gaps = [doubt(chunk, items, peer) for chunk, items in zip(chunks, differs, strict=True)]
    exact = [chunk.ours(judge).answers for chunk in chunks] if judge is not None and any(map(len, differs)) else None
    items = sum(len(outcome.answers) for outcome in ours)
    own, other = (sum((outcome.spent for outcome in side), Spent()) for side in (ours, theirs))
    return Figures(
        name=name,
        ours_seconds=own.wall,
        peer_seconds=other.wall,
        speedup=other.wall / own.wall,
        ours_processor_seconds=own.processor,
        peer_processor_seconds=other.processor,
        agreement=1 - sum(map(len, differs)) / items,
        widest_difference=max(gaps),
        ours_exact=None if exact is None else equal(ours, exact),
        peer_exact=None if exact is None else equal(theirs, exact),
        items=items,
        fresh_tokens=sum(outcome.computed for outcome in ours),
        peer_tokens=sum(outcome.computed for outcome in theirs),
        minimum_tokens=sum(needed_tokens(outcome) for outcome in theirs),
    )


def equal(outcomes: Sequence[Outcome], answers: Sequence[Int64]) -> float:
    """Share of answers that are these."""
    return float(np.mean(np.concatenate([a.answers == b for a, b in zip(outcomes, answers, strict=True)])))


def doubt(chunk: Workload, items: npt.NDArray[np.integer], peer: Peer) -> float:
    """The largest gap among these items, an item's being the smallest of its prompts'."""
    if not len(items):
        return 0.0
    prompts = chunk.doubts(items)
    gaps = peer.gaps(prompts)
    return max(float(gaps[prompts.rows == item].min()) for item in items)


def needed_tokens(outcome: Outcome) -> int:
    """Fewest tokens that answer the prompts that had to be asked."""
    lists = concatenate([prompts.lists for prompts in outcome.needed])
    return minimum_tokens(lists, np.concatenate([prompts.rows for prompts in outcome.needed]))
