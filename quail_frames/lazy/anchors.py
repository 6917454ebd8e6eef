"""Choosing the anchor of an AI join: the side whose documents stay in KV memory while the other's pass by.

The anchor is part of the prompt, so the choice looks only at what the user wrote below the
join: no later step, and no rewriting of the plan, can change an answer. Sides are looked at
through a sample of their first rows; no model is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from quail_frames.cost.work import pair_join
from quail_frames.lazy.execute import applied, without_rows
from quail_frames.lazy.inputs import as_text
from quail_frames.lazy.marker import answer_dtype
from quail_frames.lazy.run_pairs import paired
from quail_frames.optimizer.rules.order_calls import (
    CHARACTERS_PER_TOKEN,
    DEFAULT_SELECTIVITY,
    DOCUMENT_TOKENS,
    call_tokens,
    passing_share,
)
from quail_frames.plan.logical import (
    AskPairs,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Side,
    Slice,
    Source,
    Step,
    WithColumns,
    columns,
    expressions,
    inputs,
    names_of,
    rewrite,
)

SAMPLE_ROWS = 256
UNKNOWN_ROWS = 1000.0
"""Rows of a side that nobody has counted."""
RIGHT_PAYS = 0.8
"""A right anchor holds the rows up until the last pair is known: it has to cost less than this share of a left one."""
_NOT_AT_A_GLANCE = re.compile(r"python|\b(AGGREGATE|JOIN|SORT|UNIQUE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class SideFigures:
    """What the choice looks at: rows, mean tokens of a row's texts, and whether its documents are computed already."""

    rows: float
    tokens: float
    resident: bool = False


def choose_anchors(plan: Node) -> Node:
    """The plan as written with the anchor of every AI join chosen, where the user left it open."""
    return rewrite(plan, lambda node: _chosen(node) if isinstance(node, AskPairs) and node.anchor is None else node)


def cheaper_anchor(left: SideFigures, right: SideFigures, pairs: float, frame: float) -> Side:
    """The side that costs fewer computed tokens as anchor; the left one unless the right one saves a fifth.

    An anchor's document and the `frame` after it are computed once, a partner's text for each pair.

    >>> cheaper_anchor(SideFigures(100, 20), SideFigures(100, 400), pairs=10_000, frame=40)
    'right'
    """
    costs = [
        pair_join(a.tokens, pairs / max(a.rows, 1.0), b.tokens, frame, a.resident).new_tokens * a.rows
        for a, b in ((left, right), (right, left))
    ]
    return "right" if costs[1] < RIGHT_PAYS * costs[0] else "left"


def _chosen(node: AskPairs) -> AskPairs:
    if node.how in ("semi", "anti"):
        # Only a left anchor can stop at its first TRUE.
        return replace(node, anchor="left")
    left, right = _figures(node, "left", node.left), _figures(node, "right", node.right)
    return replace(node, anchor=cheaper_anchor(left, right, _pairs(node, left, right), call_tokens(node.call)))


def _pairs(node: AskPairs, left: SideFigures, right: SideFigures) -> float:
    """Expected candidate pairs; equality keys are taken for those of a foreign key."""
    pairs = max(left.rows, right.rows) if node.keys else left.rows * right.rows
    return pairs * (0.5 if node.where else 1.0)


def _figures(node: AskPairs, side: Side, below: Node) -> SideFigures:
    texts = [as_text(pl.col(name)).str.len_bytes().mean() for name in node.inputs_of(side)]
    mean = sample(below).select(pl.sum_horizontal(texts)).item() if texts else None
    tokens = DOCUMENT_TOKENS if not mean else mean / CHARACTERS_PER_TOKEN
    return SideFigures(_rows(below), tokens, _asked_about(below, set(node.inputs_of(side))))


def _asked_about(node: Node, names: set[str]) -> bool:
    """Whether a filter just below asks about these very columns."""
    while isinstance(node, Project | Filter | WithColumns):
        calls = [use for e in expressions(node) for use in e.calls] if isinstance(node, Filter) else []
        if any({text.column for text in use.inputs} == names for use in calls):
            return True
        if isinstance(node, WithColumns) and names & set(names_of(node.expressions)):
            return False
        node = node.input
    return False


def _rows(node: Node) -> float:
    """Expected rows of a side."""
    if isinstance(node, Source):
        return _source_rows(node)
    if isinstance(node, AskPairs):
        share = DEFAULT_SELECTIVITY if node.call.selectivity is None else node.call.selectivity
        return _rows(node.left) * max(1.0, _rows(node.right) * share)
    if isinstance(node, Join):
        return max(map(_rows, inputs(node)))
    rows = _rows(node.input)
    if isinstance(node, Filter):
        return rows * float(np.prod([passing_share(p.test.condition, p.calls) for p in node.predicates if p.test]))
    return min(rows, node.length) if isinstance(node, Slice) and node.length is not None else rows


def _source_rows(source: Source) -> float:
    """Rows of a source, counted where it is a frame in memory."""
    if source.rows is not None:
        return float(source.rows)
    frame: pl.LazyFrame = source.frame
    in_memory = frame.explain(optimized=False).startswith("DF [")
    return float(frame.select(pl.len()).collect().item()) if in_memory else UNKNOWN_ROWS


# Samples ----------------------------------------------------------------------------------


def sample(node: Node) -> pl.DataFrame:
    """Some of the node's first rows with null for every answer; none where looking would cost more than a glance."""
    if isinstance(node, Source):
        return _head(node)
    if isinstance(node, AskPairs):
        left, right = sample(node.left), sample(node.right)
        nobody_or_first = np.arange(left.height) % right.height if right.height else np.full(left.height, -1)
        return paired(node, left, right, nobody_or_first)
    if isinstance(node, Join):
        return applied(node, [sample(node.left).lazy(), sample(node.right).lazy()]).collect()
    if isinstance(node, Step) and not node.carries:
        return without_rows(node).collect()
    if isinstance(node, Filter):
        node = replace(node, predicates=tuple(p for p in node.predicates if not p.calls and p.row_local))
        if not node.predicates:
            return sample(node.input)
    assert isinstance(node, Filter | WithColumns | Select | Project | Slice | Step)
    calls = {use.column: use.call for expression in expressions(node) for use in expression.calls}
    answers = [pl.lit(None, dtype=answer_dtype(call)).alias(column) for column, call in calls.items()]
    return applied(node, [sample(node.input).with_columns(answers).lazy()]).select(columns(node)).collect()


def _head(source: Source) -> pl.DataFrame:
    """The first rows; none of a source that runs Python code, which may ask a model, or needs all its rows first."""
    frame: pl.LazyFrame = source.frame
    if _NOT_AT_A_GLANCE.search(frame.explain(optimized=False)):
        return pl.DataFrame(schema=frame.collect_schema())
    return frame.head(SAMPLE_ROWS).collect()
