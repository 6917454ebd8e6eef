"""FROM and WHERE: the tables, their joins, and the rows that pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.lazy.calls import nearest
from quail_frames.lazy.frame import LazyFrame, lazy
from quail_frames.sql.joins import How, Side, joined
from quail_frames.sql.problems import errors_at, fail
from quail_frames.sql.scalars import Translator, family
from quail_frames.sql.scope import Bound, Key, Names, Numbers, Scope, Table, conjuncts, tables_of

Planned = Callable[[exp.Expr], LazyFrame]


@dataclass(frozen=True)
class Source:
    """A table in FROM, its frame, and the join that brings it in (None: the first)."""

    table: Table
    frame: LazyFrame
    join: exp.Join | None = None

    @property
    def side(self) -> Side:
        """The table alone."""
        return Side(self.frame, {(self.table.number, name): name for name in self.table.columns})

    @property
    def how(self) -> str:
        """INNER, LEFT, RIGHT, FULL or CROSS; a comma is CROSS."""
        if self.join is None:
            return "INNER"
        side = (self.join.args.get("side") or "").upper()
        condition = self.join.args.get("on") is not None or self.join.args.get("using")
        return side or ("INNER" if condition else "CROSS")


class Tables:
    """The tables that names in FROM may mean.

    Parameters
    ----------
    names, numbers
        How the dialect compares names; numbers for the tables of this query.
    known
        Registered frames and the results of WITH, by name.
    query
        Plans a subquery.
    """

    def __init__(self, names: Names, numbers: Numbers, known: Mapping[str, LazyFrame], query: Planned) -> None:
        self.names = names
        self.numbers = numbers
        self.known = known
        self.query = query

    def sources(self, select: exp.Select) -> list[Source]:
        """The tables of FROM, in order; one row and no columns where there is no FROM."""
        start = select.args.get("from_")
        if start is None:
            frame = lazy(pl.DataFrame({"": [None]}))
            return [Source(Table(self.numbers.table(None, ()).number, None, ()), frame)]
        found = [self._source(start.this, None)]
        for join in select.args.get("joins") or []:
            found.append(self._source(join.this, join))
            self._check_name(found)
        return [_merged(source, found[:position]) for position, source in enumerate(found)]

    def _source(self, node: exp.Expr, join: exp.Join | None) -> Source:
        alias = node.args.get("alias")
        name = alias.this if alias is not None and alias.this is not None else None
        if isinstance(node, exp.Table):
            frame, name = self._registered(node.this), name or node.this
        elif isinstance(node, exp.Values):
            frame = _of_values(node)
        else:
            frame = self.query(node)
        frame = renamed(frame, alias.args.get("columns") if alias is not None else None)
        return Source(self.numbers.table(name, frame.columns), frame, join)

    def _registered(self, written: exp.Identifier) -> LazyFrame:
        found = [name for name in self.known if self.names.same_table(written, name)]
        exact = [name for name in found if name == written.name]
        if not found:
            advice = nearest(written.name, sorted(self.known)) or "; no table is registered"
            fail(written, f"table {written.name!r} is unknown{advice}")
        if len(found) > 1 and not exact:
            fail(written, f"table {written.name!r} is ambiguous: it may be {' or '.join(map(repr, found))}")
        return self.known[(exact or found)[0]]

    def _check_name(self, found: list[Source]) -> None:
        name = found[-1].table.name
        taken = [source.table.name.name for source in found[:-1] if source.table.name is not None]
        if name is not None and any(self.names.same(name, other) for other in taken):
            fail(name, f"two tables are called {name.name!r}: give one another name with AS")


def _of_values(node: exp.Values) -> LazyFrame:
    """The rows of VALUES, their columns called `column1`, `column2`, ..."""
    translate = Translator(pl.LazyFrame(), {})
    rows: list[pl.DataFrame] = []
    kinds: list[pl.DataType] = []
    for row in node.expressions:
        cells = [translate(cell) for cell in row.expressions]
        if rows and len(cells) != rows[0].width:
            fail(row, f"a row of VALUES has {len(cells)} columns, the first has {rows[0].width}")
        rows.append(pl.select([cell.alias(f"column{number}") for number, cell in enumerate(cells, start=1)]))
        kinds = kinds or rows[0].dtypes
        for cell, kind, above in zip(row.expressions, rows[-1].dtypes, kinds, strict=True):
            if pl.Null not in (kind, above) and family(kind) != family(above):
                fail(cell, f"this is {kind}, and in a row of VALUES above {above}: CAST one of them")
        kinds = [kind if above == pl.Null else above for kind, above in zip(rows[-1].dtypes, kinds, strict=True)]
    with errors_at(node):
        return lazy(pl.concat(rows, how="vertical_relaxed").with_columns(pl.col(pl.Int32).cast(pl.Int64)))


def renamed(frame: LazyFrame, columns: list[exp.Identifier] | None) -> LazyFrame:
    """The frame with its first columns under the names of `AS t (a, b)`."""
    if not columns:
        return frame
    if len(columns) > frame.width:
        fail(columns[-1], f"{len(columns)} names are given for {frame.width} columns")
    names = [column.name for column in columns] + frame.columns[len(columns) :]
    return frame.select([pl.col(old).alias(new) for old, new in zip(frame.columns, names, strict=True)])


def _merged(source: Source, before: Sequence[Source]) -> Source:
    """The source with the columns of USING hidden where a name alone means those of a table before."""
    using = source.join.args.get("using") if source.join is not None else None
    if not using:
        return source
    names = {written.name.casefold() for written in using}
    shared = frozenset(name for name in source.table.columns if name.casefold() in names)
    return replace(source, table=replace(source.table, merged=shared))


def on_terms(scope: Scope, sources: Sequence[Source]) -> list[exp.Expr]:
    """The conditions of the last source's join, bound; `scope` holds these sources."""
    join = sources[-1].join
    assert join is not None
    using = join.args.get("using") or []
    terms = [scope.bind(term) for term in conjuncts(join.args.get("on"))]
    for written in using:
        left, right = _using(scope, written, join)
        terms.append(exp.EQ(this=left, expression=right))
    return terms


def merged_by_using(scope: Scope, sources: Sequence[Source]) -> dict[str, exp.Expr]:
    """What the names in USING of RIGHT and FULL joins mean alone: the value of the side that has one."""
    found: dict[str, exp.Expr] = {}
    seen: set[str] = set()
    for position, source in enumerate(sources, start=1):
        for written in (source.join.args.get("using") or []) if source.join is not None else []:
            name = written.name.casefold()
            outer = source.how in ("RIGHT", "FULL")
            if name in found or (outer and name in seen):
                advice = "write ON a.x = b.x, and COALESCE(a.x, b.x) AS x in SELECT"
                fail(written, f"a column in USING of a RIGHT or FULL JOIN stands in no other USING: {advice}")
            seen.add(name)
            if outer:
                left, right = _using(replace(scope, tables=scope.tables[:position]), written, source.join)
                found[name] = exp.Coalesce(this=left, expressions=[right])
    return found


def _using(scope: Scope, written: exp.Identifier, join: exp.Expr | None) -> tuple[exp.Expr, exp.Expr]:
    """A column of USING in the tables before and in the last one."""
    column = exp.Column(this=written.copy())
    column.parent = join
    earlier = replace(scope, tables=scope.tables[:-1], merged={})
    last = replace(scope, tables=(replace(scope.tables[-1], merged=frozenset()),), merged={})
    return earlier.bind(column), last.bind(column.copy())


def planned_from(sources: Sequence[Source], scope: Scope, where: Sequence[exp.Expr], used: frozenset[Key]) -> Side:
    """The rows of FROM that pass `where`.

    A condition on one table is applied to it before it is joined, as one would write it in Python;
    a condition between tables that a comma or CROSS JOIN brings together is a condition of that join.
    """
    nullable = _nullable(sources)
    waiting = list(where)

    def taken(wanted: Callable[[set[int]], bool]) -> list[exp.Expr]:
        found = [term for term in waiting if tables_of(term) and wanted(tables_of(term))]
        waiting[:] = [term for term in waiting if not any(term is each for each in found)]
        return found

    def start(source: Source) -> Side:
        number = source.table.number
        own = [] if number in nullable else taken(lambda found: found == {number})
        return source.side.filtered(own)

    side = start(sources[0])
    seen = {sources[0].table.number}
    for position, source in enumerate(sources[1:], start=2):
        right = start(source)
        seen.add(source.table.number)
        if source.how == "CROSS":
            terms = taken(lambda found: found <= seen and not found & nullable)
        else:
            terms = on_terms(replace(scope, tables=scope.tables[:position]), sources[:position])
        side = _join(side, right, source, terms, used)
    return side.filtered(waiting)


def _join(left: Side, right: Side, source: Source, terms: list[exp.Expr], used: frozenset[Key]) -> Side:
    name = source.table.name.name if source.table.name is not None else "right"
    at = source.join
    assert at is not None
    how: How = "full" if source.how == "FULL" else "left" if source.how in ("LEFT", "RIGHT") else "inner"
    if source.how == "RIGHT":
        left, right = right, left
    return joined(left, right, how, terms, at, name=name, used=used)


def _nullable(sources: Sequence[Source]) -> set[int]:
    """Numbers of the tables whose columns an outer join may fill with NULL."""
    found: set[int] = set()
    before: set[int] = set()
    for source in sources:
        if source.how in ("RIGHT", "FULL"):
            found |= before
        if source.how in ("LEFT", "FULL"):
            found.add(source.table.number)
        before.add(source.table.number)
    return found


def used_keys(select: exp.Select, scope: Scope, sources: Sequence[Source]) -> frozenset[Key]:
    """Columns that the query names outside ON and USING; all where it says `*`."""
    if any(item.is_star for item in select.expressions):
        tables = [source.table for source in sources]
        return frozenset((table.number, name) for table in tables for name in table.columns if name not in table.merged)
    skipped = {id(below) for source in sources if source.join for below in source.join.walk()}
    columns = [each for each in select.find_all(exp.Column) if id(each) not in skipped and scope.holds(each)]
    found: set[Key] = set()
    for column in columns:
        bound: Any = scope.bind(column)
        found |= {(each.args["table"], each.this) for each in bound.find_all(Bound)}
    return frozenset(found)
