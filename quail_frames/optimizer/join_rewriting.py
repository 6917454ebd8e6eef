"""A chain of inner AI joins put together in another order, its rows in the order of the joins as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quail_frames.optimizer.join_chain import Column, JoinChain
from quail_frames.optimizer.join_order import Step as JoinStep
from quail_frames.plan.logical import AskPairs, Expression, Node, Project, Side, Step, columns

NUMBER = "quail-frames row "
"""Start of the names of the columns that number a relation's rows."""


def reordered(chain: JoinChain, steps: Sequence[JoinStep], names: tuple[str, ...]) -> Node:
    """The chain with its joins in the order of `steps`, its rows in the order as written.

    `names` are the columns wanted. The first join's anchor relation is the left side of all.
    """
    numbered = [_numbered(relation.node, number) for number, relation in enumerate(chain.relations)]
    first = chain.joins[steps[0].question]
    start = first.sides[0] if first.anchor is None else first.anchor
    node: Node = numbered[start]
    joined = {start}
    own: Mapping[str, str] = {**chain.relations[start].names, _number(start): _number(start)}
    for step in steps:
        (new,) = set(chain.joins[step.question].sides) - joined
        node = _joined(chain, step.question, node, own, numbered[new], new)
        joined.add(new)
        own = {name: name for name in columns(node)}
    node = _sorted(node, tuple(map(_number, range(len(chain.relations)))))
    for each in reversed((*chain.above, *chain.inside)):
        node = replace(each, input=node)
    return Project(node, names)


def _joined(chain: JoinChain, join: int, left: Node, own: Mapping[str, str], right: Node, new: int) -> AskPairs:
    """One join more; `own` are the left side's columns with their names behind the whole chain."""
    written = chain.joins[join]
    anchor: Side = "right" if written.anchor == new else "left"
    before = {after: name for name, after in own.items()}

    def place(column: Column) -> tuple[Side, str]:
        relation, name = column
        return ("right", name) if relation == new else ("left", before[chain.relations[relation].names[name]])

    keys = []
    for key in written.keys or ():
        one, other = place(key.left), place(key.right)
        one, other = (other, one) if one[0] == "right" else (one, other)
        keys.append((_column(one[1]), _column(other[1])))
    right_names = (*chain.relations[new].names.items(), (_number(new), _number(new)))
    return replace(
        written.node,
        left=left,
        right=right,
        slots=tuple(place(slot) for slot in written.slots),
        keys=tuple(keys),
        left_names=tuple(own.items()),
        right_names=right_names,
        where_names=right_names,
        anchor=anchor,
    )


def _column(name: str) -> Expression:
    """A column as it is; the front end reads it by its name."""
    return Expression(None, name, (name,), name, frozenset({name}), True, column=name)


def _number(relation: int) -> str:
    return f"{NUMBER}{relation}"


def _numbered(node: Node, relation: int) -> Step:
    """The relation with its rows numbered in their order."""
    name, own = _number(relation), columns(node)

    def apply(frame: Any) -> Any:
        return frame.with_row_index(name)

    text = f"number the rows of frame {relation + 1}"
    return Step(
        node,
        "with_row_index",
        text,
        apply,
        own,
        (name, *own),
        reads=frozenset(),
        changes=frozenset({name}),
        carries=True,
    )


def _sorted(node: Node, numbers: tuple[str, ...]) -> Step:
    """Back in the order of the joins as written: by the first frame's rows, then the next one's."""
    own = columns(node)

    def apply(frame: Any) -> Any:
        return frame.sort(numbers)

    text = "put the rows into the order of the joins as written"
    return Step(
        node, "sort", text, apply, own, own, reads=frozenset(numbers), changes=frozenset(), carries=True, commutes=True
    )
