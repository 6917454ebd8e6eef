"""Recorded expressions as SQL text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect

from quail_frames.errors import PlanError
from quail_frames.lazy.discovery import expression_of, tree_of
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.logical import CallUse, Expression
from quail_frames.plan.template import Slot
from quail_frames.sql.dialects import DialectName

Tree = Any  # one node of an expression's JSON form

_OPERATORS = {
    "Eq": "=",
    "NotEq": "<>",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "And": "AND",
    "Or": "OR",
    "LogicalAnd": "AND",
    "LogicalOr": "OR",
    "Plus": "+",
    "Minus": "-",
    "Multiply": "*",
    "EqValidity": "IS NOT DISTINCT FROM",
    "NotEqValidity": "IS DISTINCT FROM",
}
_FUNCTIONS = {
    "Negate": "-{0}",
    "Abs": "ABS({0})",
    "Coalesce": "COALESCE({all})",
    "FillNull": "COALESCE({0}, {1})",
    "Boolean.Not": "NOT {0}",
    "Boolean.IsNull": "{0} IS NULL",
    "Boolean.IsNotNull": "{0} IS NOT NULL",
    "StringExpr.Uppercase": "UPPER({0})",
    "StringExpr.Lowercase": "LOWER({0})",
    "StringExpr.LenChars": "CHAR_LENGTH({0})",
    "StringExpr.StartsWith": "STARTS_WITH({0}, {1})",
    "StringExpr.EndsWith": "ENDS_WITH({0}, {1})",
    "TemporalExpr.Year": "EXTRACT(YEAR FROM {0})",
    "TemporalExpr.Month": "EXTRACT(MONTH FROM {0})",
    "TemporalExpr.Day": "EXTRACT(DAY FROM {0})",
}
_AGGREGATES = {"Min": "MIN({0})", "Max": "MAX({0})", "Mean": "AVG({0})", "Median": "MEDIAN({0})"}
_AGGREGATES |= {"Count": "COUNT({0})", "Sum": "COALESCE(SUM({0}), 0)"}  # Polars' sum of no value is 0
_DEFAULTS: dict[str, Any] = {
    "selectivity": None,
    "task_description": None,
    "probabilities": False,
    "layout": "auto",
    "scoring": "auto",
    "overflow": "error",
}
_TYPES = {"Int64": "INT", "Float64": "FLOAT", "String": "STRING", "Boolean": "BOOLEAN", "Date": "DATE"}


@dataclass(frozen=True)
class Speller:
    """Writes expressions; `column` writes a column's name.

    Raises
    ------
    PlanError
        SQL has no words for a part.
    """

    dialect: DialectName
    column: Callable[[str], str]

    def __call__(self, expression: Expression) -> str:
        """The expression without its name."""
        tree = tree_of(expression.body)
        uses = {use.column: use for use in expression.calls}
        if tree is None:
            raise PlanError(f"SQL cannot say {expression.text}: it holds a Python function")
        try:
            return self._write(_unnamed(tree), uses)
        except _Unsayable as error:
            raise PlanError(f"SQL cannot say {expression.text}: {error} has no SQL here") from error

    def _write(self, tree: Tree, uses: Mapping[str, CallUse]) -> str:
        if tree == "Len":
            return "COUNT(*)"
        if not isinstance(tree, dict) or len(tree) != 1:
            raise _Unsayable(str(tree)[:60])
        ((kind, body),) = tree.items()
        if kind == "Column":
            return self._call(uses[body]) if body in uses else self.column(body)
        if kind == "Literal":
            return self._literal(tree)
        if kind == "Alias":
            return self._write(body[0], uses)
        if kind == "BinaryExpr":
            return self._operation(body, uses)
        if kind == "Function":
            return self._function(body, uses)
        if kind == "Ternary":
            parts = [self._write(body[part], uses) for part in ("predicate", "truthy", "falsy")]
            return f"CASE WHEN {parts[0]} THEN {parts[1]} ELSE {parts[2]} END"
        if kind == "Agg":
            return self._aggregate(body, uses)
        if kind == "Cast" and body["options"] == "Strict" and body["dtype"].get("Literal") in _TYPES:
            return f"CAST({self._write(body['expr'], uses)} AS {self._type(body['dtype']['Literal'])})"
        raise _Unsayable(kind)

    def _operation(self, body: Tree, uses: Mapping[str, CallUse]) -> str:
        operator = _OPERATORS.get(body["op"])
        divided = body["op"] == "TrueDivide" and _number(body["right"])
        if operator is None and not divided:
            raise _Unsayable(body["op"])
        return f"({self._write(body['left'], uses)} {operator or '/'} {self._write(body['right'], uses)})"

    def _function(self, body: Tree, uses: Mapping[str, CallUse]) -> str:
        name, member = _function_name(body["function"])
        if name == "Boolean.IsIn":
            return self._is_in(body, uses)
        if name == "StructExpr.FieldByName" and member == "label":
            return self._write(body["input"][0], uses)
        parts = [self._write(part, uses) for part in body["input"]]
        if name == "Boolean.IsBetween" and member == {"closed": "Both"}:
            return f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})"
        if name == "StringExpr.Contains" and member["literal"]:
            return f"CONTAINS({parts[0]}, {parts[1]})"
        if name not in _FUNCTIONS:
            raise _Unsayable(name)
        return f"({_FUNCTIONS[name].format(*parts, all=', '.join(parts))})"

    def _is_in(self, body: Tree, uses: Mapping[str, CallUse]) -> str:
        tested, listed = body["input"]
        if "Literal" not in listed:
            raise _Unsayable("is_in of a column")
        values = pl.select(expression_of(listed)).to_series()
        values = values.explode(empty_as_null=False) if isinstance(values.dtype, pl.List) else values
        words = ", ".join(self._constant(value) for value in values.to_list())
        if not words:
            raise _Unsayable("is_in of an empty list")
        return f"({self._write(tested, uses)} IN ({words}))"

    def _aggregate(self, body: Tree, uses: Mapping[str, CallUse]) -> str:
        ((name, inner),) = body.items()
        inner = inner["input"] if isinstance(inner, dict) and "input" in inner else inner
        if name == "NUnique" and isinstance(inner, dict) and inner.get("Function", {}).get("function") == "DropNulls":
            return f"COUNT(DISTINCT {self._write(inner['Function']['input'][0], uses)})"
        if name not in _AGGREGATES or (name == "Count" and body[name].get("include_nulls")):
            raise _Unsayable(name)
        return _AGGREGATES[name].format(self._write(inner, uses))

    # Constants and names ------------------------------------------------------------------

    def _literal(self, tree: Tree) -> str:
        values = pl.select(expression_of(tree)).to_series()
        if len(values) != 1:
            raise _Unsayable("a list")
        return self._constant(values[0])

    def _constant(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | float):
            return "NULL" if value is None else str(value).upper() if isinstance(value, bool) else repr(value)
        if isinstance(value, str):
            return exp.Literal.string(value).sql(self.dialect)
        if type(value).__name__ == "date":
            return f"DATE '{value}'"
        raise _Unsayable(f"a constant of type {type(value).__name__}")

    def _type(self, name: str) -> str:
        return f"{_TYPES[name]}64" if self.dialect == "bigquery" and name in ("Int64", "Float64") else _TYPES[name]

    # Calls --------------------------------------------------------------------------------

    def _call(self, use: CallUse) -> str:
        inputs = [self(each) for each in use.inputs]
        return self.call(use.call, inputs)

    def call(self, call: AiCall, inputs: list[str]) -> str:
        """The AI function of a call whose inputs are these."""
        name = {"AiIf": "FILTER", "AiScore": "SCORE", "AiClassify": "CLASSIFY"}[call.kind]
        name = f"AI_{name}" if self.dialect == "snowflake" else f"AI.{'IF' if name == 'FILTER' else name}"
        plain = isinstance(call, AiClassify) and call.template.pieces == (Slot(0),)
        if not call.template.inputs:
            question = self._constant(call.template.render(()))
            arguments = [question, inputs[0]]
        else:
            arguments = [inputs[0]] if plain else [self._prompt(call, inputs)]
        if isinstance(call, AiClassify):
            arguments.append(f"[{', '.join(self._labels(call))}]")
        return f"{name}({', '.join([*arguments, *self._options(call)])})"

    def _prompt(self, call: AiCall, inputs: list[str]) -> str:
        in_order = call.template.inputs == tuple(range(len(inputs)))
        if self.dialect == "bigquery" and in_order:
            parts = [self._constant(p) if isinstance(p, str) else inputs[p.input] for p in call.template.pieces]
            return f"({', '.join(parts)})" if len(parts) > 1 else f"('', {parts[0]})"
        text = "".join(
            piece.replace("{", "{{").replace("}", "}}") if isinstance(piece, str) else f"{{{piece.input}}}"
            for piece in call.template.pieces
        )
        return f"PROMPT({', '.join([self._constant(text), *inputs])})"

    def _labels(self, call: AiClassify) -> list[str]:
        described = call.descriptions or [None] * len(call.labels)
        return [
            self._constant(label) if text is None else f"({self._constant(label)}, {self._constant(text)})"
            for label, text in zip(call.labels, described, strict=True)
        ]

    def _options(self, call: AiCall) -> list[str]:
        given = {name: getattr(call, name, default) for name, default in _DEFAULTS.items()}
        words = {name: self._constant(value) for name, value in given.items() if value != _DEFAULTS[name]}
        if self.dialect == "bigquery":
            return [f"{name} => {value}" for name, value in words.items()]
        return ["{" + ", ".join(f"'{name}': {value}" for name, value in words.items()) + "}"] if words else []


class _Unsayable(Exception):
    """A part of an expression that SQL has no words for."""


def quoted(name: str, dialect: DialectName) -> str:
    """A name, in quotes where the dialect would read it as something else."""
    tokens = Dialect.get_or_raise(dialect).tokenize(name) if name.isidentifier() else []
    plain = len(tokens) == 1 and tokens[0].token_type is TokenType.VAR
    return exp.to_identifier(name, quoted=not plain).sql(dialect)


def _unnamed(tree: Tree) -> Tree:
    return _unnamed(tree["Alias"][0]) if isinstance(tree, dict) and "Alias" in tree else tree


def _function_name(function: Tree) -> tuple[str, Any]:
    """`Family.Member` and the member's own arguments."""
    if not isinstance(function, dict):
        return str(function), None
    ((family, member),) = function.items()
    if not isinstance(member, dict):
        return f"{family}.{member}", None
    ((name, arguments),) = member.items() if len(member) == 1 else (("", None),)
    return f"{family}.{name}", arguments


def _number(tree: Tree) -> bool:
    """A constant other than 0."""
    literal = tree.get("Literal", {}) if isinstance(tree, dict) else {}
    value = literal.get("Dyn") if isinstance(literal, dict) else None
    return value is not None and all(each != 0 for each in value.values())
