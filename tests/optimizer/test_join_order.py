"""Join order by dynamic programming: the least modelled cost of all left-deep plans, orders, anchors and retentions."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.cost.choices import Target
from quail_frames.cost.devices import DEVICES
from quail_frames.cost.shapes import shape
from quail_frames.cost.work import Work
from quail_frames.optimizer.join_order import (
    Form,
    JoinPlan,
    Joins,
    Question,
    State,
    Step,
    Text,
    alive,
    best_plan,
    resident_tokens,
    rows_of,
    state_after,
    step_seconds,
    steps_from,
)
from quail_frames.optimizer.join_plans import planned_joins

TARGET = Target.of(shape("qwen3-4b-fp8"), DEVICES["h100-sxm"])


def seconds(work: Work) -> float:
    return TARGET.marginal(work).seconds


def tokens(work: Work) -> float:
    return work.new_tokens


def pair(a: int, b: int, share: float = 0.1, lengths: tuple[float, float] = (100, 20), **options: int) -> Question:
    texts = (Text(a, "t", lengths[0]), Text(b, "t", lengths[1]))
    return Question(f"{a}-{b}", texts, (Form(frame=30),) * 2, share, **options)


@st.composite
def problems(draw: st.DrawFn) -> Joins:
    """Up to 4 relations joined by a tree of questions, with further ones about two of them: 4 questions at most."""
    size = draw(st.integers(2, 4))
    rows = tuple(float(draw(st.sampled_from([1, 3, 40, 1000]))) for _ in range(size))
    texts = [Text(number, "t", float(draw(st.sampled_from([5, 60, 400])))) for number in range(size)]
    shares = st.sampled_from([0.01, 0.3, 0.9])
    edges = [(draw(st.integers(0, number - 1)), number) for number in range(1, size)]
    edges += draw(st.lists(st.sampled_from(list(combinations(range(size), 2))), max_size=4 - len(edges)))
    lengths = st.sampled_from([8.0, 50.0])
    questions = tuple(
        Question(f"{n}", (texts[left], texts[right]), (Form(frame=draw(lengths)),) * 2, draw(shares))
        for n, (left, right) in enumerate(edges)
    )
    budget = draw(st.sampled_from([0.0, 2_000.0, math.inf]))
    return Joins(rows, questions, draw(st.sampled_from([seconds, tokens])), budget)


def every_plan(joins: Joins, state: State, so_far: JoinPlan) -> Iterator[JoinPlan]:
    """Complete enumeration, one plan at a time."""
    if len(state.asked) == len(joins.questions):
        if state.joined >= joins.relations:
            yield so_far
        return
    for step in steps_from(joins, state):
        cost, after = step_seconds(joins, state, step), state_after(joins, state, step)
        kept = resident_tokens(joins, after)
        if kept <= joins.kv_budget:
            plan = JoinPlan((*so_far.steps, step), so_far.seconds + cost, max(so_far.kv_tokens, kept))
            yield from every_plan(joins, after, plan)


@given(problems())
@settings(max_examples=20, deadline=None)
def test_the_chosen_plan_costs_the_least_of_all_plans(joins: Joins) -> None:
    found = best_plan(joins)
    least = min((plan.seconds for plan in every_plan(joins, State(), JoinPlan())), default=None)
    assert (found is None) == (least is None)
    if found is not None and least is not None:
        assert math.isclose(found.seconds, least, rel_tol=1e-9)
        assert math.isclose(_cost(joins, found.steps), least, rel_tol=1e-9)
        assert found.kv_tokens <= joins.kv_budget


@given(problems())
@settings(max_examples=15, deadline=None)
def test_a_plan_whose_rows_wait_is_taken_only_where_it_saves_a_fifth(joins: Joins) -> None:
    joins = replace(joins, kv_budget=math.inf)
    plans = list(every_plan(joins, State(), JoinPlan()))
    as_written = tuple(range(len(joins.questions)))
    streaming = [p.seconds for p in plans if p.order == as_written and all(step.anchor == 0 for step in p.steps)]
    found, least = planned_joins(joins, movable=True), min(plan.seconds for plan in plans)
    worth_it = least < 0.8 * min(streaming)
    assert math.isclose(found.taken.seconds, least if worth_it else min(streaming), rel_tol=1e-9)
    fixed = planned_joins(joins, movable=False)
    assert fixed.taken.order == as_written and fixed.taken.seconds >= found.cheapest.seconds * (1 - 1e-9)
    anchored = planned_joins(joins.anchored([0 if found.anchor(n) == "left" else 1 for n in as_written]), movable=True)
    assert anchored.taken.order == found.taken.order, "the order is the one that the anchors were chosen with"


def test_of_plans_that_cost_the_same_one_is_taken_whatever_anchors_are_fixed() -> None:
    """Questions 2 and 3 may change places: nothing is told apart by which of them is asked first."""
    texts = [Text(relation, "t", 5.0) for relation in range(4)]
    sides, shares = [(0, 1), (0, 2), (0, 3), (2, 3)], (0.01, 0.01, 0.9, 0.9)
    questions = tuple(
        Question(f"{n}", (texts[left], texts[right]), (Form(frame=8.0, suffix=4.0, head_rows=1.0),) * 2, share)
        for n, ((left, right), share) in enumerate(zip(sides, shares, strict=True))
    )
    joins = Joins((1.0, 1000.0, 1.0, 3.0), questions, seconds, math.inf)
    found = planned_joins(joins, movable=True)
    anchors = [0 if found.anchor(number) == "left" else 1 for number in range(4)]
    assert planned_joins(joins.anchored(anchors), movable=True).taken == found.taken


def _cost(joins: Joins, steps: tuple[Step, ...]) -> float:
    total, state = 0.0, State()
    for step in steps:
        total += step_seconds(joins, state, step)
        state = state_after(joins, state, step)
    return total


def test_the_selective_join_comes_first_and_the_shorter_text_passes_by() -> None:
    rows = (1000.0, 50.0, 50.0)
    plan = best_plan(Joins(rows, (pair(0, 1, 0.5), pair(0, 2, 0.001)), tokens))
    assert plan is not None
    assert [(step.question, step.anchor) for step in plan.steps] == [(1, 0), (0, 0)]
    assert plan.steps[0].retain, "the anchors are asked again: their documents stay"


def test_documents_that_the_budget_cannot_hold_are_computed_again() -> None:
    joins = Joins((1000.0, 50.0, 50.0), (pair(0, 1), pair(0, 2)), tokens)
    free, none = best_plan(joins), best_plan(Joins(joins.rows, joins.questions, tokens, 0.0))
    assert free is not None and none is not None
    assert free.kv_tokens > 0 == none.kv_tokens and free.seconds < none.seconds


def test_a_fixed_anchor_is_kept() -> None:
    plan = best_plan(Joins((10.0, 10.0), (pair(0, 1, lengths=(10, 500), anchor=0),), tokens))
    assert plan is not None and plan.steps == (Step(0, 0, False),)
    assert best_plan(Joins((10.0, 10.0), (pair(0, 1, lengths=(10, 500)),), tokens)).steps[0].anchor == 1  # type: ignore[union-attr]


def test_relations_that_no_question_connects_have_no_plan() -> None:
    assert best_plan(Joins((5.0, 5.0, 5.0), (pair(0, 1),), tokens)) is None


def test_rows_and_distinct_rows_follow_the_questions() -> None:
    joins = Joins((100.0, 10.0), (pair(0, 1, 0.005),), tokens)
    own, other = joins.questions[0].texts
    assert alive(joins, State(), own) == 100 and alive(joins, State(), other) == 10
    joined = State(frozenset({0, 1}), frozenset({0}))
    assert math.isclose(rows_of(joins, joined), 5.0)
    assert 4 < alive(joins, joined, own) < 5 and 3 < alive(joins, joined, other) < 5


def test_four_joins_are_planned_within_the_time_of_a_glance() -> None:
    rows = (1e6, 1e3, 1e3, 50.0, 50.0)
    questions = (pair(0, 1), pair(0, 2), pair(1, 3), pair(2, 4))
    started = time.process_time()
    assert best_plan(Joins(rows, questions, seconds)) is not None
    assert time.process_time() - started < 0.5
