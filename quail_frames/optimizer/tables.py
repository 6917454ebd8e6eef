"""How many rows a plan's node gives, and how long its columns' texts are: propagated from the sources' figures.

Joins on keys follow System R (Selinger et al. 1979): `left * right / max(distinct keys)`. Everything is an expected
value; parts of a predicate are taken as independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from quail_frames.optimizer.join_order import still_there
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.selectivity import pair_share, passing_share
from quail_frames.optimizer.statistics import ColumnFigures
from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    CallUse,
    Concat,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Side,
    Slice,
    Source,
    Step,
    WithColumns,
    inputs,
)
from quail_frames.plan.selectivity import UNKNOWN_SHARE

GROUPS_SHARE = 0.1
"""Groups of a `group_by` for each row, where the keys' distinct values are not known."""


@dataclass(frozen=True)
class Table:
    """Expected rows, and what is known of columns; a column that is missing was not looked at."""

    rows: float
    columns: Mapping[str, ColumnFigures]

    def column(self, name: str) -> ColumnFigures:
        """Figures of a column, assumed where nobody has looked."""
        return self.columns.get(name, ColumnFigures())


def table_of(node: Node, prices: Prices) -> Table:
    """Expected rows and columns of a node."""
    if isinstance(node, Source):
        found = prices.statistics.of(node)
        return Table(found.rows, found.columns)
    if isinstance(node, Join | AskPairs):
        left, right = table_of(node.left, prices), table_of(node.right, prices)
        rows = _joined_rows(node, left, right, prices)
        sides = (left, node.left_names), (right, node.right_names)
        columns = {name: own for side, names in sides for name, own in _repeated(side, names, rows, node).items()}
        return Table(rows, columns)
    if isinstance(node, Concat):
        return _appended([table_of(each, prices) for each in node.inputs])
    return _of_one(node, table_of(node.input, prices), prices)


def _appended(tables: Sequence[Table]) -> Table:
    """Tables one after the other."""
    rows = [table.rows for table in tables]
    known = set(tables[0].columns).intersection(*(table.columns for table in tables))
    return Table(sum(rows), {name: _mixed([table.columns[name] for table in tables], rows) for name in known})


def _mixed(figures: Sequence[ColumnFigures], rows: Sequence[float]) -> ColumnFigures:
    """A column of several tables of so many rows: texts of mean length, and the values of each table."""
    parts = [(each, count, count / max(sum(rows), 1.0)) for each, count in zip(figures, rows, strict=True)]
    known = all(each.tokens is not None for each in figures)
    return ColumnFigures(
        sum(each.mean_tokens * share for each, _, share in parts) if known else None,
        sum(count if each.distinct is None else each.distinct for each, count, _ in parts),
        sum(each.shared * share for each, _, share in parts),
    )


def _of_one(node: Node, below: Table, prices: Prices) -> Table:
    if isinstance(node, Filter):
        return replace(below, rows=below.rows * prod(predicate_share(p, prices) for p in node.predicates))
    if isinstance(node, Ask):
        kept = below.rows * kept_share(node, prices)
        return replace(below, rows=kept if node.limit is None else min(kept, float(node.limit)))
    if isinstance(node, WithColumns | Select):
        made = {name: _made(e, below, prices) for e in node.expressions for name in e.names if not e.calls}
        return replace(below, columns={**below.columns, **made})
    if isinstance(node, Slice):
        left = max(0.0, below.rows - max(node.offset, 0)) if node.offset >= 0 else min(below.rows, -node.offset)
        return replace(below, rows=left if node.length is None else min(left, float(node.length)))
    assert isinstance(node, Project | Step)
    return replace(below, rows=_step_rows(node, below)) if isinstance(node, Step) else below


def predicate_share(predicate: Expression, prices: Prices) -> float:
    """Expected share of rows that pass: by its calls, else as sampled."""
    if predicate.test is not None:
        return passing_share(predicate.test.condition, predicate.calls, prices.seen)
    return prices.statistics.share(predicate)


def kept_share(ask: Ask, prices: Prices) -> float:
    """Expected share of its rows that an `Ask` keeps, its predicates taken as independent."""
    return prod(predicate_share(predicate, prices) for predicate in ask.keep)


def text_figures(expression: Expression, table: Table, prices: Prices) -> ColumnFigures:
    """Tokens of a call's input: those of its column, as sampled, or of all the columns that it reads."""
    if expression.column is not None:
        return table.column(expression.column)
    sampled = prices.statistics.texts.get(expression.key)
    return sampled if sampled is not None else _together(table.column(name) for name in expression.reads or ())


def distinct_inputs(use: CallUse, table: Table, prices: Prices) -> float:
    """Expected different inputs of a call among a table's rows: equal ones are asked once."""
    figures = [text_figures(text, table, prices) for text in use.inputs]
    return distinct_among(figures, table.rows)


def distinct_among(figures: Iterable[ColumnFigures], rows: float) -> float:
    """Different combinations among so many rows; at most the product of what each column has."""
    product = 1.0
    for each in figures:
        product *= rows if each.distinct is None else max(each.distinct, 1.0)
        if product >= rows:
            return rows
    return min(product, rows)


def candidate_pairs(node: AskPairs, left: Table, right: Table, prices: Prices) -> float:
    """Expected pairs that keys and `where` leave to be asked."""
    pairs = left.rows * right.rows
    for own, other in node.keys:
        pairs /= max(distinct_keys(left, own.column), distinct_keys(right, other.column), 1.0)
    return pairs * prod(prices.statistics.share(predicate) for predicate in node.where)


def distinct_keys(table: Table, column: str | None) -> float:
    """Different values of a key; without figures, or computed, it is taken for a key of its table."""
    figures = table.columns.get(column) if column is not None else None
    return table.rows if figures is None or figures.distinct is None else min(figures.distinct, table.rows)


def partnered_share(join: Join, side: Side, left: Table, right: Table, prices: Prices) -> float:
    """Expected share of a side's rows that find a partner: the values of its key that the other side still has.

    The key of fewer values is taken to be contained in the other (Selinger et al. 1979). Where the keys' values are not
    known, the other side is taken to have had a partner for every row before it was reduced, and half of them where
    nothing reduced it but the join only asks whether there is one.
    """
    own, other = (left, right) if side == "left" else (right, left)
    below = join.right if side == "left" else join.left
    left_over = min(1.0, other.rows / max(_source_rows(below, prices), 1.0))
    shares = []
    for pair in join.detail or ():
        ours, theirs = (each.column for each in (pair if side == "left" else pair[::-1]))
        if ours in own.columns and theirs in other.columns:
            shares.append(min(1.0, _values_left(other, theirs, left_over) / max(distinct_keys(own, ours), 1.0)))
    if shares:
        return min(shares)
    return UNKNOWN_SHARE if left_over == 1.0 and join.how in ("semi", "anti") else left_over


def _values_left(table: Table, column: str, left_over: float) -> float:
    """Expected values of a key where so much of the rows is left: a value of n rows goes with the last of them."""
    distinct = table.columns[column].distinct
    if distinct is None or left_over <= 0:
        return table.rows
    each = max(1.0, table.rows / left_over / max(distinct, 1.0))
    return min(table.rows, distinct * (1 - (1 - left_over) ** each))


def _source_rows(node: Node, prices: Prices) -> float:
    while not isinstance(node, Source):
        node = inputs(node)[0]
    return prices.statistics.of(node).rows


def _joined_rows(node: Join | AskPairs, left: Table, right: Table, prices: Prices) -> float:
    if isinstance(node, AskPairs):
        share = pair_share(node.call)
        pairs = candidate_pairs(node, left, right, prices)
        each = pairs / left.rows if left.rows else 0.0
        alone = (1 - share) ** each
        found = {"inner": pairs * share, "left": pairs * share + left.rows * alone}
        return found.get(node.how, left.rows * (alone if node.how == "anti" else 1 - alone))
    if node.how == "cross":
        return left.rows * right.rows
    if node.how in ("semi", "anti"):
        share = partnered_share(node, "left", left, right, prices)
        return left.rows * (share if node.how == "semi" else 1 - share)
    return {"left": left.rows, "right": right.rows}.get(node.how, max(left.rows, right.rows))


def _repeated(
    side: Table, names: tuple[tuple[str, str], ...], rows: float, node: Join | AskPairs
) -> dict[str, ColumnFigures]:
    """Figures of a side's columns behind the join, which repeats rows and may have lost some."""
    found = {}
    for name, after in names:
        if name in side.columns:
            own = side.columns[name]
            different = side.rows if own.distinct is None else min(own.distinct, side.rows)
            if isinstance(node, AskPairs) and node.how == "inner":
                own = replace(own, distinct=still_there(different, rows / max(pair_share(node.call), 1e-9), rows))
            elif rows > side.rows:
                own = replace(own, distinct=different)
            found[after] = own
    return found


def _made(expression: Expression, below: Table, prices: Prices) -> ColumnFigures:
    """Figures of a column that an expression makes; how many of its values differ is not known."""
    return text_figures(expression, below, prices)


def _together(columns: Iterable[ColumnFigures]) -> ColumnFigures:
    known = list(columns)
    return ColumnFigures(sum(each.mean_tokens for each in known)) if known else ColumnFigures()


def _step_rows(step: Step, below: Table) -> float:
    if step.name == "group_by":
        keys = [e.column for e in step.expressions[: (step.detail or {}).get("keys", 0)]]
        if keys and all(key is not None and below.column(key).distinct is not None for key in keys):
            return distinct_among([below.column(key) for key in keys if key is not None], below.rows)
        return max(1.0, below.rows * GROUPS_SHARE)
    if step.name == "unique" and step.reads and all(name in below.columns for name in step.reads):
        return distinct_among([below.columns[name] for name in step.reads], below.rows)
    return below.rows
