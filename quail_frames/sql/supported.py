"""What of SQL can be planned: every other construct is listed, with its place and the nearest spelling.

Looks at the syntax only, before anything is translated, so that one error names them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from quail_frames.errors import SqlError
from quail_frames.sql.aggregates import AGGREGATES
from quail_frames.sql.ai import SPELLINGS, read_call
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.functions import FUNCTIONS
from quail_frames.sql.problems import Problem, problem
from quail_frames.sql.scope import conjuncts, unwrapped

_STRUCTURE: dict[type[exp.Expr], str] = {
    exp.Select: "expressions from_ joins where group having order limit offset distinct with_",
    exp.Union: "this expression distinct order limit offset with_",
    exp.Subquery: "this alias order limit offset",
    exp.With: "expressions",
    exp.CTE: "this alias",
    exp.TableAlias: "this columns",
    exp.From: "this",
    exp.Table: "this alias",
    exp.Join: "this on using side kind",
    exp.Where: "this",
    exp.Having: "this",
    exp.Group: "expressions",
    exp.Order: "expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Offset: "expression",
    exp.Distinct: "expressions",
    exp.Star: "except_",
    exp.Column: "this table",
    exp.Alias: "this alias",
    exp.Identifier: "this quoted",
    exp.Exists: "this",
    exp.In: "this expressions query",
    exp.Between: "this low high",
    exp.Is: "this expression",
    exp.Case: "this ifs default",
}
_PLAIN: frozenset[type[exp.Expr]] = frozenset(
    {exp.Literal, exp.Boolean, exp.Null, exp.DataType, exp.Var, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ}
    | {exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Neg}
)
_NOT_IN = "NOT IN (SELECT ...) is never TRUE beside a NULL: write NOT EXISTS (SELECT 1 FROM ... WHERE a.x = b.x)"
_ADVICE: dict[str, str] = {
    "Window": "window functions (OVER) are not planned: aggregate in a subquery with GROUP BY and JOIN it, "
    "or use .over() in Python",
    "qualify": "QUALIFY is not planned: aggregate in a subquery with GROUP BY and JOIN it",
    "Intersect": "INTERSECT is not planned: write WHERE EXISTS (SELECT 1 FROM ... WHERE a.x = b.x)",
    "Except": "EXCEPT is not planned: write WHERE NOT EXISTS (SELECT 1 FROM ... WHERE a.x = b.x)",
    "Lateral": "LATERAL is not planned: explode the column in Python (.explode) and register that frame",
    "Unnest": "UNNEST is not planned: explode the column in Python (.explode) and register that frame",
    "pivots": "PIVOT is not planned: write one SUM(CASE WHEN ... END) for each column",
    "sample": "TABLESAMPLE is not planned: register a sampled frame (.sample)",
    "laterals": "LATERAL is not planned: explode the column in Python (.explode) and register that frame",
    "connect": "CONNECT BY is not planned: compute the hierarchy in Python",
    "recursive": "WITH RECURSIVE is not planned: compute the recursion in Python",
    "on": "DISTINCT ON is not planned: write SELECT DISTINCT, or GROUP BY with MIN(...) or MAX(...)",
    "db": "tables have one name here: register the frame under it and write that name alone",
    "catalog": "tables have one name here: register the frame under it and write that name alone",
    "method": "NATURAL and ASOF joins are not planned: write JOIN ... USING (column)",
    "Cube": "CUBE is not planned: UNION ALL one GROUP BY query for each grouping",
    "Rollup": "ROLLUP is not planned: UNION ALL one GROUP BY query for each grouping",
    "GroupingSets": "GROUPING SETS are not planned: UNION ALL one GROUP BY query for each grouping",
    "all": "GROUP BY ALL is not planned: name the columns",
    "Fetch": "FETCH is not planned: write LIMIT n",
    "Parameter": "parameters are not bound here: put the value into the text, or filter in Python",
    "Placeholder": "parameters are not bound here: put the value into the text, or filter in Python",
    "Interval": "INTERVAL is not planned: compare with a date written as DATE '2024-12-31'",
    "Values": "VALUES is not planned: register a frame with these rows",
    "JSONExtract": "paths into a value are not planned: take the field out in Python first",
    "Dot": "paths into a value are not planned: take the field out in Python first",
    "Bracket": "elements of a list are not planned: take them out in Python first",
    "Filter": "FILTER (WHERE ...) is not planned: write COUNT_IF(condition), or CASE WHEN condition THEN x END inside",
    "WithinGroup": "WITHIN GROUP is not planned: aggregate in Python",
    "GroupConcat": "text aggregates are not planned: aggregate in Python (.str.join)",
    "ArrayAgg": "lists are not planned: aggregate in Python (.implode)",
    "unnest": "IN UNNEST([...]) is not planned: write IN (...)",
    "Any": "= ANY is not planned: write IN (SELECT ...)",
    "All": "comparisons with ALL are not planned: compare with SELECT MAX or MIN in a joined subquery",
    "replace": "* REPLACE is not planned: write * EXCLUDE or * EXCEPT (column) and the new column",
    "rename": "* RENAME is not planned: write the columns with AS",
    "match": "MATCH_RECOGNIZE is not planned",
    "kind": "SELECT AS STRUCT and AS VALUE are not planned: write the columns",
    "Xor": "XOR is not planned: write a <> b",
}


def check_supported(tree: exp.Expr) -> None:
    """Nothing, or one `SqlError` with every construct that cannot be planned."""
    found = list(_problems(tree))
    if found:
        raise SqlError(found)


def _problems(node: exp.Expr) -> Iterator[Problem]:
    kind = type(node)
    known = _known_parts(kind)
    if isinstance(node, AiFunction):
        yield from _call_problems(node)
    elif known is None:
        yield problem(node, _advice(node))
    else:
        yield from _misplaced(node)
        yield from _unknown_parts(node, known)
        for below in _below(node, known):
            yield from _problems(below)


def _known_parts(kind: type[exp.Expr]) -> frozenset[str] | None:
    """The parts of a construct that are planned; None where it is not planned at all."""
    if kind in _STRUCTURE:
        return frozenset(_STRUCTURE[kind].split())
    if kind in FUNCTIONS:
        return FUNCTIONS[kind].arguments
    if kind in AGGREGATES:
        return frozenset({"this"})
    return frozenset(kind.arg_types) if kind in _PLAIN else None


def _below(node: exp.Expr, parts: frozenset[str]) -> Iterator[exp.Expr]:
    for name in node.args.keys() & parts:
        value = node.args[name]
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, exp.Expr):
                yield below


def _call_problems(node: AiFunction) -> Iterator[Problem]:
    try:
        call = read_call(node)
    except SqlError as error:
        yield from error.problems
        return
    for input in call.prompt.inputs:
        yield from _problems(input)


def _misplaced(node: exp.Expr) -> Iterator[Problem]:
    """Problems of a construct that is planned, but not here or not so."""
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        yield from _subquery_test(node)
    elif type(node) in AGGREGATES and _in_row_clause(node):
        yield problem(node, "an aggregate cannot stand in WHERE, ON or GROUP BY: write it in HAVING")
    elif isinstance(node, exp.Select) and not node.expressions:
        yield problem(node, "SELECT names no column: write SELECT *")
    elif isinstance(node, exp.Subquery):
        yield from _subquery_place(node)
    elif isinstance(node, exp.Limit | exp.Offset) and not _whole(node.expression):
        yield problem(node, f"{type(node).__name__.upper()} takes a whole number")
    elif isinstance(node, exp.Join) and node.args.get("using") and node.args.get("side") in ("RIGHT", "FULL"):
        side = node.args["side"]
        message = f"{side} JOIN ... USING is not planned: write ON a.x = b.x, and COALESCE(a.x, b.x) AS x in SELECT"
        yield problem(node.args["using"][0], message)


def _unknown_parts(node: exp.Expr, known: frozenset[str]) -> Iterator[Problem]:
    flags = isinstance(node, exp.Func)  # on functions they say how a dialect reads it, not what was written
    for name, value in node.args.items():
        written = value is not None and value != [] and value is not False and not (flags and isinstance(value, bool))
        if written and name not in known:
            at = value[0] if isinstance(value, list) else value
            at = at if isinstance(at, exp.Expr) else node
            advice = _ADVICE.get(type(at).__name__) or _ADVICE.get(name)
            spelt = f"{name.strip('_').upper()} of {_usage(type(node))}"
            yield problem(at, advice or f"{spelt} is not planned: leave that part out")


def _usage(kind: type[exp.Expr]) -> str:
    if kind in FUNCTIONS:
        return FUNCTIONS[kind].usage
    return AGGREGATES[kind].usage if kind in AGGREGATES else kind.__name__.upper()


def _in_row_clause(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None and not isinstance(above, exp.Select):
        if isinstance(above, exp.Where | exp.Join | exp.Group):
            return True
        above = above.parent
    return False


def _subquery_test(node: exp.Expr) -> Iterator[Problem]:
    """EXISTS and IN (SELECT ...) are joins: they stand alone, or under NOT, as conditions of WHERE."""
    negated = isinstance(node.parent, exp.Not)
    top: Any = node.parent if negated else node
    while isinstance(top.parent, exp.Paren):
        top = top.parent
    where = top.find_ancestor(exp.Where)
    terms = conjuncts(where.this) if where is not None else []
    standing = [unwrapped(term) for term in terms]
    if isinstance(node, exp.In) and negated:
        yield problem(node, _NOT_IN)
    elif not any(term is unwrapped(top) for term in standing):
        name = "EXISTS" if isinstance(node, exp.Exists) else "IN (SELECT ...)"
        yield problem(node, f"{name} stands only in WHERE, joined to its other conditions by AND: split the query")


def _subquery_place(node: exp.Subquery) -> Iterator[Problem]:
    if not isinstance(node.parent, exp.From | exp.Join | exp.In | exp.Union | exp.Subquery | exp.CTE | exp.Exists):
        yield problem(node, "a subquery stands only in FROM, EXISTS or IN: CROSS JOIN it, or join it on its key")


def _whole(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal()


def _advice(node: exp.Expr) -> str:
    if isinstance(node, exp.All) and isinstance(node.parent, exp.NEQ):
        return _NOT_IN  # how Snowflake's NOT IN (SELECT ...) is read
    found = _ADVICE.get(type(node).__name__)
    if found is not None:
        return found
    if isinstance(node, exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        return f"function {name.upper()} is unknown{_nearest_function(name)}"
    return f"{type(node).__name__} is not planned: {node.sql()[:40]!r} has no translation, do this part in Python"


def _nearest_function(name: str) -> str:
    if name.upper().startswith("AI_") or name.upper() == "PROMPT":
        return f": the AI functions are {'; '.join(SPELLINGS.values())}"
    usages = [*(each.usage for each in FUNCTIONS.values()), *(each.usage for each in AGGREGATES.values())]
    by_name = {usage.split("(")[0]: usage for usage in usages if "(" in usage and usage[0].isupper()}
    close = get_close_matches(name.upper(), by_name, n=1, cutoff=0.5)
    return f"; the nearest is {by_name[close[0]]}" if close else "; do this part in Python"
