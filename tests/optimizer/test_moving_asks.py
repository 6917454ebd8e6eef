"""AI predicates below and above joins, sorts, unique and groups: each rule as a plan before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules import optimize
from quail_frames.optimizer.rules.lift_asks import lift_asks, surviving_share
from quail_frames.optimizer.rules.limit_sorted import limit_sorted
from quail_frames.optimizer.rules.push_asks import push_asks
from quail_frames.optimizer.rules.push_filters import push_filters
from quail_frames.optimizer.rules.stop_early import stop_early
from quail_frames.optimizer.statistics import ColumnFigures, SourceFigures, Statistics
from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    Filter,
    Join,
    Node,
    Project,
    Slice,
    Source,
    Step,
    WithColumns,
    columns,
    walk,
)
from tests.optimizer.plans import SOURCE, aggregate, column, expr, keeps, question, shape, sort
from tests.optimizer.test_pair_rules import RIGHT
from tests.optimizer.test_pair_rules import join as ai_join

Q, R = question("q"), question("r")
ON_RIGHT = question("on right", on="y")
ASK = Ask(SOURCE, keep=(keeps(Q),))


def unique(node: Node, *keys: str) -> Step:
    step = replace(sort(node, keys[0]), name="unique", text="unique", commutes=False)
    return replace(step, reads=frozenset(keys), keyed=frozenset(keys))


def joined(how: str, left: Node = SOURCE, right: Node = RIGHT) -> Join:
    names = () if how in ("semi", "anti") else (("x", "x"), ("y", "y"))
    left_names = tuple((name, name) for name in columns(left))
    after = (*columns(left), *(name for name, _ in names))
    return Join(left, right, how, how, lambda a, b: a, after, left_names, names, frozenset({"b"}), frozenset({"x"}))  # type: ignore[arg-type]


# push_asks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "use", "after"),
    [
        ("inner", Q, "AskPairs(Ask(Source), Source)"),
        ("inner", ON_RIGHT, "AskPairs(Source, Ask(Source))"),
        ("semi", Q, "AskPairs(Ask(Source), Source)"),
        ("anti", Q, "AskPairs(Ask(Source), Source)"),
        ("left", Q, "AskPairs(Ask(Source), Source)"),
        ("left", ON_RIGHT, "Ask(AskPairs(Source, Source))"),
    ],
)
def test_a_question_about_one_side_is_asked_before_an_ai_join(how: str, use, after: str) -> None:  # type: ignore[no-untyped-def]
    names = {"right_names": ()} if how in ("semi", "anti") else {}
    assert shape(push_asks(Ask(ai_join(how=how, **names), keep=(keeps(use),)))) == after


def test_a_question_stays_above_an_ai_join_that_leaves_it_little_to_ask() -> None:
    """One candidate for each row, few of them TRUE, and a question that nearly all pass."""
    few = replace(ai_join(keys=((expr("b", "b"), expr("y", "y")),)), call=replace(ai_join().call, selectivity=0.01))
    often = Ask(few, keep=(keeps(question("q", selectivity=0.99)),))
    assert push_asks(often) == often
    assert shape(push_asks(Ask(few, keep=(keeps(question("q", selectivity=0.1)),)))) == "AskPairs(Ask(Source), Source)"


def test_questions_meet_below_what_lies_between() -> None:
    """The one about the left side goes through join, sort and unique to the one that is asked there anyway."""
    for between in (joined("inner", ASK), sort(ASK, "b"), unique(ASK, "a"), Filter(ASK, (expr("cheap", "b"),))):
        pushed = push_asks(Ask(between, keep=(keeps(R),)))
        assert "Ask(Ask(Source))" in shape(pushed)
        asks = [node for node in walk(optimize(Ask(between, keep=(keeps(R),)))) if isinstance(node, Ask)]
        assert [len(node.keep) for node in asks] == [2]


def test_a_question_on_a_groups_key_is_asked_of_the_rows_that_are_asked_anyway() -> None:
    groups = replace(aggregate(ASK, "a"), name="group_by", columns=("a", "total"), keyed=frozenset({"a"}))
    assert shape(push_asks(Ask(groups, keep=(keeps(R),)))) == "Step(Ask(Ask(Source)))"
    total = question("total", on="total")
    assert shape(push_asks(Ask(groups, keep=(keeps(total),)))) == "Ask(Step(Ask(Source)))"
    cheap = Filter(groups, (expr("cheap", "a"),))
    assert shape(push_filters(cheap)) == "Step(Ask(Filter(Source)))"


def test_a_question_stays_where_no_other_gains_by_it() -> None:
    for between in (joined("inner"), sort(SOURCE, "b"), unique(SOURCE, "a"), joined("left")):
        plan = Ask(between, keep=(keeps(R),))
        assert push_asks(plan) == plan
    assert shape(push_asks(Ask(joined("cross"), keep=(keeps(R),)))) == "Join(Ask(Source), Source)"


def test_a_question_stays_above_a_sort_whose_first_rows_are_wanted() -> None:
    plan = Slice(Ask(sort(ASK, "b"), keep=(keeps(R),)), 0, 5)
    assert push_asks(plan) == plan


def test_a_question_whose_answer_is_wanted_too_stays() -> None:
    plan = Ask(ai_join(), keep=(keeps(Q),), answers=(Q,))
    assert push_asks(plan) == plan


# lift_asks ------------------------------------------------------------------------------

FILTERED = Filter(RIGHT, (expr("cheap", "y"),))


@pytest.mark.parametrize(
    ("how", "right", "after"),
    [
        ("semi", RIGHT, "Ask(Join(Source, Source))"),
        ("anti", RIGHT, "Ask(Join(Source, Source))"),
        ("inner", FILTERED, "Ask(Join(Source, Filter(Source)))"),
        ("inner", RIGHT, "Join(Ask(Source), Source)"),
        ("left", FILTERED, "Join(Ask(Source), Filter(Source))"),
    ],
)
def test_a_question_is_asked_behind_a_join_that_removes_rows(how: str, right: Node, after: str) -> None:
    assert shape(lift_asks(joined(how, ASK, right))) == after


def test_both_sides_questions_become_one_chain_behind_the_join() -> None:
    right = Ask(FILTERED, keep=(keeps(ON_RIGHT),))
    left = Ask(Filter(SOURCE, (expr("cheap", "b"),)), keep=(keeps(Q),))
    plan = optimize(joined("inner", left, right))
    (ask,) = [node for node in walk(plan) if isinstance(node, Ask)]
    assert {predicate.text for predicate in ask.keep} == {"q", "on right"}


def test_an_answer_column_is_made_behind_the_join_too() -> None:
    label = replace(expr("label", calls=(Q,)), reads=frozenset())
    side = Project(WithColumns(Ask(SOURCE, answers=(Q,)), (label,)), (*SOURCE.columns, "label"))
    plan = lift_asks(joined("semi", side))
    assert shape(plan) == "Project(WithColumns(Ask(Join(Source, Source))))"
    assert columns(plan) == (*SOURCE.columns, "label")


@pytest.mark.parametrize(
    "side",
    [
        WithColumns(Ask(SOURCE, answers=(Q,)), (replace(expr("b", calls=(Q,)), reads=frozenset()),)),
        WithColumns(Ask(SOURCE, answers=(Q,)), (replace(expr("y", calls=(Q,)), reads=frozenset()),)),
        Project(ASK, ("a", "b")),
        Slice(ASK, 0, 5),
    ],
    ids=["makes the key", "makes a name of the right side", "hides a column", "takes the first rows"],
)
def test_what_would_change_the_join_stays_below(side: Node) -> None:
    plan = joined("inner", side, FILTERED)
    assert lift_asks(plan) == plan


def test_the_share_that_a_join_keeps_follows_what_its_other_side_lost() -> None:
    prices = Prices.assumed()
    assert surviving_share(joined("inner"), "left", prices) == 1
    assert surviving_share(joined("inner", SOURCE, FILTERED), "left", prices) == 0.5
    twice = Filter(FILTERED, (expr("dear", "y"),))
    assert surviving_share(joined("inner", SOURCE, twice), "left", prices) == 0.25
    assert surviving_share(joined("left", SOURCE, FILTERED), "left", prices) == 1


def keyed(how: str, values: float | None, others: float | None, passing: float) -> tuple[Join, Prices]:
    """A join of 1,000 rows on key b with 1,000 on key y, of which a filter passes a share, and its figures."""
    left, right = Source(object(), "l", SOURCE.columns), Source(object(), "r", RIGHT.columns)
    figures = {
        id(left.frame): SourceFigures(1000.0, "counted", {"b": ColumnFigures(1.0, values)}),
        id(right.frame): SourceFigures(1000.0, "counted", {"y": ColumnFigures(1.0, others)}),
    }
    cheap = expr("cheap", "y")
    join = replace(joined(how, left, Filter(right, (cheap,))), detail=((column("b"), column("y")),))
    return join, Prices.assumed().about(Statistics(figures, passing={cheap.key: passing}))


@pytest.mark.parametrize(
    ("how", "values", "others", "passing", "share"),
    [
        ("inner", None, None, 0.1, 0.1),  # keys of both tables
        ("inner", 100, None, 0.5, 1.0),  # 500 partners are left for 100 values
        ("inner", 100, None, 0.02, 0.2),
        ("semi", 100, 50, 1.0, 0.5),  # half of the values are not there
        ("anti", 100, 50, 1.0, 0.5),
        ("semi", 100, 100, 0.1, 1 - 0.9**10),  # a value is gone once its ten rows are
        ("anti", None, None, 0.9, 0.1),
    ],
)
def test_the_share_that_a_join_keeps_follows_the_values_of_its_keys(
    how: str, values: float | None, others: float | None, passing: float, share: float
) -> None:
    join, prices = keyed(how, values, others, passing)
    assert surviving_share(join, "left", prices) == pytest.approx(share)
    lifted = lift_asks(replace(join, left=Ask(join.left, keep=(keeps(Q),))), prices)
    assert isinstance(lifted, Ask) == (share < 0.95)


# limit_sorted ---------------------------------------------------------------------------


def test_the_first_rows_of_a_sort_are_found_in_its_order() -> None:
    plan = Slice(WithColumns(sort(ASK, "b"), (expr("x", "b"),)), 0, 10)
    assert shape(limit_sorted(plan)) == "Slice(WithColumns(Ask(Step(Source))))"
    (ask,) = [node for node in walk(stop_early(limit_sorted(plan))) if isinstance(node, Ask)]
    assert ask.limit == 10


def test_a_sort_by_an_answer_waits_for_all_answers() -> None:
    by_answer = replace(sort(Ask(SOURCE, keep=(keeps(R),), answers=(Q,)), "b"), expressions=(expr("k", calls=(Q,)),))
    plan = Slice(by_answer, 0, 10)
    assert limit_sorted(plan) == plan
    assert limit_sorted(sort(ASK, "b")) == sort(ASK, "b")


def test_the_pipeline_leaves_ai_joins_below_a_filtered_join_alone() -> None:
    plan = joined("semi", ai_join())
    assert isinstance(lift_asks(plan), Join) and isinstance(plan.left, AskPairs)
