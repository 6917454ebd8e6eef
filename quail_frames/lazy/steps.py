"""How any step of a lazy frame is recorded, known to the optimizer or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import polars as pl

from quail_frames.lazy.arguments import Bound, PlannedFrame, empties, flat, options_text, parsed
from quail_frames.lazy.record import Recorder
from quail_frames.plan.logical import Expression, Names, Node, Step, union

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame
    from quail_frames.lazy.groups import LazyGroupBy


class Recording(PlannedFrame):
    """A plan, its schema, and what adds a step to them. Methods without one of their own are Polars' at that point."""

    _plan: Node
    _schema: pl.Schema

    def _next(self, plan: Node, schema: pl.Schema) -> Self:
        raise NotImplementedError

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._schema.names()

    @property
    def dtypes(self) -> list[pl.DataType]:
        """Types of the columns."""
        return self._schema.dtypes()

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self._schema)

    @cached_property
    def empty(self) -> pl.LazyFrame:
        """A plain frame of the same schema and no rows."""
        return pl.LazyFrame(schema=self._schema)

    @cached_property
    def _recorder(self) -> Recorder:
        return Recorder(self._schema)

    def __contains__(self, name: str) -> bool:
        return name in self._schema

    def __getattr__(self, name: str) -> Any:
        """Any other method of `pl.LazyFrame`, done by Polars at this point."""
        method = None if name.startswith("_") else getattr(pl.LazyFrame, name, None)
        if method is None:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        gives = inspect.signature(method).return_annotation if inspect.isfunction(method) else None
        if gives == "LazyFrame":
            return lambda *args, **kwargs: self._step(name, args, kwargs)
        if gives == "LazyGroupBy":
            return lambda *args, **kwargs: self._grouped(name, list(args), kwargs)
        return getattr(self.to_polars(), name)

    def _step(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Self:
        """A method about which nothing is known but its effect."""
        bound = Bound(self._recorder, args, kwargs)
        schema = getattr(self.empty, name)(*empties(args), **empties(kwargs)).collect_schema()
        return self._record(
            name,
            f"{name}({bound.text})",
            bound.expressions,
            lambda frame: getattr(frame, name)(*bound.args, **bound.kwargs),
            schema,
        )

    def _keyed(self, name: str, keys: list[pl.Expr], options: Mapping[str, Any], *, commutes: bool) -> Self:
        """A method that reorders or picks rows by expressions."""
        recorded = Bound(self._recorder, keys, {})
        schema = getattr(self.empty, name)(keys, **options).collect_schema()
        return self._record(
            name,
            f"{name}({options_text(recorded.text, options)})",
            recorded.expressions,
            lambda frame: getattr(frame, name)(list(recorded.args), **options),
            schema,
            reads=union(expression.reads for expression in recorded.expressions),
            changes=frozenset(),
            carries=True,
            commutes=commutes,
            detail=dict(options),
        )

    def _named_step(
        self,
        name: str,
        names: Sequence[str],
        options: Mapping[str, Any],
        *,
        reads: Iterable[str],
        changes: Iterable[str],
        streams: bool = False,
        commutes: bool = False,
        keyed: Names = frozenset(),
    ) -> Self:
        """A method that takes columns by name and keeps the others beside them."""
        names = list(names)
        schema = getattr(self.empty, name)(names, **options).collect_schema()
        return self._record(
            name,
            f"{name}({options_text(', '.join(names), options)})",
            (),
            lambda frame: getattr(frame, name)(names, **options),
            schema,
            reads=frozenset(reads),
            changes=frozenset(changes),
            carries=True,
            streams=streams,
            commutes=commutes,
            keyed=keyed,
            detail={"names": names, "options": dict(options)},
        )

    def _grouped(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LazyGroupBy:
        from quail_frames.lazy.groups import LazyGroupBy

        return LazyGroupBy(cast("LazyFrame", self), method, args, kwargs)

    def _record(
        self,
        name: str,
        text: str,
        expressions: tuple[Expression, ...],
        apply: Callable[[pl.LazyFrame], pl.LazyFrame],
        schema: pl.Schema,
        *,
        reads: Names | None = None,
        changes: Names | None = None,
        carries: bool = False,
        streams: bool = False,
        commutes: bool = False,
        keyed: Names = frozenset(),
        detail: Any = None,
    ) -> Self:
        node = Step(
            input=self._plan,
            name=name,
            text=text,
            apply=apply,
            input_columns=tuple(self.columns),
            columns=tuple(schema.names()),
            expressions=expressions,
            reads=reads,
            changes=changes,
            carries=carries,
            streams=streams,
            commutes=commutes,
            keyed=keyed,
            detail=detail,
        )
        return self._next(node, schema)

    def _told_apart(self, names: Iterable[str]) -> Names:
        """Those of the columns whose equal values look alike: not 0.0 and -0.0, nor lists of them."""
        return frozenset(
            name for name in names if not (self._schema[name].is_float() or self._schema[name].is_nested())
        )

    def _columns_of(self, selection: Any) -> list[str]:
        """Names that a selection stands for."""
        return self._recorder.names(*parsed(flat([selection])))
