"""A chain of AI joins as the dynamic programme's problem, and the plan that is taken for it.

Order, anchors and resident texts are decided together; a plan whose rows come only when all are known (another order,
or a right anchor) has to save a fifth of one that streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from quail_frames.optimizer.join_chain import ChainJoin, JoinChain
from quail_frames.optimizer.join_order import Form, JoinPlan, Joins, Known, Question, Text, best_plan
from quail_frames.optimizer.pairs import asked_below
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.selectivity import pair_share
from quail_frames.optimizer.tables import Table, distinct_among, distinct_keys, predicate_share, table_of
from quail_frames.plan.logical import Expression, Side, union

WORTH_IT = 0.8
"""Rows that come only when all are known have to cost less than this share of rows that stream."""
LEFT = 0
"""Number of the text of a question that stands on the left side of its join as written."""


@dataclass(frozen=True)
class Planned:
    """What a chain costs as written with its open anchors on the left, at its cheapest, and which of both is taken.

    The first one streams unless the query names a right anchor.
    """

    written: JoinPlan
    cheapest: JoinPlan
    taken: JoinPlan

    @property
    def moved(self) -> bool:
        """Whether the joins are taken in another order."""
        return self.taken.order != self.written.order

    def anchor(self, join: int) -> Side:
        """The side, as written, that is a join's anchor."""
        return next("left" if step.anchor == LEFT else "right" for step in self.taken.steps if step.question == join)


def planned_joins(joins: Joins, movable: bool) -> Planned:
    """The cheapest plan, unless one that streams costs hardly more."""
    left = [LEFT if question.anchor is None else question.anchor for question in joins.questions]
    known: Known = {}
    written = best_plan(joins.anchored(left), as_written=True, known=known)
    cheapest = best_plan(joins, as_written=not movable, known=known)
    assert written is not None and cheapest is not None, "each join brings one relation, and nothing has to stay"
    share = WORTH_IT if set(left) == {LEFT} else 1.0
    return Planned(written, cheapest, cheapest if cheapest.seconds < share * written.seconds else written)


def joins_of(chain: JoinChain, prices: Prices) -> Joins:
    """The chain's relations and questions with their figures, as written below its topmost join.

    A predicate between the joins counts where it reads one relation: it goes below the joins.
    """
    tables = [_reduced(chain, number, prices) for number in range(len(chain.relations))]
    texts = {(n, r): _text(chain, n, r, tables[r], prices) for n, join in enumerate(chain.joins) for r in join.sides}
    questions = tuple(
        _question(join, (texts[number, join.sides[0]], texts[number, join.sides[1]]), tables, prices)
        for number, join in enumerate(chain.joins)
    )
    asked = {(r, texts[n, r]): set(join.columns_of(r)) for n, join in enumerate(chain.joins) for r in join.sides}
    resident = frozenset(text for (r, text), names in asked.items() if asked_below(chain.relations[r].node, names))
    target = prices.target
    return Joins(
        tuple(table.rows for table in tables),
        questions,
        lambda work: target.marginal(work).seconds,
        float(target.budgets.kv_tokens),
        resident,
        target.shape.reach,
    )


def _reduced(chain: JoinChain, relation: int, prices: Prices) -> Table:
    """Rows and columns of a relation behind the predicates about it alone."""
    table = table_of(chain.relations[relation].node, prices)
    predicates = [p for each in chain.inside for p in each.predicates]
    own = [predicate_share(p, prices) for p in predicates if _relations(chain, p) == frozenset({relation})]
    return replace(table, rows=table.rows * prod(own))


def _relations(chain: JoinChain, predicate: Expression) -> frozenset[int] | None:
    reads = union([predicate.reads, *(use.reads for use in predicate.calls)])
    return None if reads is None else chain.relations_of(reads)


def _text(chain: JoinChain, join: int, relation: int, table: Table, prices: Prices) -> Text:
    names = chain.joins[join].columns_of(relation)
    figures = [table.column(name) for name in names]
    distinct = distinct_among(figures, table.rows)
    return Text(relation, " ".join(names), sum(each.mean_tokens for each in figures), distinct)


def _question(join: ChainJoin, texts: tuple[Text, Text], tables: list[Table], prices: Prices) -> Question:
    forms = (_form(join, join.sides[0], prices), _form(join, join.sides[1], prices))
    share = prod(prices.statistics.share(predicate) for predicate in join.node.where)
    for key in join.keys or ():
        share /= max(*(distinct_keys(tables[relation], name) for relation, name in (key.left, key.right)), 1.0)
    elsewhere = {key.left[0] for key in join.keys or ()} - {join.sides[0]}
    needs = ((join.reads or frozenset()) | elsewhere) - set(join.sides)
    anchor = None if join.anchor is None else join.sides.index(join.anchor)
    call = join.node.call
    brings = join.sides[1] if elsewhere else None
    return Question(call.identity, texts, forms, pair_share(call), anchor, share, needs, brings)


def _form(join: ChainJoin, anchor: int, prices: Prices) -> Form:
    """The question laid out with a relation's text as its anchor."""
    slots = tuple(number for number, (relation, _) in enumerate(join.slots) if relation == anchor)
    figures = prices.lay_out(join.node.call, slots)
    return Form(figures.document, figures.instruction, figures.question, figures.head_share(prices.vocabulary))
