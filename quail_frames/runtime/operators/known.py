"""Answers that a query's operators leave to each other: where two of them ask the same of the same texts, the later
one takes what the earlier was told.

Answers are found by the texts (long ones by a 128-bit hash), never by rows, so it does not matter from which columns
or tables they came.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.operators.lane import CallState, Growing
from quail_frames.runtime.tokens.ragged import Int32, Int64

Int8 = npt.NDArray[np.int8]
MOST_ROWS = 1 << 22
"""Texts of a call whose answers are known; beyond, the memory starts afresh."""
MOST_PAIRS = 1 << 27
"""Pairs of a call whose answers are known, a byte for each; beyond, the anchors that came first are forgotten."""
UNKNOWN = -1
Known = TypeVar("Known", "KnownRows", "KnownPairs")


class KnownRows:
    """Answers of a call by the texts that it was asked about."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._slots: dict[Hashable, int] = {}
        self._answers: CallState | None = None

    def slots(self, keys: Sequence[Hashable]) -> Int64:
        """Where each text's answer is, -1 where none is known."""
        return np.array([self._slots.get(key, UNKNOWN) for key in keys], dtype=np.int64)

    def recall(self, slots: Int64, state: CallState, units: Int64) -> None:
        """The answers at `slots` are those of these units."""
        assert self._answers is not None
        _copy(self._answers, slots, state, units)

    def add(self, keys: Sequence[Hashable], state: CallState, units: Int64) -> None:
        """Take over the answers of these units."""
        if self._answers is None:
            self._answers = CallState(state.call)
        if len(self._slots) > self._most:
            self._slots.clear()
        slots = np.array([self._slots.setdefault(key, len(self._slots)) for key in keys], dtype=np.int64)
        self._answers.reach(len(self._slots))
        _copy(state, units, self._answers, slots)


def _copy(one: CallState, of: Int64, other: CallState, to: Int64) -> None:
    stores: list[tuple[Growing | None, Growing | None]] = [
        (one.values, other.values),
        (one.probabilities, other.probabilities),
        (one.state, other.state),
    ]
    for source, target in stores:
        if source is not None and target is not None:
            target.data[to] = source.data[of]


class KnownPairs:
    """Truths of a join's pairs, by the texts of the anchor and those of the partner."""

    def __init__(self, most: int = MOST_PAIRS) -> None:
        self._most = most
        self._numbers: dict[Hashable, int] = {}
        self._truths: dict[Hashable, Int8] = {}
        self._held = 0
        self.branches: dict[Hashable, list[Int32]] = {}
        """Starts of partners that memory may hold behind an anchor; see `branches.py`."""

    def numbers(self, partners: Sequence[Hashable]) -> Int64:
        """A number for each partner's texts, the same whenever they come."""
        return np.array([self._numbers.setdefault(key, len(self._numbers)) for key in partners], dtype=np.int64)

    def truths(self, anchor: Hashable, partners: Int64) -> Int8:
        """1 or 0 for each partner, by its number, that this anchor was asked with; -1 for the others."""
        own = self._truths.get(anchor)
        found = np.full(len(partners), UNKNOWN, dtype=np.int8)
        if own is not None:
            near = partners < len(own)
            found[near] = own[partners[near]]
        return found

    def add(self, anchor: Hashable, partners: Int64, truths: npt.NDArray[np.bool_]) -> None:
        """The anchor was asked with these partners."""
        own = self._truths.get(anchor)
        if own is None or len(own) < len(self._numbers):
            grown = np.full(len(self._numbers), UNKNOWN, dtype=np.int8)
            grown[: 0 if own is None else len(own)] = () if own is None else own
            self._held += len(grown) - (0 if own is None else len(own))
            own = self._truths[anchor] = grown
        own[partners] = truths
        while self._held > self._most and len(self._truths) > 1:
            self._held -= len(self._truths.pop(next(iter(self._truths))))


@dataclass
class _Shared:
    """A call's answers, and the queries that may come back for them."""

    known: KnownRows | KnownPairs
    owners: list[object] = field(default_factory=list)


class KnownAnswers:
    """The answers that an engine's queries leave to their own operators, by call; see `PairJoin.remember`."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _Shared] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def rows(self, planned: PlannedCall, owner: object) -> KnownRows:
        """Of a call asked of rows, until its owner ends."""
        return self._of(("rows", *_question(planned)), owner, KnownRows)

    def pairs(self, planned: PlannedCall, anchor_columns: int, owner: object) -> KnownPairs:
        """Of a call asked of pairs, until its owner ends."""
        return self._of(("pairs", anchor_columns, *_question(planned)), owner, KnownPairs)

    def end(self, owner: object) -> None:
        """Forget what no other owner may come back for."""
        for key, shared in list(self._calls.items()):
            shared.owners = [each for each in shared.owners if each is not owner]
            if not shared.owners:
                del self._calls[key]

    def _of(self, key: Hashable, owner: object, make: Callable[[], Known]) -> Known:
        shared = self._calls.setdefault(key, _Shared(make()))
        if all(each is not owner for each in shared.owners):
            shared.owners.append(owner)
        return shared.known  # type: ignore[return-value]


def _question(planned: PlannedCall) -> tuple[Hashable, ...]:
    """What decides an answer besides the texts; which slots show the same column, because keys name each once."""
    columns = list(dict.fromkeys(planned.inputs))
    shown = tuple(columns.index(column) for column in planned.inputs)
    return planned.call.wording, planned.layout, planned.scoring, planned.anchors, shown
