"""Which expressions give each row its value from that row alone.

Read off the expression's JSON form. What is not listed counts as not row-local: the
planner then leaves the expression where it stands, and nothing can go wrong.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

Tree = Any  # one node of an expression's JSON form

_FAMILIES = frozenset({"TemporalExpr", "ListExpr", "ArrayExpr", "StructExpr", "BinaryExpr", "Bitwise", "Trigonometry"})
# fmt: off
_FUNCTIONS = frozenset({
    "Abs", "AsStruct", "Atan2", "Ceil", "Clip", "Coalesce", "Cut", "Exp", "FillNull", "Floor", "Hash", "Log", "Log1p",
    "MaxHorizontal", "MeanHorizontal", "MinHorizontal", "Negate", "Pow", "Replace", "ReplaceStrict", "Round", "RoundSF",
    "Sign", "SumHorizontal",
})
_BOOLEANS = frozenset({
    "AllHorizontal", "AnyHorizontal", "IsBetween", "IsClose", "IsFinite", "IsIn", "IsInfinite", "IsNan", "IsNotNan",
    "IsNotNull", "IsNull", "Not",
})
# fmt: on
_NOT_ROW_LOCAL_STRINGS = frozenset({"ConcatVertical", "ToDecimal"})


ELEMENT: Tree = json.loads(pl.element().meta.serialize(format="json"))
"""An element of a list; in Polars 1 it is a column without a name, which is then taken for one."""


def is_row_local(tree: Tree) -> bool:
    """Whether each row's value depends on that row alone (literals included)."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return False
    ((kind, body),) = tree.items()
    if kind in ("Column", "Selector"):
        return {"Column": body} != ELEMENT
    if kind == "Literal":
        return not (isinstance(body, dict) and ("Series" in body or "Range" in body))
    inputs = _inputs(kind, body)
    return inputs is not None and all(map(is_row_local, inputs))


def _inputs(kind: str, body: Any) -> list[Tree] | None:
    """The inputs of a row-local operation; None where the operation is not known to be row-local."""
    if kind == "Alias":
        return [body[0]]
    if kind == "KeepName":
        return [body]
    if kind in ("Cast", "RenameAlias"):
        return [body["expr"]]
    if kind == "BinaryExpr":
        return [body["left"], body["right"]]
    if kind == "Ternary":
        return [body["predicate"], body["truthy"], body["falsy"]]
    if kind == "AnonymousFunction":
        return body["input"] if "ROW_SEPARABLE" in body["options"]["flags"] else None
    if kind == "Function":
        return _function_inputs(body["function"], body["input"])
    return None


def _function_inputs(function: Any, inputs: list[Tree]) -> list[Tree] | None:
    family: str
    member: Any
    family, member = next(iter(function.items())) if isinstance(function, dict) else (function, None)
    name = next(iter(member)) if isinstance(member, dict) else member
    if family == "Boolean":
        if name == "IsIn" and "Literal" in inputs[1]:
            return inputs[:1]
        return inputs if name in _BOOLEANS else None
    if family == "StringExpr":
        guesses_format = name == "Strptime" and member["Strptime"][1]["format"] is None
        return None if guesses_format or name in _NOT_ROW_LOCAL_STRINGS else inputs
    return inputs if family in _FAMILIES or family in _FUNCTIONS else None


def columns_read(tree: Tree) -> frozenset[str] | None:
    """Names of the columns read; None where a selector stands, whose columns depend on the frame."""
    found: set[str] = set()
    return frozenset(found) if _collect_columns(tree, found) else None


def named_selector(selector: Any) -> bool:
    """Whether the selector spells out its columns."""
    return selector == "Empty" or (isinstance(selector, dict) and selector.keys() == {"ByName"})


def _collect_columns(tree: Tree, found: set[str]) -> bool:
    if isinstance(tree, list):
        return all([_collect_columns(item, found) for item in tree])
    if not isinstance(tree, dict):
        return True
    if "Column" in tree and isinstance(tree["Column"], str):
        found.add(tree["Column"])
        return True
    if "Literal" in tree:
        return True
    if "Eval" in tree and isinstance(tree["Eval"], dict):
        return _collect_columns(tree["Eval"]["expr"], found)
    if "Selector" in tree and named_selector(tree["Selector"]):
        found.update(tree["Selector"]["ByName"]["names"] if tree["Selector"] != "Empty" else ())
        return True
    return not tree.keys() & {"Selector", "SubPlan"} and all([_collect_columns(item, found) for item in tree.values()])
