"""Joins: the conditions between two sides as keys, AI conditions and filters, and the joined frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import polars as pl
from sqlglot import exp

from quail_frames.lazy.frame import LazyFrame
from quail_frames.lazy.prompts import column_placeholder
from quail_frames.sql.ai import Call, read_call
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.problems import errors_at, fail
from quail_frames.sql.scalars import Translator, family
from quail_frames.sql.scope import Bound, Key, keys, unwrapped

How = Literal["inner", "left", "full", "cross", "semi", "anti"]
_SPOKEN = {"left": "LEFT JOIN", "full": "FULL JOIN", "semi": "EXISTS", "anti": "NOT EXISTS"}


@dataclass(frozen=True)
class Side:
    """A frame, and under which name each bound column stands in it."""

    frame: LazyFrame
    columns: Mapping[Key, str]

    def __call__(self, node: exp.Expr) -> pl.Expr:
        """The expression over this side's frame."""
        return Translator(self.frame.empty, self.columns)(node)

    def filtered(self, terms: Sequence[exp.Expr]) -> Side:
        """Rows for which every term is TRUE."""
        if not terms:
            return self
        translator = Translator(self.frame.empty, self.columns)
        with errors_at(terms[0]):
            return replace(self, frame=self.frame.filter([translator.condition(term) for term in terms]))

    def reads(self, node: exp.Expr) -> bool:
        """Whether the expression reads columns of this side and no others."""
        found = keys(node)
        return bool(found) and found <= self.columns.keys()


@dataclass
class Terms:
    """The conditions of a join by what they are."""

    keys: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    left: list[exp.Expr] = field(default_factory=list)
    right: list[exp.Expr] = field(default_factory=list)
    asked: list[AiFunction] = field(default_factory=list)
    other: list[exp.Expr] = field(default_factory=list)


def sorted_terms(left: Side, right: Side, terms: Sequence[exp.Expr]) -> Terms:
    """The conditions, each where it belongs."""
    found = Terms()
    for term in map(unwrapped, terms):
        pair = _key(left, right, term)
        if pair is not None:
            found.keys.append(pair)
        elif left.reads(term):
            found.left.append(term)
        elif right.reads(term):
            found.right.append(term)
        elif isinstance(term, AiFunction) and term.this == "IF" and _asks_pairs(term, left, right):
            found.asked.append(term)
        else:
            found.other.append(term)
    return found


def _key(left: Side, right: Side, term: Any) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(term, exp.EQ) or term.find(AiFunction) is not None:
        return None
    if left.reads(term.this) and right.reads(term.expression):
        return term.this, term.expression
    return (term.expression, term.this) if left.reads(term.expression) and right.reads(term.this) else None


def _asks_pairs(term: AiFunction, left: Side, right: Side) -> bool:
    inputs = read_call(term).prompt.inputs
    plain = all(isinstance(input, Bound) for input in inputs)
    return plain and any(map(left.reads, inputs)) and any(map(right.reads, inputs))


def joined(
    left: Side,
    right: Side,
    how: How,
    terms: Sequence[exp.Expr],
    at: exp.Expr,
    *,
    name: str,
    keep_keys: bool = False,
) -> Side:
    """The two sides joined.

    Parameters
    ----------
    how
        Kind of the join.
    terms
        The conditions, bound; all have to be TRUE.
    at
        Where errors stand.
    name
        Name of the right side, for columns that both sides have.
    keep_keys
        The right side's keys are read later: in a left join they differ from the left side's.
    """
    found = sorted_terms(left, right, terms)
    if how == "inner":
        left = left.filtered(found.left)
    elif found.left:
        how_spelt = f"{_SPOKEN[how]} with a condition on its left side alone is not planned"
        fail(found.left[0], f"{how_spelt}: filter that table in a subquery")
    if found.right and how == "full":
        fail(found.right[0], "FULL JOIN takes conditions of the form a.x = b.x only: filter in a subquery")
    right = right.filtered(found.right)
    rest = [*found.asked[1:], *found.other]
    if how == "inner":
        return _joined(left, right, how, found, at, name, {}).filtered(rest)
    if rest:
        fail(
            rest[0],
            f"{_SPOKEN[how]} takes conditions of the form a.x = b.x and one AI_FILTER only: filter in a subquery",
        )
    if not found.keys and not found.asked:
        fail(at, f"{_SPOKEN[how]} has no condition of the form a.x = b.x and no AI_FILTER between both sides")
    options = {"coalesce": False} if how == "full" or (how == "left" and keep_keys) else {}
    return _joined(left, right, how, found, at, name, options)


def _joined(left: Side, right: Side, how: How, found: Terms, at: exp.Expr, name: str, options: dict[str, Any]) -> Side:
    pairs = [_same_type(left, right, *pair) for pair in found.keys]
    suffix = _suffix(left.frame.columns, right.frame.columns, name)
    options = {**options, **_keys(pairs), **({} if suffix == "_right" else {"suffix": suffix})}
    with errors_at(found.asked[0] if found.asked else at):
        if found.asked:
            call = read_call(found.asked[0])
            template = _pair_template(call, left, right)
            frame = left.frame.ai_join(right.frame, template, how=how, **options, **call.options)
        else:
            frame = left.frame.join(right.frame, how=how if pairs else "cross", **options)
    if how in ("semi", "anti"):
        return Side(frame, left.columns)
    coalesced = {b.meta.output_name(): a.meta.output_name() for a, b in pairs if a.meta.is_column()}
    columns = dict(left.columns)
    for key, own in right.columns.items():
        after = own + suffix if own in left.frame.columns else own
        columns[key] = after if after in frame.columns else coalesced[own]
    return Side(frame, columns)


def _keys(pairs: Sequence[tuple[pl.Expr, pl.Expr]]) -> dict[str, Any]:
    if not pairs:
        return {}
    names = [tuple(map(_plain_name, pair)) for pair in pairs]
    if all(a is not None and a == b for a, b in names):
        return {"on": [a for a, _ in names]}
    shown = [
        [name if name is not None else expr for name, expr in zip(*each, strict=True)]
        for each in zip(names, pairs, strict=True)
    ]
    return {"left_on": [a for a, _ in shown], "right_on": [b for _, b in shown]}


def _plain_name(expr: pl.Expr) -> str | None:
    return expr.meta.output_name() if expr.meta.is_column() else None


def _same_type(left: Side, right: Side, a: exp.Expr, b: exp.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Both sides of a key with one type, which Polars wants."""
    exprs = left(a), right(b)
    kinds = [Translator(side.frame.empty, {}).dtype(expr) for side, expr in zip((left, right), exprs, strict=True)]
    if kinds[0] == kinds[1]:
        return exprs
    families = {family(kind) for kind in kinds}
    if len(families) > 1:
        fail(a, f"{kinds[0]} cannot be compared with {kinds[1]}: CAST one of them")
    common: Any = pl.String
    if families == {"number"}:
        common = pl.Int64 if all(kind.is_integer() for kind in kinds) else pl.Float64
    elif families == {"time"}:
        common = pl.Datetime("us")
    return exprs[0].cast(common), exprs[1].cast(common)


def _suffix(left: Sequence[str], right: Sequence[str], name: str) -> str:
    """Polars' own suffix for columns that both sides have, another one where that name is taken too."""
    for suffix in ("_right", *(f"_{name}{number}" for number in ["", *range(2, 100)])):
        renamed = [column + suffix for column in right if column in left]
        if not set(renamed) & {*left, *right}:
            return suffix
    raise AssertionError(f"no suffix is free for the columns of {name}")


def _pair_template(call: Call, left: Side, right: Side) -> str:
    def placeholder(number: int) -> str:
        ((key),) = keys(call.prompt.inputs[number])
        side, name = ("left", left.columns[key]) if key in left.columns else ("right", right.columns[key])
        return column_placeholder(f"{side}.{name}")

    return call.prompt.template(placeholder)
