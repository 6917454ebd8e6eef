"""Common AI calls once: a call already asked further below is not asked again.

ask(keep score > 0.9) over head(10) over ask(keep score > 0.5)
-> filter(score > 0.9) over head(10) over ask(keep score > 0.5, answers score)
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    CallUse,
    Concat,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Slice,
    Source,
    Step,
    WithColumns,
    columns,
    names_of,
    rewrite,
)


def share_calls(plan: Node) -> Node:
    """The plan with repeated calls answered by the first `Ask` that has them."""
    return rewrite(plan, lambda node: _shared(node) if isinstance(node, Ask) else node)


def _shared(ask: Ask) -> Node:
    names = columns(ask)
    below, given = ask.input, set()
    for call in ask.calls:
        found = providing(below, call)
        if found is not None:
            below = found
            given.add(call.column)
    if not given:
        return ask
    decided = tuple(p for p in ask.keep if all(call.column in given for call in p.calls))
    keep = tuple(p for p in ask.keep if p not in decided)
    answers = tuple(call for call in ask.answers if call.column not in given)
    node: Node = Filter(below, decided) if decided else below
    if keep or answers:
        # A call given from below may also stand in a predicate that stays: its column must not come twice.
        node = replace(ask, input=node, keep=keep, answers=answers)
    return node if columns(node) == names else Project(node, names)


def providing(node: Node, call: CallUse) -> Node | None:
    """`node` with the call's answer column, given by an `Ask` below that asks it anyway; None where there is none."""
    if isinstance(node, Source | Concat) or call.reads is None:
        return None
    if isinstance(node, Ask):
        if any(call.column == own.column for own in node.calls):
            return node if call.column in node.answer_columns else replace(node, answers=(*node.answers, call))
    elif not _rides_through(node, call):
        return None
    if isinstance(node, Join | AskPairs):
        left = providing(node.left, call)
        return None if left is None else replace(node, left=left)
    below = providing(node.input, call)
    if below is None:
        return None
    if isinstance(node, Project) and call.column not in node.columns:
        return Project(below, (*node.columns, call.column))
    if isinstance(node, Select) and call.column not in node.carry:
        return replace(node, input=below, carry=(*node.carry, call.column))
    return replace(node, input=below)


def _rides_through(node: Node, call: CallUse) -> bool:
    """Whether the answer column stays with its row, and the call's inputs are the same above and below."""
    reads = call.reads or frozenset()
    if isinstance(node, WithColumns):
        known = all(e.reads is not None for e in node.expressions)
        return known and not reads & set(names_of(node.expressions))
    if isinstance(node, Select):
        kept = {e.column for e in node.expressions if e.names == (e.column,)}
        return all(e.row_local for e in node.expressions) and bool(node.expressions) and reads <= kept
    if isinstance(node, Step):
        unchanged = node.changes is not None and not reads & node.changes
        return node.carries and unchanged and reads <= set(node.input_columns)
    if isinstance(node, Join | AskPairs):
        own = {name for name, after in node.left_names if name == after}
        return node.how in ("inner", "left", "semi", "anti", "cross") and reads <= own
    return isinstance(node, Project | Filter | Slice)
