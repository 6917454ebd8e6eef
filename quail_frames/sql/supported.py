"""What of SQL can be planned: every other construct is listed, with its place and the nearest spelling.

Looks at the syntax only, before anything is translated, so that one error names them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from quail_frames.errors import SqlError
from quail_frames.sql.aggregates import AGGREGATES, aggregates_in
from quail_frames.sql.ai import SPELLINGS, read_call
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.functions import FUNCTIONS
from quail_frames.sql.problems import Problem, problem
from quail_frames.sql.scope import conjuncts, unwrapped
from quail_frames.sql.subqueries import gives_one_row, is_scalar, not_in_query
from quail_frames.sql.windows import RANKS, problem_of

_STRUCTURE: dict[type[exp.Expr], str] = {
    exp.Select: "expressions from_ joins where group having qualify windows order limit offset distinct with_",
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
    exp.Qualify: "this",
    exp.Window: "this partition_by order spec over alias",
    exp.WindowSpec: "kind start start_side end end_side",
    exp.Values: "expressions alias",
    exp.Tuple: "expressions",
    exp.All: "this",
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
_ADVICE: dict[str, str] = {
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
    elif known is None or (isinstance(node, exp.All) and not _not_all(node)):
        yield problem(node, _advice(node))
    elif type(node) in RANKS and type(node.parent) is not exp.Window:
        name = node.sql().split("(")[0]
        yield problem(node, f"{name} ranks by an order: write {name}() OVER (... ORDER BY ...)")
    else:
        yield from _misplaced(node)
        yield from _unknown_parts(node, known)
        for below in _below(node, known - {"windows"}):
            if not (isinstance(node, exp.Window) and below is node.this and problem_of(node) is not None):
                yield from _problems(below)


def _known_parts(kind: type[exp.Expr]) -> frozenset[str] | None:
    """The parts of a construct that are planned; None where it is not planned at all."""
    if kind in _STRUCTURE:
        return frozenset(_STRUCTURE[kind].split())
    if kind in FUNCTIONS:
        return FUNCTIONS[kind].arguments
    if kind in AGGREGATES:
        return frozenset({"this"})
    if kind in RANKS:
        return frozenset()
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
    if isinstance(node, exp.Exists | exp.All) or (isinstance(node, exp.In) and node.args.get("query")):
        yield from _subquery_test(node)
    elif type(node) in AGGREGATES and _in_row_clause(node) and type(node.parent) is not exp.Window:
        yield problem(node, "an aggregate cannot stand in WHERE, ON or GROUP BY: write it in HAVING")
    elif isinstance(node, exp.Select) and not node.expressions:
        yield problem(node, "SELECT names no column: write SELECT *")
    elif isinstance(node, exp.Subquery):
        yield from _subquery_place(node)
    elif isinstance(node, exp.Window):
        yield from _window(node)
    elif isinstance(node, exp.Tuple) and not isinstance(node.parent, exp.Values):
        yield problem(node, "a list of values stands only in VALUES, IN and a prompt: compare the values one by one")
    elif isinstance(node, exp.Limit | exp.Offset) and not _whole(node.expression):
        yield problem(node, f"{type(node).__name__.upper()} takes a whole number")


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
    top = _bracketed(node)
    if isinstance(top.parent, exp.Not | exp.NEQ):
        top = _bracketed(top.parent)
    where = top.find_ancestor(exp.Where)
    terms = conjuncts(where.this) if where is not None else []
    standing = [unwrapped(term) for term in terms]
    negated = not_in_query(top)
    if negated is not None and negated[1].find(AiFunction) is not None:
        advice = "write NOT EXISTS (SELECT 1 FROM ... WHERE a.x = b.x)"
        yield problem(node, f"NOT IN (SELECT ...) reads its query twice, and this one asks a model: {advice}")
    elif not any(term is unwrapped(top) for term in standing):
        names: dict[type[exp.Expr], str] = {exp.Exists: "EXISTS", exp.All: "NOT IN (SELECT ...)"}
        name = names.get(type(node), "IN (SELECT ...)")
        yield problem(node, f"{name} stands only in WHERE, joined to its other conditions by AND: split the query")


def _bracketed(node: Any) -> Any:
    """The node with the brackets around it."""
    return _bracketed(node.parent) if isinstance(node.parent, exp.Paren) else node


def _subquery_place(node: exp.Subquery) -> Iterator[Problem]:
    if not is_scalar(node):
        return
    clause = node.find_ancestor(
        exp.Where, exp.Having, exp.Qualify, exp.Group, exp.Order, exp.Join, exp.Window, exp.Select
    )
    if not isinstance(clause, exp.Where | exp.Select):
        yield problem(node, "a subquery is a value in SELECT and WHERE only: CROSS JOIN it, or join it on its key")
    elif isinstance(clause, exp.Select) and any(True for each in clause.expressions for _ in aggregates_in(each)):
        yield problem(node, "a subquery stands beside an aggregate: aggregate in WITH, and CROSS JOIN this one to it")
    elif not gives_one_row(node.this):
        yield problem(
            node,
            "a subquery is a value where it aggregates all its rows, (SELECT MAX(x) FROM t): CROSS JOIN "
            "it, or join it on its key",
        )


def _window(node: exp.Window) -> Iterator[Problem]:
    why = problem_of(node)
    clause = node.find_ancestor(exp.Where, exp.Having, exp.Group, exp.Order, exp.Join, exp.Qualify, exp.Select)
    if why is not None:
        yield problem(node, why)
    elif not isinstance(clause, exp.Select | exp.Qualify):
        yield problem(node, "a window function stands in SELECT and QUALIFY only: name it there, and use the name")


def _not_all(node: exp.All) -> bool:
    """Whether it is how Snowflake's NOT IN (SELECT ...) is read."""
    return isinstance(node.parent, exp.NEQ) and node.parent.expression is node


def _whole(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal() and int(node.this) < 1 << 63


def _advice(node: exp.Expr) -> str:
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
