"""Each rule on small plans: what it changes, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quail_frames.optimizer.rules import RULES, optimize
from quail_frames.optimizer.rules.decide_by_answers import decide_by_answers, held_answers
from quail_frames.optimizer.rules.merge_asks import merge_asks
from quail_frames.optimizer.rules.order_calls import order_calls
from quail_frames.optimizer.rules.place_calls import place_calls
from quail_frames.optimizer.rules.prune_columns import prune_columns
from quail_frames.optimizer.rules.push_filters import push_filters
from quail_frames.optimizer.rules.share_calls import share_calls
from quail_frames.optimizer.rules.stop_early import stop_early
from quail_frames.optimizer.selectivity import passing_share
from quail_frames.plan.calls import AiClassify
from quail_frames.plan.conditions import And, Answer, LabelTest, Mask, Not, Or, ScoreTest
from quail_frames.plan.logical import (
    Ask,
    Filter,
    Join,
    Project,
    Select,
    Slice,
    Source,
    WithColumns,
    columns,
    walk,
)
from tests.optimizer.plans import SOURCE, aggregate, column, expr, keeps, opaque, question, shape, sort

Q, R = question("q"), question("r")
CHEAP = expr("cheap", "b")
WINDOW = expr("window", "b", row_local=False)


# place_calls ----------------------------------------------------------------------------


def test_a_filter_becomes_an_ask_over_its_cheap_predicates() -> None:
    placed = place_calls(Filter(SOURCE, (CHEAP, keeps(Q))))
    assert placed == Ask(Filter(SOURCE, (CHEAP,)), keep=(keeps(Q),))


def test_an_opaque_predicate_stays_a_filter_over_its_answers() -> None:
    placed = place_calls(Filter(SOURCE, (opaque(Q, "b"), keeps(R))))
    ask = Ask(SOURCE, keep=(keeps(R),), answers=(Q,))
    assert placed == Project(Filter(ask, (opaque(Q, "b"),)), SOURCE.columns)


def test_a_window_over_answers_sees_every_row() -> None:
    window = opaque(Q, row_local=False)
    placed = place_calls(Filter(SOURCE, (CHEAP, window, keeps(R))))
    assert placed == Project(Filter(Ask(SOURCE, answers=(Q, R)), (CHEAP, window, keeps(R))), SOURCE.columns)


def test_columns_without_calls_are_made_first() -> None:
    label, length = expr("label", calls=(Q,)), expr("length", "b")
    placed = place_calls(WithColumns(SOURCE, (label, length)))
    ask = Ask(WithColumns(SOURCE, (length,)), answers=(Q,))
    assert placed == Project(WithColumns(ask, (label,)), ("a", "b", "c", "label", "length"))


def test_a_column_that_a_question_reads_is_not_replaced_before_it_is_asked() -> None:
    label, upper = expr("label", calls=(Q,)), expr("a", "a")
    placed = place_calls(WithColumns(SOURCE, (label, upper)))
    assert shape(placed) == "Project(WithColumns(Ask(Source)))"


# decide_by_answers ----------------------------------------------------------------------

TOPIC = replace(expr("topic", calls=(Q,)), reads=frozenset(), column=Q.column)
ON_TOPIC = replace(expr("on topic", "topic"), names=(), over_answers=keeps(Q))


def labelled(node=SOURCE):
    return Project(WithColumns(Ask(node, answers=(Q,)), (TOPIC,)), (*SOURCE.columns, "topic"))


def test_a_predicate_on_an_answer_is_decided_where_the_call_is_asked() -> None:
    decided = decide_by_answers(Filter(labelled(), (ON_TOPIC, CHEAP)))
    assert decided == Ask(Filter(labelled(), (CHEAP,)), keep=(keeps(Q),))
    assert shape(optimize(decided, RULES[1:])) == "Project(WithColumns(Ask(Filter(Source))))"


@pytest.mark.parametrize(
    "between",
    [
        lambda node: replace(aggregate(node, "a"), columns=("a", "topic")),
        lambda node: WithColumns(node, (expr("a", "b"),)),
        lambda node: Select(node, (column("topic"),)),
    ],
)
def test_a_predicate_on_an_answer_that_cannot_be_asked_there_stays(between) -> None:
    plan = Filter(between(labelled()), (ON_TOPIC,))
    assert decide_by_answers(plan) == plan


def test_held_answers_follow_the_rows() -> None:
    made = WithColumns(SOURCE, (TOPIC,))
    assert held_answers(Slice(sort(Filter(made, (CHEAP,)), "b"), 0, 5)) == {"topic": Q}
    assert held_answers(Select(made, (column("a"), replace(column("topic"), names=("t",))))) == {"t": Q}
    assert held_answers(WithColumns(made, (expr("a", "b"),))) == {}
    assert held_answers(WithColumns(made, (expr("topic", "b"),))) == {}
    assert held_answers(WithColumns(SOURCE, (TOPIC, expr("a", "b")))) == {}
    assert held_answers(aggregate(made, "a")) == {}


# push_filters ---------------------------------------------------------------------------

ASK = Ask(SOURCE, keep=(keeps(Q),))
PASSED = {
    "ask": (Filter(ASK, (CHEAP,)), "Ask(Filter(Source))"),
    "two asks": (Filter(Ask(ASK, keep=(keeps(R),)), (CHEAP,)), "Ask(Ask(Filter(Source)))"),
    "sort": (Filter(sort(ASK, "c"), (CHEAP,)), "Step(Ask(Filter(Source)))"),
    "project": (Filter(Project(ASK, ("a", "b")), (CHEAP,)), "Project(Ask(Filter(Source)))"),
    "select": (Filter(Select(ASK, (column("b"), expr("x", "a"))), (CHEAP,)), "Select(Ask(Filter(Source)))"),
    "other column": (Filter(WithColumns(ASK, (expr("x", "c"),)), (CHEAP,)), "WithColumns(Ask(Filter(Source)))"),
    "its column": (Filter(WithColumns(ASK, (expr("b", "c"),)), (CHEAP,)), "Ask(Filter(WithColumns(Source)))"),
    "filter": (Filter(Filter(Ask(SOURCE, answers=(Q,)), (opaque(Q),)), (CHEAP,)), "Filter(Ask(Filter(Source)))"),
}
STAYED = {
    "window": (Filter(ASK, (WINDOW,)), "Filter(Ask(Source))"),
    "limit": (Filter(Slice(ASK, 0, 3), (CHEAP,)), "Filter(Slice(Ask(Source)))"),
    "aggregate": (Filter(aggregate(ASK, "a"), (expr("cheap", "total"),)), "Filter(Step(Ask(Source)))"),
    "answer": (Filter(Ask(SOURCE, answers=(Q,)), (opaque(Q),)), "Filter(Ask(Source))"),
    "window below": (Filter(Filter(ASK, (WINDOW,)), (CHEAP,)), "Filter(Filter(Ask(Source)))"),
    "window column": (
        Filter(WithColumns(ASK, (expr("x", "c", row_local=False),)), (CHEAP,)),
        "Filter(WithColumns(Ask(Source)))",
    ),
    "column the question reads": (
        Filter(WithColumns(ASK, (expr("a", "c"),)), (expr("cheap", "a"),)),
        "Filter(WithColumns(Ask(Source)))",
    ),
    "renamed": (Filter(Select(ASK, (replace(column("c"), names=("b",)),)), (CHEAP,)), "Filter(Select(Ask(Source)))"),
    "unknown reads": (Filter(ASK, (replace(CHEAP, reads=None),)), "Filter(Ask(Source))"),
    "no model": (Filter(sort(SOURCE, "c"), (CHEAP,)), "Filter(Step(Source))"),
}


@pytest.mark.parametrize(("plan", "after"), PASSED.values(), ids=PASSED)
def test_a_cheap_predicate_goes_below(plan, after: str) -> None:
    assert shape(push_filters(plan)) == after


@pytest.mark.parametrize(("plan", "after"), STAYED.values(), ids=STAYED)
def test_a_predicate_stays_where_moving_it_would_change_something(plan, after: str) -> None:
    assert shape(push_filters(plan)) == after


OTHER = Source(None, "u", ("b", "d"))


def join(how, left=ASK, right=OTHER) -> Join:
    return Join(
        left,
        right,
        how,
        "join",
        lambda a, b: a,
        ("a", "b", "c", "d"),
        (("a", "a"), ("b", "b"), ("c", "c")),
        (("d", "d"),),
        frozenset({"b"}),
        frozenset({"b"}),
    )


@pytest.mark.parametrize(
    ("how", "read", "after"),
    [
        ("inner", "b", "Join(Ask(Filter(Source)), Source)"),
        ("left", "c", "Join(Ask(Filter(Source)), Source)"),
        ("anti", "c", "Join(Ask(Filter(Source)), Source)"),
        ("inner", "d", "Join(Ask(Source), Filter(Source))"),
        ("left", "d", "Filter(Join(Ask(Source), Source))"),
        ("full", "b", "Filter(Join(Ask(Source), Source))"),
    ],
)
def test_a_predicate_goes_to_the_side_it_reads(how, read: str, after: str) -> None:
    assert shape(push_filters(Filter(join(how), (expr("cheap", read),)))) == after


# merge_asks -----------------------------------------------------------------------------


def test_asks_that_meet_become_one() -> None:
    length = WithColumns(ASK, (expr("length", "b"),))
    merged = merge_asks(Ask(Project(length, ("a", "length")), keep=(keeps(R),), answers=(R,)))
    assert columns(merged) == ("a", "length", R.column)
    (ask,) = [node for node in walk(merged) if isinstance(node, Ask)]
    assert ask == Ask(SOURCE, keep=(keeps(Q), keeps(R)), answers=(R,))


@pytest.mark.parametrize(
    "between",
    [
        lambda node: Filter(node, (WINDOW,)),
        lambda node: Slice(node, 0, 5),
        lambda node: WithColumns(node, (expr("a", "b"),)),
        lambda node: WithColumns(node, (expr("x", "b", row_local=False),)),
        lambda node: replace(sort(node, "b"), commutes=False),
    ],
)
def test_asks_stay_apart_where_what_lies_between_matters(between) -> None:
    plan = Ask(between(ASK), keep=(keeps(R),))
    assert merge_asks(plan) == plan


# share_calls ----------------------------------------------------------------------------


def test_a_call_asked_below_is_not_asked_again() -> None:
    plan = Ask(Slice(ASK, 0, 5), keep=(keeps(R), keeps(Q)), answers=(Q,))
    shared = share_calls(plan)
    asks = [node for node in walk(shared) if isinstance(node, Ask)]
    assert [[call.column for call in ask.calls] for ask in asks] == [[R.column], [Q.column]]
    assert set(columns(shared)) == set(columns(plan))


def test_a_call_over_a_changed_column_is_asked_again() -> None:
    plan = Ask(Slice(WithColumns(ASK, (expr("a", "b"),)), 0, 5), keep=(keeps(Q),))
    assert share_calls(plan) == plan


def test_an_answer_does_not_ride_through_an_aggregation() -> None:
    plan = Ask(replace(aggregate(ASK, "a"), columns=("a", "total")), keep=(keeps(Q),))
    assert share_calls(plan) == plan


# stop_early -----------------------------------------------------------------------------


def test_head_tells_the_ask_when_to_stop() -> None:
    stopped = stop_early(Slice(WithColumns(ASK, (expr("x", "b"),)), 2, 3))
    assert [node.limit for node in walk(stopped) if isinstance(node, Ask)] == [5]


@pytest.mark.parametrize("node", [sort(ASK, "b"), Filter(ASK, (CHEAP,)), aggregate(ASK, "a")])
def test_a_limit_above_a_step_that_drops_or_reorders_rows_says_nothing(node) -> None:
    assert [below.limit for below in walk(stop_early(Slice(node, 0, 3))) if isinstance(below, Ask)] == [None]


# prune_columns --------------------------------------------------------------------------


def test_only_what_is_needed_is_read_and_carried() -> None:
    pruned = prune_columns(Select(Ask(Filter(SOURCE, (CHEAP,)), keep=(keeps(Q),)), (column("c"),)))
    (ask,) = [node for node in walk(pruned) if isinstance(node, Ask)]
    assert ask.carry == ("c",)
    wide = Source(None, "t", ("a", "b", "c", "d", "e"))
    pruned = prune_columns(Select(Ask(Filter(wide, (CHEAP,)), keep=(keeps(Q),)), (column("c"),)))
    assert [node.columns for node in walk(pruned) if isinstance(node, Project)] == [("a", "b", "c")]


def test_an_answer_that_nothing_reads_is_not_asked() -> None:
    labelled = place_calls(WithColumns(SOURCE, (expr("label", calls=(Q,)),)))
    assert shape(prune_columns(Select(labelled, (column("b"),)))) == "Select(Project(Source))"


def test_a_step_that_looks_at_all_columns_keeps_them() -> None:
    step = replace(aggregate(ASK, "a"), reads=None)
    assert [node.carry for node in walk(prune_columns(step)) if isinstance(node, Ask)] == [SOURCE.columns]


def test_a_left_column_that_makes_a_suffix_necessary_is_kept() -> None:
    both = join("inner")
    both = replace(
        both, columns=("a", "b", "c", "c_right"), right=Source(None, "u", ("b", "c")), right_names=(("c", "c_right"),)
    )
    pruned = prune_columns(Select(both, (column("c_right"),)))
    assert [node.carry for node in walk(pruned) if isinstance(node, Ask)] == [("b", "c")]


# order_calls ----------------------------------------------------------------------------


def order_of(*uses, conditions=None) -> list[str]:
    keep = tuple(keeps(use, condition) for use, condition in zip(uses, conditions or [None] * len(uses), strict=True))
    ordered = order_calls(Ask(SOURCE, keep=keep))
    assert isinstance(ordered, Ask)
    return [column.split()[-1] for column in ordered.order]


def test_the_most_selective_question_comes_first() -> None:
    assert order_of(question("x", selectivity=0.9), question("y", selectivity=0.1), question("z", selectivity=0.5)) == [
        "y",
        "z",
        "x",
    ]


def test_a_second_document_is_paid_late() -> None:
    two = question("two", on="b", selectivity=0.35)
    assert order_of(two, question("one", selectivity=0.4), question("also", selectivity=0.4))[-1] == "two"


def test_many_predicates_are_ranked() -> None:
    uses = [question(f"q{i}", selectivity=0.9 - i / 10) for i in range(9)]
    assert order_of(*uses) == [f"q{i}" for i in reversed(range(9))]


LABELS = question("l", kind=AiClassify, labels=("x", "y", "z", "w"))
HALF = question("h", selectivity=0.5)


@pytest.mark.parametrize(
    ("condition", "calls", "share"),
    [
        (Answer(0), (Q,), 0.2),
        (Answer(0), (HALF,), 0.5),
        (Not(Answer(0)), (Q,), 0.8),
        (ScoreTest(0, "gt", 0.5), (Q,), 0.5),
        (LabelTest(0, ("x", "y")), (LABELS,), 0.5),
        (LabelTest(0, ("x",), negated=True), (LABELS,), 0.75),
        (LabelTest(0, ("unknown",)), (LABELS,), 0.0),
        (And((Answer(0), Answer(1))), (Q, HALF), 0.1),
        (Or((Answer(0), Mask(0))), (HALF,), 0.75),
    ],
)
def test_the_share_that_passes(condition, calls, share: float) -> None:
    assert passing_share(condition, calls) == pytest.approx(share)


# The pipeline ---------------------------------------------------------------------------


def test_a_query_is_one_chain_over_the_cheap_predicates() -> None:
    label = expr("label", calls=(R,))
    plan = Filter(WithColumns(Filter(SOURCE, (keeps(Q),)), (label, expr("length", "b"))), (expr("long", "length"),))
    assert shape(optimize(plan)) == "Project(WithColumns(Ask(Filter(WithColumns(Source)))))"


def test_optimizing_again_changes_nothing_that_matters() -> None:
    plan = optimize(Filter(WithColumns(SOURCE, (expr("x", calls=(R,)),)), (CHEAP,)))
    assert columns(optimize(plan, RULES[1:])) == columns(plan)
