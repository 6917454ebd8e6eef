"""The relational methods of the lazy frame: Polars' names, arguments and results.

What the optimizer can use is recorded as its own plan node. Any other method of
`pl.LazyFrame` is recorded as a step that Polars does at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from quail_frames.lazy.arguments import all_named, flat, parsed
from quail_frames.lazy.joins import keeps_left_order, key_pairs, key_reads, key_text, right_names
from quail_frames.lazy.record import Recorder
from quail_frames.lazy.steps import Recording
from quail_frames.optimizer.rules.decide_by_answers import held_answers
from quail_frames.plan.logical import (
    Filter,
    Join,
    JoinKind,
    Project,
    Select,
    Slice,
    WithColumns,
)

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame
    from quail_frames.lazy.groups import LazyGroupBy


class Relational(Recording):
    """Records relational steps; `LazyFrame` adds the AI verbs and runs them."""

    # Rows ---------------------------------------------------------------------------------

    def filter(self, *predicates: Any, **constraints: Any) -> Self:
        """Rows for which every predicate is TRUE, as `pl.LazyFrame.filter`; predicates may hold AI calls.

        Call-free predicates are applied before the model is asked, wherever they stand.
        """
        exprs = flat(predicates)
        if not all(isinstance(expr, pl.Expr | str | bool) for expr in exprs):
            return self._step("filter", predicates, constraints)
        exprs = [*parsed(exprs), *(pl.col(name).eq(value) for name, value in constraints.items())]
        recorder = Recorder(self._schema, answers=held_answers(self._plan))
        recorded = [part for expr in exprs for part in recorder.predicates(expr)]
        schema = self.empty.filter(exprs).collect_schema()
        return self._next(Filter(self._plan, tuple(recorded)), schema)

    def slice(self, offset: int, length: int | None = None) -> Self:
        """`length` rows from `offset` on, as `pl.LazyFrame.slice`."""
        if offset < 0 or (length is not None and length < 0):
            return self._step("slice", (offset, length), {})
        return self._next(Slice(self._plan, offset, length), self._schema)

    def head(self, n: int = 5) -> Self:
        """The first `n` rows; the model is asked about no more rows than it takes to find them."""
        return self.slice(0, n)

    def limit(self, n: int = 5) -> Self:
        """As `head`."""
        return self.slice(0, n)

    def sort(self, by: Any, *more_by: Any, **options: Any) -> Self:
        """Sorted rows, as `pl.LazyFrame.sort`; keys may hold AI calls."""
        keys = parsed(flat([by, *more_by]))
        return self._keyed("sort", keys, options, commutes=True)

    def top_k(self, k: int, *, by: Any, reverse: Any = False) -> Self:
        """The `k` rows that are largest by these keys, as `pl.LazyFrame.top_k`; the largest first."""
        return self._extreme(k, by, [not each for each in _flags(reverse)])

    def bottom_k(self, k: int, *, by: Any, reverse: Any = False) -> Self:
        """The `k` rows that are smallest by these keys, as `pl.LazyFrame.bottom_k`; the smallest first."""
        return self._extreme(k, by, _flags(reverse))

    def _extreme(self, k: int, by: Any, descending: list[bool]) -> Self:
        """A sort and a limit, so that a filter below asks no more rows than it takes to find them."""
        return self.sort(by, descending=descending if len(descending) > 1 else descending[0], nulls_last=True).head(k)

    def unique(self, subset: Any = None, **options: Any) -> Self:
        """Rows without duplicates, as `pl.LazyFrame.unique`."""
        if subset is None or isinstance(subset, str | pl.Expr) or all_named(subset):
            keys = self._columns_of(self.columns if subset is None else subset)
            return self._named_step("unique", keys, options, reads=keys, changes=(), keyed=self._told_apart(keys))
        return self._step("unique", (subset,), options)

    def drop_nulls(self, subset: Any = None) -> Self:
        """Rows without nulls in the columns of `subset` (default: any), as `pl.LazyFrame.drop_nulls`."""
        keys = self._columns_of(self.columns if subset is None else subset)
        return self._named_step("drop_nulls", keys, {}, reads=keys, changes=(), streams=True, commutes=True)

    def explode(self, columns: Any, *more_columns: Any, **options: Any) -> Self:
        """One row for each element of the list columns, as `pl.LazyFrame.explode`."""
        names = self._columns_of([columns, *more_columns])
        return self._named_step("explode", names, options, reads=names, changes=names, streams=True)

    # Columns ------------------------------------------------------------------------------

    def select(self, *exprs: Any, **named_exprs: Any) -> Self:
        """These columns only, as `pl.LazyFrame.select`; expressions may hold AI calls."""
        columns = self._spelt(parsed(flat(exprs), named_exprs))
        recorded = tuple(map(self._recorder.expression, columns))
        return self._next(Select(self._plan, recorded), self.empty.select(columns).collect_schema())

    def with_columns(self, *exprs: Any, **named_exprs: Any) -> Self:
        """Columns added or replaced, as `pl.LazyFrame.with_columns`; expressions may hold AI calls."""
        columns = parsed(flat(exprs), named_exprs)
        recorded = tuple(map(self._recorder.expression, columns))
        return self._next(WithColumns(self._plan, recorded), self.empty.with_columns(columns).collect_schema())

    select_seq = select
    with_columns_seq = with_columns

    def drop(self, *columns: Any, strict: bool = True) -> Self:
        """All columns but these, as `pl.LazyFrame.drop`."""
        schema = self.empty.drop(*columns, strict=strict).collect_schema()
        return self._next(Project(self._plan, tuple(schema.names())), schema)

    def rename(self, mapping: Mapping[str, str] | Callable[[str], str], *, strict: bool = True) -> Self:
        """Columns under other names, as `pl.LazyFrame.rename`."""
        schema = self.empty.rename(mapping, strict=strict).collect_schema()
        renamed = [pl.col(old).alias(new) for old, new in zip(self.columns, schema.names(), strict=True)]
        return self._next(Select(self._plan, tuple(map(self._recorder.expression, renamed))), schema)

    # Several rows or frames ---------------------------------------------------------------

    def group_by(self, *by: Any, maintain_order: bool = False, **named_by: Any) -> LazyGroupBy:
        """Groups to aggregate, as `pl.LazyFrame.group_by`; keys and aggregations may hold AI calls."""
        return self._grouped("group_by", parsed(flat(by), named_by), {"maintain_order": maintain_order})

    def join(
        self,
        other: LazyFrame | pl.LazyFrame,
        on: Any = None,
        how: JoinKind = "inner",
        *,
        left_on: Any = None,
        right_on: Any = None,
        **options: Any,
    ) -> Self:
        """Joined with another frame, planned or plain, as `pl.LazyFrame.join`."""
        right = _planned(other)
        detail = key_pairs(self._recorder, right._recorder, on, left_on, right_on, options)
        options = {"on": on, "how": how, "left_on": left_on, "right_on": right_on, **options}
        left_reads = key_reads(self._recorder, on if left_on is None else left_on)
        right_reads = key_reads(right._recorder, on if right_on is None else right_on)
        schema = self.empty.join(right.empty, **options).collect_schema()
        known = how in ("inner", "left", "cross", "semi", "anti")
        left_names = tuple((name, name) for name in self.columns) if known else ()
        node = Join(
            left=self._plan,
            right=right._plan,
            how=how,
            text=f"{how} join" + key_text(on, left_on, right_on),
            apply=lambda left, partner: left.join(partner, **options),
            columns=tuple(schema.names()),
            left_names=left_names,
            right_names=right_names(self.columns, right.columns, schema.names(), options) if known else (),
            left_reads=left_reads if known else None,
            right_reads=right_reads if known else None,
            keeps_left_order=keeps_left_order(how, options),
            detail=detail,
        )
        return self._next(node, schema)

    # Everything else ----------------------------------------------------------------------

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(self, *args, **kwargs)`."""
        return function(self, *args, **kwargs)

    def lazy(self) -> Self:
        """The frame itself."""
        return self

    def clone(self) -> Self:
        """The frame itself: it never changes."""
        return self

    def clear(self, n: int = 0) -> Self:
        """The same columns with `n` rows of nulls; no model is asked."""
        from quail_frames.lazy.frame import lazy

        return self._next(lazy(self.empty.clear(n))._plan, self._schema)

    def __getitem__(self, item: Any) -> Self:
        return self._step("__getitem__", (item,), {})

    def _spelt(self, exprs: list[pl.Expr]) -> list[pl.Expr]:
        """Plain selections as one expression a column, which the optimizer can follow."""
        spelt: list[pl.Expr] = []
        for expr in exprs:
            plain = expr.meta.is_column_selection() and not expr.meta.is_column()
            spelt += [pl.col(name) for name in self._recorder.names(expr)] if plain else [expr]
        return spelt


def _flags(reverse: Any) -> list[bool]:
    return [reverse] if isinstance(reverse, bool) else list(reverse)


def _planned(other: Any) -> LazyFrame:
    from quail_frames.lazy.frame import LazyFrame, lazy

    return other if isinstance(other, LazyFrame) else lazy(other)
