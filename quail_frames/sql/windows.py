"""Window functions: each becomes a column beside the rows that FROM, WHERE and GROUP BY leave.

The order inside a window is a whole number for each row, equal for rows that ORDER BY does not tell apart, so that
every direction and place of NULL is the same to Polars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.sql.aggregates import AGGREGATES, aggregate
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.joins import Side
from quail_frames.sql.problems import errors_at
from quail_frames.sql.scalars import Translator
from quail_frames.sql.scope import Bound, Numbers, unique_name

RANKS: dict[type[exp.Expr], Any] = {exp.RowNumber: "ordinal", exp.Rank: "min", exp.DenseRank: "dense"}
"""Functions of the order alone, and the way of ranking that each is."""
RUNNING = (exp.Sum, exp.Count, exp.Min, exp.Max, exp.Avg)
"""Aggregates that may run along the order of their window."""
USAGE = "ROW_NUMBER(), RANK(), DENSE_RANK(), or an aggregate, with OVER (PARTITION BY ... ORDER BY ...)"


def windows_in(node: Any) -> list[exp.Window]:
    """The window functions of an expression; queries inside it are left alone."""
    if node is None:
        return []
    return [each for each in node.walk(prune=lambda below: isinstance(below, exp.Query)) if type(each) is exp.Window]


def with_windows(side: Side, nodes: Sequence[exp.Expr], numbers: Numbers) -> tuple[Side, list[exp.Expr]]:
    """The side with a column for each window function of the bound expressions, and these reading the columns."""
    found = list(dict.fromkeys(each for node in nodes for each in windows_in(node)))
    columns: dict[exp.Expr, Bound] = {}
    for window in found:
        name = unique_name("window", set(side.frame.columns))
        with errors_at(window):
            side = _with_window(side, window, name)
        bound = Bound(this=name, table=numbers.table(None, (name,)).number)
        side = replace(side, columns={**side.columns, (bound.args["table"], name): name})
        columns[window] = bound

    def read(node: exp.Expr) -> exp.Expr:
        return columns[node].copy() if type(node) is exp.Window else node

    return side, [node.transform(read) for node in nodes]


def _with_window(side: Side, window: exp.Window, name: str) -> Side:
    over = Translator(side.frame.empty, side.columns)
    groups = [over(each) for each in window.args.get("partition_by") or []] or [pl.lit(1)]
    ordered = list(_ordered(window))
    function: Any = window.this
    if not ordered:
        value = pl.int_range(pl.len()) + 1 if isinstance(function, exp.RowNumber) else aggregate(over, function)
        return replace(side, frame=side.frame.with_columns(value.over(groups).alias(name)))
    place, turn, sofar = (unique_name(f"{name}_{part}", set(side.frame.columns)) for part in ("place", "turn", "sum"))
    frame = side.frame.with_columns(_places(over, ordered).alias(place))
    if type(function) in RANKS:
        rank = pl.col(place).rank(RANKS[type(function)]).cast(pl.Int64)
        return replace(side, frame=frame.with_columns(rank.over(groups).alias(name)).drop(place))
    frame = frame.with_columns(pl.col(place).rank("ordinal").over(groups).alias(turn))
    running = _running(over, function).over(groups, order_by=turn)
    frame = frame.with_columns(running.alias(sofar))
    at_last = pl.col(sofar).sort_by(turn).last().over([*groups, pl.col(place)])
    value = pl.col(sofar) if _by_rows(window) else at_last
    return replace(side, frame=frame.with_columns(value.alias(name)).drop(place, turn, sofar))


def _ordered(window: exp.Window) -> Iterator[exp.Ordered]:
    order = window.args.get("order")
    yield from order.expressions if order is not None else ()


def _by_rows(window: exp.Window) -> bool:
    """Whether rows that ORDER BY does not tell apart are apart (ROWS), which they are not where nothing is said."""
    spec = window.args.get("spec")
    return spec is not None and spec.args.get("kind") == "ROWS"


def _places(over: Translator, ordered: Sequence[exp.Ordered]) -> pl.Expr:
    """A number for each row by which all rows stand in order, equal where the keys are; NULL has a place too."""
    found: pl.Expr | None = None
    for each in ordered:
        key = over(each.this)
        rank = key.rank("dense", descending=bool(each.args.get("desc"))).cast(pl.Int64)
        place = rank.fill_null(0 if each.args.get("nulls_first") else pl.len().cast(pl.Int64) + 1)
        found = place if found is None else (found * (pl.len().cast(pl.Int64) + 2) + place).rank("dense")
        found = found.cast(pl.Int64)
    assert found is not None
    return found


def _running(over: Translator, function: Any) -> pl.Expr:
    """The aggregate of the rows up to each; NULL where they have no value."""
    if _counts_rows(function):
        return pl.int_range(pl.len()).cast(pl.Int64) + 1
    values = over(function.this)
    seen = values.is_not_null().cum_sum().cast(pl.Int64)
    if isinstance(function, exp.Count):
        return seen
    if isinstance(function, exp.Min | exp.Max):
        found = values.cum_min() if isinstance(function, exp.Min) else values.cum_max()
        return found.forward_fill()
    total = over.number(function.this).fill_null(0).cum_sum()
    return pl.when(seen > 0).then(total if isinstance(function, exp.Sum) else total / seen)


def problem_of(window: exp.Window) -> str | None:
    """Why a window function cannot be planned; None where it can."""
    function: Any = window.this
    if window.args.get("alias") is not None:
        return f"named windows are not planned: write OVER (...) in full where it says OVER {window.alias}"
    if isinstance(function, AiFunction):
        return f"an AI function is asked row by row: name it in a subquery in FROM, or write {USAGE}"
    if type(function) not in RANKS and type(function) not in AGGREGATES:
        name = function.sql_name() if isinstance(function, exp.Func) else function.sql()
        return f"{name} OVER is not planned: there are {USAGE}"
    order, spec = window.args.get("order"), window.args.get("spec")
    if order is None and type(function) in (exp.Rank, exp.DenseRank):
        return f"{function.sql_name()} ranks by an order: write OVER (... ORDER BY ...)"
    if isinstance(function.this, exp.Distinct) and order is not None:
        return "DISTINCT cannot run along ORDER BY: leave ORDER BY out of OVER, or DISTINCT"
    if order is not None and type(function) not in RANKS and type(function) not in RUNNING:
        running = ", ".join(kind.sql_names()[0] for kind in RUNNING)
        return f"only {running} run along the ORDER BY of a window: leave ORDER BY out of OVER"
    if order is not None and type(function) in RUNNING and not _counts_rows(function) and not _reads(function):
        return "an aggregate of a constant reads no column: write COUNT(*), times the constant"
    if spec is not None and (order is None or not _up_to_here(spec)):
        return (
            "a window's frame is UNBOUNDED PRECEDING AND CURRENT ROW here: leave the frame out, or ORDER BY for the "
            "whole partition"
        )
    return None


def _counts_rows(function: Any) -> bool:
    return isinstance(function, exp.Count) and isinstance(function.this, exp.Star | exp.Literal)


def _reads(function: exp.Expr) -> bool:
    return next(function.find_all(exp.Column, Bound), None) is not None


def _up_to_here(spec: exp.WindowSpec) -> bool:
    written = [spec.args.get(part) or "" for part in ("start", "start_side", "end", "end_side")]
    texts = [str(part).upper() for part in written]
    return texts in (["UNBOUNDED", "PRECEDING", "CURRENT ROW", ""], ["UNBOUNDED", "PRECEDING", "", ""])
