"""Which pairs an AI join has to ask: equality keys and predicates cut them, by Polars, before the model sees any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from quail_frames.lazy.conditions import unaliased
from quail_frames.lazy.inputs import as_text, to_record_batch
from quail_frames.plan.logical import AskPairs, Expression, Side
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.tokens.ragged import Int64, offsets_of

PAIRS_AT_ONCE = 250_000
"""Candidate pairs that are materialised at a time (about 4 MB of row numbers)."""
_ROW = "quail-frames row "
_KEY = "quail-frames key "


class Cutter:
    """Pairs rows of the anchor side with a partner side that is all there.

    Parameters
    ----------
    node
        The join; its `anchor` is chosen.
    anchors
        The anchor side's columns, of any number of rows.
    partners
        All rows of the other side.
    """

    def __init__(self, node: AskPairs, anchor: Side, anchors: pl.DataFrame, partners: pl.DataFrame) -> None:
        partner: Side = "right" if anchor == "left" else "left"
        self._texts = text_columns(node, anchor)
        self._anchor = _cut_columns(node, anchor)
        self._index = partners.select(_cut_columns(node, partner))
        self._where, equal = _equalities(node.where, anchors.head(0).select(self._anchor), self._index)
        self._equal = [pair[0].alias(_KEY + name) for name, pair in equal.items()]
        self._index = self._index.with_columns(pair[1].alias(_KEY + name) for name, pair in equal.items())
        self._keys = [_KEY + str(number) for number in range(len(node.keys))] + [_KEY + name for name in equal]
        self._rows = (_ROW + anchor, _ROW + partner)

    def batches(self, frame: pl.DataFrame) -> Iterator[AnchorBatch]:
        """The frame's rows in order, each with its candidate partners."""
        texts = frame.select(self._texts)
        if not self._keys and not self._where:
            for rows in texts.iter_slices(max(1, PAIRS_AT_ONCE // max(self._index.height, 1))):
                yield AnchorBatch(to_record_batch(rows))
            return
        own = frame.select(self._anchor).with_columns(self._equal)
        for start, stop in _slices(self._counts(own)):
            candidates = self._candidates(own.slice(start, stop - start), start)
            yield AnchorBatch(to_record_batch(texts.slice(start, stop - start)), candidates)

    def _counts(self, own: pl.DataFrame) -> Int64:
        """Pairs of each anchor row that the keys leave, before the predicates."""
        if not self._keys:
            return np.full(own.height, self._index.height, dtype=np.int64)
        sizes = self._index.group_by(self._keys).len(_ROW)
        joined = own.select(self._keys).join(sizes, on=self._keys, how="left", maintain_order="left")
        return joined[_ROW].fill_null(0).to_numpy().astype(np.int64)

    def _candidates(self, own: pl.DataFrame, start: int) -> Candidates:
        how: dict[str, Any] = {"on": self._keys} if self._keys else {"how": "cross"}
        pairs = own.lazy().join(self._index.lazy(), **how)
        if self._where:
            pairs = pairs.filter(self._where)
        found = pairs.select(self._rows).sort(self._rows).collect()
        anchors = found[self._rows[0]].to_numpy().astype(np.int64) - start
        counts = np.bincount(anchors, minlength=own.height).astype(np.int64)
        return Candidates.of_rows(found[self._rows[1]].to_numpy(), offsets_of(counts))


def text_columns(node: AskPairs, side: Side) -> list[pl.Expr]:
    """The side's texts that the call reads, under the names of `text_names`."""
    names = zip(node.inputs_of(side), text_names(node, side), strict=True)
    return [as_text(pl.col(column)).alias(name) for column, name in names]


def text_names(node: AskPairs, side: Side) -> tuple[str, ...]:
    """Names of the side's texts, as the physical join knows them."""
    return tuple(f"{side} {number}" for number in range(len(node.inputs_of(side))))


def _cut_columns(node: AskPairs, side: Side) -> list[pl.Expr]:
    """Row numbers, the side's keys, and its columns as the predicates know them."""
    rows = pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW + side)
    number = 0 if side == "left" else 1
    keys = [_key(pair[number]).alias(_KEY + str(i)) for i, pair in enumerate(node.keys)]
    reads = frozenset().union(*(predicate.reads or () for predicate in node.where))
    names = node.left_names if side == "left" else node.where_names
    return [rows, *keys, *(pl.col(name).alias(after) for name, after in names if after in reads)]


def _key(key: Expression) -> Any:
    """A key that is a column is read by its name: where joins changed places, it has no expression of its own."""
    return key.body if key.column is None else pl.col(key.column)


def _equalities(
    where: Sequence[Expression], anchors: pl.DataFrame, partners: pl.DataFrame
) -> tuple[list[pl.Expr], dict[str, tuple[pl.Expr, pl.Expr]]]:
    """The predicates, without those that say that a value of one side equals a value of the other.

    Those are keys (anchor side, partner side), by a name of their own: a join looks equal values up where a
    predicate would be tried on every pair. Floats stay predicates.
    """
    left: list[pl.Expr] = []
    keys: dict[str, tuple[pl.Expr, pl.Expr]] = {}
    for number, predicate in enumerate(where):
        pair = _sides_of_equality(predicate.body, anchors.columns, partners.columns)
        if pair is not None and _same_exact_type(anchors.select(pair[0].alias("")), partners.select(pair[1].alias(""))):
            keys[f"where {number}"] = pair
        else:
            left.append(predicate.body)
    return left, keys


def _sides_of_equality(
    expr: pl.Expr, anchors: Sequence[str], partners: Sequence[str]
) -> tuple[pl.Expr, pl.Expr] | None:
    parts = unaliased(expr).meta.pop()
    if len(parts) != 2 or not (parts[1] == parts[0]).meta.eq(unaliased(expr)):
        return None
    for one, other in (parts, parts[::-1]):
        names, others = one.meta.root_names(), other.meta.root_names()
        if names and others and set(names) <= set(anchors) and set(others) <= set(partners):
            return one, other
    return None


def _same_exact_type(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    dtype = one.dtypes[0]
    return dtype == other.dtypes[0] and (
        dtype.is_integer() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean, pl.Binary)
    )


def _slices(counts: Int64) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows whose counts add up to at most `PAIRS_AT_ONCE`, or of one row."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PAIRS_AT_ONCE, side="right")))
        yield start, stop
        start = stop
