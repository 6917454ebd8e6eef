"""What a chain of calls costs: which documents are computed once, which tokens each call adds, and how often.

A document is paid by the first call that reads it; calls of one kind share the instruction behind it; a call whose
words come first pays them once for the column and the document for every row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quail_frames.cost.work import NOTHING, Work, label_scoring, prefill
from quail_frames.optimizer.flow import Flow, flow_of
from quail_frames.optimizer.prices import CallFigures, Prices
from quail_frames.optimizer.tables import Table, distinct_inputs, text_figures
from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import CallTest, Mask, leaves_of
from quail_frames.plan.logical import Ask, CallUse


@dataclass(frozen=True)
class PricedCall:
    """A call of a chain, with the work of one row.

    Parameters
    ----------
    document
        What it leaves resident: equal for calls about the same document; None where its own words come first.
    context, suffix
        Tokens before its own, and its own with the texts that stand among them.
    load, ask, once
        Work of computing the document of one row, of asking one row on it, and of the call's words once a column.
    inputs
        Expected different inputs among the chain's rows.
    """

    use: CallUse
    figures: CallFigures
    document: Hashable | None
    context: float
    suffix: float
    load: Work
    ask: Work
    once: Work
    inputs: float


@dataclass(frozen=True)
class ChainPrice:
    """A chain in one order: expected asks of each call and all its work."""

    calls: tuple[PricedCall, ...]
    asks: tuple[float, ...]
    documents: float
    work: Work
    flow: Flow
    rows: float
    """Rows that are read: all, or as many as the limit needs."""
    tests: Mapping[str, CallTest]
    """For each tested call, by its answer column, its first test."""
    resident: Mapping[Hashable, float] = field(default_factory=dict)
    """Shares of the documents that were in memory before."""
    regret_tokens: float = 0.0
    """Tokens of documents that had been in memory and are computed again."""


def priced_calls(ask: Ask, table: Table, prices: Prices) -> tuple[PricedCall, ...]:
    """Every call of the chain, in the order of `ask.calls`."""
    anchors = dict(ask.anchors)
    figures = [prices.lay_out(use.call, anchors.get(use.column, ())) for use in ask.calls]
    instructions = [_instruction(use, own) for use, own in zip(ask.calls, figures, strict=True)]
    return tuple(
        _priced(use, own, instructions.count(instruction) > 1, table, prices)
        for use, own, instruction in zip(ask.calls, figures, instructions, strict=True)
    )


def _instruction(use: CallUse, figures: CallFigures) -> Hashable:
    return None if figures.question_first else (_document(use, figures), figures.instruction_key)


def _document(use: CallUse, figures: CallFigures) -> Hashable:
    """Equal for calls whose prompts begin with the same document."""
    numbered = figures.document_slots if len(figures.document_slots) > 1 else ()
    return tuple(use.inputs[slot].key for slot in figures.document_slots), numbered


def _priced(use: CallUse, figures: CallFigures, shared: bool, table: Table, prices: Prices) -> PricedCall:
    texts = [text_figures(text, table, prices).mean_tokens for text in use.inputs]
    in_question = sum(texts[slot] for slot in figures.question_slots)
    inputs = distinct_inputs(use, table, prices)
    if figures.question_first:
        context, suffix = figures.instruction, figures.question + in_question
        once = prefill(context, 0, prices.target.shape.reach)
        return PricedCall(
            use, figures, None, context, suffix, NOTHING, _ask(figures, context, suffix, prices), once, inputs
        )
    document = figures.document + sum(texts[slot] for slot in figures.document_slots)
    context = document + (figures.instruction if shared else 0.0)
    suffix = figures.question + in_question + (0.0 if shared else figures.instruction)
    load = prefill(context, 0, prices.target.shape.reach)
    ask = _ask(figures, context, suffix, prices)
    return PricedCall(use, figures, _document(use, figures), context, suffix, load, ask, NOTHING, inputs)


def _ask(figures: CallFigures, context: float, suffix: float, prices: Prices) -> Work:
    """One ask on its context: the suffix, the label tokens it feeds, and the head rows it reads."""
    share, reach = figures.head_share(prices.vocabulary), prices.target.shape.reach
    return label_scoring(figures.answer, context, suffix, 0, share, reach)


def chain_price(ask: Ask, order: Sequence[str], table: Table, prices: Prices) -> ChainPrice:
    """The chain's work over a table's rows, with no document in memory."""
    return price_in_order(ask, priced_calls(ask, table, prices), order, table, prices)


def price_in_order(
    ask: Ask,
    calls: tuple[PricedCall, ...],
    order: Sequence[str],
    table: Table,
    prices: Prices,
    resident: Mapping[Hashable, float] | None = None,
) -> ChainPrice:
    """The same for calls that are priced already; `resident`: shares of documents in memory."""
    flow = flow_of(ask, order, prices)
    rows = _rows_needed(ask, table.rows, flow.kept)
    counts = tuple(min(call.inputs, rows) * flow.share(number) for number, call in enumerate(calls))
    work, documents, regret, here = NOTHING, 0.0, 0.0, resident or {}
    for number, call in enumerate(calls):
        work += call.ask * counts[number] + call.once * (1.0 if counts[number] else 0.0)
    for document in dict.fromkeys(call.document for call in calls if call.document is not None):
        readers = [number for number, call in enumerate(calls) if call.document == document]
        most = max(readers, key=lambda number: calls[number].context)
        loaded = min(calls[most].inputs, rows) * flow.reached(readers)
        documents += loaded
        share = here.get(document, 0.0)
        work += calls[most].load * (loaded * (1 - share))
        regret += calls[most].load.new_tokens * loaded * (1 - share) if share else 0.0
    return ChainPrice(calls, counts, documents, work, flow, rows, _tests(ask), here, regret)


def _tests(ask: Ask) -> dict[str, CallTest]:
    """The first test of each call that predicates test."""
    found: dict[str, CallTest] = {}
    for predicate in ask.keep:
        assert predicate.test is not None, "a predicate of an Ask has a test"
        for leaf in leaves_of(predicate.test.condition):
            if not isinstance(leaf, Mask):
                found.setdefault(predicate.calls[leaf.call].column, leaf)
    return found


def _rows_needed(ask: Ask, rows: float, kept: float) -> float:
    """Rows that are read until the chain's limit is reached."""
    return rows if ask.limit is None or kept <= 0 else min(rows, ask.limit / kept)


def with_call(ask: Ask, use: CallUse, call: AiCall) -> Ask:
    """The chain with another way of asking one of its calls; its answer column stays."""
    asked = replace(use, call=call)

    def renewed(uses: tuple[CallUse, ...]) -> tuple[CallUse, ...]:
        return tuple(asked if each.column == use.column else each for each in uses)

    keep = tuple(replace(predicate, calls=renewed(predicate.calls)) for predicate in ask.keep)
    return replace(ask, keep=keep, answers=renewed(ask.answers))
