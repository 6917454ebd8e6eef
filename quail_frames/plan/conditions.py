"""Conditions over answers: what decides whether a row goes on, in three-valued logic.

A condition is plain data. `evaluate` and `needed` work on whole arrays of rows, so that
the runtime can decide after every batch which rows still wait for which call.

Truth values are int8: FALSE 0, TRUE 1, NULL 2, PENDING 3 (not asked yet).
AND and OR are Kleene's, as in Polars and SQL, with PENDING as "any of the other three".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

FALSE, TRUE, NULL, PENDING = 0, 1, 2, 3
Truth = npt.NDArray[np.int8]
Comparison = Literal["lt", "le", "gt", "ge", "eq", "ne"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The Boolean answer of call number `call` (an AiIf)."""

    call: int


@dataclass(frozen=True, slots=True)
class ScoreTest:
    """`answer <comparison> value` for call number `call` (an AiScore)."""

    call: int
    comparison: Comparison
    value: float


@dataclass(frozen=True, slots=True)
class LabelTest:
    """The label of call number `call` (an AiClassify) is, or with `negated` is not, one of `labels`."""

    call: int
    labels: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """Boolean input column number `mask`, computed by Polars before the model runs."""

    mask: int


@dataclass(frozen=True, slots=True)
class Not:
    term: Condition


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Condition, ...]


Leaf = Answer | ScoreTest | LabelTest | Mask
Condition = Leaf | Not | And | Or
CallTest = Answer | ScoreTest | LabelTest

# Tables for two truth values; index [left, right]. PENDING absorbs unless the other side decides.
_AND = np.array([[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 2, 3], [0, 3, 3, 3]], dtype=np.int8)
_OR = np.array([[0, 1, 2, 3], [1, 1, 1, 1], [2, 1, 2, 3], [3, 1, 3, 3]], dtype=np.int8)
_NOT = np.array([1, 0, 2, 3], dtype=np.int8)


class Leaves:
    """Truth of every leaf for a block of rows; the runtime fills it, conditions read it."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._truth: dict[Leaf, Truth] = {}

    def __setitem__(self, leaf: Leaf, truth: Truth) -> None:
        self._truth[leaf] = truth

    def __getitem__(self, leaf: Leaf) -> Truth:
        return self._truth[leaf]


def evaluate(condition: Condition, leaves: Leaves) -> Truth:
    """Truth of `condition` for every row, shape (rows,)."""
    if isinstance(condition, Not):
        return _NOT[evaluate(condition.term, leaves)]
    if isinstance(condition, And | Or):
        table = _AND if isinstance(condition, And) else _OR
        truth = np.full(leaves.rows, TRUE if isinstance(condition, And) else FALSE, dtype=np.int8)
        for term in condition.terms:
            truth = table[truth, evaluate(term, leaves)]
        return truth
    return leaves[condition]


def needed(condition: Condition, leaves: Leaves, rows: npt.NDArray[np.bool_], calls: int) -> npt.NDArray[np.bool_]:
    """Which pending calls can still change the condition, shape (calls, rows).

    A call under a decided AND or OR is not needed: that is the short circuit.
    """
    out = np.zeros((calls, leaves.rows), dtype=np.bool_)
    _mark_needed(condition, leaves, rows, out)
    return out


def _mark_needed(condition: Condition, leaves: Leaves, rows: npt.NDArray[np.bool_], out: npt.NDArray[np.bool_]) -> None:
    undecided = rows & (evaluate(condition, leaves) == PENDING)
    if isinstance(condition, Not):
        _mark_needed(condition.term, leaves, undecided, out)
    elif isinstance(condition, And | Or):
        for term in condition.terms:
            _mark_needed(term, leaves, undecided, out)
    elif not isinstance(condition, Mask):
        out[condition.call] |= undecided


def leaves_of(condition: Condition) -> tuple[Leaf, ...]:
    """Every leaf, in order of first appearance."""
    if isinstance(condition, Not):
        return leaves_of(condition.term)
    if isinstance(condition, And | Or):
        return tuple(dict.fromkeys(leaf for term in condition.terms for leaf in leaves_of(term)))
    return (condition,)


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """The terms of a (nested) top-level AND."""
    if isinstance(condition, And):
        return tuple(part for term in condition.terms for part in conjuncts(term))
    return (condition,)


def conjunction(terms: Sequence[Condition]) -> Condition | None:
    """AND of the terms; None where there are none."""
    return None if not terms else terms[0] if len(terms) == 1 else And(tuple(terms))


def renumbered(condition: Condition, calls: Sequence[int], masks: Sequence[int]) -> Condition:
    """The condition with call i called `calls[i]` and mask j called `masks[j]`.

    >>> renumbered(And((Answer(0), Mask(1))), [5], [7, 8])
    And(terms=(Answer(call=5), Mask(mask=8)))
    """
    if isinstance(condition, Not):
        return Not(renumbered(condition.term, calls, masks))
    if isinstance(condition, And | Or):
        return type(condition)(tuple(renumbered(term, calls, masks) for term in condition.terms))
    if isinstance(condition, Mask):
        return Mask(masks[condition.mask])
    return replace(condition, call=calls[condition.call])
