"""What SELECT makes of its rows: columns, duplicates, order and slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.lazy.frame import LazyFrame
from quail_frames.sql.aggregates import aggregates_in
from quail_frames.sql.problems import errors_at, fail
from quail_frames.sql.scalars import Translator
from quail_frames.sql.scope import Bound, Names, Scope, unwrapped

OUTPUT = -1
"""The number of the table that SELECT makes."""


@dataclass(frozen=True)
class Item:
    """A column of SELECT: its name, what it is, and where it was written."""

    name: str
    node: exp.Expr
    at: exp.Expr
    named: bool
    """By AS, or because it is a column."""


@dataclass(frozen=True)
class Output:
    """The rows of SELECT before its columns are chosen: a frame, and how expressions are read over it."""

    frame: LazyFrame
    translate: Translator
    items: Sequence[Item]
    scope: Scope


def finished(output: Output, node: exp.Select, names: Names, *, grouped: bool) -> LazyFrame:
    """The columns of SELECT, without duplicates and in order as it says."""
    order = node.args.get("order")
    distinct = node.args.get("distinct") is not None
    ordered = order.expressions if order is not None else []
    keys = [_order_key(each, output) for each in ordered]
    late = all(_reads_output(key) for key in keys)
    if not late and distinct:
        key = next(each for each, key in zip(ordered, keys, strict=True) if not _reads_output(key))
        fail(key, "ORDER BY of a SELECT DISTINCT names its columns: add this one to SELECT, or GROUP BY")
    frame = output.frame
    if order is not None and not late:
        exprs = [output.translate(_without_output(key, output.items)) for key in keys]
        frame = _sorted(frame, exprs, order)
    frame = _selected(replace(output, frame=frame), node, grouped=grouped)
    frame = frame.unique() if distinct else frame
    if order is not None and late:
        over = Translator(frame.empty, {(OUTPUT, name): name for name in frame.columns})
        frame = _sorted(frame, [over(key) for key in keys], order)
    return frame


def _selected(output: Output, node: exp.Select, *, grouped: bool) -> LazyFrame:
    """The columns of SELECT; a step only where they are not those of the frame already."""
    exprs = [_named(output.translate(item.node), item.name) for item in output.items]
    names = [item.name for item in output.items]
    own = output.frame.columns
    passed = [expr.meta.is_column() for expr in exprs]
    with errors_at(node):
        if names[: len(own)] == own and all(passed[: len(own)]) and own != [""]:
            added = exprs[len(own) :]
            return output.frame.with_columns(added) if added else output.frame
        if not grouped and not any(expr.meta.root_names() for expr in exprs) and node.args.get("from_") is not None:
            return output.frame.with_columns(exprs).select(names)
        return output.frame.select(exprs)


def _named(expr: pl.Expr, name: str) -> pl.Expr:
    return expr if expr.meta.is_column() and expr.meta.output_name() == name else expr.alias(name)


def _order_key(ordered: exp.Ordered, output: Output) -> exp.Expr:
    """A sort key over the columns of SELECT where it can be, else over the rows before."""
    node = ordered.this
    if isinstance(node, exp.Literal) and not node.is_string:
        return Bound(this=item_at(node, output.items).name, table=OUTPUT)
    columns = {item.name: Bound(this=item.name, table=OUTPUT) for item in output.items}
    bound = unwrapped(replace(output.scope, aliases=columns, aliases_first=True).bind(node))
    same = [item.name for item in output.items if unwrapped(item.node) == bound]
    return columns[same[0]] if same else bound


def item_at(node: exp.Literal, items: Sequence[Item]) -> Item:
    position = int(node.this) if node.this.isdecimal() else 0
    if not 1 <= position <= len(items):
        fail(node, f"position {node.this} is not one of the {len(items)} columns of SELECT")
    return items[position - 1]


def _reads_output(key: exp.Expr) -> bool:
    return all(bound.args["table"] == OUTPUT for bound in key.find_all(Bound)) and not any(
        True for _ in aggregates_in(key)
    )


def _without_output(key: exp.Expr, items: Sequence[Item]) -> exp.Expr:
    """The key with what the columns of SELECT stand for in their place."""
    meaning = {item.name: item.node for item in items}

    def meant(node: exp.Expr) -> exp.Expr:
        return meaning[node.this].copy() if isinstance(node, Bound) and node.args["table"] == OUTPUT else node

    return key.transform(meant)


def in_order(frame: LazyFrame, node: Any, names: Names) -> LazyFrame:
    """A query's rows in the order that stands behind it."""
    order = node.args.get("order")
    if order is None:
        return frame
    items = [Item(name, Bound(this=name, table=OUTPUT), node, True) for name in frame.columns]
    over = Translator(frame.empty, {(OUTPUT, name): name for name in frame.columns})
    output = Output(frame, over, items, Scope(names))
    return _sorted(frame, [over(_order_key(each, output)) for each in order.expressions], order)


def _sorted(frame: LazyFrame, keys: Sequence[pl.Expr], order: exp.Order) -> LazyFrame:
    options = {
        "descending": [bool(each.args.get("desc")) for each in order.expressions],
        "nulls_last": [not each.args.get("nulls_first") for each in order.expressions],
    }
    with errors_at(order):
        return frame.sort(list(keys), **{name: _shortest(flags) for name, flags in options.items() if any(flags)})


def _shortest(flags: list[bool]) -> bool | list[bool]:
    """One flag where all keys have the same, as one would write it."""
    return flags if len(set(flags)) > 1 else flags[0]


def sliced(frame: LazyFrame, node: Any) -> LazyFrame:
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return frame
    return frame.slice(
        int(offset.expression.this) if offset is not None else 0,
        int(limit.expression.this) if limit is not None else None,
    )
