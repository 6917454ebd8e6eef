"""How often a call's answer passes a test: stated by the user, seen earlier in this process, or assumed.

What runs saw is kept in memory for each call and test, whatever the frame. It orders
questions, which never changes an answer; nothing that is part of a prompt may look at it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Literal

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.conditions import Answer, CallTest, LabelTest

DEFAULT_SELECTIVITY = 0.2
"""Of a TRUE/FALSE call about which nothing is known."""
UNKNOWN_SHARE = 0.5
"""Of a test on a score or a mask."""
Origin = Literal["stated", "remembered", "assumed"]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of the inputs asked passed."""

    passed: float = 0.0
    asked: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.asked + other.asked)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The share that passes, where it comes from, and the number of answers it rests on (0: none)."""

    share: float
    origin: Origin
    answers: float = 0.0


class Memory:
    """What was seen of every call and test in this process; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, CallTest], Counts] = {}

    def add(self, call: AiCall, test: CallTest, counts: Counts) -> None:
        """Remember more answers."""
        if counts.asked:
            key = _key(call, test)
            with self._lock:
                self._seen[key] = self._seen.get(key, Counts()) + counts

    def counts(self, call: AiCall, test: CallTest) -> Counts:
        """What was seen so far."""
        with self._lock:
            return self._seen.get(_key(call, test), Counts())

    def forget(self) -> None:
        """Start afresh."""
        with self._lock:
            self._seen.clear()


SEEN = Memory()
"""The process's memory."""


def estimate(call: AiCall, test: CallTest, seen: Memory | None = SEEN) -> Estimate:
    """The starting estimate: the user's number, else what was seen, else what is assumed without either.

    `seen` None: as if nothing had been seen, for decisions that answers depend on.

    >>> from quail_frames.plan.calls import AiIf
    >>> from quail_frames.plan.template import Slot, Template
    >>> call = AiIf(Template(("Is ", Slot(0), " spam?")), ("body",), selectivity=0.3)
    >>> estimate(call, Answer(0))
    Estimate(share=0.3, origin='stated', answers=0.0)
    """
    if call.selectivity is not None:
        return Estimate(call.selectivity, "stated")
    counts = Counts() if seen is None else seen.counts(call, test)
    if counts.asked:
        return Estimate(counts.passed / counts.asked, "remembered", counts.asked)
    return Estimate(assumed_share(call, test), "assumed")


def assumed_share(call: AiCall, test: CallTest) -> float:
    """What is assumed of a call about which nothing is known: labels are taken as equally likely."""
    if isinstance(test, LabelTest) and isinstance(call, AiClassify):
        share = len(set(test.labels) & set(call.labels)) / len(call.labels)
        return 1 - share if test.negated else share
    return DEFAULT_SELECTIVITY if isinstance(test, Answer) else UNKNOWN_SHARE


def _key(call: AiCall, test: CallTest) -> tuple[str, CallTest]:
    return call.identity, replace(test, call=0)
