"""A plan in words, from the source to the result, as one would explain it to a colleague."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quail_frames.optimizer.decisions import letter
from quail_frames.optimizer.selectivity import pair_share, passing_share
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import (
    ANSWER,
    Ask,
    AskPairs,
    Concat,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Slice,
    Source,
    WithColumns,
    inputs,
)
from quail_frames.plan.selectivity import SEEN

Notes = Callable[[Node], list[str]]
"""Lines that are added to what a step's own words say."""


def nothing_to_add(node: Node) -> list[str]:
    """No further line."""
    return []


def numbered(plan: Node, notes: Notes = nothing_to_add) -> Iterator[str]:
    """The plan's steps in order, numbered."""
    for number, lines in enumerate(steps(plan, notes), start=1):
        yield f"{number:3d}. {lines[0]}"
        yield from (f"     {line}" for line in lines[1:])


def steps(node: Node, notes: Notes = nothing_to_add) -> list[list[str]]:
    """The steps below the node and its own, each as lines."""
    if isinstance(node, Join):
        right = [f"{number}. {lines[0]}" for number, lines in enumerate(steps(node.right, notes), start=1)]
        own = [f"{node.text}, with", *(f"  {line}" for line in right)]
        return [*steps(node.left, notes), [*own, *(f"  {line}" for line in notes(node))]]
    if isinstance(node, AskPairs):
        own = [*_pair_words(node), *(f"  {line}" for line in notes(node)), *_right_side(node, notes)]
        return [*steps(node.left, notes), own]
    if isinstance(node, Concat):
        first, *others = node.inputs
        own = [line for each in others for line in ("and of", *_nested(each, notes))]
        return [*steps(first, notes), ["then, below these, the rows of", *own[1:]]]
    below = [step for each in inputs(node) for step in steps(each, notes)]
    return [*below, [*_words(node), *(f"  {line}" for line in notes(node))]]


def _words(node: Node) -> list[str]:
    if isinstance(node, Source):
        return [f"read {node.text}"]
    if isinstance(node, Filter):
        return ["keep rows where", *_listed(node.predicates)]
    if isinstance(node, WithColumns):
        return ["add columns", *_listed(node.expressions)]
    if isinstance(node, Select):
        return ["take columns", *_listed(node.expressions)]
    if isinstance(node, Project):
        return ["keep columns " + ", ".join(_plain(node.columns))]
    if isinstance(node, Slice):
        behind = f" behind the first {node.offset:,}" if node.offset else ""
        return [f"take {'all' if node.length is None else f'{node.length:,}'} rows{behind}"]
    return _ask_words(node) if isinstance(node, Ask) else [getattr(node, "text", "")]


def _ask_words(ask: Ask) -> list[str]:
    by_column = {use.column: use for use in ask.calls}
    short = ", only as far as a row's fate is open" if ask.keep else ""
    lines = [f"ask the model about each row, in this order{short}:"]
    order = ask.order or tuple(by_column)
    for number, column in enumerate(order):
        use = by_column[column]
        wanted = ", answer kept" if column in ask.answer_columns else ""
        shared = ", ".join(f"{{{use.call.columns[slot]}}}" for slot in dict(ask.anchors).get(column, ()))
        place = f", on the joined row's {shared}" if shared else ""
        lines.append(f"  {letter(number)}) {describe_call(use.call)}{place}{wanted}")
    for predicate in ask.keep:
        assert predicate.test is not None
        share = passing_share(predicate.test.condition, predicate.calls, SEEN)
        lines.append(f"  keep rows where {predicate.text} (about {share:.0%})")
    if ask.limit is not None:
        lines.append(f"  stop once {ask.limit:,} rows are through")
    if ask.retain or ask.retain_all:
        which = "all" if ask.retain_all else "kept"
        lines.append(f"  the texts of {which} rows stay in memory for what is asked next")
    if ask.remember:
        letters = ", ".join(letter(order.index(column)) for column in ask.remember)
        lines.append(f"  {letters} is asked elsewhere in this query too: of the same texts only once")
    return lines


_PAIR_WORDS = {
    "inner": "keep the pairs for which the model says TRUE to",
    "left": "keep the pairs for which the model says TRUE to, and once each row that has none, to",
    "semi": "keep the rows with a pair for which the model says TRUE to",
    "anti": "keep the rows without a pair for which the model says TRUE to",
}


def _pair_words(node: AskPairs) -> list[str]:
    share = pair_share(node.call)
    lines = [
        f"pair each row with the rows of the right side; {_PAIR_WORDS[node.how]}",
        f"  {describe_call(node.call)} (about {share:.0%} of pairs)",
    ]
    lines += [f"  only pairs {_key_words(left, right)}" for left, right in node.keys]
    lines += [f"  only pairs where {predicate.text}" for predicate in node.where]
    if node.anchor is not None:
        stays = f"the {node.anchor} row's text is read once and stays in memory for all its pairs"
        early = ", until the first TRUE" if node.how in ("semi", "anti") and node.anchor == "left" else ""
        later = ", and after them for what is asked next" if node.retain else ""
        lines.append(f"  {stays}{early}{later}")
    if node.remember:
        lines.append("  this is asked elsewhere in this query too: of the same two texts only once")
    return lines


def _right_side(node: AskPairs, notes: Notes) -> list[str]:
    return ["  right side:", *(f"  {line}" for line in _nested(node.right, notes))]


def _nested(node: Node, notes: Notes) -> list[str]:
    """The steps of another branch, numbered anew."""
    lines = []
    for number, step in enumerate(steps(node, notes), start=1):
        lines += [f"  {number}. {step[0]}", *(f"     {line}" for line in step[1:])]
    return lines


def _key_words(left: Expression, right: Expression) -> str:
    names = [key.column or key.text for key in (left, right)]
    return f"of the same {names[0]}" if names[0] == names[1] else f"where left {names[0]} = right {names[1]}"


def _listed(found: tuple[Expression, ...]) -> list[str]:
    return [f"  {expression.text}" for expression in found]


def _plain(names: tuple[str, ...]) -> list[str]:
    return ["(an answer)" if name.startswith(ANSWER) else name for name in names]
