"""Snowflake's and BigQuery's SQL with AI functions: text in, syntax tree out.

sqlglot's BigQuery reads `AI.IF(...)` as its own IF; here every `AI.NAME(` is one function
name before the parser sees it, and the three AI functions have a node of their own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.bigquery import BigQuery
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.snowflake import Snowflake
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.bigquery import BigQueryParser
from sqlglot.parsers.snowflake import SnowflakeParser

from quail_frames.errors import SqlError
from quail_frames.sql.problems import fail, mark_places

DialectName = Literal["snowflake", "bigquery"]

AI_NAMES = {
    "AI_FILTER": "IF",
    "AI_IF": "IF",
    "AI_CLASSIFY": "CLASSIFY",
    "AI_SCORE": "SCORE",
}
"""Function names as the parser sees them, and the kind of call each stands for."""


class AiFunction(exp.Expression):
    """An AI function: `this` is IF, CLASSIFY or SCORE, `expressions` its arguments as written."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


_BUILDERS = {name: lambda args, kind=kind: AiFunction(this=kind, expressions=args) for name, kind in AI_NAMES.items()}


def _joined_ai_names(tokens: list[Token]) -> list[Token]:
    """`AI`, `.`, `IF`, `(` as `AI_IF`, `(`."""
    joined: list[Token] = []
    position = 0
    while position < len(tokens):
        here = tokens[position : position + 4]
        if len(here) == 4 and _is_ai_name(here):
            first, _, name, _ = here
            text = f"AI_{name.text.upper()}"
            joined.append(Token(TokenType.VAR, text, name.line, name.col, first.start, name.end, first.comments))
            position += 3
        else:
            joined.append(tokens[position])
            position += 1
    return joined


def _is_ai_name(tokens: list[Token]) -> bool:
    ai, dot, name, bracket = tokens
    kinds = dot.token_type is TokenType.DOT and bracket.token_type is TokenType.L_PAREN
    return kinds and ai.token_type is TokenType.VAR and ai.text.upper() == "AI" and name.text.isidentifier()


class _Quiet:
    """A parser that leaves it to `parse` to say what is not a query."""

    def _warn_unsupported(self) -> None:
        """Log nothing: such a statement is an error of ours."""


class SnowflakeAi(Snowflake):
    """Snowflake's SQL with AI functions."""

    class Parser(_Quiet, SnowflakeParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {**SnowflakeParser.FUNCTIONS, **_BUILDERS}

    def tokenize(self, *args: Any, **options: Any) -> list[Token]:
        return _joined_ai_names(super().tokenize(*args, **options))


class BigQueryAi(BigQuery):
    """BigQuery's SQL with AI functions."""

    class Parser(_Quiet, BigQueryParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {**BigQueryParser.FUNCTIONS, **_BUILDERS}

    def tokenize(self, *args: Any, **options: Any) -> list[Token]:
        return _joined_ai_names(super().tokenize(*args, **options))


_DIALECTS: dict[str, type[Dialect]] = {"snowflake": SnowflakeAi, "bigquery": BigQueryAi}


def check_dialect(dialect: str) -> DialectName:
    """The dialect's name, or a `ValueError` that lists the known ones."""
    if dialect not in _DIALECTS:
        raise ValueError(f"dialect {dialect!r} is unknown: it is {' or '.join(map(repr, get_args(DialectName)))}")
    return dialect  # type: ignore[return-value]


def parse(text: str, dialect: DialectName) -> exp.Expr:
    """The one statement of the text.

    Raises
    ------
    SqlError
        The text is no SQL, or not exactly one query.

    Examples
    --------
    >>> tree = parse("SELECT AI.IF(PROMPT('Is {0} spam?', body), {'selectivity': 0.25}) FROM mail", "bigquery")
    >>> tree.expressions[0].this
    'IF'
    """
    try:
        statements = [tree for tree in _DIALECTS[dialect]().parse(text) if tree is not None]
    except ParseError as error:
        found = error.errors[0]
        column = max((found["col"] or 1) - len(found["highlight"] or "x") + 1, 1)
        raise SqlError([(found["line"] or 1, column, _said(found))]) from error
    except TokenError as error:
        raise SqlError([(1, 1, f"the text cannot be read as SQL: {str(error).splitlines()[0]}")]) from error
    if len(statements) != 1:
        raise SqlError([(1, 1, f"one SELECT statement is wanted, the text holds {len(statements)}")])
    (tree,) = statements
    mark_places(tree, text)
    if not isinstance(tree, exp.Query):
        fail(tree, f"only queries (SELECT, WITH) can be planned, not {tree.key.upper()}: do the rest in Python")
    for change in (_plain_label, _spelt_not, _plain_text):
        tree = tree.transform(change, copy=False)
    return tree


def _plain_text(node: exp.Expr) -> exp.Expr:
    """A text written `r'...'` or `$$...$$` as any other."""
    if not isinstance(node, exp.RawString):
        return node
    text = exp.Literal.string(node.this)
    text.meta.update(node.meta)
    return text


def _said(found: dict[str, Any]) -> str:
    reason = found["description"].split(" but got ")[0].rstrip(". ")
    return f"{reason} near {found['highlight']!r}: check the spelling here" if found.get("highlight") else reason


def _plain_label(node: exp.Expr) -> exp.Expr:
    """Snowflake's ways to take the label out of its answer object, as the label itself."""
    if isinstance(node, exp.JSONExtract) and _is_classify(node.this):
        path = node.expression
        keys = [part.this for part in path.expressions[1:]] if isinstance(path, exp.JSONPath) else []
        return node.this if keys in (["labels", 0], ["label"]) else node
    if isinstance(node, exp.Bracket) and isinstance(node.this, exp.Bracket) and _is_classify(node.this.this):
        keys = [key.name for each in (node.this, node) for key in each.expressions]
        return node.this.this if keys == ["labels", "0"] else node
    if isinstance(node, exp.Cast) and node.to.is_type("text", "varchar"):
        inner = _plain_label(node.this)
        return inner if _is_classify(inner) else node
    return node


def _spelt_not(node: exp.Expr) -> exp.Expr:
    """`NOT LIKE` as a flag, which sqlglot sets in BigQuery, as NOT around it."""
    if not node.args.get("negate"):
        return node
    node.set("negate", None)
    return exp.Not(this=node)


def _is_classify(node: Any) -> bool:
    return isinstance(node, AiFunction) and node.this == "CLASSIFY"
