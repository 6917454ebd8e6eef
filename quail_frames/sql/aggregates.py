"""The aggregate functions: how each is written, and its Polars expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.sql.problems import fail
from quail_frames.sql.scalars import Translator
from quail_frames.sql.scope import Bound, unwrapped


@dataclass(frozen=True)
class Aggregate:
    """An aggregate: its translation and its usual spelling."""

    translate: Callable[[Translator, Any], pl.Expr]
    usage: str


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of an expression, outermost only; queries and window functions inside it are left alone."""
    if type(node) is exp.Window:
        return
    if type(node) in AGGREGATES:
        yield node
        return
    for value in node.args.values():
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, exp.Expr) and not isinstance(below, exp.Query):
                yield from aggregates_in(below)


def aggregate(to: Translator, node: exp.Expr) -> pl.Expr:
    """The aggregate over the rows of a group."""
    argument = _argument(node)
    if not isinstance(argument, exp.Star) and any(True for _ in aggregates_in(argument)):
        fail(node, "an aggregate stands inside an aggregate: compute the inner one in a subquery first")
    if argument.find(Bound) is None and not isinstance(node, exp.Count):
        fail(node, "an aggregate of a constant reads no column: multiply it with COUNT(*) instead")
    return AGGREGATES[type(node)].translate(to, node)


def _argument(node: exp.Expr) -> Any:
    inner = node.this
    if not isinstance(inner, exp.Distinct):
        return inner
    if len(inner.expressions) != 1:
        fail(node, "DISTINCT takes one expression inside an aggregate: count the rows of a SELECT DISTINCT subquery")
    return inner.expressions[0]


def _count(to: Translator, node: exp.Count) -> pl.Expr:
    argument = _argument(node)
    if isinstance(argument, exp.Star) or isinstance(unwrapped(argument), exp.Literal | exp.Boolean):
        return pl.len()
    if argument.find(Bound) is None:
        fail(node, "COUNT of a constant expression: write COUNT(*)")
    values = to(argument)
    return values.drop_nulls().n_unique() if isinstance(node.this, exp.Distinct) else values.count()


def _distinct(to: Translator, node: exp.Expr) -> pl.Expr:
    values = to.number(_argument(node))
    return values.drop_nulls().unique() if isinstance(node.this, exp.Distinct) else values


def _sum(to: Translator, node: exp.Sum) -> pl.Expr:
    """NULL where there is no value (Polars gives 0)."""
    values = _distinct(to, node)
    return pl.when(values.count() > 0).then(values.sum())


def _count_if(to: Translator, node: exp.CountIf) -> pl.Expr:
    return to.condition(node.this).sum()


def _all(every: bool) -> Callable[[Translator, Any], pl.Expr]:
    def translate(to: Translator, node: Any) -> pl.Expr:
        values = to.condition(node.this)
        found = values.all() if every else values.any()
        return pl.when(values.count() > 0).then(found)

    return translate


def _of_argument(change: Callable[[pl.Expr], pl.Expr]) -> Callable[[Translator, Any], pl.Expr]:
    return lambda to, node: change(to(_argument(node)))


AGGREGATES: dict[type[exp.Expr], Aggregate] = {
    exp.Count: Aggregate(_count, "COUNT(x)"),
    exp.CountIf: Aggregate(_count_if, "COUNT_IF(condition)"),
    exp.Sum: Aggregate(_sum, "SUM(x)"),
    exp.Avg: Aggregate(lambda to, node: _distinct(to, node).mean(), "AVG(x)"),
    exp.Min: Aggregate(_of_argument(pl.Expr.min), "MIN(x)"),
    exp.Max: Aggregate(_of_argument(pl.Expr.max), "MAX(x)"),
    exp.Median: Aggregate(lambda to, node: _distinct(to, node).median(), "MEDIAN(x)"),
    exp.Stddev: Aggregate(lambda to, node: _distinct(to, node).std(), "STDDEV(x)"),
    exp.StddevSamp: Aggregate(lambda to, node: _distinct(to, node).std(), "STDDEV_SAMP(x)"),
    exp.StddevPop: Aggregate(lambda to, node: _distinct(to, node).std(ddof=0), "STDDEV_POP(x)"),
    exp.Variance: Aggregate(lambda to, node: _distinct(to, node).var(), "VARIANCE(x)"),
    exp.VariancePop: Aggregate(lambda to, node: _distinct(to, node).var(ddof=0), "VAR_POP(x)"),
    exp.ApproxDistinct: Aggregate(_of_argument(lambda x: x.drop_nulls().n_unique()), "APPROX_COUNT_DISTINCT(x)"),
    exp.AnyValue: Aggregate(_of_argument(lambda x: x.drop_nulls().first()), "ANY_VALUE(x)"),
    exp.LogicalAnd: Aggregate(_all(True), "BOOLAND_AGG(condition) or LOGICAL_AND(condition)"),
    exp.LogicalOr: Aggregate(_all(False), "BOOLOR_AGG(condition) or LOGICAL_OR(condition)"),
}
