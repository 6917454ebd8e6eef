"""AI operators that meet become one: a document is read once for all its questions, and a FALSE saves the rest.

ask(answers topic) over with_columns(len) over ask(keep q)
-> with_columns(len) over ask(keep q, answers topic)
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import Ask, Names, Node, Project, Select, Step, WithColumns, columns, names_of, rewrite


def merge_asks(plan: Node) -> Node:
    """The plan with every `Ask` moved into the next one below, where nothing between them stands in its way."""
    return rewrite(plan, lambda node: (isinstance(node, Ask) and _absorbed(node.input, node)) or node)


def _absorbed(node: Node, ask: Ask) -> Node | None:
    """`node` with the calls of `ask` asked inside its own `Ask`; None where they cannot be."""
    if ask.reads is None or ask.limit is not None or ask.carry is not None:
        return None
    if isinstance(node, Ask):
        return _merged(node, ask) if not ask.reads & set(node.answer_columns) else None
    if not isinstance(node, Project | WithColumns | Select | Step) or not _exchangeable(node, ask.reads):
        return None
    if isinstance(node, Step) and ask.answers and not node.carries:
        return None
    below = _absorbed(node.input, ask)
    if below is None:
        return None
    if isinstance(node, Project):
        return Project(below, (*node.columns, *(c for c in ask.answer_columns if c not in node.columns)))
    if isinstance(node, Select):
        return replace(node, input=below, carry=(*node.carry, *(c for c in ask.answer_columns if c not in node.carry)))
    return replace(node, input=below)


def _merged(lower: Ask, upper: Ask) -> Node | None:
    if lower.limit is not None or lower.carry is not None:
        return None
    answers = {call.column: call for call in (*lower.answers, *upper.answers)}
    return Ask(lower.input, (*lower.keep, *upper.keep), tuple(answers.values()))


def _exchangeable(node: Node, reads: Names) -> bool:
    """Whether asking about these columns gives the same before and after the node."""
    if isinstance(node, Project):
        return True
    if isinstance(node, WithColumns):
        return all(e.row_local for e in node.expressions) and not reads & set(names_of(node.expressions))
    if isinstance(node, Select):
        kept = {e.column for e in node.expressions if e.names == (e.column,)}
        return all(e.row_local for e in node.expressions) and reads <= kept and reads <= set(columns(node.input))
    if isinstance(node, Step):
        return (
            node.commutes and node.changes is not None and not reads & node.changes and reads <= set(node.input_columns)
        )
    return False
