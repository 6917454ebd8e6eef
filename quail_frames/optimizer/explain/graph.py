"""A planned query as a graph: SVG of our own for notebooks, words elsewhere.

Boxes stand in rows, sources at the top; a step's right input stands beside its left one. No library is needed: a plan
is a tree, so every node gets the width of what is above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

from quail_frames.plan.logical import Ask, AskPairs, Node, inputs

LINE, PADDING, GAP_X, GAP_Y, CHARACTER = 16, 10, 28, 30, 6.7
WIDEST = 56
"""Characters of a line of a box."""
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:currentColor}"
    "rect{fill:none;stroke:currentColor;stroke-opacity:.45;rx:5}"
    "rect.model{stroke:#c2410c;stroke-opacity:1;stroke-width:1.5}"
    "path{fill:none;stroke:currentColor;stroke-opacity:.45}"
)

Lines = Callable[[Node], list[str]]


@dataclass(frozen=True)
class Box:
    """A step's place: left, top, width and height in pixels; `asks` marks steps that ask a model."""

    lines: tuple[str, ...]
    asks: bool
    x: float
    y: float
    width: float
    height: float
    above: tuple[Box, ...]

    def walk(self) -> Iterator[Box]:
        """This box and all above it."""
        yield self
        for box in self.above:
            yield from box.walk()


@dataclass(frozen=True)
class PlanGraph:
    """A planned query, shown as SVG where notebooks ask for it and as words elsewhere."""

    root: Box
    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def svg(self) -> str:
        """The graph as one SVG element."""
        boxes = list(self.root.walk())
        width = max(box.x + box.width for box in boxes) + 2
        height = max(box.y + box.height for box in boxes) + 2
        parts = [part for box in boxes for part in _drawn(box)]
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{"".join(parts)}</svg>'

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'


def plan_graph(planned: Node, lines: Lines, text: str) -> PlanGraph:
    """The graph of a plan; `lines` gives what a step's box says."""
    return PlanGraph(_placed(planned, lines, 1.0, depth_heights(planned, lines)), text)


def depth_heights(planned: Node, lines: Lines) -> list[float]:
    """Height of the boxes of each row, sources at the top; a node's row is what is above it."""
    heights: dict[int, float] = {}

    def visit(node: Node) -> int:
        row = max((visit(each) + 1 for each in inputs(node)), default=0)
        heights[row] = max(heights.get(row, 0.0), _height(lines(node)))
        return row

    visit(planned)
    return [heights[row] for row in sorted(heights)]


def _placed(node: Node, lines: Lines, left: float, heights: list[float]) -> Box:
    above, at = [], left
    for each in inputs(node):
        box = _placed(each, lines, at, heights)
        above.append(box)
        at = max(inner.x + inner.width for inner in box.walk()) + GAP_X
    own = tuple(line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in lines(node))
    width = max(len(line) for line in own) * CHARACTER + 2 * PADDING
    middle = (above[0].x + above[-1].x + above[-1].width) / 2 if above else left + width / 2
    row = _row(node)
    y = 1 + sum(heights[:row]) + GAP_Y * row
    x = max(left, middle - width / 2)
    return Box(own, isinstance(node, Ask | AskPairs), x, y, width, _height(list(own)), tuple(above))


def _row(node: Node) -> int:
    return max((_row(each) + 1 for each in inputs(node)), default=0)


def _height(lines: list[str]) -> float:
    return len(lines) * LINE + 2 * PADDING


def _drawn(box: Box) -> Iterator[str]:
    kind = ' class="model"' if box.asks else ""
    yield f'<rect{kind} x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"/>'
    for number, line in enumerate(box.lines):
        y = box.y + PADDING + LINE * number + 12
        yield f'<text x="{box.x + PADDING:.1f}" y="{y:.1f}" xml:space="preserve">{escape(line)}</text>'
    for upper in box.above:
        x1, y1 = upper.x + upper.width / 2, upper.y + upper.height
        x2, y2 = box.x + box.width / 2, box.y
        bend = (y1 + y2) / 2
        yield f'<path d="M{x1:.1f} {y1:.1f}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}"/>'
