"""A lazy frame's steps as SQL: the way back of `quail_frames.sql.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from quail_frames.errors import PlanError
from quail_frames.lazy.discovery import tree_of
from quail_frames.lazy.frame import LazyFrame
from quail_frames.plan.logical import (
    AskPairs,
    Concat,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Slice,
    Source,
    Step,
    WithColumns,
    columns,
)
from quail_frames.sql.dialects import DialectName, check_dialect
from quail_frames.sql.spelling import Speller, quoted


@dataclass(frozen=True)
class Query:
    """One SELECT in the making; `items` empty means `*`."""

    source: str
    where: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    rows: str = ""
    distinct: bool = False

    def text(self) -> str:
        """The statement, a clause a line."""
        lines = [f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(self.items) or '*'}", f"FROM {self.source}"]
        lines += [f"WHERE {' AND '.join(self.where)}"] if self.where else []
        lines += [f"GROUP BY {', '.join(self.group)}"] if self.group else []
        lines += [f"ORDER BY {', '.join(self.order)}"] if self.order else []
        return "\n".join([*lines, *([self.rows] if self.rows else [])])


def to_sql(frame: LazyFrame, dialect: DialectName = "snowflake", tables: Mapping[str, LazyFrame] | None = None) -> str:
    """The frame's steps, as written, as one SELECT; see `LazyFrame.to_sql`."""
    for name, table in (tables or {}).items():
        if not isinstance(table, LazyFrame):
            raise PlanError(
                f"to_sql({name}=...) takes the lazy frame that the query started from, and this is a "
                f"{type(table).__name__}: write {name} = qf.lazy({name}) first, and start the query from it."
            )
    named = {id(table._plan): name for name, table in (tables or {}).items()}
    return _Writer(check_dialect(dialect), named).query(frame._plan).text()


class _Writer:
    def __init__(self, dialect: DialectName, tables: dict[int, str]) -> None:
        self.dialect = dialect
        self.tables = tables
        self.numbers = count(1)
        self.unnamed = (name for number in count(1) if (name := f"t{number}") not in tables.values())

    def query(self, node: Node) -> Query:
        """The statement of a node and all below it."""
        write = {
            Source: self._source,
            Filter: self._filter,
            WithColumns: self._with_columns,
            Select: self._select,
            Project: self._project,
            Slice: self._slice,
            Step: self._step,
            Join: self._join,
            AskPairs: self._ask_pairs,
            Concat: self._concat,
        }.get(type(node))
        if write is None:
            raise PlanError(
                f"SQL cannot say the step {type(node).__name__}: write SQL of the frame before it is planned"
            )
        return write(node)  # type: ignore[operator]

    def _name(self, name: str) -> str:
        return quoted(name, self.dialect)

    def _source(self, node: Source) -> Query:
        if id(node) not in self.tables:
            self.tables[id(node)] = next(self.unnamed)
        return Query(self._name(self.tables[id(node)]))

    def _below(self, node: Node, *clauses: str) -> Query:
        """The statement of a node, as a subquery where it has one of these clauses already."""
        query = self.query(node)
        if not any(getattr(query, clause) for clause in clauses):
            return query
        return Query(self._table(query, f"q{next(self.numbers)}"))

    def _table(self, query: Query, alias: str) -> str:
        if query == Query(query.source):
            return f"{query.source} AS {alias}"
        indented = query.text().replace("\n", "\n  ")
        return f"(\n  {indented}\n) AS {alias}"

    def _spell(self, expression: Expression, *, rows: bool = True) -> str:
        if rows and not expression.row_local:
            raise PlanError(f"SQL cannot say {expression.text} here: it looks at other rows")
        return Speller(self.dialect, self._name)(expression)

    # Rows and columns ---------------------------------------------------------------------

    def _filter(self, node: Filter) -> Query:
        query = self._below(node.input, "items", "group", "rows", "distinct")
        return replace(query, where=(*query.where, *map(self._spell, node.predicates)))

    def _with_columns(self, node: WithColumns) -> Query:
        query = self._below(node.input, "items", "group", "order", "rows", "distinct")
        new = {name for expression in node.expressions for name in expression.names}
        if not new & set(columns(node.input)):
            return replace(query, items=("*", *self._items(node.expressions)))
        items = dict(zip([each.names[0] for each in node.expressions], self._items(node.expressions), strict=True))
        kept = (items.pop(name, self._name(name)) for name in columns(node.input))
        return replace(query, items=(*kept, *items.values()))

    def _select(self, node: Select) -> Query:
        query = self._below(node.input, "items", "group", "order", "rows", "distinct")
        aggregated = [not each.row_local for each in node.expressions]
        if any(aggregated) and not all(aggregated):
            raise PlanError("SQL cannot say a selection of aggregates beside columns: aggregate first, then join")
        if not any(aggregated) and not any(each.needs for each in node.expressions):
            raise PlanError("SQL cannot say a selection of constants: it has one row here and one for each row there")
        return replace(query, items=tuple(self._items(node.expressions, rows=False)))

    def _items(self, expressions: Sequence[Expression], *, rows: bool = True) -> list[str]:
        """The columns as SELECT items; a label and its probabilities are one item."""
        items: list[str] = []
        waiting: str | None = None
        for expression in expressions:
            name = expression.names[0] if expression.names else expression.body.meta.output_name()
            part = _struct_field(expression)
            if part == "probabilities" and waiting is not None and name == f"{waiting}_probabilities":
                waiting = None
                continue
            if part == "probabilities" or waiting is not None:
                raise PlanError("SQL cannot say a label or its probabilities alone: keep both columns, side by side")
            waiting = name if part == "label" else None
            text = self._spell(expression, rows=rows)
            items.append(text if expression.column == name else f"{text} AS {self._name(name)}")
        if waiting is not None:
            raise PlanError("SQL cannot say a label without its probabilities: keep both columns, side by side")
        return items

    def _project(self, node: Project) -> Query:
        query = self._below(node.input, "items", "group", "order", "rows", "distinct")
        return replace(query, items=tuple(map(self._name, node.columns)))

    def _slice(self, node: Slice) -> Query:
        query = self._below(node.input, "rows")
        words = [] if node.length is None else [f"LIMIT {node.length}"]
        return replace(query, rows=" ".join([*words, *([f"OFFSET {node.offset}"] if node.offset else [])]))

    # Steps --------------------------------------------------------------------------------

    def _step(self, node: Step) -> Query:
        detail: Mapping[str, Any] | None = node.detail
        if detail is not None and node.name == "sort":
            query = self._below(node.input, "order", "rows")
            return replace(query, order=tuple(self._order(node.expressions, detail)))
        if detail is not None and node.name == "unique":
            whole = set(detail["names"]) == set(node.columns) and detail["options"].get("keep", "any") == "any"
            if whole:
                return replace(self._below(node.input, "order", "rows", "distinct"), distinct=True)
        if detail is not None and node.name == "group_by":
            query = self._below(node.input, "items", "group", "order", "rows", "distinct")
            keys = [self._spell(each) for each in node.expressions[: detail["keys"]]]
            return replace(query, items=tuple(self._items(node.expressions, rows=False)), group=tuple(keys))
        raise PlanError(f"SQL cannot say the step {node.text}: take it out, or do it after the query")

    def _order(self, keys: Sequence[Expression], options: Mapping[str, Any]) -> list[str]:
        flags = [options.get("descending", False), options.get("nulls_last", False)]
        listed = [flag if isinstance(flag, list | tuple) else [flag] * len(keys) for flag in flags]
        words = []
        for key, descending, nulls_last in zip(keys, *listed, strict=True):
            usual = descending == (self.dialect == "bigquery")  # where the dialect puts nulls
            nulls = "" if usual == nulls_last else f" NULLS {'LAST' if nulls_last else 'FIRST'}"
            words.append(f"{self._spell(key)}{' DESC' if descending else ''}{nulls}")
        return words

    def _concat(self, node: Concat) -> Query:
        parts = [self._below(each, "order", "rows").text() for each in node.inputs]
        indented = "\nUNION ALL\n".join(parts).replace("\n", "\n  ")
        return Query(f"(\n  {indented}\n) AS q{next(self.numbers)}")

    # Joins --------------------------------------------------------------------------------

    def _join(self, node: Join) -> Query:
        if node.detail is None or node.how not in ("inner", "left", "cross", "semi", "anti"):
            raise PlanError(
                f"SQL cannot say the step {node.text}: use an inner, left, semi, anti or cross join by keys"
            )
        return self._joined(node, node.how, node.detail, ())

    def _ask_pairs(self, node: AskPairs) -> Query:
        if node.anchor is not None:
            raise PlanError("SQL cannot say which side of an AI join is the anchor: leave anchor to 'auto'")

        def condition(left: str, right: str) -> str:
            sides = {"left": left, "right": right}
            inputs = [f"{sides[side]}.{self._name(name)}" for side, name in node.slots]
            return Speller(self.dialect, self._name).call(node.call, inputs)

        return self._joined(node, node.how, node.keys, (condition,))

    def _joined(self, node: Any, how: str, keys: Any, asked: tuple[Any, ...]) -> Query:
        left, right = f"a{next(self.numbers)}", f"a{next(self.numbers)}"
        sources = self._table(self.query(node.left), left), self._table(self.query(node.right), right)
        on_left = Speller(self.dialect, lambda name: f"{left}.{self._name(name)}")
        on_right = Speller(self.dialect, lambda name: f"{right}.{self._name(name)}")
        terms = [f"{on_left(a)} = {on_right(b)}" for a, b in keys]
        terms += self._where(node, left, right)
        terms += [condition(left, right) for condition in asked]
        if how in ("semi", "anti"):
            test = f"{'NOT ' if how == 'anti' else ''}EXISTS (SELECT 1 FROM {sources[1]} WHERE {' AND '.join(terms)})"
            return Query(sources[0], where=(test,))
        kept = [f"{left}.{self._name(name)}" for name, _ in node.left_names]
        for name, after in node.right_names:
            own = f"{right}.{self._name(name)}"
            kept.append(own if name == after else f"{own} AS {self._name(after)}")
        word = {"inner": "JOIN", "left": "LEFT JOIN", "cross": "CROSS JOIN"}[how]
        condition = f" ON {' AND '.join(terms)}" if terms else ""
        return Query(f"{sources[0]} {word} {sources[1]}{condition}", items=tuple(kept))

    def _where(self, node: Any, left: str, right: str) -> list[str]:
        """The column conditions of an AI join."""
        if not isinstance(node, AskPairs):
            return []
        own = {after: name for name, after in node.where_names}

        def column(name: str) -> str:
            return f"{right}.{self._name(own[name])}" if name in own else f"{left}.{self._name(name)}"

        return list(map(Speller(self.dialect, column), node.where))


def _struct_field(expression: Expression) -> str | None:
    """`label` or `probabilities` where the expression is that part of a classification."""
    tree = tree_of(expression.body)
    while isinstance(tree, dict) and "Alias" in tree:
        tree = tree["Alias"][0]
    function = tree.get("Function") if isinstance(tree, dict) else None
    if not function or not isinstance(function["function"], dict) or "StructExpr" not in function["function"]:
        return None
    part = function["function"]["StructExpr"]
    return str(part["FieldByName"]) if isinstance(part, dict) and "FieldByName" in part and expression.calls else None
