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
from quail_frames.sql.scope import Bound, Key, keys, unique_name, unwrapped

How = Literal["inner", "left", "full", "semi", "anti"]
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
    used: frozenset[Key] = frozenset(),
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
    used
        Columns that are read later: of a left join, the right side's keys differ from the left side's.
    """
    found = sorted_terms(left, right, terms)
    spoken = _SPOKEN.get(how, "JOIN")
    if how in ("inner", "semi"):
        left = left.filtered(found.left)
    elif found.asked:
        found.other += found.left
    elif found.left:
        fail(found.left[0], f"{spoken} takes no condition on its left side alone: filter that table in a subquery")
    if found.right and how == "full":
        fail(found.right[0], "FULL JOIN takes conditions of the form a.x = b.x only: filter in a subquery")
    right = right.filtered(found.right)
    keep_keys = any(keys(b) & used for _, b in found.keys)
    if found.asked:
        return _asked(left, right, how, found, name, keep_keys=keep_keys)
    if how == "inner":
        return _joined(left, right, how, found, at, name, {}).filtered(found.other)
    if found.other:
        fail(
            found.other[0], f"{_SPOKEN[how]} takes conditions of the form a.x = b.x and AI_FILTER: filter in a subquery"
        )
    if not found.keys:
        fail(at, f"{spoken} has no condition of the form a.x = b.x and no AI_FILTER between both sides")
    options = {"coalesce": False} if how == "full" or (how == "left" and keep_keys) else {}
    return _joined(left, right, how, found, at, name, options)


def _asked(left: Side, right: Side, how: How, found: Terms, name: str, *, keep_keys: bool) -> Side:
    """Joined by an AI condition, and by keys and column conditions that a pair has to pass before it is asked."""
    question = found.asked[0]
    where = [term for term in found.other if term.find(AiFunction) is None]
    later = [*found.asked[1:], *(term for term in found.other if term.find(AiFunction) is not None)]
    if how == "full":
        fail(question, "FULL JOIN takes conditions of the form a.x = b.x only: UNION ALL two queries")
    if later and how != "inner":
        fail(later[0], f"{_SPOKEN[how]} takes one AI_FILTER between both sides: ask this one in a subquery")
    spare: dict[Key, str] = {}
    if keep_keys and how == "left":
        right, spare = _with_spare_keys(left, right, found.keys)
    call = read_call(question)
    if "layout" in call.options:
        fail(question, "layout is not an option of an AI_FILTER that joins: leave it out")
    suffix = _suffix(left.frame.columns, right.frame.columns, name)
    options = {**_keys(left, right, found), **({} if suffix == "_right" else {"suffix": suffix}), **call.options}
    with errors_at(question):
        both = {**_after(left, right, found, suffix), **spare}
        conditions = [Translator(_empty(left, right, found, suffix), both).condition(term) for term in where]
        template = _pair_template(call, left, right)
        if conditions:
            options["where"] = conditions
        frame = left.frame.ai_join(right.frame, template, how=how, **options)
    return Side(frame, left.columns if how in ("semi", "anti") else both).filtered(later)


def _with_spare_keys(
    left: Side, right: Side, pairs: Sequence[tuple[exp.Expr, exp.Expr]]
) -> tuple[Side, dict[Key, str]]:
    """The right side with a copy of each key, which is NULL after the join where a left row has no partner."""
    taken = {*left.frame.columns, *right.frame.columns}
    spare: dict[Key, str] = {}
    for key in sorted({key for _, b in pairs for key in keys(b)}):
        spare[key] = unique_name(f"{right.columns[key]}_key", taken)
        taken.add(spare[key])
    frame = right.frame.with_columns([pl.col(right.columns[key]).alias(new) for key, new in spare.items()])
    return Side(frame, right.columns), spare


def _joined(left: Side, right: Side, how: How, found: Terms, at: exp.Expr, name: str, options: dict[str, Any]) -> Side:
    suffix = _suffix(left.frame.columns, right.frame.columns, name)
    options = {**options, **_keys(left, right, found), **({} if suffix == "_right" else {"suffix": suffix})}
    with errors_at(at):
        frame = left.frame.join(right.frame, how=how if found.keys else "cross", **options)
    return Side(frame, left.columns if how in ("semi", "anti") else _after(left, right, found, suffix, frame.columns))


def _empty(left: Side, right: Side, found: Terms, suffix: str) -> pl.LazyFrame:
    """A frame of the columns of an inner join, and no rows."""
    how: Any = "inner" if found.keys else "cross"
    joined = left.frame.empty.join(right.frame.empty, how=how, suffix=suffix, **_keys(left, right, found))
    return pl.LazyFrame(schema=joined.collect_schema())


def _after(left: Side, right: Side, found: Terms, suffix: str, columns: Sequence[str] | None = None) -> dict[Key, str]:
    """Where each column stands after the join; a key that was coalesced is the other side's."""
    columns = _empty(left, right, found, suffix).collect_schema().names() if columns is None else columns
    pairs = [_same_type(left, right, *pair) for pair in found.keys]
    coalesced = {b.meta.output_name(): a.meta.output_name() for a, b in pairs if a.meta.is_column()}
    after = dict(left.columns)
    for key, own in right.columns.items():
        renamed = own + suffix if own in left.frame.columns else own
        after[key] = renamed if renamed in columns else coalesced[own]
    return after


def _keys(left: Side, right: Side, found: Terms) -> dict[str, Any]:
    """The keys as arguments of a join: `on` where both sides call them the same."""
    pairs = [_same_type(left, right, *pair) for pair in found.keys]
    if not pairs:
        return {}
    names = [(_plain_name(a), _plain_name(b)) for a, b in pairs]
    if all(a is not None and a == b for a, b in names):
        return {"on": [a for a, _ in names]}
    return {
        "left_on": [a if name is None else name for (a, _), (name, _) in zip(pairs, names, strict=True)],
        "right_on": [b if name is None else name for (_, b), (_, name) in zip(pairs, names, strict=True)],
    }


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
