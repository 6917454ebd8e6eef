"""Take the calls out of the user's steps: an `Ask` gives the answers, the step reads them as columns.

filter(cheap, ai_if(q), opaque(ai_score(s)))
-> filter(opaque) over ask(keep ai_if(q), answers ai_score(s)) over filter(cheap)
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import (
    Ask,
    CallUse,
    Filter,
    Node,
    Project,
    Select,
    Step,
    WithColumns,
    columns,
    expressions,
    names_of,
    rewrite,
    union,
    with_inputs,
)


def place_calls(plan: Node) -> Node:
    """The plan with every call in an `Ask`, as high as it stands in the user's query."""
    return rewrite(plan, _place)


def _place(node: Node) -> Node:
    calls = _calls(node)
    if not calls:
        return node
    if isinstance(node, Filter):
        return _place_filter(node, calls)
    if isinstance(node, WithColumns):
        return Project(_place_columns(node, calls), columns(node))
    if isinstance(node, Select | Step):
        placed = with_inputs(node, (Ask(node.input, answers=calls),))
        return placed if isinstance(node, Select) else Project(placed, columns(node))
    return node


def _place_columns(node: WithColumns, calls: tuple[CallUse, ...]) -> Node:
    """Call-free columns first, where the others do not read what they replace: a filter on them can then go below."""
    free = tuple(e for e in node.expressions if not e.calls and e.row_local)
    asking = tuple(e for e in node.expressions if e not in free)
    reads = union([*(e.reads for e in asking), *(call.reads for call in calls)])
    if not free or reads is None or reads & set(names_of(free)):
        return replace(node, input=Ask(node.input, answers=calls))
    return WithColumns(Ask(WithColumns(node.input, free), answers=calls), asking)


def _place_filter(node: Filter, calls: tuple[CallUse, ...]) -> Node:
    asking = tuple(predicate for predicate in node.predicates if predicate.calls)
    if not all(predicate.row_local for predicate in asking):
        # A window over answers sees the rows that the other predicates drop.
        return Project(Filter(Ask(node.input, answers=calls), node.predicates), columns(node.input))
    free = tuple(predicate for predicate in node.predicates if not predicate.calls)
    tests = tuple(predicate for predicate in asking if predicate.test is not None)
    opaque = tuple(predicate for predicate in asking if predicate.test is None)
    below = Filter(node.input, free) if free else node.input
    if not opaque:
        return Ask(below, keep=tests)
    ask = Ask(below, keep=tests, answers=_calls(Filter(below, opaque)))
    return Project(Filter(ask, opaque), columns(node.input))


def _calls(node: Node) -> tuple[CallUse, ...]:
    found = [call for expression in expressions(node) for call in expression.calls]
    return tuple({call.column: call for call in found}.values())
