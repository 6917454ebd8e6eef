"""What an order of a boolean program's questions costs, and that the chosen one is the cheapest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.cost.ordering import Predicate, order_seconds
from quail_frames.cost.programs import Price, Program
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest, Leaf, Mask, Not, Or, ScoreTest, leaves_of

CALLS = 4
LEAVES: list[Leaf] = [
    Answer(0),
    Answer(1),
    ScoreTest(2, "gt", 0.5),
    ScoreTest(2, "lt", 0.1),
    LabelTest(3, ("x",)),
    Mask(0),
]


def conditions() -> st.SearchStrategy[Condition]:
    def joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        terms = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(inner.map(Not), terms.map(And), terms.map(Or))

    return st.recursive(st.sampled_from(LEAVES), joined, max_leaves=6)


def value(condition: Condition, known: dict[Leaf, bool]) -> bool | None:
    """Kleene's logic, one world at a time; None: not known yet."""
    if isinstance(condition, Not):
        inner = value(condition.term, known)
        return None if inner is None else not inner
    if isinstance(condition, And | Or):
        deciding = isinstance(condition, Or)
        terms = [value(term, known) for term in condition.terms]
        return deciding if deciding in terms else None if None in terms else not deciding
    return known.get(condition)


def wanted(condition: Condition, known: dict[Leaf, bool]) -> set[int]:
    """Calls that can still change the condition."""
    if value(condition, known) is not None or isinstance(condition, Mask):
        return set()
    if isinstance(condition, Not):
        return wanted(condition.term, known)
    if isinstance(condition, And | Or):
        return set().union(*(wanted(term, known) for term in condition.terms))
    return {condition.call}


def expected_cost(
    condition: Condition, shares: dict[Leaf, float], prices: Sequence[Price], order: Sequence[int]
) -> float:
    """Every world walked through on its own."""
    leaves, total = leaves_of(condition), 0.0
    for truths in itertools.product([False, True], repeat=len(leaves)):
        world = dict(zip(leaves, truths, strict=True))
        weight = math.prod(shares[leaf] if world[leaf] else 1 - shares[leaf] for leaf in leaves)
        known = {leaf: truth for leaf, truth in world.items() if isinstance(leaf, Mask)}
        loaded: set[object] = set()
        for call in order:
            if call in wanted(condition, known):
                price = prices[call]
                missing = price.document is not None and price.document not in loaded
                total += weight * (price.question + (price.load if missing else 0))
                loaded.add(price.document)
                known |= {leaf: world[leaf] for leaf in leaves if not isinstance(leaf, Mask) and leaf.call == call}
    return total


@given(
    condition=conditions(),
    shares=st.lists(st.sampled_from([0.05, 0.3, 0.9]), min_size=len(LEAVES), max_size=len(LEAVES)),
    documents=st.lists(st.sampled_from([None, "a", "b"]), min_size=CALLS, max_size=CALLS),
    questions=st.lists(st.integers(1, 50), min_size=CALLS, max_size=CALLS),
)
@settings(max_examples=60)
def test_the_chosen_order_costs_the_least_and_what_walking_every_world_says(
    condition: Condition, shares: list[float], documents: list[str | None], questions: list[int]
) -> None:
    named = dict(zip(LEAVES, shares, strict=True))
    prices = [Price(float(q), document, 100.0) for q, document in zip(questions, documents, strict=True)]
    program = Program(condition, named, prices)
    costs = {order: program.cost(order) for order in itertools.permutations(program.calls)}
    for order, cost in costs.items():
        assert cost == pytest.approx(expected_cost(condition, named, prices, order))
    best = program.best()
    assert best.cost == pytest.approx(min(costs.values())) and best.cost == pytest.approx(costs[best.order])


def test_a_conjunction_costs_what_the_order_of_predicates_says() -> None:
    shares = {Answer(n): share for n, share in enumerate((0.5, 0.1, 0.8))}
    prices = [Price(20, "d", 200), Price(40, "e", 50), Price(10, "d", 200)]
    predicates = [
        Predicate("", p.question + p.load, p.question, shares[Answer(n)], p.document) for n, p in enumerate(prices)
    ]
    program = Program(And(tuple(shares)), shares, prices)
    for order in itertools.permutations(range(3)):
        assert program.cost(order) == pytest.approx(order_seconds(predicates, order))


def test_what_decides_an_or_comes_first() -> None:
    program = Program(
        Or((Answer(0), And((Answer(1), Answer(2))))),
        {Answer(n): s for n, s in enumerate((0.1, 0.5, 0.5))},
        [Price(10)] * 3,
    )
    assert program.best().order[0] != 0, "the AND is true more often than the first answer"


def test_many_calls_are_ordered_greedily_and_well() -> None:
    shares = {Answer(n): 0.1 + 0.1 * (n % 8) for n in range(9)}
    program = Program(And(tuple(shares)), shares, [Price(10, "d", 100)] * 9)
    best = program.best()
    assert best.order[0] in (0, 8) and sorted(best.order) == list(range(9))
    assert best.cost <= program.cost(tuple(range(9))) * (1 + 1e-9)
