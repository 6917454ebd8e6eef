"""Which rows of a chain are asked which call: expected shares, by the truth tables that the runtime decides by.

Every combination of outcomes of the conditions' leaves is one column of an array, weighted by its probability (leaves
are taken as independent); the columns are then asked as the runtime asks rows. Conjunctions of single tests, and
programs of many leaves, follow the closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quail_frames.cost.programs import MOST_LEAVES, Bool, Float64, worlds
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
    tests = []
    for predicate in ask.keep:
        assert predicate.test is not None, "a predicate of an Ask has a test"
        own = [numbers[use.column] for use in predicate.calls]
        tests.append(logic.renumbered(predicate.test.condition, own, [keys.index(m.key) for m in predicate.test.masks]))
    leaves = tuple(dict.fromkeys(leaf for test in tests for leaf in logic.leaves_of(test)))
    shares = [_leaf_share(leaf, ask.calls, [prices.statistics.share(masks[key]) for key in keys]) for leaf in leaves]
    truth, weights = worlds(shares)
    return _asked(tests, leaves, truth, weights, order, wanted, len(ask.calls))


def _leaf_share(leaf: logic.Leaf, calls: Sequence[CallUse], masks: Sequence[float]) -> float:
    return masks[leaf.mask] if isinstance(leaf, logic.Mask) else passing_share(leaf, calls)


def _asked(
    tests: Sequence[logic.Condition],
    leaves: Sequence[logic.Leaf],
    truth: logic.Truth,
    weights: Float64,
    order: Sequence[int],
    wanted: Sequence[int],
    calls: int,
) -> Flow:
    """Ask every outcome the first call that can still change it, until none can."""
    asked = np.zeros((calls, len(weights)), dtype=np.bool_)
    while True:
        known = logic.Leaves(len(weights))
        for leaf, values in zip(leaves, truth, strict=True):
            open_ = np.zeros_like(values, dtype=np.bool_) if isinstance(leaf, logic.Mask) else ~asked[leaf.call]
            known[leaf] = np.where(open_, logic.PENDING, values).astype(np.int8)
        dropped, need = _verdict(tests, known, wanted, asked)
        waiting = need.any(axis=0)
        if not waiting.any():
            return Flow(asked, weights, float(weights[~dropped].sum()))
        for number in order:
            mine = waiting & need[number]
            asked[number] |= mine
            waiting &= ~mine


def _verdict(
    tests: Sequence[logic.Condition], known: logic.Leaves, wanted: Sequence[int], asked: Bool
) -> tuple[Bool, Bool]:
    """(outcomes that are dropped, calls still needed), as the runtime judges rows."""
    dropped, pending = np.zeros(known.rows, dtype=np.bool_), np.zeros(known.rows, dtype=np.bool_)
    for test in tests:
        for part in logic.conjuncts(test):
            verdict = logic.evaluate(part, known)
            dropped |= verdict == logic.FALSE
            pending |= verdict == logic.PENDING
    need = np.zeros(asked.shape, dtype=np.bool_)
    for test in tests:
        need |= logic.needed(test, known, ~dropped, len(asked))
    need[list(wanted)] |= ~dropped & ~pending & ~asked[list(wanted)]
    return dropped, need
