"""A chain of inner AI joins taken apart into its relations, questions, keys and predicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from quail_frames.plan.logical import AskPairs, Expression, Filter, Names, Node, inputs, union

MOST_JOINS = 5
"""Joins that are looked at together; of a longer chain the topmost ones."""
Column = tuple[int, str]
"""Number of a relation, and the name of a column in it."""


@dataclass(frozen=True)
class Relation:
    """One side of a join: its plan, and under which name each of its columns leaves the whole chain.

    Keys that a join coalesced leave it under the name that its predicates know them by.
    """

    node: Node
    names: Mapping[str, str]


@dataclass(frozen=True)
class Key:
    """Columns of two relations that must be equal."""

    left: Column
    right: Column


@dataclass(frozen=True)
class ChainJoin:
    """A join of a chain as written.

    Parameters
    ----------
    slots
        For each slot of the question its relation and its column there.
    sides
        The two relations it asks about; the second one is the join's right side.
    reads
        Relations that its predicates read; None: not known.
    keys
        Its keys as columns of relations; None where one of them is computed.
    """

    node: AskPairs
    slots: tuple[Column, ...]
    sides: tuple[int, int]
    reads: frozenset[int] | None
    keys: tuple[Key, ...] | None

    @property
    def anchor(self) -> int | None:
        """The relation whose documents stay; None: not chosen yet."""
        return {"left": self.sides[0], "right": self.sides[1]}.get(self.node.anchor or "")

    def columns_of(self, relation: int) -> tuple[str, ...]:
        """Columns of a relation that the question reads."""
        return tuple(name for own, name in self.slots if own == relation)


@dataclass(frozen=True)
class JoinChain:
    """Inner AI joins directly above each other, the lowest first.

    `inside` are the filters between the joins and `above` those on top of them, topmost first; `owner` says where each
    column of the chain comes from.
    """

    relations: tuple[Relation, ...]
    joins: tuple[ChainJoin, ...]
    inside: tuple[Filter, ...]
    above: tuple[Filter, ...]
    owner: Mapping[str, Column]

    @property
    def movable(self) -> bool:
        """Whether its joins may be put into another order: keys are plain columns, and no two names clash."""
        names = [after for relation in self.relations for after in relation.names.values()]
        known = all(join.keys is not None and join.reads is not None for join in self.joins)
        return known and len(names) == len(set(names))

    def over(self, nodes: Sequence[Node]) -> JoinChain:
        """The same chain over other plans of its relations."""
        found = (replace(each, node=node) for each, node in zip(self.relations, nodes, strict=True))
        return replace(self, relations=tuple(found))

    def relations_of(self, names: Names) -> frozenset[int] | None:
        """Relations that these columns of the chain come from; None: not known."""
        return frozenset(self.owner[name][0] for name in names) if names <= self.owner.keys() else None


def join_chain(node: Node) -> JoinChain | None:
    """The chain whose topmost operator is this node, of one join or more; None where there is none.

    It ends at a join of another kind, at one that renames columns on its left side, and at one whose question reads
    several relations below it.
    """
    levels: list[AskPairs | Filter] = []
    while (isinstance(node, AskPairs) and _plain(node)) or (isinstance(node, Filter) and _movable(node)):
        if isinstance(node, AskPairs) and len(_joins(levels)) == MOST_JOINS:
            break
        levels.append(node)
        node = node.left if isinstance(node, AskPairs) else node.input
    return _taken_apart(levels)


def chains(node: Node) -> Iterator[JoinChain]:
    """Chains of two joins or more in a plan, the longest ones only."""
    chain = join_chain(node)
    if chain is None or len(chain.joins) < 2:
        for below in inputs(node):
            yield from chains(below)
        return
    yield chain
    for relation in chain.relations:
        yield from chains(relation.node)


def _joins(levels: Sequence[AskPairs | Filter]) -> list[AskPairs]:
    return [level for level in levels if isinstance(level, AskPairs)]


def _plain(node: AskPairs) -> bool:
    return node.how == "inner" and all(name == after for name, after in node.left_names)


def _movable(node: Filter) -> bool:
    """Whether each predicate may go above inner joins, and below them again where that helps."""
    return all(p.row_local and p.reads is not None and (not p.calls or p.test is not None) for p in node.predicates)


def _taken_apart(levels: list[AskPairs | Filter]) -> JoinChain | None:
    """The chain of these levels, topmost first, above the last join that asks about several relations below it."""
    joins = _joins(levels)[::-1]
    if not joins:
        return None
    relations = [Relation(joins[0].left, {name: name for name, _ in joins[0].left_names})]
    owner: dict[str, Column] = {name: (0, name) for name in relations[0].names}
    found: list[ChainJoin] = []
    for number, join in enumerate(joins, start=1):
        slots = tuple(owner[name] if side == "left" else (number, name) for side, name in join.slots)
        left = {relation for relation, _ in slots if relation != number}
        if len(left) != 1:
            return _taken_apart(levels[: levels.index(join)])
        where = {name: (number, own) for own, name in join.where_names}
        names = {own: name for own, name in (*join.where_names, *join.right_names)}
        sides, reads = (left.pop(), number), _relations(join.where, {**owner, **where})
        found.append(ChainJoin(join, slots, sides, reads, _keys(join, owner, number)))
        relations.append(Relation(join.right, names))
        owner |= {after: (number, own) for own, after in join.right_names}
    top, lowest = levels.index(joins[-1]), levels.index(joins[0])
    above, inside = ([f for f in part if isinstance(f, Filter)] for part in (levels[:top], levels[top:lowest]))
    return JoinChain(tuple(relations), tuple(found), tuple(inside), tuple(above), owner)


def _relations(where: tuple[Expression, ...], columns: Mapping[str, Column]) -> frozenset[int] | None:
    reads = union(predicate.reads for predicate in where)
    return None if reads is None or not reads <= columns.keys() else frozenset(columns[name][0] for name in reads)


def _keys(join: AskPairs, owner: Mapping[str, Column], number: int) -> tuple[Key, ...] | None:
    found = []
    for left, right in join.keys:
        if left.column is None or right.column is None or left.column not in owner:
            return None
        found.append(Key(owner[left.column], (number, right.column)))
    return tuple(found)
