"""Recording an AI join: from its template, keys and predicates to an `AskPairs` of the logical plan.

Everything is checked here, when the two frames meet; nothing is read or asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import polars as pl

from quail_frames.errors import CallError, ColumnError, PlanError
from quail_frames.lazy.arguments import flat, parsed
from quail_frames.lazy.calls import build_question, nearest
from quail_frames.lazy.conditions import split_conjuncts
from quail_frames.lazy.discovery import has_calls
from quail_frames.lazy.inputs import check_dtype
from quail_frames.lazy.joins import right_names
from quail_frames.lazy.prompts import shown
from quail_frames.lazy.record import Recorder
from quail_frames.plan.calls import AiIf, Overflow
from quail_frames.plan.logical import AskPairs, Expression, Node, PairKind, Side
from quail_frames.plan.template import Slot, Template

SIDES: tuple[Side, ...] = ("left", "right")


@dataclass(frozen=True)
class JoinSide:
    """One of the frames to be joined: its plan and its columns."""

    name: Side
    plan: Node
    recorder: Recorder

    @property
    def schema(self) -> pl.Schema:
        """Names and types of its columns."""
        return self.recorder.schema


def record_pairs(
    left: JoinSide,
    right: JoinSide,
    template: str,
    *,
    how: PairKind,
    on: Any,
    left_on: Any,
    right_on: Any,
    where: Any,
    suffix: str,
    selectivity: float | None,
    overflow: Overflow,
    anchor: str,
) -> tuple[AskPairs, pl.Schema]:
    """The join's node and the schema of its result; errors are those of `LazyFrame.ai_join`."""
    _check_choice("how", how, get_args(PairKind))
    _check_choice("anchor", anchor, ("auto", *SIDES))
    call, slots = _question(template, (left, right), selectivity, overflow)
    pairs = _key_pairs(on, left_on, right_on)
    keys = tuple((_key(left, a), _key(right, b)) for a, b in pairs)
    schema = _joined_schema(left, right, how, pairs, on is not None, suffix)
    both = _joined_schema(left, right, "inner", pairs, on is not None, suffix)
    kept = right_names(left.schema.names(), right.schema.names(), both.names(), {"suffix": suffix})
    where_names = _where_names(left, right, kept, suffix)
    node = AskPairs(
        left=left.plan,
        right=right.plan,
        how=how,
        call=call,
        slots=slots,
        keys=keys,
        where=_predicates(where, left, right, where_names),
        left_names=tuple((name, name) for name in left.schema.names()),
        right_names=kept if how in ("inner", "left") else (),
        where_names=where_names,
        anchor=None if anchor == "auto" else "left" if anchor == "left" else "right",
    )
    return node, schema


# The question -----------------------------------------------------------------------------


def _question(
    template: str, sides: Sequence[JoinSide], selectivity: float | None, overflow: Overflow
) -> tuple[AiIf, tuple[tuple[Side, str], ...]]:
    """The call, and the side and column of each of its slots; equal columns share a slot."""
    call = build_question(AiIf, template, (), selectivity=selectivity, layout="auto", overflow=overflow)
    found = [_find_column(name, template, sides) for name in call.columns]
    slots = tuple(dict.fromkeys(found))
    for side in sides:
        if all(own != side.name for own, _ in slots):
            raise CallError(
                f"template {shown(template)} reads no column of the {side.name} frame: a join asks about both; to ask "
                f"about one frame use ai_filter, or a plain join; to name a side write {{left.column}} or "
                "{right.column}"
            )
    for own, column in slots:
        schema = sides[SIDES.index(own)].schema
        check_dtype(call, f"{own}.{column}", schema[column])
    pieces = [Slot(slots.index(found[p.input])) if isinstance(p, Slot) else p for p in call.template.pieces]
    names = tuple(_spelt(own, column, sides) for own, column in slots)
    return replace(call, template=Template(tuple(pieces)), columns=names), slots


def _find_column(name: str, template: str, sides: Sequence[JoinSide]) -> tuple[Side, str]:
    """The side and column that a placeholder stands for."""
    for side in sides:
        prefix = f"{side.name}."
        if name.startswith(prefix) and not any(name in other.schema for other in sides):
            column = name.removeprefix(prefix)
            if column in side.schema:
                return side.name, column
            raise ColumnError(
                f"the join asks about {{{name}}}, but the {side.name} frame has no column {column!r}"
                f"{nearest(column, side.schema.names())}"
            )
    owners = [side.name for side in sides if name in side.schema]
    if len(owners) == 1:
        return owners[0], name
    if owners:
        raise ColumnError(
            f"{{{name}}} in template {shown(template)} is a column of both frames: "
            f"write {{left.{name}}} or {{right.{name}}}"
        )
    valid = [column for side in sides for column in side.schema.names()]
    raise ColumnError(
        f"the join asks about column {name!r}, which neither frame has{nearest(name, list(dict.fromkeys(valid)))}"
    )


def _spelt(side: Side, column: str, sides: Sequence[JoinSide]) -> str:
    """The column as a user would write it in the template."""
    return f"{side}.{column}" if all(column in other.schema for other in sides) else column


# Keys -------------------------------------------------------------------------------------


def _key_pairs(on: Any, left_on: Any, right_on: Any) -> list[tuple[pl.Expr, pl.Expr]]:
    if on is not None and (left_on is not None or right_on is not None):
        raise PlanError("a join takes `on`, or `left_on` and `right_on`, not both")
    if on is not None:
        return [(expr, expr) for expr in parsed(flat([on]))]
    left, right = (parsed(flat([] if keys is None else [keys])) for keys in (left_on, right_on))
    if len(left) != len(right):
        raise PlanError(
            f"left_on has {len(left)} keys and right_on has {len(right)}: give as many for each side, in the same order"
        )
    return list(zip(left, right, strict=True))


def _key(side: JoinSide, expr: pl.Expr) -> Expression:
    if has_calls(expr):
        raise PlanError("a join key holds an AI call: give its answer a name before (.with_columns) and join on that")
    recorded = side.recorder.expression(expr, named=False)
    _check_reads(f"join key {recorded.text}", recorded, side.schema, f"the {side.name} frame")
    return recorded


def _joined_schema(
    left: JoinSide, right: JoinSide, how: str, pairs: list[tuple[pl.Expr, pl.Expr]], same: bool, suffix: str
) -> pl.Schema:
    """Schema of Polars' own join with these keys; of a cross join where there are none."""
    if not pairs:
        if how in ("semi", "anti"):
            return left.schema
        return left.recorder.empty.join(right.recorder.empty, how="cross", suffix=suffix).collect_schema()
    a, b = map(list, zip(*pairs, strict=True))
    keys = {"on": a} if same else {"left_on": a, "right_on": b}
    joined: Any = left.recorder.empty.join(right.recorder.empty, how=how, suffix=suffix, **keys)  # type: ignore[arg-type]
    try:
        schema: pl.Schema = joined.collect_schema()
    except pl.exceptions.SchemaError as error:
        raise PlanError(f"{str(error).splitlines()[0]}: cast one of the keys") from error
    return schema


# Predicates -------------------------------------------------------------------------------


def _where_names(
    left: JoinSide, right: JoinSide, kept: tuple[tuple[str, str], ...], suffix: str
) -> tuple[tuple[str, str], ...]:
    """Names by which `where` reads the right side: those of the result; keys that were coalesced keep theirs too."""
    after = dict(kept)
    taken = {*left.schema.names(), *after.values()}
    names: list[tuple[str, str]] = []
    for name in right.schema.names():
        wanted = after.get(name, name + suffix if name in left.schema else name)
        if name in after or wanted not in taken:
            names.append((name, wanted))
    return tuple(names)


def _predicates(
    where: Any, left: JoinSide, right: JoinSide, where_names: tuple[tuple[str, str], ...]
) -> tuple[Expression, ...]:
    schema = pl.Schema({**left.schema, **{after: right.schema[name] for name, after in where_names}})
    recorder = Recorder(schema)
    found: list[Expression] = []
    for expr in flat([] if where is None else [where]):
        if not isinstance(expr, pl.Expr):
            raise PlanError(f"`where` takes Polars expressions over both frames, not {type(expr).__name__}: {expr!r}")
        if has_calls(expr):
            raise PlanError("`where` holds an AI call: ask it in a filter before or after the join")
        found += [_predicate(part, recorder) for part in split_conjuncts(expr)]
    return tuple(found)


def _predicate(expr: pl.Expr, recorder: Recorder) -> Expression:
    recorded = recorder.expression(expr, named=False)
    _check_reads(f"`where` predicate {recorded.text}", recorded, recorder.schema, "the joined frame")
    dtype = recorder.empty.select(expr.alias("where")).collect_schema()["where"]
    if dtype not in (pl.Boolean, pl.Null):
        raise PlanError(f"`where` predicate {recorded.text} gives {dtype}: it must give Boolean")
    return recorded


def _check_reads(what: str, recorded: Expression, schema: pl.Schema, frame: str) -> None:
    for name in sorted(recorded.reads or ()):
        if name not in schema:
            raise ColumnError(f"{what} reads column {name!r}, which {frame} does not have{nearest(name, list(schema))}")
    if recorded.reads is None or not recorded.row_local:
        raise PlanError(
            f"{what} is not computed from its own row alone (an aggregate, a window, or a function unknown to the "
            "planner): compute it in a step before (.with_columns(...)) and use its column"
        )


def _check_choice(option: str, value: str, valid: Iterable[str]) -> None:
    if value not in tuple(valid):
        raise PlanError(f"{option}={value!r} is unknown for ai_join{nearest(str(value), list(valid))}")
