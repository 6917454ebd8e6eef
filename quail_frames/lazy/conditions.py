"""Predicates over answer columns as conditions the runtime can decide row by row.

Connectives are recognised by taking an expression apart (`meta.pop`) and putting it
together again: what does not come back equal is left to Polars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from quail_frames.errors import CallError
from quail_frames.lazy.calls import nearest
from quail_frames.plan.calls import AiCall, AiClassify, AiIf, AiScore
from quail_frames.plan.conditions import And, Answer, Comparison, Condition, LabelTest, Mask, Not, Or, ScoreTest

_COMPARISONS: tuple[tuple[Comparison, Callable[[Any, Any], pl.Expr]], ...] = (
    ("lt", lambda a, b: a < b),
    ("le", lambda a, b: a <= b),
    ("gt", lambda a, b: a > b),
    ("ge", lambda a, b: a >= b),
    ("eq", lambda a, b: a == b),
    ("ne", lambda a, b: a != b),
)
_FLIPPED: dict[Comparison, Comparison] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_EXACT_INTEGER = 2**53


def split_conjuncts(expr: pl.Expr) -> list[pl.Expr]:
    """The terms of the expression's top-level AND, in order."""
    terms = _and_terms(unaliased(expr))
    return [expr] if terms is None else [part for term in terms for part in split_conjuncts(term)]


class ConditionBuilder:
    """Builds one predicate's condition; `masks` collects its call-free parts.

    Parameters
    ----------
    calls
        The predicate's calls, by answer column, in the order the condition numbers them.
    """

    def __init__(self, calls: dict[str, AiCall]) -> None:
        self.calls = calls
        self.numbers = {column: number for number, column in enumerate(calls)}
        self.masks: list[pl.Expr] = []

    def build(self, expr: pl.Expr) -> Condition | None:
        """The condition, or None where a part of it is not exactly one."""
        expr = unaliased(expr)
        if not self._reads_answer(expr):
            return Mask(self._mask(expr))
        for terms, connective in ((_and_terms(expr), And), (_or_terms(expr), Or)):
            if terms is not None:
                built = [self.build(term) for term in terms]
                return None if None in built else connective(tuple(term for term in built if term is not None))
        inner = _negated(expr)
        if inner is not None:
            term = self.build(inner)
            return None if term is None else Not(term)
        return self._leaf(expr)

    def _leaf(self, expr: pl.Expr) -> Condition | None:
        if expr.meta.is_column():
            number, call = self._call(expr)
            return Answer(number) if isinstance(call, AiIf) else None
        parts = [unaliased(part) for part in _parts(expr)]
        columns = [part for part in parts if self._reads_answer(part)]
        if len(columns) != 1 or not columns[0].meta.is_column():
            return None
        number, call = self._call(columns[0])
        if isinstance(call, AiScore):
            return _score_test(number, expr, _parts(expr))
        if isinstance(call, AiClassify) and not call.probabilities:
            test = _label_test(number, expr, _parts(expr))
            _check_labels(test, call)
            return test
        return None

    def _call(self, column: pl.Expr) -> tuple[int, AiCall | None]:
        name = column.meta.output_name()
        return self.numbers.get(name, -1), self.calls.get(name)

    def _reads_answer(self, expr: pl.Expr) -> bool:
        return any(name in self.numbers for name in expr.meta.root_names())

    def _mask(self, expr: pl.Expr) -> int:
        for number, mask in enumerate(self.masks):
            if mask.meta.eq(expr):
                return number
        self.masks.append(expr)
        return len(self.masks) - 1


def _parts(expr: pl.Expr) -> list[pl.Expr]:
    """The expression's direct inputs, in order."""
    return expr.meta.pop()[::-1]


def unaliased(expr: pl.Expr) -> pl.Expr:
    """The expression without its own alias (`meta.undo_aliases` would also rename fields of structs inside)."""
    parts = _parts(expr)
    if len(parts) == 1:
        name = expr.meta.output_name(raise_if_undetermined=False)
        if name is not None and parts[0].alias(name).meta.eq(expr):
            return unaliased(parts[0])
    return expr


def _and_terms(expr: pl.Expr) -> list[pl.Expr] | None:
    parts = _parts(expr)
    if len(parts) == 2 and (parts[0] & parts[1]).meta.eq(expr):
        return parts
    return parts if parts and pl.all_horizontal(parts).meta.eq(expr) else None


def _or_terms(expr: pl.Expr) -> list[pl.Expr] | None:
    parts = _parts(expr)
    if len(parts) == 2 and (parts[0] | parts[1]).meta.eq(expr):
        return parts
    return parts if parts and pl.any_horizontal(parts).meta.eq(expr) else None


def _negated(expr: pl.Expr) -> pl.Expr | None:
    parts = _parts(expr)
    return parts[0] if len(parts) == 1 and (~parts[0]).meta.eq(expr) else None


def _score_test(number: int, expr: pl.Expr, parts: Sequence[pl.Expr]) -> Condition | None:
    values = [_literal(part) for part in parts]
    if len(parts) == 2:
        left, right = parts
        for name, compare in _COMPARISONS:
            if compare(left, right).meta.eq(expr):
                if _exact(values[1]):
                    return ScoreTest(number, name, float(values[1]))
                return ScoreTest(number, _FLIPPED[name], float(values[0])) if _exact(values[0]) else None
    if len(parts) == 3 and _exact(values[1]) and _exact(values[2]):
        for closed, low, high in (
            ("both", "ge", "le"),
            ("left", "ge", "lt"),
            ("right", "gt", "le"),
            ("none", "gt", "lt"),
        ):
            if parts[0].is_between(parts[1], parts[2], closed=closed).meta.eq(expr):  # type: ignore[arg-type]
                bounds = (ScoreTest(number, low, float(values[1])), ScoreTest(number, high, float(values[2])))  # type: ignore[arg-type]
                return And(bounds)
    return None


def _check_labels(test: LabelTest | None, call: AiClassify) -> None:
    """Refuse a test for what is no label: it would quietly find no row, or every row."""
    unknown = [label for label in test.labels if label not in call.labels] if test is not None else []
    if unknown:
        raise CallError(
            f"a predicate compares ai_classify's answer with {unknown[0]!r}, which is none of its labels"
            f"{nearest(unknown[0], call.labels)}"
        )


def _label_test(number: int, expr: pl.Expr, parts: Sequence[pl.Expr]) -> LabelTest | None:
    if len(parts) != 2:
        return None
    literals = [_literal(part) for part in parts]
    value = literals[1] if literals[1] is not None else literals[0]
    if isinstance(value, str):
        for negated, compare in ((False, _COMPARISONS[4][1]), (True, _COMPARISONS[5][1])):
            if compare(*parts).meta.eq(expr):
                return LabelTest(number, (value,), negated)
    labels = value.to_list() if isinstance(value, pl.Series) else value
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        return LabelTest(number, tuple(labels)) if parts[0].is_in(parts[1]).meta.eq(expr) else None
    return None


def _literal(expr: pl.Expr) -> Any:
    """The literal's Python value, a list for a list or a Series; None where it is no literal."""
    if not expr.meta.is_literal():
        return None
    values = pl.select(expr).to_series()
    if str(expr).startswith("Series"):
        return values.to_list()
    return values[0].to_list() if isinstance(values[0], pl.Series) else values[0]


def _exact(value: Any) -> bool:
    """Whether comparing with this literal is comparing with this float."""
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT_INTEGER)
