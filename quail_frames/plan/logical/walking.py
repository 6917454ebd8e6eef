"""Going through a plan and rewriting it node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from quail_frames.plan.logical.nodes import Ask, AskPairs, Binary, Concat, Node, Source


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that this one reads."""
    if isinstance(node, Source):
        return ()
    if isinstance(node, Concat):
        return node.inputs
    return (node.left, node.right) if isinstance(node, Binary) else (node.input,)


def with_inputs(node: Node, new: tuple[Node, ...]) -> Node:
    """The same node over other inputs."""
    if new == inputs(node) and all(a is b for a, b in zip(new, inputs(node), strict=True)):
        return node
    if isinstance(node, Source):
        return node
    if isinstance(node, Concat):
        return replace(node, inputs=new)
    return replace(node, left=new[0], right=new[1]) if isinstance(node, Binary) else replace(node, input=new[0])


def rewrite(node: Node, rule: Callable[[Node], Node]) -> Node:
    """`rule` applied to every node, inputs first."""
    return rule(with_inputs(node, tuple(rewrite(below, rule) for below in inputs(node))))


def walk(node: Node) -> Iterable[Node]:
    """The node and everything below it, from the top."""
    yield node
    for below in inputs(node):
        yield from walk(below)


def asks(node: Node) -> bool:
    """Whether a model is asked at this node or below."""
    return any(isinstance(below, Ask | AskPairs) for below in walk(node))


def source_rows(node: Node) -> int | None:
    """Rows of the sources below, of joins on the left side; None where they are not known."""
    if isinstance(node, Source):
        return node.rows
    counts = [source_rows(below) for below in (node.inputs if isinstance(node, Concat) else inputs(node)[:1])]
    return None if None in counts else sum(count for count in counts if count is not None)
