"""Scalar SQL expressions as Polars expressions, with SQL's rules for nulls, types and division."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.lazy.expressions import ai_classify, ai_if, ai_score
from quail_frames.lazy.prompts import column_placeholder
from quail_frames.sql.ai import Call, number, read_call
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.problems import errors_at, fail
from quail_frames.sql.scope import Bound, Field, Key, conjuncts

_COMPARISONS: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.NullSafeEQ: lambda left, right: left.eq_missing(right),
    exp.NullSafeNEQ: lambda left, right: left.ne_missing(right),
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


class Translator:
    """Translates bound expressions over one frame.

    Parameters
    ----------
    empty
        A frame of the same columns and no rows, for types.
    columns
        Where each bound column stands in the frame.
    known
        Expressions that are columns of the frame already, after GROUP BY.
    """

    def __init__(
        self, empty: pl.LazyFrame, columns: Mapping[Key, str], known: Mapping[exp.Expr, str] | None = None
    ) -> None:
        self.empty = empty
        self.columns = columns
        self.known = known

    def __call__(self, node: exp.Expr) -> pl.Expr:
        """The expression; errors stand at the node that caused them."""
        if self.known is not None and node in self.known:
            return pl.col(self.known[node])
        with errors_at(node):
            return self._of(node)

    def dtype(self, expr: pl.Expr) -> pl.DataType:
        """Type of an expression over the frame."""
        return self.empty.select(expr.alias("it")).collect_schema()["it"]

    def condition(self, node: exp.Expr) -> pl.Expr:
        """A Boolean expression; another type is an error."""
        expr = self(node)
        found = self.dtype(expr)
        if found == pl.Null:
            return pl.lit(None, dtype=pl.Boolean)
        if found != pl.Boolean:
            fail(node, f"a condition is TRUE or FALSE, but this is {found}: compare it with a value")
        return expr

    def _of(self, node: exp.Expr) -> pl.Expr:
        from quail_frames.sql.functions import FUNCTIONS

        kind = type(node)
        if kind in _COMPARISONS:
            return _COMPARISONS[kind](*self.alike(node.this, node.expression))
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](self.number(node.this), self.number(node.expression))
        if kind in FUNCTIONS:
            return FUNCTIONS[kind].translate(self, node)
        if kind not in _FORMS:
            fail(node, f"{kind.__name__.upper()} cannot stand here: take it out of the expression")
        return _FORMS[kind](self, node)

    # Types --------------------------------------------------------------------------------

    def alike(self, left: exp.Expr, right: exp.Expr) -> tuple[pl.Expr, pl.Expr]:
        """Both sides of a comparison, a constant text read as a date where the other side is one."""
        a, b = self(left), self(right)
        kinds = self.dtype(a), self.dtype(b)
        if kinds[0] == kinds[1] or pl.Null in kinds:
            return a, b
        if any(kind.is_unsigned_integer() for kind in kinds) and not any(map(_is_count, (left, right))):
            return _signed(a, kinds[0]), _signed(b, kinds[1])
        if kinds[0].is_temporal() and kinds[1] == pl.String:
            return a, self._as_date(right, b, kinds[0])
        if kinds[1].is_temporal() and kinds[0] == pl.String:
            return self._as_date(left, a, kinds[1]), b
        if family(kinds[0]) != family(kinds[1]):
            fail(left, f"{kinds[0]} cannot be compared with {kinds[1]}: CAST one of them")
        return a, b

    def _as_date(self, node: exp.Expr, expr: pl.Expr, to: pl.DataType) -> pl.Expr:
        if not isinstance(node, exp.Literal):
            fail(node, f"String cannot be compared with {to}: CAST it")
        value = pl.select(expr.str.to_datetime(strict=False).cast(to)).item()
        if value is None:
            fail(node, f"{node.this!r} is no {to}: write it as '2024-12-31'")
        return pl.lit(value)

    def number(self, node: exp.Expr) -> pl.Expr:
        """A number ready for arithmetic: integers are 64 bits wide, as in SQL."""
        expr = self(node)
        found = self.dtype(expr)
        if found.is_integer() and found not in (pl.Int64, pl.Int128) and not isinstance(node, exp.Literal):
            return expr.cast(pl.Int64)
        if not found.is_numeric() and found != pl.Null:
            fail(node, f"a number is wanted, but this is {found}: CAST it")
        return expr

    def text(self, node: exp.Expr) -> pl.Expr:
        """A text."""
        expr = self(node)
        found = self.dtype(expr)
        if found == pl.String:
            return expr
        if family(found) == "text" or found == pl.Null:
            return expr.cast(pl.String)
        fail(node, f"a text is wanted, but this is {found}: CAST it to a string")

    def time(self, node: exp.Expr) -> pl.Expr:
        """A date or a time."""
        expr = self(node)
        found = self.dtype(expr)
        if not found.is_temporal():
            fail(node, f"a date is wanted, but this is {found}: CAST it to DATE")
        return expr

    # Forms --------------------------------------------------------------------------------

    def bound(self, node: Bound) -> pl.Expr:
        key = (node.args["table"], node.this)
        if self.known is not None:
            fail(node, f"column {node.this!r} is neither in GROUP BY nor inside an aggregate such as MAX(...)")
        return pl.col(self.columns[key])

    def ai(self, node: AiFunction) -> pl.Expr:
        call = read_call(node)
        if call.kind != "CLASSIFY":
            ask = ai_if if call.kind == "IF" else ai_score
            template = call.prompt.template(lambda number: f"{{{number}}}")
            return ask(template, *map(self, call.prompt.inputs), **call.options)
        expr = self.classification(node, call)
        return expr.struct.field("label") if call.options.get("probabilities") else expr

    def classification(self, node: AiFunction, call: Call) -> pl.Expr:
        """The classification itself, a struct where probabilities are wanted."""
        inputs = list(map(self, call.prompt.inputs))
        document: str | pl.Expr = inputs[0]
        if call.prompt.pieces != (0,):
            for each, expr in zip(call.prompt.inputs, inputs, strict=True):
                if not expr.meta.is_column():
                    fail(each, "the text of a classification is made of columns: SELECT this AS a column in a subquery")
            document = call.prompt.template(lambda number: column_placeholder(inputs[number].meta.output_name()))
        return ai_classify(document, list(call.labels), descriptions=call.descriptions, **call.options)

    def field(self, node: Field) -> pl.Expr:
        return self.classification(node.this, read_call(node.this)).struct.field(node.args["field"])

    def case(self, node: exp.Case) -> pl.Expr:
        chain: Any = pl
        for branch in node.args["ifs"]:
            if node.this is None:
                test = self.condition(branch.this)
            else:
                test = operator.eq(*self.alike(node.this, branch.this))
            chain = chain.when(test).then(self(branch.args["true"]))
        default = node.args.get("default")
        return chain.otherwise(None if default is None else self(default))

    def is_(self, node: exp.Is) -> pl.Expr:
        if isinstance(node.expression, exp.Null):
            return self(node.this).is_null()
        return self.condition(node.this).eq_missing(pl.lit(bool(node.expression.this)))

    def in_(self, node: exp.In) -> pl.Expr:
        values = [value for value in node.expressions if not isinstance(value, exp.Null)]
        has_null = len(values) < len(node.expressions)
        if values and all(map(_is_constant, values)) and self._is_listed(node.this, values):
            found = self(node.this).is_in([constant(value) for value in values])
        else:
            tests = [operator.eq(*self.alike(node.this, value)) for value in values]
            found = pl.any_horizontal(tests) if tests else pl.lit(None, dtype=pl.Boolean)
        return pl.when(found).then(True).otherwise(None) if has_null else found

    def _is_listed(self, node: exp.Expr, values: Sequence[exp.Expr]) -> bool:
        """Whether `is_in` can compare: texts with texts, whole numbers with whole numbers."""
        found = self.dtype(self(node))
        kinds = {type(constant(value)) for value in values}
        return (family(found) == "text" and kinds == {str}) or (found.is_integer() and kinds == {int})

    def between(self, node: exp.Between) -> pl.Expr:
        low, high = node.args["low"], node.args["high"]
        value, bottom = self.alike(node.this, low)
        return value.is_between(bottom, self.alike(node.this, high)[1])


def _literal(translator: Translator, node: exp.Literal) -> pl.Expr:
    return pl.lit(node.this if node.is_string else number(node))


def _negative(translator: Translator, node: exp.Neg) -> pl.Expr:
    literal = isinstance(node.this, exp.Literal) and not node.this.is_string
    return pl.lit(constant(node)) if literal else -translator.number(node.this)


def _all_of(translator: Translator, node: exp.And) -> pl.Expr:
    first, *rest = map(translator.condition, conjuncts(node))
    for term in rest:
        first = first & term
    return first


_FORMS: dict[type[exp.Expr], Callable[[Translator, Any], pl.Expr]] = {
    Bound: Translator.bound,
    Field: Translator.field,
    AiFunction: Translator.ai,
    exp.Literal: _literal,
    exp.Neg: _negative,
    exp.Boolean: lambda translator, node: pl.lit(bool(node.this)),
    exp.Null: lambda translator, node: pl.lit(None),
    exp.Paren: lambda translator, node: translator(node.this),
    exp.And: _all_of,
    exp.Or: lambda translator, node: translator.condition(node.this) | translator.condition(node.expression),
    exp.Not: lambda translator, node: ~translator.condition(node.this),
    exp.Case: Translator.case,
    exp.Is: Translator.is_,
    exp.In: Translator.in_,
    exp.Between: Translator.between,
}


def _signed(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return expr.cast(pl.Int64) if dtype.is_unsigned_integer() else expr


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_count(node: exp.Expr) -> bool:
    """Whether the node is a number, 0 or more, as it stands."""
    return isinstance(node, exp.Literal) and not node.is_string


def constant(node: Any) -> Any:
    """The Python value of a constant."""
    if isinstance(node, exp.Neg):
        return -constant(node.this)
    return node.this if node.is_string else number(node)


def family(dtype: pl.DataType) -> str:
    """Types that may be compared with each other have the same family."""
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    return "number" if dtype.is_numeric() else "time" if dtype in (pl.Date, pl.Datetime) else str(dtype)
