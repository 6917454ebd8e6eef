"""Chains are priced by the rows that each call is expected to be asked of, and the cheapest order is taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.optimizer.chain import chain_price
from quail_frames.optimizer.flow import flow_of
from quail_frames.optimizer.orders import call_orders
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.choose_by_cost import choose_by_cost
from quail_frames.optimizer.rules.order_calls import order_calls
from quail_frames.optimizer.statistics import ColumnFigures, SourceFigures, Statistics
from quail_frames.optimizer.tables import table_of
from quail_frames.plan.calls import AiClassify
from quail_frames.plan.conditions import And, Answer, Condition, Not, Or, ScoreTest
from quail_frames.plan.logical import Ask, CallUse, Expression, Filter, Slice, Source, Test
from tests.optimizer.plans import SOURCE, expr, keeps, question, sort

PRICES = Prices.assumed()


def program(condition: Condition, *uses: CallUse) -> Expression:
    """A predicate over several calls."""
    return Expression(None, str(condition), (), str(condition), frozenset(), True, uses, Test(condition))


@st.composite
def chains(draw: st.DrawFn, most: int = 4) -> Ask:
    """Filters of one call, about one of two columns, some of them long."""
    uses = [
        question(
            f"q{number}" + " and more" * draw(st.sampled_from([0, 5, 40])),
            on=draw(st.sampled_from(["a", "b"])),
            selectivity=draw(st.floats(0.01, 0.99)),
        )
        for number in range(draw(st.integers(2, most)))
    ]
    return Ask(SOURCE, keep=tuple(map(keeps, uses)), answers=tuple(uses[: draw(st.integers(0, 1))]))


@given(chains())
def test_the_chosen_order_is_the_cheapest_of_all(ask: Ask) -> None:
    ordered = order_calls(ask, PRICES)
    assert isinstance(ordered, Ask)
    table = table_of(SOURCE, PRICES)

    def seconds(order: tuple[str, ...]) -> float:
        return PRICES.target.marginal(chain_price(ask, order, table, PRICES).work).seconds

    columns = tuple(use.column for use in ask.calls)
    # A roofline of a sum may be below the sum of rooflines: by little, and never above.
    assert seconds(ordered.order) <= min(map(seconds, permutations(columns))) * 1.02


@st.composite
def programs(draw: st.DrawFn) -> tuple[Condition, list[CallUse]]:
    """Boolean programs over up to four calls."""
    uses = [question(f"q{number}", selectivity=draw(st.floats(0.05, 0.95))) for number in range(4)]
    leaves = [Answer(number) for number in range(4)]
    conditions = st.recursive(
        st.sampled_from(leaves),
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(And, st.tuples(inner, inner))
            | st.builds(Or, st.tuples(inner, inner, inner))
        ),
        max_leaves=5,
    )
    return draw(conditions), uses


def decided(condition: Condition, known: dict[int, bool]) -> bool | None:
    """Truth where the known answers decide it."""
    if isinstance(condition, Not):
        inner = decided(condition.term, known)
        return None if inner is None else not inner
    if isinstance(condition, And | Or):
        terms = [decided(term, known) for term in condition.terms]
        decisive = isinstance(condition, Or)
        return decisive if decisive in terms else None if None in terms else not decisive
    return known.get(condition.call)  # type: ignore[union-attr]


def useful(condition: Condition, known: dict[int, bool]) -> set[int]:
    """Calls that can still change the condition."""
    if decided(condition, known) is not None:
        return set()
    if isinstance(condition, Not):
        return useful(condition.term, known)
    if isinstance(condition, And | Or):
        return set().union(*(useful(term, known) for term in condition.terms))
    return {condition.call}  # type: ignore[union-attr]


@given(programs(), st.permutations(range(4)))
def test_expected_asks_are_those_of_every_outcome_asked_one_by_one(found, order: list[int]) -> None:
    condition, uses = found
    ask = Ask(SOURCE, keep=(program(condition, *uses),))
    flow = flow_of(ask, [uses[number].column for number in order], PRICES)
    expected, kept = np.zeros(4), 0.0
    for outcome in product([False, True], repeat=4):
        weight = np.prod(
            [u.call.selectivity if o else 1 - u.call.selectivity for u, o in zip(uses, outcome, strict=True)]
        )
        known: dict[int, bool] = {}
        while needed := useful(condition, known):
            call = next(number for number in order if number in needed)
            known[call] = outcome[call]
            expected[call] += weight
        kept += weight * bool(decided(condition, known))
    assert [flow.share(number) for number in range(4)] == pytest.approx(expected)
    assert flow.kept == pytest.approx(kept)


def test_a_program_of_many_tests_is_priced_without_listing_their_outcomes() -> None:
    uses = [question("a"), question("b")]
    many = Or((Answer(0), *(ScoreTest(1, "gt", number / 40) for number in range(40))))  # 2 ** 41 outcomes
    flow = flow_of(Ask(SOURCE, keep=(program(many, *uses),)), [use.column for use in uses], PRICES)
    assert [flow.share(number) for number in range(2)] == pytest.approx([1.0, 1.0])


def test_a_conjunction_asks_those_that_are_left_and_answers_are_asked_of_the_kept() -> None:
    a, b, c = question("a", selectivity=0.25), question("b", selectivity=0.5), question("c")
    ask = Ask(SOURCE, keep=(keeps(a), keeps(b)), answers=(a, c))
    flow = flow_of(ask, [b.column, a.column, c.column], PRICES)
    assert [flow.share(number) for number in range(3)] == pytest.approx([0.5, 1.0, 0.125])
    assert flow.kept == pytest.approx(0.125)


def test_inside_a_program_the_cheap_question_that_decides_comes_first() -> None:
    dear = question("dear" + " and more" * 60, selectivity=0.5)
    cheap = question("cheap", selectivity=0.9)
    for condition in (Or((Answer(0), Answer(1))), Not(And((Not(Answer(0)), Not(Answer(1)))))):
        ask = Ask(SOURCE, keep=(program(condition, dear, cheap),))
        assert call_orders(ask, table_of(SOURCE, PRICES), PRICES)[0].columns == (cheap.column, dear.column)


REVIEWS = Source(object(), "reviews", ("a", "b"), 1000)


def known(**columns: ColumnFigures) -> Prices:
    figures = SourceFigures(1000.0, "counted", columns, 256)
    return PRICES.about(Statistics({id(REVIEWS.frame): figures}, passing={expr("cheap", "b").key: 0.3}))


def test_long_texts_turn_the_order() -> None:
    about_a, about_b = question("x", on="a", selectivity=0.5), question("y", on="b", selectivity=0.6)
    ask = Ask(REVIEWS, keep=(keeps(about_a), keeps(about_b)))
    short_b = known(a=ColumnFigures(900.0), b=ColumnFigures(5.0))
    short_a = known(a=ColumnFigures(5.0), b=ColumnFigures(900.0))
    for prices, first in ((short_b, about_b), (short_a, about_a)):
        ordered = order_calls(ask, prices)
        assert isinstance(ordered, Ask) and ordered.order[0] == first.column


def test_rows_follow_filters_limits_and_distinct_texts() -> None:
    prices = known(a=ColumnFigures(10.0, distinct=40.0))
    kept = Filter(REVIEWS, (expr("cheap", "b"),))
    assert table_of(kept, prices).rows == pytest.approx(300)
    assert table_of(Slice(sort(kept, "b"), 0, 20), prices).rows == 20
    ask = Ask(kept, keep=(keeps(question("q", selectivity=0.1)),))
    assert table_of(ask, prices).rows == pytest.approx(30)
    price = chain_price(ask, [use.column for use in ask.calls], table_of(kept, prices), prices)
    assert sum(price.asks) == 40  # equal texts are asked once
    few = replace(ask, limit=3)
    price = chain_price(few, [use.column for use in few.calls], table_of(kept, prices), prices)
    assert sum(price.asks) == pytest.approx(30)  # three of ten in a hundred


def test_by_cost_takes_what_makes_the_chain_cheapest() -> None:
    short = known(a=ColumnFigures(8.0))
    long = known(a=ColumnFigures(2000.0))
    few = ("yes", "no", "perhaps")
    for prices, layout in ((short, "question_first"), (long, "document_first")):
        use = question("label it", kind=AiClassify, labels=few, layout="by_cost", scoring="by_cost")
        other = question("q")
        chosen = choose_by_cost(Ask(REVIEWS, keep=(keeps(other),), answers=(use,)), prices)
        assert isinstance(chosen, Ask)
        (call,) = [each.call for each in chosen.answers]
        assert isinstance(call, AiClassify)
        assert (chosen.answers[0].column, chosen.keep) == (use.column, (keeps(other),))
        assert call.scoring in ("letters", "trie_decode", "trie_tree")
        assert call.layout == layout
