"""Which rows of a chain are asked which call, as expected shares.

Boolean programs are walked through all outcomes of their tests (`quail_frames.cost.programs`, by the truth tables that
the runtime decides by); conjunctions of single tests, and programs of many leaves, follow the closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quail_frames.cost.programs import MOST_LEAVES, Bool, Float64, Price, Program
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.selectivity import passing_share
from quail_frames.optimizer.tables import predicate_share
from quail_frames.plan import conditions as logic
from quail_frames.plan.logical import Ask, CallUse


@dataclass(frozen=True, eq=False)
class Flow:
    """What becomes of a chain's rows: `asked[c, o]` says whether call c is asked in outcome o of share `weights[o]`."""

    asked: Bool
    weights: Float64
    kept: float

    def share(self, call: int) -> float:
        """Share of rows that are asked a call."""
        return self.reached([call])

    def reached(self, calls: Sequence[int]) -> float:
        """Share of rows that are asked at least one of these calls."""
        return float(self.weights[self.asked[list(calls)].any(axis=0)].sum()) if len(calls) else 0.0


def flow_of(ask: Ask, order: Sequence[str], prices: Prices) -> Flow:
    """Expected shares of a chain's rows that are asked each of `ask.calls`, in this order."""
    calls = ask.calls
    numbers = {use.column: number for number, use in enumerate(calls)}
    wanted = [numbers[use.column] for use in ask.answers]
    asked_in = [numbers[column] for column in order]
    leaves = sum(len(logic.leaves_of(predicate.test.condition)) for predicate in ask.keep if predicate.test)
    if _is_plain(ask) or leaves > MOST_LEAVES:
        return _sequence(ask, asked_in, numbers, wanted, prices)
    return _enumerated(ask, asked_in, numbers, wanted, prices)


def _is_plain(ask: Ask) -> bool:
    """Every predicate tests one call, and no call stands in two."""
    columns = [use.column for predicate in ask.keep for use in predicate.calls]
    return all(len(p.calls) == 1 for p in ask.keep) and len(set(columns)) == len(columns)


def _sequence(ask: Ask, order: Sequence[int], numbers: dict[str, int], wanted: Sequence[int], prices: Prices) -> Flow:
    """One outcome for every call at which a row may end: predicates in order, each with all its calls."""
    place = {number: at for at, number in enumerate(order)}
    tests = sorted(ask.keep, key=lambda p: min(place[numbers[use.column]] for use in p.calls))
    asked = np.zeros((len(ask.calls), len(tests) + 1), dtype=np.bool_)
    weights, alive = np.zeros(len(tests) + 1), 1.0
    for at, predicate in enumerate(tests):
        asked[[numbers[use.column] for use in predicate.calls], at:] = True
        share = predicate_share(predicate, prices)
        weights[at] = alive * (1 - share)
        alive *= share
    weights[-1] = alive
    asked[wanted, -1] = True
    return Flow(asked, weights, alive)


def _enumerated(ask: Ask, order: Sequence[int], numbers: dict[str, int], wanted: Sequence[int], prices: Prices) -> Flow:
    masks = {mask.key: mask for p in ask.keep if p.test for mask in p.test.masks}
    keys = list(masks)
    tests: list[logic.Condition] = []
    for predicate in ask.keep:
        assert predicate.test is not None, "a predicate of an Ask has a test"
        own = [numbers[use.column] for use in predicate.calls]
        tests.append(logic.renumbered(predicate.test.condition, own, [keys.index(m.key) for m in predicate.test.masks]))
    condition = logic.And(tuple(tests))
    masked = [prices.statistics.share(masks[key]) for key in keys]
    shares = {leaf: _leaf_share(leaf, ask.calls, masked, prices) for leaf in logic.leaves_of(condition)}
    program = Program(condition, shares, [Price(0.0)] * len(ask.calls))
    asked = program.asked_in(order)
    kept = program.passing
    asked[wanted] |= kept
    return Flow(asked, program.weights, float(program.weights[kept].sum()))


def _leaf_share(leaf: logic.Leaf, calls: Sequence[CallUse], masks: Sequence[float], prices: Prices) -> float:
    return masks[leaf.mask] if isinstance(leaf, logic.Mask) else passing_share(leaf, calls, prices.seen)
