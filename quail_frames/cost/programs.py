"""The order of a boolean program's questions: the cheapest decisive ones first.

A program is a condition (AND, OR, NOT) over the answers of several calls. A call that can no longer change it is not
asked (short circuit), so what an order costs follows from the outcomes: every combination of the tests' truths is one
*world*, weighted by its probability, and an order is walked through all worlds at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quail_frames.plan import conditions as logic
from quail_frames.plan.conditions import Condition, Leaf

ENUMERATED = 6
"""Up to so many calls every order is tried; beyond, each as the first and the rest greedily."""
MOST_LEAVES = 10
"""Tests up to which all worlds are listed (1,024); beyond, as many are drawn."""

Bool = npt.NDArray[np.bool_]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Price:
    """What asking one call costs for a row, in any one unit (tokens, seconds).

    Parameters
    ----------
    question
        The call's own part, paid whenever it is asked.
    document
        What it needs resident, shared with the calls of the same key; None where nothing is shared.
    load
        Paid by the first call of a row that needs the document.
    """

    question: float
    document: Hashable | None = None
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class ProgramOrder:
    """Calls in the order asked, and what a row is expected to cost."""

    order: tuple[int, ...]
    cost: float


@dataclass(eq=False)
class Program:
    """A condition over calls `0..len(prices) - 1`, with the share of rows for which each of its tests is TRUE.

    Tests are taken as independent.

    Examples
    --------
    >>> from quail_frames.plan.conditions import And, Answer, Or
    >>> either = Or((Answer(0), Answer(1)))
    >>> Program(either, {Answer(0): 0.1, Answer(1): 0.9}, [Price(10), Price(10)]).best()
    ProgramOrder(order=(1, 0), cost=11.0)
    """

    condition: Condition
    shares: Mapping[Leaf, float]
    prices: Sequence[Price]
    _needs: dict[frozenset[int], Bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.leaves = logic.leaves_of(self.condition)
        self.calls = tuple(dict.fromkeys(leaf.call for leaf in self.leaves if not isinstance(leaf, logic.Mask)))
        self.truth, self.weights = worlds([self.shares[leaf] for leaf in self.leaves])

    def cost(self, order: Sequence[int]) -> float:
        """Expected cost of a row whose calls are asked in this order; calls that the condition lacks cost nothing."""
        walk = _Walk(self)
        for call in order:
            if call in self.calls:
                walk = walk.asked(call)
        return walk.cost

    def best(self) -> ProgramOrder:
        """The cheapest order; equal costs keep the calls as they stand."""
        if len(self.calls) <= ENUMERATED:
            found = self._search(_Walk(self), None)
            assert found is not None
            return found
        return min((self._greedy(first) for first in self.calls), key=lambda each: each.cost)

    def _search(self, walk: _Walk, best: ProgramOrder | None) -> ProgramOrder | None:
        """Branch and bound over the calls not asked yet."""
        rest = [call for call in self.calls if call not in walk.order]
        if not rest:
            return ProgramOrder(walk.order, walk.cost)
        for call in rest:
            following = walk.asked(call)
            if best is None or following.cost < best.cost * (1 - 1e-9):
                best = self._search(following, best) or best
        return best

    def _greedy(self, first: int) -> ProgramOrder:
        """Always the call that costs least for each row that it decides (the pipelined set cover's greedy rule)."""
        walk = _Walk(self).asked(first)
        while len(walk.order) < len(self.calls):
            steps = [walk.asked(call) for call in self.calls if call not in walk.order]
            walk = min(steps, key=lambda step: (step.cost - walk.cost) / max(walk.open - step.open, 1e-9))
        return ProgramOrder(walk.order, walk.cost)

    def asked_in(self, order: Sequence[int]) -> Bool:
        """Which calls are asked in this order, shape (calls, worlds): those that can still change the condition."""
        asked = np.zeros((len(self.prices), len(self.weights)), dtype=np.bool_)
        for place, call in enumerate(order):
            asked[call] = self.needed(frozenset(order[:place]))[call]
        return asked

    @property
    def passing(self) -> Bool:
        """The worlds in which the condition is TRUE."""
        known = logic.Leaves(len(self.weights))
        for leaf, truth in zip(self.leaves, self.truth, strict=True):
            known[leaf] = truth
        return logic.evaluate(self.condition, known) == logic.TRUE

    def needed(self, asked: frozenset[int]) -> Bool:
        """Which calls can still change the condition once these are answered, shape (calls, worlds)."""
        found = self._needs.get(asked)
        if found is None:
            known = logic.Leaves(len(self.weights))
            for leaf, truth in zip(self.leaves, self.truth, strict=True):
                there = isinstance(leaf, logic.Mask) or leaf.call in asked
                known[leaf] = truth if there else np.full_like(truth, logic.PENDING)
            everywhere = np.ones(len(self.weights), dtype=np.bool_)
            found = self._needs[asked] = logic.needed(self.condition, known, everywhere, len(self.prices))
        return found


class _Walk:
    """The first calls of an order: who was asked in which world, what was loaded, and what that costs."""

    def __init__(self, program: Program, order: tuple[int, ...] = (), cost: float = 0.0) -> None:
        self.program, self.order, self.cost = program, order, cost
        self.loaded: dict[Hashable, Bool] = {}

    @property
    def open(self) -> float:
        """Share of rows that are not decided yet."""
        program = self.program
        return float(program.weights[program.needed(frozenset(self.order)).any(axis=0)].sum())

    def asked(self, call: int) -> _Walk:
        """With one more call."""
        program, price = self.program, self.program.prices[call]
        worlds = program.needed(frozenset(self.order))[call]
        after = _Walk(program, (*self.order, call), self.cost + price.question * float(program.weights[worlds].sum()))
        after.loaded = dict(self.loaded)
        if price.document is not None:
            there = self.loaded.get(price.document, np.zeros_like(worlds))
            after.cost += price.load * float(program.weights[worlds & ~there].sum())
            after.loaded[price.document] = there | worlds
        return after


def worlds(shares: Sequence[float]) -> tuple[npt.NDArray[np.int8], Float64]:
    """(truth of every test [tests, worlds], weight of every world)."""
    known = np.array(shares, dtype=np.float64)[:, None]
    if len(shares) > MOST_LEAVES:
        drawn = np.random.default_rng(0).random((len(shares), 1 << MOST_LEAVES))
        return (drawn < known).astype(np.int8), np.full(1 << MOST_LEAVES, 0.5**MOST_LEAVES)
    truth = (np.arange(1 << len(shares)) >> np.arange(len(shares))[:, None]) & 1
    weights = np.prod(np.where(truth == 1, known, 1 - known), axis=0)
    return truth.astype(np.int8), weights
