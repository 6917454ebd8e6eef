"""From a Polars expression that meets a frame to an `Expression` of the logical plan.

Checks the calls' columns and types against the frame, puts answer columns in place of
calls, spells out selectors, and notes what the optimizer may know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import count

import polars as pl

from quail_frames.lazy.conditions import ConditionBuilder, split_conjuncts, unaliased
from quail_frames.lazy.discovery import (
    OPAQUE,
    FoundCall,
    Traits,
    expression_of,
    freeze_selectors,
    has_calls,
    rename_columns,
    substitute_in_tree,
    traits_of_tree,
    tree_of,
)
from quail_frames.lazy.inputs import check_columns, check_dtype
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import CallUse, Expression, Test

_unnamed = count()
_OPERATOR = re.compile(r"\) ([=!<>]=|//|[<>&|+*/%-]) \(")


class Recorder:
    """Records expressions that meet a frame of this schema.

    Parameters
    ----------
    schema
        Names and types of the frame's columns.
    expand
        Names that a selector stands for here; by default those that `select` gives.
    answers
        Columns that hold a call's answers about the row as it is.
    """

    def __init__(
        self,
        schema: pl.Schema,
        expand: Callable[[pl.Expr], list[str]] | None = None,
        answers: Mapping[str, CallUse] | None = None,
    ) -> None:
        self.schema = schema
        self.answers = answers or {}
        self.empty = pl.LazyFrame(schema=schema)
        self.expand = expand or self.names

    def names(self, *exprs: pl.Expr) -> list[str]:
        """Names of the columns that the expressions give."""
        return self.empty.select(*exprs).collect_schema().names()

    def expression(self, expr: pl.Expr, *, named: bool = True) -> Expression:
        """The recorded expression; without `named` nobody asks for its output's name."""
        tree = tree_of(expr)
        if tree is None:
            names = tuple(self.names(expr)) if named else ()
            return Expression(expr, f"opaque {next(_unnamed)}", names, str(expr), None, False)
        found: dict[str, FoundCall] = {}
        changed = freeze_selectors(tree, self.expand) if "Selector" in json.dumps(tree) else tree
        if has_calls(expr):
            changed = substitute_in_tree(changed, found)
        calls = tuple(map(self._use, found.values()))
        names = tuple(self.names(expr)) if named else ()
        body = expr if changed is tree else expression_of(changed)
        if found and len(names) == 1:
            body = body.alias(names[0])
        return _expression(body, changed, names, calls, _text(body, names, calls))

    def predicates(self, expr: pl.Expr) -> list[Expression]:
        """The predicate's conjuncts; one with calls has a test where it is exactly a condition."""
        return [self._predicate(part) for part in split_conjuncts(expr)]

    def _predicate(self, expr: pl.Expr) -> Expression:
        recorded = self.expression(expr, named=False)
        if recorded.calls:
            return replace(recorded, test=self._test(recorded))
        held = {name: use for name, use in self.answers.items() if name in (recorded.reads or ())}
        if not held or not recorded.row_local:
            return recorded
        tree = rename_columns(tree_of(expr), {name: use.column for name, use in held.items()})
        calls = tuple({use.column: use for use in held.values()}.values())
        over = _expression(expression_of(tree), tree, (), calls, recorded.text)
        over = replace(over, test=self._test(over))
        return recorded if over.test is None else replace(recorded, over_answers=over)

    def _test(self, predicate: Expression) -> Test | None:
        """The predicate as a condition, where it is exactly one."""
        builder = ConditionBuilder({use.column: use.call for use in predicate.calls})
        condition = builder.build(predicate.body)
        masks = tuple(self.expression(mask, named=False) for mask in builder.masks)
        return Test(condition, masks) if condition is not None and all(mask.row_local for mask in masks) else None

    def _use(self, found: FoundCall) -> CallUse:
        check_columns(found.call, found.reads, self.schema)
        dtypes = [self.empty.select(expr).collect_schema().dtypes()[0] for expr in found.inputs]
        for name, dtype in zip(found.call.columns, dtypes, strict=True):
            check_dtype(found.call, name, dtype)
        return CallUse(found.call, tuple(map(self.expression, found.inputs)), found.column)


def _expression(
    body: pl.Expr, tree: object, names: tuple[str, ...], calls: tuple[CallUse, ...], text: str
) -> Expression:
    traits: Traits = OPAQUE if tree is None else traits_of_tree(tree)
    answers = {call.column for call in calls}
    reads = None if traits.reads is None else traits.reads - answers
    key = blake2b(json.dumps([tree, names], sort_keys=True).encode(), digest_size=12).hexdigest()
    return Expression(body, key, names, text, reads, traits.row_local, calls, None, traits.column)


def _text(body: pl.Expr, names: tuple[str, ...], calls: tuple[CallUse, ...]) -> str:
    """The expression as `explain` shows it: Polars' own text with calls spelt out and fewer brackets."""
    inner = unaliased(body)
    text = str(inner).replace("dyn int: ", "").replace("dyn float: ", "")
    text = _OPERATOR.sub(r" \1 ", text.replace("[(", "(").replace(")]", ")"))
    for use in calls:
        described = describe_call(use.call)
        text = text.replace(f'col("{use.column}").alias("{use.call.output_name()}")', described)
        text = text.replace(f'col("{use.column}")', described)
    return text if inner is body or len(names) != 1 else f"{names[0]} = {text}"
