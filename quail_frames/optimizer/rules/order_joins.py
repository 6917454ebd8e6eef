"""Join order: a chain of inner AI joins in the order that costs least, each with the anchor it has as written.

    ask_pairs(ask_pairs(a, b), c)  ->  sort(ask_pairs(ask_pairs(a, c), b))

The anchor is part of the prompt, so it was chosen before, from what stands below the join (`optimizer.pairs`); the
order is not, and the rows are sorted back into the order of the joins as written.
"""

from __future__ import annotations

from quail_frames.optimizer.join_chain import JoinChain, join_chain, reordered
from quail_frames.optimizer.join_order import JoinPlan, Joins, Question, State, Step, Text, applied, best_plan
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.selectivity import pair_share
from quail_frames.optimizer.tables import table_of
from quail_frames.plan.logical import Node, columns, expressions, inputs, with_inputs

WORTH_IT = 0.8
"""Another order must cost less than this share of the written one: its rows come only when all are known."""
MOST_JOINS = 5


def order_joins(plan: Node, prices: Prices) -> Node:
    """The plan with every chain of inner AI joins in the order that is expected to cost least."""
    return _ordered(plan, prices, pairs_asked=False)


def _ordered(node: Node, prices: Prices, pairs_asked: bool) -> Node:
    """`pairs_asked`: a call above reads several texts, and would be laid out on another anchor in another order."""
    chain = join_chain(node)
    if (
        chain is not None
        and len(chain.joins) <= MOST_JOINS
        and not (pairs_asked or any(map(_asks_pairs, chain.filters)))
    ):
        joins = joins_of(chain, prices)
        best, written = best_plan(joins), written_plan(joins)
        if best is not None and best.seconds < WORTH_IT * written.seconds:
            return reordered(chain, best.steps, columns(node))
    above = pairs_asked or _asks_pairs(node)
    return with_inputs(node, tuple(_ordered(below, prices, above) for below in inputs(node)))


def _asks_pairs(node: Node) -> bool:
    return any(len(use.inputs) > 1 for expression in expressions(node) for use in expression.calls)


def joins_of(chain: JoinChain, prices: Prices) -> Joins:
    """The chain's relations and questions with their figures; filters between the joins are not counted."""
    tables = [table_of(relation.node, prices) for relation in chain.relations]
    questions = []
    for number, join in enumerate(chain.joins):
        sides = tuple(dict.fromkeys(relation for relation, _ in chain.slots[number]))
        texts = []
        for relation in sides:
            names = chain.side_of(number, relation)
            texts.append(Text(relation, " ".join(names), sum(tables[relation].column(n).mean_tokens for n in names)))
        anchored = chain.anchors[number]
        figures = prices.lay_out(join.call, tuple(s for s, (r, _) in enumerate(chain.slots[number]) if r == anchored))
        anchor = sides.index(anchored)
        questions.append(Question(str(number), tuple(texts), figures.own_tokens, pair_share(join.call), anchor))
    rows = tuple(max(table.rows, 1.0) for table in tables)
    budget = float(prices.target.budgets.kv_tokens)
    return Joins(rows, tuple(questions), lambda work: prices.target.marginal(work).seconds, budget)


def written_plan(joins: Joins) -> JoinPlan:
    """The joins in the order written, documents retained where a later one asks about them."""
    plan, state = JoinPlan(), State()
    for number, question in enumerate(joins.questions):
        anchor = question.anchor or 0
        text = question.texts[anchor]
        step = Step(number, anchor, any(text in later.texts for later in joins.questions[number + 1 :]))
        seconds, state = applied(joins, state, step)
        plan = JoinPlan((*plan.steps, step), plan.seconds + seconds)
    return plan
