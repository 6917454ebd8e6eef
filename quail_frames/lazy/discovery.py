"""Finding the AI calls in a Polars expression and putting answer columns in their place.

Works on the expression's JSON form: a call is an exact subtree of it, and so is the
column that replaces it. Checked on Polars 1.35 and 2.1 (see tests/lazy/test_discovery.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.exceptions import ComputeError

from quail_frames.errors import PlanError
from quail_frames.lazy.marker import ANSWER, MARK, call_of
from quail_frames.lazy.rowlocal import ELEMENT, Tree, columns_read, is_row_local, named_selector
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
    column: str | None = None
    """The one column that it passes on unchanged."""


OPAQUE = Traits(None, False)
JSON_DEPTH = 127
"""How deeply Polars reads JSON."""


def has_calls(expr: pl.Expr) -> bool:
    """Whether the expression asks a model anything."""
    form = _binary_form(expr)
    if form is None or MARK.encode() not in form:
        return False
    tree = tree_of(expr)  # a text may hold the mark too
    return tree is None or _holds_call(tree)


def traits_of(expr: pl.Expr) -> Traits:
    """Columns read and row-locality; an expression that has no serial form is opaque."""
    tree = tree_of(expr)
    return OPAQUE if tree is None else traits_of_tree(tree)


def traits_of_tree(tree: Tree) -> Traits:
    """As `traits_of`, of an expression's JSON form."""
    inner = tree
    while isinstance(inner, dict) and "Alias" in inner:
        inner = inner["Alias"][0]
    column = inner.get("Column") if isinstance(inner, dict) else None
    return Traits(columns_read(tree), is_row_local(tree), column)


def tree_of(expr: pl.Expr) -> Tree | None:
    """The expression's JSON form, parsed; None for a Python function that cannot be pickled."""
    try:
        return json.loads(expr.meta.serialize(format="json"))
    except Exception:  # whatever the function's own __reduce__ raises: Polars alone can run it
        return None


def expression_of(tree: Tree) -> pl.Expr:
    """The expression of a JSON form."""
    try:
        return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")
    except ComputeError as error:
        if _depth(tree) > JSON_DEPTH:
            raise PlanError(
                "an expression with an AI call is nested too deeply to be planned (about 60 branches or operators in a "
                "row): give the call's answer a name in a step before (.with_columns(answer=...)) and use its column"
            ) from error
        raise PlanError(
            "an expression with an AI call has a part that cannot be planned, most likely a NaN or infinite literal: "
            "compute that part in a step of its own (with_columns) and use its column"
        ) from error


def freeze_selectors(tree: Tree, expand: Callable[[pl.Expr], list[str]]) -> Tree:
    """The JSON form with every selector spelt out as names, so that columns added later do not match it."""
    if isinstance(tree, list):
        return [freeze_selectors(item, expand) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "Selector" in tree and not named_selector(tree["Selector"]):
        names = expand(expression_of(tree))
        return {"Selector": {"ByName": {"names": names, "strict": True}} if names else "Empty"}
    return {key: freeze_selectors(value, expand) for key, value in tree.items()}


def rename_columns(tree: Tree, names: Mapping[str, str]) -> Tree:
    """The JSON form reading other columns."""
    if isinstance(tree, list):
        return [rename_columns(item, names) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if isinstance(tree.get("Column"), str):
        return {"Column": names.get(tree["Column"], tree["Column"])}
    return {key: rename_columns(value, names) for key, value in tree.items()}


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
    return expression_of(substitute_in_tree(tree_of(expr), found)), tuple(found.values())


def check_inputs_row_local(call: AiCall, inputs: list[pl.Expr]) -> None:
    """Refuse inputs that are not a value of the row itself, with advice."""
    for name, expr in zip(call.columns, inputs, strict=True):
        if has_calls(expr):
            raise PlanError(
                f"{call.output_name()!r} asks about another call's answer: give that answer a name in a step "
                f"before (.with_columns(answer=...)) and use its column"
            )
        tree = tree_of(expr)
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


def substitute_in_tree(tree: Tree, found: dict[str, FoundCall], inside_list: bool = False) -> Tree:
    """The JSON form with answer columns for calls, which are added to `found` by answer column."""
    if isinstance(tree, list):
        return [substitute_in_tree(item, found, inside_list) for item in tree]
    if not isinstance(tree, dict):
        return tree
    fields = _call_fields(tree)
    if fields is None:
        return {
            key: substitute_in_tree(value, found, inside_list or key == "evaluation") for key, value in tree.items()
        }
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


def _holds_call(tree: Tree) -> bool:
    if isinstance(tree, list):
        return any(map(_holds_call, tree))
    return isinstance(tree, dict) and (_call_fields(tree) is not None or any(map(_holds_call, tree.values())))


def _depth(tree: Tree) -> int:
    below = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return 0 if below is None else 1 + max(map(_depth, below), default=0)


def _reads_element(tree: Tree) -> bool:
    if isinstance(tree, list):
        return any(map(_reads_element, tree))
    if tree == ELEMENT:
        return True
    return isinstance(tree, dict) and any(map(_reads_element, tree.values()))


def _binary_form(expr: pl.Expr) -> bytes | None:
    try:
        return expr.meta.serialize()
    except Exception:  # as in tree_of
        return None
