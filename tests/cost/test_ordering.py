"""Predicate order: the cheapest of all orders, with the first question paying for the document."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.cost.ordering import Predicate, order_predicates, order_seconds

seconds = st.floats(0.001, 10)


@st.composite
def predicates(draw: st.DrawFn, most: int = 5) -> list[Predicate]:
    """Predicates over up to two documents; some can re-use nothing."""
    document = st.sampled_from(["body", "title", None])
    out = []
    for i in range(draw(st.integers(1, most))):
        about, warm = draw(document), draw(seconds)
        cold = warm + (draw(seconds) if about is not None else 0.0)
        out.append(Predicate(str(i), cold, warm, draw(st.floats(0, 1)), about))
    return out


@given(predicates(), st.sampled_from([frozenset(), frozenset({"body"})]))
def test_up_to_six_predicates_get_the_cheapest_of_all_orders(asked: list[Predicate], resident: frozenset[str]) -> None:
    ordering = order_predicates(asked, resident)
    every = [order_seconds(asked, order, resident) for order in permutations(range(len(asked)))]
    assert ordering.seconds == min(every)
    assert len(ordering.orders) == len(every)


@given(st.lists(st.tuples(seconds, st.floats(0, 1)), min_size=7, max_size=7), seconds)
def test_seven_predicates_over_one_document_still_get_the_cheapest(
    asked: list[tuple[float, float]], document: float
) -> None:
    chain = [Predicate(str(i), document + warm, warm, passes) for i, (warm, passes) in enumerate(asked)]
    ranked = order_predicates(chain)
    assert sorted(ranked.order) == list(range(7))
    for first in range(7):
        # The rest follow by rank, which no exchange of neighbours improves.
        order = next(each for each in ranked.orders if each.order[0] == first)
        for i in range(1, 6):
            swapped = list(order.order)
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
            assert order.seconds <= order_seconds(chain, swapped) * (1 + 1e-9)


def test_the_first_predicate_pays_for_the_document() -> None:
    asked = [Predicate("a", cold=10, warm=1, selectivity=0.5), Predicate("b", cold=12, warm=3, selectivity=0.1)]
    assert order_seconds(asked, (0, 1)) == 10 + 0.5 * 3
    assert order_seconds(asked, (1, 0)) == 12 + 0.1 * 1
    assert order_seconds(asked, (0, 1), frozenset({"document"})) == 1 + 0.5 * 3


def test_selectivity_turns_the_order() -> None:
    weak = Predicate("weak", cold=10, warm=1, selectivity=0.95)
    strong = Predicate("strong", cold=10, warm=1, selectivity=0.05)
    assert order_predicates([weak, strong]).order == (1, 0)
    assert order_predicates([strong, weak]).order == (0, 1)


def test_equal_predicates_keep_the_order_given() -> None:
    assert order_predicates([Predicate("x", 2, 1, 0.5)] * 4).order == (0, 1, 2, 3)
    assert order_predicates([Predicate("x", 2, 1, 0.5)] * 8).order == tuple(range(8))


@pytest.mark.parametrize("count", [6, 10])
def test_ordering_takes_milliseconds(count: int) -> None:
    asked = [Predicate(str(i), 10.0 + i, 1.0 + i, i / count) for i in range(count)]
    start = time.perf_counter()
    order_predicates(asked)
    assert time.perf_counter() - start < 0.2
