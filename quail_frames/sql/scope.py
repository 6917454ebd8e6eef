"""Which column a name means: tables in scope, and expressions whose columns are bound to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from sqlglot import exp

from quail_frames.lazy.calls import nearest
from quail_frames.sql.dialects import DialectName
from quail_frames.sql.problems import fail


class Bound(exp.Expression):
    """A column whose table is known: `table` is that table's number in the query, `this` the column's own name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": True}


class Field(exp.Expression):
    """Field `field` of the struct that the AI function `this` gives."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "field": True}


Key = tuple[int, str]


@dataclass(frozen=True)
class Table:
    """A table in FROM: its number in the query, its name there, and its columns.

    `merged` are the columns that USING made one with a column of a table before.
    """

    number: int
    name: exp.Identifier | None
    columns: tuple[str, ...]
    merged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Names:
    """When two names are the same, as the dialect says."""

    dialect: DialectName

    def same(self, written: exp.Identifier, name: str) -> bool:
        """Columns and aliases: without regard to case, but Snowflake's quoted names exactly."""
        exact = self.dialect == "snowflake" and written.args.get("quoted")
        return written.name == name if exact else written.name.casefold() == name.casefold()

    def same_table(self, written: exp.Identifier, name: str) -> bool:
        """Tables: BigQuery minds their case, quoted or not."""
        return written.name == name if self.dialect == "bigquery" else self.same(written, name)


@dataclass(frozen=True)
class Scope:
    """The tables whose columns an expression may name."""

    names: Names
    tables: tuple[Table, ...] = ()
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Names of SELECT items and what they stand for, bound already."""
    aliases_first: bool = False
    outer: Scope | None = None
    """The scope around a subquery."""
    merged: Mapping[str, exp.Expr] = field(default_factory=dict)
    """What a name alone means that USING of a RIGHT or FULL JOIN made one, by the name in lower case."""

    def bind(self, node: exp.Expr) -> Any:
        """A copy of the expression with every column bound; queries inside it stay as they are.

        Raises
        ------
        SqlError
            A column is unknown or ambiguous.
        """
        if isinstance(node, exp.Column):
            return self._bound(node)
        copied = node.copy()
        copied.parent = node.parent  # errors find their place in the query through it
        for column in list(_columns(copied)):
            column.replace(self._bound(column))
        return copied

    def holds(self, column: exp.Column) -> bool:
        """Whether exactly one column of these tables is meant."""
        return len(self._matches(column)) == 1

    def _bound(self, column: exp.Column) -> exp.Expr:
        found = self._matches(column)
        alias = None if column.table else self._alias(column.this)
        if alias is not None and (self.aliases_first or not found):
            return alias.copy()
        if not found and self.outer is not None:
            return self.outer._bound(column)
        merged = None if column.table else self.merged.get(column.name.casefold())
        if merged is not None and found:
            return merged.copy()
        if not found:
            fail(column, self._unknown(column))
        if len(found) > 1:
            options = [f"{table.name}.{name}" if table.name else repr(name) for table, name in found]
            fail(column, f"column {column.name!r} is ambiguous: write {' or '.join(options)}")
        ((table, name),) = found
        bound = Bound(this=name, table=table.number)
        bound.meta.update(column.meta)
        bound.meta.update(column.this.meta)
        return bound

    def _matches(self, column: exp.Column) -> list[tuple[Table, str]]:
        written = column.this
        qualifier = column.args.get("table")
        tables = [table for table in self.tables if qualifier is None or self._is(table, qualifier)]
        found = [(table, name) for table in tables for name in table.columns if self.names.same(written, name)]
        return [(table, name) for table, name in found if qualifier is not None or name not in table.merged]

    def _is(self, table: Table, qualifier: exp.Identifier) -> bool:
        return table.name is not None and self.names.same(qualifier, table.name.name)

    def table(self, qualifier: exp.Identifier) -> Table:
        """The table of this name, or a `SqlError`."""
        for table in self.tables:
            if self._is(table, qualifier):
                return table
        known = [table.name.name for table in self.tables if table.name is not None]
        fail(qualifier, f"no table {qualifier.name!r} stands in FROM{nearest(qualifier.name, known)}")

    def _alias(self, written: exp.Identifier) -> exp.Expr | None:
        return next((node for name, node in self.aliases.items() if self.names.same(written, name)), None)

    def _unknown(self, column: exp.Column) -> str:
        qualifier = column.args.get("table")
        tables = [self.table(qualifier)] if qualifier is not None else list(self.tables)
        known = [name for table in tables for name in table.columns]
        where = f" of table {qualifier.name!r}" if qualifier is not None else ""
        return f"column {column.name!r}{where} is unknown{nearest(column.name, known)}"


class Numbers:
    """Numbers for the tables of one query."""

    def __init__(self) -> None:
        self._next = count()

    def table(self, name: exp.Identifier | None, columns: Iterable[str]) -> Table:
        """A table with a number of its own."""
        return Table(next(self._next), name, tuple(columns))


def _columns(node: exp.Expr) -> Iterator[exp.Column]:
    for below in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(below, exp.Column):
            yield below


def keys(node: exp.Expr) -> set[Key]:
    """The columns that a bound expression reads."""
    return {(bound.args["table"], bound.this) for bound in node.find_all(Bound)}


def tables_of(node: exp.Expr) -> set[int]:
    """Numbers of the tables that a bound expression reads."""
    return {number for number, _ in keys(node)}


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The terms of the top-level AND."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts(node.this)
    return [*conjuncts(node.this), *conjuncts(node.expression)] if isinstance(node, exp.And) else [node]


def unwrapped(node: Any) -> Any:
    """The expression without brackets around it."""
    return unwrapped(node.this) if isinstance(node, exp.Paren) else node


def unique_name(wanted: str, taken: Sequence[str] | set[str]) -> str:
    """`wanted`, or the first of `wanted_2`, `wanted_3`, … that is not taken."""
    names = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
    return next(name for name in names if name not in taken)
