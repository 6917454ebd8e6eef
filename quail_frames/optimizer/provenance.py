"""Where a node's columns come from: which input, and under which names there."""

from __future__ import annotations

from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    Concat,
    Expression,
    Join,
    Names,
    Node,
    Select,
    Source,
    Step,
    WithColumns,
    union,
)


def made_of(node: Node, names: Names) -> tuple[int, Names] | None:
    """(number of the input, its columns) that these are computed from; None: of several inputs, or not known."""
    if isinstance(node, Source | Concat):
        return None
    if isinstance(node, Join | AskPairs):
        return _of_one_side(node, names)
    made = _made(node)
    if made is None:
        return None
    below = union(made.get(name, frozenset({name})) for name in names)
    if isinstance(node, Step) and not names <= set(node.input_columns):
        return None
    return None if below is None else (0, below)


def passed_on(node: Node, name: str) -> tuple[int, str] | None:
    """(number of the input, name there) of a column that the node passes on as it is; None: of another one."""
    if isinstance(node, WithColumns | Select):
        made = [e for e in node.expressions if name in e.names]
        if made:
            column = made[0].column
            return None if column is None else (0, column)
        return None if isinstance(node, Select) and name not in node.carry else (0, name)
    if isinstance(node, Ask) and name in node.answer_columns:
        return None
    found = made_of(node, frozenset({name}))
    if found is None:
        return None
    number, (below,) = found[0], tuple(found[1])
    return number, below


def _made(node: Node) -> dict[str, Names | None] | None:
    """Columns that a node of one input makes, and what each is made of; None: not known."""
    if isinstance(node, Ask):
        return {use.column: use.reads for use in node.answers}
    if isinstance(node, WithColumns | Select):
        return {name: _needs(e) for e in node.expressions for name in e.names}
    if isinstance(node, Step):
        return dict.fromkeys(node.changes) if node.carries and node.changes is not None else None
    return {}


def _needs(expression: Expression) -> Names | None:
    return expression.needs if expression.row_local else None


def _of_one_side(node: Join | AskPairs, names: Names) -> tuple[int, Names] | None:
    for number, pairs in enumerate((node.left_names, node.right_names)):
        before = {after: name for name, after in pairs}
        if names <= before.keys():
            return number, frozenset(before[name] for name in names)
    return None
