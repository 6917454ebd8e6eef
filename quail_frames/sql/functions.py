"""The scalar functions: how each is written, and its Polars expression."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.sql.ai import number
from quail_frames.sql.casts import cast
from quail_frames.sql.problems import fail
from quail_frames.sql.scalars import Translator


@dataclass(frozen=True)
class Function:
    """A function: its translation, the arguments it may have, and its usual spelling."""

    translate: Callable[[Translator, Any], pl.Expr]
    arguments: frozenset[str]
    usage: str


def _takes_text(change: Callable[[pl.Expr], pl.Expr]) -> Callable[[Translator, Any], pl.Expr]:
    return lambda to, node: change(to.text(node.this))


def _takes_number(change: Callable[[pl.Expr], pl.Expr]) -> Callable[[Translator, Any], pl.Expr]:
    return lambda to, node: change(to.number(node.this))


def _takes_texts(change: Callable[[pl.Expr, pl.Expr], pl.Expr], second: str) -> Callable[[Translator, Any], pl.Expr]:
    return lambda to, node: change(to.text(node.this), to.text(node.args[second]))


def _integer(to: Translator, node: exp.Expr, what: str) -> pl.Expr:
    expr = to.number(node)
    if not to.dtype(expr).is_integer():
        fail(node, f"{what} is a whole number: CAST it to INT")
    return expr.cast(pl.Int64)


# Numbers --------------------------------------------------------------------------------


def _where_nonzero(divisor: exp.Expr, expr: pl.Expr, quotient: pl.Expr) -> pl.Expr:
    constant = isinstance(divisor, exp.Literal) and number(divisor) != 0
    return quotient if constant else pl.when(expr != 0).then(quotient)


def _divide(to: Translator, node: Any) -> pl.Expr:
    """Always a fraction, as both dialects say; division by zero gives NULL (they stop the query)."""
    left, right = to.number(node.this), to.number(node.expression)
    return _where_nonzero(node.expression, right, left / right)


def _modulo(to: Translator, node: Any) -> pl.Expr:
    """The remainder with the sign of the dividend (Polars' has the divisor's)."""
    left, right = to.number(node.this), to.number(node.expression)
    return _where_nonzero(node.expression, right, (left.abs() % right.abs()) * left.sign())


def _whole_divide(to: Translator, node: Any) -> pl.Expr:
    """The quotient cut towards zero."""
    left, right = _integer(to, node.this, "DIV's dividend"), _integer(to, node.expression, "DIV's divisor")
    return _where_nonzero(node.expression, right, (left.abs() // right.abs()) * left.sign() * right.sign())


def _round(to: Translator, node: Any) -> pl.Expr:
    """Halves away from zero."""
    decimals = node.args.get("decimals")
    if decimals is not None and not (isinstance(decimals, exp.Literal) and decimals.this.isdecimal()):
        fail(decimals, "ROUND takes a constant number of decimals, 0 or more")
    value = to.number(node.this)
    return value.round(0 if decimals is None else int(decimals.this), mode="half_away_from_zero")


def _log(to: Translator, node: Any) -> pl.Expr:
    if node.args.get("expression") is None:
        fail(node, "LOG takes a base and a number: write LN(x) for the natural logarithm")
    return to.number(node.expression).log() / to.number(node.this).log()


def _extreme(largest: bool) -> Callable[[Translator, Any], pl.Expr]:
    """GREATEST and LEAST: NULL where any argument is."""

    def translate(to: Translator, node: Any) -> pl.Expr:
        values = [to(each) for each in (node.this, *node.expressions)]
        found = pl.max_horizontal(values) if largest else pl.min_horizontal(values)
        return pl.when(pl.all_horizontal([value.is_not_null() for value in values])).then(found)

    return translate


# Texts ----------------------------------------------------------------------------------


def _trim(to: Translator, node: Any) -> pl.Expr:
    text = to.text(node.this)
    characters = " " if node.args.get("expression") is None else to.text(node.expression)
    if node.args.get("position") == "LEADING":
        return text.str.strip_chars_start(characters)
    if node.args.get("position") == "TRAILING":
        return text.str.strip_chars_end(characters)
    return text.str.strip_chars(characters)


def _substring(to: Translator, node: Any) -> pl.Expr:
    """From a position counted from 1 (0 means 1), or from the end where it is negative."""
    start = node.args.get("start")
    position = start.this if isinstance(start, exp.Literal) else ""
    if not position.isdecimal():
        fail(start or node, "SUBSTR takes a constant position, 1 or more; RIGHT(text, n) gives the end of a text")
    length = node.args.get("length")
    taken = None if length is None else _integer(to, length, "the length").clip(lower_bound=0)
    return to.text(node.this).str.slice(max(int(position) - 1, 0), taken)


def _concat(to: Translator, node: Any) -> pl.Expr:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    return pl.concat_str([to.text(part) for part in parts])


def _like(to: Translator, node: Any) -> pl.Expr:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        fail(pattern, "LIKE takes a constant pattern: use CONTAINS, STARTS_WITH or ENDS_WITH for a column")
    text = "".join(".*" if each == "%" else "." if each == "_" else re.escape(each) for each in pattern.this)
    flags = "(?is)" if isinstance(node, exp.ILike) else "(?s)"
    return to.text(node.this).str.contains(f"{flags}^{text}$")


def _regexp(to: Translator, node: Any) -> pl.Expr:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        fail(pattern, "a regular expression is a constant here")
    text = f"^(?:{pattern.this})$" if node.args.get("full_match") else pattern.this
    return to.text(node.this).str.contains(text)


def _pad(to: Translator, node: Any) -> pl.Expr:
    fill = node.args.get("fill_pattern")
    character = " " if fill is None else fill.this
    if fill is not None and not (isinstance(fill, exp.Literal) and len(character) == 1):
        fail(fill, "LPAD and RPAD take one constant character")
    length = _integer(to, node.expression, "the length")
    text = to.text(node.this).str.slice(0, length)
    return text.str.pad_start(length, character) if node.args.get("is_left") else text.str.pad_end(length, character)


def _edge(left: bool) -> Callable[[Translator, Any], pl.Expr]:
    def translate(to: Translator, node: Any) -> pl.Expr:
        length = _integer(to, node.expression, "the length").clip(lower_bound=0)
        text = to.text(node.this)
        if left:
            return text.str.head(length)
        return text.str.tail(length)

    return translate


# Conditions and types -------------------------------------------------------------------


def _if(to: Translator, node: Any) -> pl.Expr:
    default = node.args.get("false")
    chain = pl.when(to.condition(node.this)).then(to(node.args["true"]))
    return chain.otherwise(None if default is None else to(default))


def _nullif(to: Translator, node: Any) -> pl.Expr:
    left, right = to.alike(node.this, node.expression)
    return pl.when((left != right).fill_null(True)).then(left)


def _part(unit: str, expr: pl.Expr) -> pl.Expr | None:
    parts: dict[str, Callable[[pl.Expr], pl.Expr]] = {
        "YEAR": lambda each: each.dt.year(),
        "QUARTER": lambda each: each.dt.quarter(),
        "MONTH": lambda each: each.dt.month(),
        "DAY": lambda each: each.dt.day(),
        "HOUR": lambda each: each.dt.hour(),
        "MINUTE": lambda each: each.dt.minute(),
        "SECOND": lambda each: each.dt.second(),
    }
    return parts[unit](expr).cast(pl.Int64) if unit in parts else None


def _extract(to: Translator, node: Any) -> pl.Expr:
    found = _part(node.this.name.upper(), to.time(node.expression))
    if found is None:
        fail(node.this, f"EXTRACT has no {node.this.name}: it gives YEAR, QUARTER, MONTH, DAY, HOUR, MINUTE or SECOND")
    return found


def _date_part(unit: str) -> Callable[[Translator, Any], pl.Expr]:
    def translate(to: Translator, node: Any) -> pl.Expr:
        found = _part(unit, to.time(node.this))
        assert found is not None
        return found

    return translate


def _truncate_date(to: Translator, node: Any) -> pl.Expr:
    units = {"YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m"}
    unit = node.args["unit"].name.upper()
    if unit not in units:
        fail(node, f"DATE_TRUNC has no unit {unit}: it knows {', '.join(units)}")
    return to.time(node.this).dt.truncate(units[unit])


def _function(translate: Callable[[Translator, Any], pl.Expr], arguments: str, usage: str) -> Function:
    return Function(translate, frozenset(arguments.split()), usage)


_PLAIN = "this"
_TWO = "this expression"
_MANY = "this expressions"

FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Div: _function(_divide, _TWO, "a / b"),
    exp.SafeDivide: _function(_divide, _TWO, "SAFE_DIVIDE(a, b)"),
    exp.IntDiv: _function(_whole_divide, _TWO, "DIV(a, b)"),
    exp.Mod: _function(_modulo, _TWO, "MOD(a, b)"),
    exp.Abs: _function(_takes_number(pl.Expr.abs), _PLAIN, "ABS(x)"),
    exp.Sign: _function(_takes_number(pl.Expr.sign), _PLAIN, "SIGN(x)"),
    exp.Sqrt: _function(_takes_number(pl.Expr.sqrt), _PLAIN, "SQRT(x)"),
    exp.Exp: _function(_takes_number(pl.Expr.exp), _PLAIN, "EXP(x)"),
    exp.Ln: _function(_takes_number(pl.Expr.log), _PLAIN, "LN(x)"),
    exp.Log: _function(_log, _TWO, "LOG(base, x)"),
    exp.Ceil: _function(_takes_number(pl.Expr.ceil), _PLAIN, "CEIL(x)"),
    exp.Floor: _function(_takes_number(pl.Expr.floor), _PLAIN, "FLOOR(x)"),
    exp.Round: _function(_round, "this decimals", "ROUND(x, decimals)"),
    exp.Pow: _function(
        lambda to, node: to.number(node.this).cast(pl.Float64).pow(to.number(node.expression)), _TWO, "POWER(x, y)"
    ),
    exp.Greatest: _function(_extreme(True), _MANY, "GREATEST(a, b)"),
    exp.Least: _function(_extreme(False), _MANY, "LEAST(a, b)"),
    exp.Upper: _function(_takes_text(lambda x: x.str.to_uppercase()), _PLAIN, "UPPER(text)"),
    exp.Lower: _function(_takes_text(lambda x: x.str.to_lowercase()), _PLAIN, "LOWER(text)"),
    exp.Length: _function(_takes_text(lambda x: x.str.len_chars()), _PLAIN, "LENGTH(text)"),
    exp.Reverse: _function(_takes_text(lambda x: x.str.reverse()), _PLAIN, "REVERSE(text)"),
    exp.Trim: _function(_trim, "this expression position", "TRIM(text)"),
    exp.Substring: _function(_substring, "this start length", "SUBSTR(text, position, length)"),
    exp.Concat: _function(_concat, "expressions", "CONCAT(a, b)"),
    exp.DPipe: _function(_concat, "this expression safe", "a || b"),
    exp.Replace: _function(
        lambda to, node: to.text(node.this).str.replace_all(
            to.text(node.expression), to.text(node.args["replacement"]), literal=True
        ),
        "this expression replacement",
        "REPLACE(text, from, to)",
    ),
    exp.StartsWith: _function(
        _takes_texts(lambda x, y: x.str.starts_with(y), "expression"), _TWO, "STARTS_WITH(text, start)"
    ),
    exp.EndsWith: _function(_takes_texts(lambda x, y: x.str.ends_with(y), "expression"), _TWO, "ENDS_WITH(text, end)"),
    exp.Contains: _function(
        _takes_texts(lambda x, y: x.str.contains(y, literal=True), "expression"), _TWO, "CONTAINS(text, part)"
    ),
    exp.Like: _function(_like, _TWO, "text LIKE 'pattern%'"),
    exp.ILike: _function(_like, _TWO, "text ILIKE 'pattern%'"),
    exp.RegexpLike: _function(_regexp, _TWO, "REGEXP_LIKE(text, 'pattern')"),
    exp.Pad: _function(_pad, "this expression fill_pattern", "LPAD(text, length)"),
    exp.Left: _function(_edge(True), _TWO, "LEFT(text, n)"),
    exp.Right: _function(_edge(False), _TWO, "RIGHT(text, n)"),
    exp.Coalesce: _function(
        lambda to, node: pl.coalesce([to(each) for each in (node.this, *node.expressions)]), _MANY, "COALESCE(a, b)"
    ),
    exp.Nullif: _function(_nullif, _TWO, "NULLIF(a, b)"),
    exp.If: _function(_if, "this true false", "IFF(condition, a, b)"),
    exp.Cast: _function(cast, "this to", "CAST(x AS INT)"),
    exp.TryCast: _function(cast, "this to", "TRY_CAST(x AS INT)"),
    exp.Extract: _function(_extract, _TWO, "EXTRACT(YEAR FROM date)"),
    exp.Year: _function(_date_part("YEAR"), _PLAIN, "YEAR(date)"),
    exp.Month: _function(_date_part("MONTH"), _PLAIN, "MONTH(date)"),
    exp.Day: _function(_date_part("DAY"), _PLAIN, "DAY(date)"),
    exp.DateTrunc: _function(_truncate_date, "this unit", "DATE_TRUNC('month', date)"),
    exp.TimestampTrunc: _function(_truncate_date, "this unit", "DATE_TRUNC('month', date)"),
}
