"""A chain of inner AI joins taken apart into its relations and questions, and put together in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from quail_frames.optimizer.join_order import Step as JoinStep
from quail_frames.plan.logical import AskPairs, Filter, Node, Project, Side, Step, columns

NUMBER = "quail-frames row "
"""Start of the names of the columns that number a relation's rows."""


@dataclass(frozen=True)
class Relation:
    """One side of a join: its plan, and under which name each of its columns leaves the whole chain."""

    node: Node
    names: dict[str, str]


@dataclass(frozen=True)
class JoinChain:
    """Inner AI joins directly above each other, the lowest first.

    `slots[k]` says for each slot of join k its relation and its column there, `anchors[k]` the relation whose
    documents stay; `filters` stood between or above the joins.
    """

    relations: tuple[Relation, ...]
    joins: tuple[AskPairs, ...]
    slots: tuple[tuple[tuple[int, str], ...], ...]
    anchors: tuple[int, ...]
    filters: tuple[Filter, ...]

    def side_of(self, join: int, relation: int) -> tuple[str, ...]:
        """Columns of a relation that a join's question reads."""
        return tuple(name for own, name in self.slots[join] if own == relation)


def join_chain(node: Node) -> JoinChain | None:
    """The chain whose topmost operator is this node; None where it is no chain of two joins or more.

    Joins with keys or predicates of their own, or with columns renamed on the left side, end it.
    """
    joins: list[AskPairs] = []
    filters: list[Filter] = []
    while (isinstance(node, AskPairs) and _plain(node)) or (isinstance(node, Filter) and _movable(node)):
        if isinstance(node, AskPairs):
            joins.append(node)
            node = node.left
        else:
            filters.append(node)
            node = node.input
    if len(joins) < 2:
        return None
    return _taken_apart(node, tuple(reversed(joins)), tuple(filters))


def reordered(chain: JoinChain, steps: Sequence[JoinStep], names: tuple[str, ...]) -> Node:
    """The chain with its joins in the order of `steps`, its rows in the order as written."""
    numbered = [_numbered(relation.node, number) for number, relation in enumerate(chain.relations)]
    first = chain.anchors[steps[0].question]
    relation = chain.relations[first]
    node: Node = numbered[first]
    joined = {first}
    own = {**relation.names, _number(first): _number(first)}
    for step in steps:
        (new,) = {each for each, _ in chain.slots[step.question]} - joined
        node = _joined(chain, step.question, node, own, numbered[new], new)
        joined.add(new)
        own = {name: name for name in columns(node)}
    node = _sorted(node, tuple(map(_number, range(len(chain.relations)))))
    for each in reversed(chain.filters):
        node = replace(each, input=node)
    return Project(node, names)


def _plain(node: AskPairs) -> bool:
    same = all(name == after for name, after in node.left_names)
    return node.how == "inner" and not node.keys and not node.where and node.anchor is not None and same


def _movable(node: Filter) -> bool:
    """Whether each predicate may go above inner joins, and below them again where that helps."""
    return all(p.row_local and p.reads is not None and (not p.calls or p.test is not None) for p in node.predicates)


def _taken_apart(base: Node, joins: tuple[AskPairs, ...], filters: tuple[Filter, ...]) -> JoinChain | None:
    relations = [Relation(base, {name: name for name, _ in joins[0].left_names})]
    owner = {name: (0, name) for name in relations[0].names}
    slots: list[tuple[tuple[int, str], ...]] = []
    anchors: list[int] = []
    for number, join in enumerate(joins, start=1):
        found = tuple(owner[name] if side == "left" else (number, name) for side, name in join.slots)
        left = {relation for relation, _ in found if relation != number}
        if len(left) != 1 or all(relation != number for relation, _ in found):
            return None
        slots.append(found)
        anchors.append(left.pop() if join.anchor == "left" else number)
        relations.append(Relation(join.right, dict(join.right_names)))
        owner |= {after: (number, name) for name, after in join.right_names}
    return JoinChain(tuple(relations), joins, tuple(slots), tuple(anchors), filters)


def _joined(chain: JoinChain, join: int, left: Node, own: dict[str, str], right: Node, new: int) -> AskPairs:
    """One join more; `own` are the left side's columns with their names behind the whole chain."""
    anchor: Side = "right" if chain.anchors[join] == new else "left"
    before = {after: name for name, after in own.items()}
    slots: list[tuple[Side, str]] = []
    for relation, name in chain.slots[join]:
        after = chain.relations[relation].names[name]
        slots.append(("right", name) if relation == new else ("left", before[after]))
    right_names = (*chain.relations[new].names.items(), (_number(new), _number(new)))
    return replace(
        chain.joins[join],
        left=left,
        right=right,
        slots=tuple(slots),
        left_names=tuple(own.items()),
        right_names=right_names,
        where_names=right_names,
        anchor=anchor,
    )


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
