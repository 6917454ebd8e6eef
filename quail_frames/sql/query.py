"""SELECT, UNION and WITH as steps on lazy frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.lazy.concat import concat
from quail_frames.lazy.frame import LazyFrame
from quail_frames.sql.aggregates import aggregate, aggregates_in
from quail_frames.sql.ai import read_call
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.joins import Side
from quail_frames.sql.output import Item, Output, finished, in_order, item_at, sliced
from quail_frames.sql.problems import errors_at, fail
from quail_frames.sql.scalars import Translator
from quail_frames.sql.scope import Bound, Field, Names, Numbers, Scope, conjuncts, unique_name, unwrapped
from quail_frames.sql.subqueries import not_in_query, scalar_subqueries, subquery_join
from quail_frames.sql.tables import Source, Tables, merged_by_using, planned_from, renamed, used_keys
from quail_frames.sql.windows import windows_in, with_windows

_SUFFIXES = {"IF": "if", "SCORE": "score", "CLASSIFY": "label"}


class QueryPlanner:
    """Plans the queries of one statement.

    Parameters
    ----------
    names, numbers
        How the dialect compares names; numbers for the tables of the statement.
    known
        Frames by name.
    """

    def __init__(self, names: Names, numbers: Numbers, known: Mapping[str, LazyFrame]) -> None:
        self.names = names
        self.numbers = numbers
        self.known = known

    def query(self, node: Any) -> LazyFrame:
        """The frame of a query."""
        planner = self._with(node.args.get("with_"))
        if isinstance(node, exp.Subquery):
            return sliced(in_order(planner.query(node.this), node, planner.names), node)
        if isinstance(node, exp.Union):
            return sliced(in_order(planner._union(node), node, planner.names), node)
        return planner._select(node)

    def _with(self, clause: exp.With | None) -> QueryPlanner:
        planner = self
        defined: list[exp.Identifier] = []
        for each in clause.expressions if clause is not None else []:
            alias = each.args["alias"]
            if any(planner.names.same(alias.this, other.name) for other in defined):
                fail(alias.this, f"two queries of WITH are called {alias.this.name!r}: give one another name")
            defined.append(alias.this)
            frame = renamed(planner.query(each.this), alias.args.get("columns"))
            hidden = [name for name in planner.known if planner.names.same(alias.this, name)]
            known = {name: other for name, other in planner.known.items() if name not in hidden}
            planner = QueryPlanner(planner.names, planner.numbers, {**known, alias.this.name: frame})
        return planner

    def _union(self, node: exp.Union) -> LazyFrame:
        left, right = self.query(node.this), self.query(node.expression)
        if left.width != right.width:
            fail(node.expression, f"UNION joins {left.width} columns with {right.width}: select as many on both sides")
        same = right.columns == left.columns
        pairs = zip(right.columns, left.columns, strict=True)
        right = right if same else right.select([pl.col(old).alias(new) for old, new in pairs])
        with errors_at(node.expression):
            both = concat([left, right], how="vertical_relaxed")
        return both.unique() if node.args.get("distinct") else both

    # SELECT -------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> LazyFrame:
        tables = Tables(self.names, self.numbers, self.known, self.query)
        sources = [*tables.sources(node), *scalar_subqueries(node, tables)]
        scope = Scope(self.names, tuple(source.table for source in sources))
        scope = replace(scope, merged=merged_by_using(scope, sources))
        items, scope = self._items(node, scope, sources)
        side = self._rows(node, scope, sources, tables)
        grouped = node.args.get("group") is not None or any(map(_aggregates, [*items, node.args.get("having")]))
        order = node.args.get("order")
        grouped = grouped or (order is not None and any(True for _ in aggregates_in(order)))
        items = _distinct_names(items, side)
        if node.args.get("qualify") is not None or any(windows_in(item.node) for item in items):
            if grouped:
                fail(
                    _first_window(node, items),
                    "a window function stands beside GROUP BY or an aggregate: group in a subquery in FROM first",
                )
            side, items = self._windows(node, side, scope, items)
        output = self._grouped(node, side, scope, items) if grouped else _ungrouped(side, scope, items)
        return sliced(finished(output, node, self.names, grouped=grouped), node)

    def _rows(self, node: exp.Select, scope: Scope, sources: Sequence[Source], tables: Tables) -> Side:
        """The rows of FROM and WHERE."""
        where = node.args.get("where")
        terms = conjuncts(where.this) if where is not None else []
        tests = [term for term in terms if _is_subquery_test(term)]
        visible = scope if self.names.dialect == "snowflake" else replace(scope, aliases={})
        bound = [visible.bind(term) for term in terms if not _is_subquery_test(term)]
        side = planned_from(sources, replace(scope, aliases={}), bound, used_keys(node, scope, sources))
        for test in tests:
            side = subquery_join(side, visible, test, tables)
        return side

    def _windows(self, node: exp.Select, side: Side, scope: Scope, items: Sequence[Item]) -> tuple[Side, list[Item]]:
        """The rows with a column for each window function, those that QUALIFY leaves."""
        qualify = node.args.get("qualify")
        condition = [] if qualify is None else [scope.bind(qualify.this)]
        side, found = with_windows(side, [*(item.node for item in items), *condition], self.numbers)
        found, condition = found[: len(items)], found[len(items) :]
        items = [replace(item, node=read) for item, read in zip(items, found, strict=True)]
        return side.filtered(condition), items

    def _items(self, node: exp.Select, scope: Scope, sources: Sequence[Source]) -> tuple[list[Item], Scope]:
        """The columns of SELECT, and the scope in which their names mean them."""
        items: list[Item] = []
        aliases: dict[str, exp.Expr] = {}
        for position, raw in enumerate(node.expressions, start=1):
            visible = replace(scope, aliases=aliases) if self.names.dialect == "snowflake" else scope
            for item in self._expanded(raw, visible, position):
                items.append(item)
                if isinstance(raw, exp.Alias):
                    aliases = {item.name: item.node, **aliases}
        return items, replace(scope, aliases=aliases)

    def _expanded(self, raw: exp.Expr, scope: Scope, position: int) -> Iterator[Item]:
        if raw.is_star:
            yield from self._starred(raw, scope)
            return
        bound = scope.bind(raw.this if isinstance(raw, exp.Alias) else raw)
        name = raw.alias if isinstance(raw, exp.Alias) else self._name(raw, bound, position)
        named = isinstance(raw, exp.Alias) or isinstance(bound, Bound)
        call = unwrapped(bound)
        if isinstance(call, AiFunction) and call.this == "CLASSIFY" and read_call(call).options.get("probabilities"):
            yield Item(name, Field(this=call, field="label"), raw, named)
            yield Item(f"{name}_probabilities", Field(this=call.copy(), field="probabilities"), raw, named)
            return
        yield Item(name, bound, raw, named)

    def _starred(self, raw: Any, scope: Scope) -> Iterator[Item]:
        """The columns of `*` or `t.*`, less those of EXCLUDE / EXCEPT."""
        star = raw.this if isinstance(raw, exp.Column) else raw
        tables = [scope.table(raw.args["table"])] if isinstance(raw, exp.Column) else scope.tables
        if not any(table.columns for table in tables):
            fail(raw, "* stands for no column: there is no FROM")
        left_out = list(star.args.get("except_") or [])
        for written in left_out:
            if not any(self.names.same(_identifier(written), name) for table in tables for name in table.columns):
                fail(written, f"column {written.name!r} of EXCLUDE or EXCEPT is unknown")
        for table in tables:
            for name in table.columns:
                hidden = not isinstance(raw, exp.Column) and name in table.merged
                if hidden or any(self.names.same(_identifier(written), name) for written in left_out):
                    continue
                whole = None if isinstance(raw, exp.Column) else scope.merged.get(name.casefold())
                yield Item(name, Bound(this=name, table=table.number) if whole is None else whole.copy(), raw, True)

    def _name(self, raw: exp.Expr, bound: exp.Expr, position: int) -> str:
        """Of a column without AS: the column's own, the call's own, else the text."""
        inner = unwrapped(bound)
        if isinstance(inner, Bound):
            return str(inner.this)
        if isinstance(inner, AiFunction):
            call = read_call(inner)
            first = call.prompt.inputs[0].find(Bound)
            return f"{first.this if first is not None else f'column_{position}'}_{_SUFFIXES[call.kind]}"
        return f"column_{position}" if raw.find(AiFunction, Bound) is not None else raw.sql(self.names.dialect)

    # GROUP BY -----------------------------------------------------------------------------

    def _grouped(self, node: exp.Select, side: Side, scope: Scope, items: Sequence[Item]) -> Output:
        """One row a group: keys and aggregates as columns, HAVING applied."""
        first = replace(scope, aliases_first=self.names.dialect == "bigquery")
        group, having, order = (node.args.get(part) for part in ("group", "having", "order"))
        keys = [self._key(each, first, items) for each in (group.expressions if group is not None else [])]
        kept = replace(scope, aliases={item.name: item.node for item in items}, aliases_first=True)
        condition = kept.bind(having.this) if having is not None else None
        ordered = [] if order is None else [kept.bind(each.this) for each in order.expressions]
        wanted = [*(item.node for item in items), *([] if condition is None else [condition]), *ordered]
        found = list(dict.fromkeys(each for one in wanted for each in aggregates_in(one)))
        known = _column_names(keys, found, items)
        over = Translator(side.frame.empty, side.columns)
        exprs = {each: (over(each) if each in keys else aggregate(over, each)).alias(known[each]) for each in known}
        exprs = {each: _unaliased_column(expr) for each, expr in exprs.items()}
        aggregates = [exprs[each] for each in found]
        with errors_at(node):
            if keys:
                frame = side.frame.group_by([exprs[each] for each in dict.fromkeys(keys)]).agg(aggregates)
            else:
                frame = side.frame.select(aggregates) if aggregates else side.frame.select(pl.len().alias("rows"))
        translate = Translator(frame.empty, {}, known)
        if condition is not None:
            frame = frame.filter(translate.condition(condition))
        return Output(frame, translate, items, scope)

    def _key(self, node: exp.Expr, scope: Scope, items: Sequence[Item]) -> exp.Expr:
        if isinstance(node, exp.Literal) and not node.is_string:
            return unwrapped(item_at(node, items).node)
        return unwrapped(scope.bind(node))


def _column_names(
    keys: Sequence[exp.Expr], aggregates: Sequence[exp.Expr], items: Sequence[Item]
) -> dict[exp.Expr, str]:
    """A column name for each key and aggregate: that of the SELECT item which is just that, where there is one."""
    known: dict[exp.Expr, str] = {}
    taken: set[str] = set()
    for position, node in enumerate(dict.fromkeys([*keys, *aggregates]), start=1):
        own = [item.name for item in items if unwrapped(item.node) == node]
        default = node.this if isinstance(node, Bound) else f"group_{position}"
        known[node] = unique_name(own[0] if own else default, taken)
        taken.add(known[node])
    return known


def _unaliased_column(expr: pl.Expr) -> pl.Expr:
    """`col("a").alias("a")` as `col("a")`."""
    name = expr.meta.output_name()
    return pl.col(name) if expr.meta.eq(pl.col(name).alias(name)) else expr


def _ungrouped(side: Side, scope: Scope, items: Sequence[Item]) -> Output:
    return Output(side.frame, Translator(side.frame.empty, side.columns), items, scope)


def _aggregates(item: Any) -> bool:
    node = item.node if isinstance(item, Item) else item
    return node is not None and any(True for _ in aggregates_in(node))


def _is_subquery_test(term: exp.Expr) -> bool:
    inner: Any = unwrapped(term)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Not) else inner
    return (
        not_in_query(term) is not None
        or isinstance(inner, exp.Exists)
        or (isinstance(inner, exp.In) and inner.args.get("query") is not None)
    )


def _first_window(node: exp.Select, items: Sequence[Item]) -> exp.Expr:
    found = [each for item in items for each in windows_in(item.node)]
    return found[0] if found else node.args["qualify"]


def _identifier(node: exp.Expr) -> exp.Identifier:
    return node if isinstance(node, exp.Identifier) else node.this


def _distinct_names(items: Sequence[Item], side: Side) -> list[Item]:
    """Items with different names: columns of `*` that share one get the name that the join gave them."""
    found: list[Item] = []
    for item in items:
        taken = {other.name for other in found}
        if item.name in taken:
            if not item.at.is_star:
                fail(item.at, f"two columns of the result are called {item.name!r}: give one another name with AS")
            after = side.columns[(item.node.args["table"], item.node.this)]
            item = replace(item, name=unique_name(f"{item.name}_right" if after in taken else after, taken))
        found.append(item)
    return found
