"""What the rules do with an AI join: each as a plan before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quail_frames.optimizer.rules import optimize
from quail_frames.optimizer.rules.keep_resident import keep_resident
from quail_frames.optimizer.rules.name_in_joins import name_in_joins
from quail_frames.optimizer.rules.prune_columns import prune_columns
from quail_frames.optimizer.rules.push_filters import push_filters
from quail_frames.optimizer.rules.share_anchors import share_anchors
from quail_frames.plan.calls import AiIf
from quail_frames.plan.logical import ANSWER, Ask, AskPairs, CallUse, Filter, Node, Project, Select, Source, columns
from quail_frames.plan.template import Slot, Template
from tests.optimizer.plans import SOURCE, column, expr, keeps, question, shape, sort

RIGHT = Source(None, "r", ("x", "y"))
MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("a", "x"))


def join(left: Node = SOURCE, right: Node = RIGHT, **options: object) -> AskPairs:
    node = AskPairs(
        left=left,
        right=right,
        how="inner",
        call=MATCH,
        slots=(("left", "a"), ("right", "x")),
        keys=(),
        where=(),
        left_names=tuple((name, name) for name in columns(left)),
        right_names=(("x", "x"), ("y", "y")),
        where_names=(("x", "x"), ("y", "y")),
        anchor="left",
    )
    return replace(node, **options)  # type: ignore[arg-type]


def about(*names: str) -> CallUse:
    """A question about these columns."""
    slots = tuple(Slot(number) for number in range(len(names)))
    return CallUse(AiIf(Template(("Is ", *slots, "?")), names), tuple(map(column, names)), f"{ANSWER}{names}")


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [("inner", True, True), ("semi", True, False), ("left", True, False), ("anti", True, False)],
)
def test_a_filter_on_one_side_goes_below_where_it_changes_no_row(how: str, left: bool, right: bool) -> None:
    names = {"right_names": ()} if how in ("semi", "anti") else {}
    for predicate, moves in ((expr("p", "b"), left), (expr("p", "y"), right), (expr("p", "b", "y"), False)):
        if how in ("semi", "anti") and "y" in (predicate.reads or ()):
            continue
        after = push_filters(Filter(join(how=how, **names), (predicate,)))
        assert isinstance(after, AskPairs) == moves


def test_predicates_of_where_about_one_side_cut_that_side() -> None:
    on_left, on_right, on_both = expr("l", "b"), expr("r", "y"), expr("both", "b", "y")
    where = (on_left, on_right, on_both)
    after = push_filters(join(where=where))
    assert shape(after) == "AskPairs(Filter(Source), Filter(Source))"
    assert isinstance(after, AskPairs) and after.where == (on_both,)
    kept = push_filters(join(where=where, how="left"))
    assert shape(kept) == "AskPairs(Source, Filter(Source))"
    assert isinstance(kept, AskPairs) and kept.where == (on_left, on_both)


def test_each_side_gives_what_the_join_reads_and_what_is_passed_on() -> None:
    node = prune_columns(Project(join(where=(expr("w", "c", "y"),)), ("b",)))
    assert isinstance(node, AskPairs)
    assert node.carry == ("b",) == columns(node)
    assert (columns(node.left), columns(node.right)) == (("a", "b", "c"), ("x", "y"))
    narrow = prune_columns(Project(join(), ("y",)))
    assert isinstance(narrow, AskPairs) and columns(narrow.left) == ("a",)


def test_a_call_about_both_sides_stands_on_the_anchor() -> None:
    for anchor, slots in (("left", (0,)), ("right", (1,))):
        ask = Ask(sort(join(anchor=anchor), "b", columns(join())), answers=(about("b", "y"), about("a"), about("x")))
        shared = share_anchors(ask)
        assert isinstance(shared, Ask)
        assert shared.anchors == ((about("b", "y").column, slots),)


def test_the_anchor_is_found_through_renames_and_through_another_join() -> None:
    renamed = Select(join(), (replace(column("a"), names=("t",)), column("y")))
    outer = join(renamed, Source(None, "s", ("z",)), slots=(("left", "t"), ("right", "z")), right_names=(("z", "z"),))
    ask = share_anchors(Ask(outer, answers=(about("y", "t"), about("z", "t", "y"))))
    assert isinstance(ask, Ask)
    assert [slots for _, slots in ask.anchors] == [(1,), (1, 2)]


def test_documents_stay_where_an_operator_above_asks_about_them() -> None:
    asked = Ask(SOURCE, keep=(keeps(question("q", "a")),))
    other = Ask(SOURCE, keep=(keeps(question("q", "b")),))
    for ask, retained in ((asked, True), (other, False)):
        node = keep_resident(join(ask))
        assert isinstance(node, AskPairs) and isinstance(node.left, Ask)
        assert (node.left.retain, node.retain) == (retained, False)
    unused = keep_resident(join(asked, anchor="right"))
    assert isinstance(unused, AskPairs) and isinstance(unused.left, Ask) and not unused.left.retain


def test_anchors_stay_for_a_later_call_about_the_pair_and_for_a_later_join() -> None:
    chain = optimize(Ask(join(), answers=(about("a", "y"),)), (share_anchors, keep_resident))
    assert isinstance(chain, Ask) and isinstance(chain.input, AskPairs) and chain.input.retain
    again = keep_resident(join(join(), Source(None, "s", ("z",)), slots=(("left", "a"), ("right", "z"))))
    assert isinstance(again, AskPairs) and isinstance(again.left, AskPairs)
    assert (again.retain, again.left.retain) == (False, True)


def test_documents_stay_for_another_branch_over_the_same_source() -> None:
    first, second = Ask(SOURCE, keep=(keeps(question("q", "a")),)), Ask(SOURCE, keep=(keeps(question("r", "a")),))
    other = Ask(Source(object(), "r", ("x", "y")), keep=(keeps(question("q", "x")),))
    for right, stays in ((second, True), (other, False)):
        node = keep_resident(join(right, right=first, slots=(("left", "b"), ("right", "a"))))
        assert isinstance(node, AskPairs) and isinstance(node.left, Ask) and isinstance(node.right, Ask)
        assert (node.right.retain_all, node.left.retain_all) == (stays, False)  # the right side is read first
    joined = keep_resident(join(join(), right=SOURCE, anchor="right", slots=(("left", "x"), ("right", "a"))))
    assert isinstance(joined, AskPairs) and isinstance(joined.left, AskPairs)
    assert (joined.left.retain, joined.retain) == (True, False)


def test_names_given_right_above_a_join_are_the_joins_own() -> None:
    def named(**names: str) -> Select:
        shown = [(name, names.get(name, name)) for name in columns(join())]
        return Select(join(), tuple(replace(column(name), names=(after,)) for name, after in shown))

    assert name_in_joins(named(y="y_2")) == join(right_names=(("x", "x"), ("y", "y_2")))
    assert name_in_joins(named()) == join()
    for kept in (named(a="other"), replace(named(), expressions=named().expressions[1:])):
        assert name_in_joins(kept) == kept
