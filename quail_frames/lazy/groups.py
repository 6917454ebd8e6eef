"""Groups of a lazy frame, recorded together with their aggregation as one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from quail_frames.lazy.arguments import Bound, empties, flat, parsed
from quail_frames.lazy.record import Recorder
from quail_frames.plan.logical import union

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame


class LazyGroupBy:
    """What `group_by`, `group_by_dynamic` and `rolling` give: aggregate it.

    Every aggregation of Polars' own lazy groups works; expressions may hold AI calls,
    which are asked of the rows before they are grouped.
    """

    def __init__(self, frame: LazyFrame, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._frame = frame
        self._method = method
        self._args = args
        self._kwargs = kwargs

    def agg(self, *aggs: Any, **named_aggs: Any) -> LazyFrame:
        """One row a group, as Polars' `agg`."""
        return self._aggregated("agg", parsed(flat(aggs), named_aggs), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._groups(self._frame.empty), name):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return lambda *args, **kwargs: self._aggregated(name, args, kwargs)

    def _groups(self, frame: pl.LazyFrame) -> Any:
        return getattr(frame, self._method)(*empties(list(self._args)), **empties(self._kwargs))

    def _aggregated(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LazyFrame:
        frame = self._frame
        keys = Bound(frame._recorder, self._args, self._kwargs)
        bound = Bound(Recorder(frame._schema, self._expand), args, kwargs)
        schema = getattr(self._groups(frame.empty), method)(*args, **kwargs).collect_schema()

        def apply(rows: pl.LazyFrame) -> pl.LazyFrame:
            groups = getattr(rows, self._method)(*keys.args, **keys.kwargs)
            out: pl.LazyFrame = getattr(groups, method)(*bound.args, **bound.kwargs)
            return out

        expressions = (*keys.expressions, *bound.expressions)
        known = method in ("agg", "len") and self._method == "group_by"
        reads = union(expression.reads for expression in expressions) if known else None
        text = f"{self._method}({keys.text}).{method}({bound.text})"
        plain = [e.column for e in keys.expressions if known and e.names == (e.column,)]
        keyed = frame._told_apart(name for name in plain if name is not None)
        detail = {"keys": len(keys.expressions)} if known and method == "agg" else None
        return frame._record(self._method, text, expressions, apply, schema, reads=reads, keyed=keyed, detail=detail)

    def _expand(self, selector: pl.Expr) -> list[str]:
        """Names that a selector stands for inside an aggregation: all but the keys."""
        keys = self._groups(self._frame.empty).agg().collect_schema().names()
        return [name for name in self._frame._recorder.names(selector) if name not in keys]
