"""Arguments of relational methods: read as Polars reads them, and bound to answer columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from quail_frames.lazy.discovery import has_calls
from quail_frames.lazy.record import Recorder
from quail_frames.plan.logical import Expression


class PlannedFrame:
    """What stands for a planned frame among the arguments of a step."""

    @property
    def empty(self) -> pl.LazyFrame:
        """A plain frame of the same schema and no rows."""
        raise NotImplementedError

    def to_polars(self) -> pl.LazyFrame:
        """The frame as a plain one that asks when it is collected."""
        raise NotImplementedError


class Bound:
    """Arguments of a step with answer columns in place of calls, and real frames in place of planned ones."""

    def __init__(self, recorder: Recorder, args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
        self._recorder = recorder
        self._found: list[Expression] = []
        self.args = tuple(map(self._bound, args))
        self.kwargs = {name: self._bound(value) for name, value in kwargs.items()}
        texts = {id(recorded.body): recorded.text for recorded in self._found}
        self.text = options_text(", ".join(texts.get(id(arg), shown(arg)) for arg in self.args), kwargs)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions among the arguments."""
        return tuple(self._found)

    def _bound(self, value: Any) -> Any:
        if isinstance(value, pl.Expr):
            recorded = self._recorder.expression(value, named=has_calls(value))
            self._found.append(recorded)
            return recorded.body
        if isinstance(value, PlannedFrame):
            return value.to_polars()
        if isinstance(value, dict):
            return {key: self._bound(item) for key, item in value.items()}
        return type(value)(map(self._bound, value)) if isinstance(value, list | tuple) else value


def empties(value: Any) -> Any:
    """The same arguments with every planned frame as an empty plain one."""
    if isinstance(value, PlannedFrame):
        return value.empty
    if isinstance(value, Mapping):
        return {key: empties(item) for key, item in value.items()}
    return type(value)(map(empties, value)) if isinstance(value, list | tuple) else value


def flat(items: Iterable[Any]) -> list[Any]:
    """The items, lists and other iterables among them taken apart."""
    out: list[Any] = []
    for item in items:
        nested = isinstance(item, Iterable) and not isinstance(item, str | bytes | pl.Expr | pl.Series | Mapping)
        out.extend(flat(item) if nested else [item])
    return out


def parsed(items: Iterable[Any], named: Mapping[str, Any] | None = None) -> list[pl.Expr]:
    """Expressions as `select` reads its arguments: a str is a column, anything else a literal."""
    exprs = list(map(as_expr, items))
    return exprs + [as_expr(value).alias(name) for name, value in (named or {}).items()]


def as_expr(value: Any) -> pl.Expr:
    """One argument: a str is a column, anything else a literal."""
    if isinstance(value, pl.Expr):
        return value
    return pl.col(value) if isinstance(value, str) else pl.lit(value)


def all_named(selection: Any) -> bool:
    """Whether the selection is made of names and expressions."""
    return isinstance(selection, Iterable) and all(isinstance(item, str | pl.Expr) for item in flat([selection]))


def shown(value: Any) -> str:
    """The argument as `explain` shows it."""
    return str(value) if isinstance(value, pl.Expr) else type(value).__name__ if callable(value) else repr(value)


def options_text(first: str, options: Mapping[str, Any]) -> str:
    """Arguments and options as `explain` shows them."""
    return ", ".join(filter(None, [first, *(f"{name}={shown(value)}" for name, value in options.items())]))
