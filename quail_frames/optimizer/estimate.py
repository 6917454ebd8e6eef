"""Every step of a plan with its expected rows, asks, tokens, work and seconds, and the decisions made for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from quail_frames.cost.choices import Choice
from quail_frames.cost.roofline import roofline
from quail_frames.cost.work import NOTHING, Work
from quail_frames.optimizer.chain import ChainPrice, price_in_order, priced_calls
from quail_frames.optimizer.decisions import chain_decisions, pairs_decisions
from quail_frames.optimizer.join_decisions import join_decisions
from quail_frames.optimizer.pairs import PairsPrice, pairs_price
from quail_frames.optimizer.prices import CallFigures, Prices
from quail_frames.optimizer.residency import resident_share
from quail_frames.optimizer.rules.keep_resident import anchor_document, document_of
from quail_frames.optimizer.selectivity import pair_share, selectivity_from
from quail_frames.optimizer.tables import Table, table_of
from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import Answer
from quail_frames.plan.logical import Ask, AskPairs, Node, inputs
from quail_frames.plan.selectivity import estimate


@dataclass(frozen=True)
class CallEstimate:
    """A call of a step: how often it is asked, how it is laid out, and the share that it is expected to pass.

    `column` is its answer column; `share` is None for calls that only give an answer.
    """

    column: str
    call: AiCall
    figures: CallFigures
    rows: float
    asks: float
    context_tokens: float
    own_tokens: float
    share: float | None
    share_from: str


@dataclass(frozen=True)
class StepEstimate:
    """A node of a planned query with what it is expected to do.

    `seconds` are those of the device's roofline with the weights read once a batch; `least_seconds`, the speed of
    light, reads them once for the whole query.
    """

    node: Node
    inputs: tuple[StepEstimate, ...]
    rows_in: float
    rows: float
    calls: tuple[CallEstimate, ...] = ()
    work: Work = NOTHING
    seconds: float = 0.0
    least_seconds: float = 0.0
    decisions: tuple[Choice, ...] = ()
    regret_tokens: float = 0.0
    """Of the tokens, those of texts that were in memory and did not stay."""

    @property
    def asks(self) -> float:
        """Questions put to the model."""
        return sum(call.asks for call in self.calls)

    @property
    def tokens(self) -> float:
        """Tokens that the model computes."""
        return self.work.new_tokens

    def walk(self) -> Iterator[StepEstimate]:
        """The steps below and this one, in the order they are explained."""
        for each in self.inputs:
            yield from each.walk()
        yield self


@dataclass(frozen=True)
class PlanEstimate:
    """A planned query with what it is expected to do, and the prices behind it."""

    root: StepEstimate
    prices: Prices
    decisions: tuple[Choice, ...] = ()
    """Those about the whole query: the order of joins."""

    @property
    def steps(self) -> tuple[StepEstimate, ...]:
        """All steps, sources first."""
        return tuple(self.root.walk())

    @property
    def work(self) -> Work:
        """All work of the model."""
        return sum((step.work for step in self.steps), NOTHING)

    @property
    def asks(self) -> float:
        """All questions put to the model."""
        return sum(step.asks for step in self.steps)

    @property
    def seconds(self) -> float:
        """Seconds of the device with the weights read once a batch; 0 where no model is asked."""
        return self.prices.target.price(self.work).seconds if self.asks else 0.0

    @property
    def least_seconds(self) -> float:
        """The speed of light: the same with the weights read once."""
        target = self.prices.target
        return roofline(self.work, target.shape, target.device).seconds if self.asks else 0.0

    @property
    def cost(self) -> float | None:
        """What the device costs for these seconds, in the currency of its price; None where no price is known."""
        return self.prices.target.device.price(self.seconds)


def estimate_plan(planned: Node, written: Node, prices: Prices) -> PlanEstimate:
    """The planned query, step by step; `written` says which anchors the user named.

    What earlier runs saw counts, but not for decisions that answers depend on.
    """
    known = prices.remembering()
    unpriced = PlanEstimate(_step(planned, written, known, 0.0), prices)
    root = _step(planned, written, known, unpriced.work.new_tokens)
    return PlanEstimate(root, prices, join_decisions(planned, written, prices))


def _step(node: Node, written: Node, prices: Prices, tokens: float) -> StepEstimate:
    """One node; `tokens` are those of the whole query, 0 while they are not known (then nothing is priced)."""
    below = tuple(_step(each, written, prices, tokens) for each in inputs(node))
    rows_in = below[0].rows if below else 0.0
    rows = table_of(node, prices).rows
    if isinstance(node, Ask):
        price = chain_of(node, table_of(node.input, prices), prices)
        calls, work, regret = _chain_calls(node, price, prices), price.work, price.regret_tokens
        decisions = chain_decisions(node, price, table_of(node.input, prices), prices) if tokens else ()
    elif isinstance(node, AskPairs):
        pairs = _pairs(node, prices)
        calls, work, regret = _pair_calls(node, pairs), pairs.work, pairs.regret_tokens
        decisions = pairs_decisions(node, written, pairs, prices) if tokens else ()
    else:
        return StepEstimate(node, below, rows_in, rows)
    if not tokens:
        return StepEstimate(node, below, rows_in, rows, calls, work)
    target = prices.target
    least = roofline(work, target.shape, target.device, work.new_tokens / tokens).seconds
    seconds = roofline(
        work, target.shape, target.device, target.budgets.batches(tokens) * work.new_tokens / tokens
    ).seconds
    return StepEstimate(node, below, rows_in, rows, calls, work, seconds, least, decisions, regret)


def chain_of(ask: Ask, table: Table, prices: Prices) -> ChainPrice:
    """The chain in its planned order, over what an operator below leaves in memory."""
    calls = priced_calls(ask, table, prices)
    anchors = dict(ask.anchors)
    here: dict[Hashable, float] = {}
    for call in calls:
        document = document_of(call.use, anchors)
        if document is not None and call.document is not None:
            here[call.document] = resident_share(ask.input, document, prices)
    order = ask.order or tuple(use.column for use in ask.calls)
    return price_in_order(ask, calls, order, table, prices, here)


def _pairs(node: AskPairs, prices: Prices) -> PairsPrice:
    anchor = node.anchor or "left"
    below = node.left if anchor == "left" else node.right
    left, right = table_of(node.left, prices), table_of(node.right, prices)
    return pairs_price(node, anchor, left, right, prices, resident_share(below, anchor_document(node), prices))


def _chain_calls(ask: Ask, price: ChainPrice, prices: Prices) -> tuple[CallEstimate, ...]:
    found = []
    for number, (priced, asked) in enumerate(zip(price.calls, price.asks, strict=True)):
        call, column = priced.use.call, priced.use.column
        test = price.tests.get(column)
        own = priced.figures.own_tokens
        rows = price.rows * price.flow.share(number)
        share = None if test is None else estimate(call, test, prices.seen).share
        origin = "" if test is None else selectivity_from(call, test, prices.seen)
        found.append(CallEstimate(column, call, priced.figures, rows, asked, priced.context, own, share, origin))
    order = {column: at for at, column in enumerate(ask.order)}
    return tuple(sorted(found, key=lambda each: order.get(each.column, len(order))))


def _pair_calls(node: AskPairs, price: PairsPrice) -> tuple[CallEstimate, ...]:
    own, share, origin = price.figures.own_tokens, pair_share(node.call), selectivity_from(node.call, Answer(0))
    context = price.document + price.figures.instruction
    return (CallEstimate("", node.call, price.figures, price.asks, price.asks, context, own, share, origin),)
