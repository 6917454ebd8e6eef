"""The decisions of a planned step, each with its alternatives, their prices, and how the prices come about.

Which alternative is taken is read off the plan, never decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from quail_frames.cost.choices import Alternative, Choice, attention_path_cost, scoring_cost
from quail_frames.cost.work import NOTHING, prefill
from quail_frames.errors import CallError
from quail_frames.optimizer.anchors import anchor_decision
from quail_frames.optimizer.chain import ChainPrice, PricedCall, price_in_order, priced_calls, with_call
from quail_frames.optimizer.orders import call_orders
from quail_frames.optimizer.pairs import PairsPrice
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.tables import Table
from quail_frames.plan.calls import AiClassify, Layout
from quail_frames.plan.logical import Ask, AskPairs, Node

SHOWN_ORDERS = 4
"""Orders of questions that are shown: the cheapest ones, and the one that the query was written in."""
LAYOUTS_TO_CHOOSE: tuple[Layout, ...] = ("document_first", "question_first")
QUESTION_FIRST_FROM = 128
"""Own tokens from which `layout="auto"` puts the question first (DESIGN: prompt layout)."""
NAMED = "named by the query"
_BY_THE_MODEL = "auto: by the call and the model alone"


def chain_decisions(ask: Ask, price: ChainPrice, table: Table, prices: Prices) -> tuple[Choice, ...]:
    """Order, layout, label scoring, prefix sharing and retention of a chain."""
    found = [*_order(ask, price, table, prices)]
    letters = _letters(ask)
    asked = {call.use.column: asks for call, asks in zip(price.calls, price.asks, strict=True)}
    for call in sorted(price.calls, key=lambda call: list(letters).index(call.use.column)):
        name = f" of {letters[call.use.column]})" if len(price.calls) > 1 else ""
        if asked[call.use.column]:
            found += _layout(ask, call, name, price, table, prices)
            found += _scoring(call, name, asked[call.use.column], prices)
    found += _sharing(price, table, prices)
    if ask.retain:
        found.append(_retention(price.rows * price.flow.kept, max(c.context for c in price.calls), prices))
    return tuple(found)


def pairs_decisions(node: AskPairs, written: Node, price: PairsPrice, prices: Prices) -> tuple[Choice, ...]:
    """Anchor, attention path and retention of a join."""
    found = [anchor_decision(node, written, replace(prices, seen=None))]
    context = price.document + price.figures.instruction
    entries = price.figures.answer.head_entries
    path = attention_path_cost(prices.target, context, price.suffix, price.partners, price.anchors, entries)
    found.append(_taken(path, prices.attention, "the engine's path"))
    if node.retain:
        found.append(_retention(price.anchors, price.document, prices))
    return tuple(found)


def _order(ask: Ask, price: ChainPrice, table: Table, prices: Prices) -> Iterator[Choice]:
    """The cheapest orders and the one that the query was written in."""
    if len(ask.keep) < 2 and all(len(predicate.calls) < 2 for predicate in ask.keep):
        return
    chosen = ask.order or tuple(use.column for use in ask.calls)
    as_written = tuple(use.column for use in ask.calls)
    best = [order.columns for order in call_orders(ask, table, prices)[:SHOWN_ORDERS]]
    letters = _letters(ask)
    alternatives = []
    for order in dict.fromkeys([chosen, *best, as_written]):
        work = price_in_order(ask, price.calls, order, table, prices, price.resident).work
        name = ", ".join(letters[column] for column in order)
        name += " (as written)" if order == as_written else ""
        alternatives.append(Alternative(name, work, prices.target.price(work)))
    taken = alternatives[0].name
    formula = (
        "each question's tokens x the rows that get there; the first question about a document also pays for the "
        "document, and the head rows that it reads"
    )
    yield Choice("order of questions", _sorted(alternatives), formula, taken)


def _letters(ask: Ask) -> dict[str, str]:
    """What `explain` calls the questions of a chain: a, b, c, ... in the order asked."""
    order = ask.order or tuple(use.column for use in ask.calls)
    return {column: letter(at) for at, column in enumerate(order)}


def letter(number: int) -> str:
    """What the question number `number` of a step is called: a, b, c, ..., z, 27, 28, ...

    >>> letter(0), letter(26)
    ('a', '27')
    """
    return chr(97 + number) if number < 26 else str(number + 1)


def _layout(ask: Ask, call: PricedCall, name: str, price: ChainPrice, table: Table, prices: Prices) -> Iterator[Choice]:
    """Document or question first, of a call about one text; the whole chain is priced both ways."""
    spec, taken = call.use.call, call.figures.layout
    if len(spec.columns) > 1 or ask.anchors:
        return
    order = ask.order or tuple(use.column for use in ask.calls)
    alternatives = []
    for layout in LAYOUTS_TO_CHOOSE:
        try:
            way = with_call(ask, call.use, replace(spec, layout=layout))
            calls = price.calls if layout == taken else priced_calls(way, table, prices)
            work = price_in_order(way, calls, order, table, prices, price.resident).work
            alternatives.append(Alternative(layout, work, prices.target.price(work)))
        except CallError as error:
            alternatives.append(Alternative(layout, refused=str(error)))
    words = "reach" if taken == "question_first" else "stay below"
    because = f"its own {call.figures.own_tokens:,.0f} tokens {words} {QUESTION_FIRST_FROM} ({_BY_THE_MODEL})"
    formula = (
        "all questions of this step with this one asked so. Document first: each document once for all its questions, "
        "the question for every row; question first: the question once, the document again for every row"
    )
    choice = Choice(f"layout{name}", _sorted(alternatives), formula)
    yield _taken(choice, taken, because if spec.layout == "auto" else NAMED)


def _scoring(call: PricedCall, name: str, asked: float, prices: Prices) -> Iterator[Choice]:
    spec, labels = call.use.call, call.figures.labels
    if not isinstance(spec, AiClassify) or labels is None:
        return
    decision = call.figures.answer if call.figures.scoring == "decision_choice" else None
    listed = 0.0 if decision is None else decision.positions - 1  # where a head decides, it feeds list and cue itself
    choice = scoring_cost(
        prices.target,
        labels.trie,
        call.context,
        call.suffix + listed,
        asked,
        spec.probabilities,
        labels.word_ends,
        labels.letter_tokens,
        labels.letters,
        decision=decision,
    )
    because = NAMED
    if spec.scoring in ("auto", "by_cost"):
        because = f"it adds the fewest FLOPs to a document's prompt ({_BY_THE_MODEL})"
    if spec.scoring != call.figures.scoring == "decision_choice":
        because = f"the model has a head for it ({_BY_THE_MODEL})"
    choice = replace(choice, decision=f"label scoring{name}")
    yield _taken(choice, call.figures.scoring, because)


def _sharing(price: ChainPrice, table: Table, prices: Prices) -> Iterator[Choice]:
    """Common starts of different rows' texts, where the sample has any."""
    shared = sum(
        table.column(text.column).shared
        for call in price.calls[:1]
        for text in call.use.inputs
        if text.column is not None
    )
    if shared <= 0 or not price.documents:
        return
    reach, target = prices.target.shape.reach, prices.target
    length = max(price.calls[0].context, shared)
    apart = prefill(length, 0, reach) * price.documents
    together = prefill(length - shared, shared, reach) * price.documents
    pages = int(shared // target.budgets.page_tokens)
    alternatives = [
        Alternative("shared", together, target.price(together)),
        Alternative("separate", apart, target.price(apart)),
    ]
    formula = f"of {length:,.0f} tokens, sampled texts have {shared:,.0f} in common with another row's start"
    taken = "shared" if pages >= prices.share_from else "separate"
    page = target.budgets.page_tokens
    because = f"rows share from {prices.share_from} pages of {page} tokens on: less costs the host more than it saves"
    yield Choice("prefix sharing across rows", _sorted(alternatives), formula, taken, because)


def _retention(rows: float, tokens: float, prices: Prices) -> Choice:
    """Kept documents' KV against computing them again for the operator above."""
    again = prefill(tokens, 0, prices.target.shape.reach) * rows
    alternatives = (
        Alternative("keep", NOTHING, prices.target.marginal(NOTHING)),
        Alternative("compute again", again, prices.target.marginal(again)),
    )
    budget = prices.target.budgets.kv_tokens
    formula = f"{rows:,.0f} documents x {tokens:,.0f} tokens, computed again for what is asked next, or kept"
    because = f"memory holds {budget:,} tokens at a time; what does not fit is computed again (regret tokens)"
    return Choice("retention", alternatives, formula, "keep", because)


def _taken(choice: Choice, name: str, because: str) -> Choice:
    """The choice with what the plan takes; a reason is given where the price alone does not say it."""
    by_price = choice.chosen == name and because == NAMED
    return replace(choice, taken=name, because="" if by_price else because)


def _sorted(alternatives: Sequence[Alternative]) -> tuple[Alternative, ...]:
    return tuple(sorted(alternatives, key=lambda each: each.seconds))
