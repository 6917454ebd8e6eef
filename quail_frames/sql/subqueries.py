"""Queries inside queries: EXISTS and IN as joins, one value as a column beside every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.lazy.frame import LazyFrame
from quail_frames.sql.aggregates import aggregates_in
from quail_frames.sql.joins import How, Side, joined
from quail_frames.sql.problems import fail
from quail_frames.sql.scalars import Translator
from quail_frames.sql.scope import Bound, Scope, Table, conjuncts, tables_of, unique_name, unwrapped
from quail_frames.sql.tables import Source, Tables, merged_by_using, planned_from, used_keys


def scalar_subqueries(select: exp.Select, tables: Tables) -> Iterator[Source]:
    """The values in SELECT and WHERE that are queries of their own: tables of one row each, read in their places."""
    parts = [*select.expressions, select.args.get("where")]
    for node in [each for part in parts if part is not None for each in _scalars(part)]:
        frame = tables.query(node.this)
        table = tables.numbers.table(None, [])
        name = f"subquery_{table.number}"
        frame = frame.select(pl.col(frame.columns[0]).alias(name))
        hidden = frozenset([name])  # no name in the text means it
        bound = Bound(this=name, table=table.number)
        bound.meta.update(_place_of(node))
        node.replace(bound)
        yield Source(Table(table.number, None, (name,), hidden), frame, exp.Join())


def is_scalar(node: exp.Subquery) -> bool:
    """Whether the query stands where a value does."""
    tables = exp.From | exp.Join | exp.In | exp.Union | exp.Subquery | exp.CTE | exp.Exists | exp.All
    return not isinstance(node.parent, tables)


def gives_one_row(query: Any) -> bool:
    """Whether a query gives one value, whatever its tables hold: it aggregates all its rows."""
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    others = ("group", "having", "limit", "offset", "qualify", "distinct")
    aggregated = any(True for _ in aggregates_in(query.expressions[0]))
    return aggregated and not any(query.args.get(part) for part in others)


def not_in_query(term: exp.Expr) -> tuple[exp.Expr, Any] | None:
    """(x, query) of `x NOT IN (SELECT ...)`, which Snowflake's parser reads as `x <> ALL (SELECT ...)`."""
    inner: Any = unwrapped(term)
    if isinstance(inner, exp.NEQ) and isinstance(inner.expression, exp.All):
        return inner.this, _query_of(inner.expression.this)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Not) else None
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return inner.this, _query_of(inner.args["query"])
    return None


def _scalars(part: exp.Expr) -> list[exp.Subquery]:
    found = part.walk(prune=lambda each: isinstance(each, exp.Query))
    return [each for each in found if isinstance(each, exp.Subquery) and is_scalar(each)]


def _place_of(node: exp.Expr) -> dict[str, Any]:
    return next((each.meta for each in node.walk() if "line" in each.meta), {})


def _query_of(node: Any) -> Any:
    return node.this if isinstance(node, exp.Subquery | exp.Paren) else node


def _in(side: Side, scope: Scope, test: exp.Expr, query: Any, how: How, tables: Tables) -> tuple[Side, LazyFrame]:
    """The side's rows whose value is among those of the query, or is not."""
    frame = tables.query(query)
    table = tables.numbers.table(None, frame.columns)
    if frame.width != 1:
        fail(query, f"IN (SELECT ...) takes one column, this gives {frame.width}")
    value = scope.bind(test.this)
    if not list(value.find_all(Bound)):
        fail(test, "the value before IN (SELECT ...) reads no column of FROM: compare in a subquery of FROM instead")
    key = exp.EQ(this=value, expression=Bound(this=frame.columns[0], table=table.number))
    key.parent = test
    return joined(side, Source(table, frame).side, how, [key], test, name="subquery"), frame


def _not_in(side: Side, scope: Scope, value: exp.Expr, query: Any, tables: Tables) -> Side:
    """NULL is in no list and outside of none: beside a NULL nothing is TRUE, but of no rows all is."""
    test = exp.In(this=value.copy())
    test.parent = value.parent
    kept, frame = _in(side, scope, test, query, "anti", tables)
    taken = set(kept.frame.columns)
    rows, nulls = unique_name("rows_inside", taken), unique_name("nulls_inside", taken)
    counts = frame.select(pl.len().alias(rows), pl.col(frame.columns[0]).null_count().alias(nulls))
    known = Translator(kept.frame.empty, kept.columns)(scope.bind(value)).is_not_null()
    outside = (pl.col(rows) == 0) | (known & (pl.col(nulls) == 0))
    found = kept.frame.join(counts, how="cross").filter(outside).drop(rows, nulls)
    return Side(found, kept.columns)


def subquery_join(side: Side, scope: Scope, node: exp.Expr, tables: Tables) -> Side:
    """Rows that pass `[NOT] EXISTS (SELECT ...)` or `x [NOT] IN (SELECT ...)`."""
    outside = not_in_query(node)
    if outside is not None:
        return _not_in(side, scope, *outside, tables)
    inner = unwrapped(node)
    negated = isinstance(inner, exp.Not)
    test: Any = unwrapped(inner.this) if negated else inner
    how: How = "anti" if negated else "semi"
    query = _query_of(test.args["query"] if isinstance(test, exp.In) else test.this)
    if isinstance(test, exp.In):
        return _in(side, scope, test, query, how, tables)[0]
    return _exists(side, scope, test, query, how, tables)


def _exists(side: Side, scope: Scope, test: exp.Expr, query: Any, how: How, tables: Tables) -> Side:
    if not isinstance(query, exp.Select) or any(
        query.args.get(part) for part in ("group", "having", "limit", "offset", "with_")
    ):
        fail(query, "EXISTS takes a SELECT of FROM and WHERE only: put the rest into a subquery in its FROM")
    sources = tables.sources(query)
    inner = Scope(scope.names, tuple(source.table for source in sources), outer=scope)
    inner = replace(inner, merged=merged_by_using(inner, sources))
    terms = [inner.bind(term) for term in conjuncts(query.args["where"].this)] if query.args.get("where") else []
    own = {source.table.number for source in sources}
    used = used_keys(query, inner, sources)
    right = planned_from(sources, inner, [term for term in terms if tables_of(term) <= own], used)
    name = sources[0].table.name.name if sources[0].table.name is not None else "subquery"
    return joined(side, right, how, [term for term in terms if not tables_of(term) <= own], test, name=name)
