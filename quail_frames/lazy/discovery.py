"""Finding the AI calls in a Polars expression and putting answer columns in their place.

Works on the expression's JSON form: a call is an exact subtree of it, and so is the
column that replaces it. Checked on Polars 1.35 and 2.1 (see tests/lazy/test_discovery.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.exceptions import ComputeError

from quail_frames.errors import PlanError
from quail_frames.lazy.marker import ANSWER, MARK, call_of
from quail_frames.lazy.rowlocal import Tree, columns_read, is_row_local
from quail_frames.plan.calls import AiCall


@dataclass(frozen=True)
class FoundCall:
    """A call inside an expression: what is asked, of which input expressions, and its answer column."""

    call: AiCall
    inputs: tuple[pl.Expr, ...]
    reads: tuple[frozenset[str] | None, ...]
    column: str


@dataclass(frozen=True)
class Traits:
    """What the planner may know of an expression."""

    reads: frozenset[str] | None
    row_local: bool


def has_calls(expr: pl.Expr) -> bool:
    """Whether the expression asks a model anything."""
    form = _binary_form(expr)
    return form is not None and MARK.encode() in form


def traits_of(expr: pl.Expr) -> Traits:
    """Columns read and row-locality; an expression that has no serial form is opaque."""
    try:
        tree = tree_of(expr)
    except Exception:  # a Python function that cannot be pickled: Polars alone knows what it does
        return Traits(None, False)
    return Traits(columns_read(tree), is_row_local(tree))


def tree_of(expr: pl.Expr) -> Tree:
    """The expression's JSON form, parsed."""
    return json.loads(_json_form(expr))


def expression_of(tree: Tree) -> pl.Expr:
    """The expression of a JSON form."""
    try:
        return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")
    except ComputeError as error:
        raise PlanError(
            "an expression with an AI call has a part that cannot be planned, most likely a NaN or infinite literal: "
            "compute that part in a step of its own (with_columns) and use its column"
        ) from error


def substitute_calls(expr: pl.Expr) -> tuple[pl.Expr, tuple[FoundCall, ...]]:
    """The expression over answer columns, and the calls that give those columns.

    Raises
    ------
    PlanError
        A call stands over an element of a list, an aggregate, or another call's answer.
    """
    if not has_calls(expr):
        return expr, ()
    found: dict[str, FoundCall] = {}
    tree = _substitute(tree_of(expr), found)
    return expression_of(tree), tuple(found.values())


def check_inputs_row_local(call: AiCall, inputs: list[pl.Expr]) -> None:
    """Refuse inputs that are not a value of the row itself, with advice."""
    for name, expr in zip(call.columns, inputs, strict=True):
        form = _binary_form(expr)
        if form is not None and MARK.encode() in form:
            raise PlanError(
                f"{call.output_name()!r} asks about another call's answer: give that answer a name in a step "
                f"before (.with_columns(answer=...)) and use its column"
            )
        tree = None if form is None else tree_of(expr)
        if tree is not None and _reads_element(tree):
            raise PlanError(f"{call.output_name()!r} asks about elements of a list: explode the list first")
        if tree is None or not is_row_local(tree) or columns_read(tree) == frozenset():
            raise PlanError(
                f"{call.output_name()!r} asks about {name!r}, which is not computed from its own row alone "
                "(an aggregate, a window, or a function unknown to the planner): compute it in a step "
                "before (.with_columns(...)) and use its column"
            )


def answer_column(call: AiCall, inputs: list[Tree]) -> str:
    """Name of the answer column: equal for equal questions about equal inputs."""
    text = json.dumps([call.identity, inputs], sort_keys=True)
    return ANSWER + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _substitute(tree: Tree, found: dict[str, FoundCall], inside_list: bool = False) -> Tree:
    if isinstance(tree, list):
        return [_substitute(item, found, inside_list) for item in tree]
    if not isinstance(tree, dict):
        return tree
    fields = _call_fields(tree)
    if fields is None:
        return {key: _substitute(value, found, inside_list or key == "evaluation") for key, value in tree.items()}
    call = call_of(fields[0]["Alias"][1])
    if inside_list:
        raise PlanError(f"{call.output_name()!r} asks about elements of a list: explode the list first")
    inputs = [field["Alias"][0] for field in fields]
    column = answer_column(call, inputs)
    found.setdefault(
        column,
        FoundCall(call, tuple(map(expression_of, inputs)), tuple(map(columns_read, inputs)), column),
    )
    return {"Column": column}


def _call_fields(tree: dict[str, Any]) -> list[Tree] | None:
    """The input fields where this node is a call's function, else None."""
    function = tree.get("AnonymousFunction")
    if not isinstance(function, dict):
        return None
    struct = function["input"][0]
    fields = struct.get("Function", {}).get("input") if isinstance(struct, dict) else None
    if not fields or not isinstance(fields[0], dict) or "Alias" not in fields[0]:
        return None
    return fields if fields[0]["Alias"][1].startswith(MARK) else None


def _reads_element(tree: Tree) -> bool:
    if isinstance(tree, list):
        return any(map(_reads_element, tree))
    if isinstance(tree, dict):
        return tree.get("Column") == "" or any(map(_reads_element, tree.values()))
    return tree == "Element"


def _binary_form(expr: pl.Expr) -> bytes | None:
    try:
        return expr.meta.serialize()
    except Exception:  # as in traits_of
        return None


def _json_form(expr: pl.Expr) -> str:
    return expr.meta.serialize(format="json")
