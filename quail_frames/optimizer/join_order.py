"""Join order and anchors: dynamic programming over left-deep plans of AI joins (Selinger et al., 1979).

System R keeps the cheapest plan for each set of relations and each interesting row order. Here the interesting
property is the KV state: which texts stay resident for a later question. A state is (relations joined, questions
asked, texts resident); for each the plans that no other beats in both seconds and KV tokens are kept (a Pareto set),
because the budget decides at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from quail_frames.cost.work import Work, asks, pair_join, prefill

CUE_TOKENS = 4.0
"""Tokens between a partner's text and its answer."""

Price = Callable[[Work], float]
"""Seconds of some work."""


@dataclass(frozen=True)
class Text:
    """What a question reads of a row: a column of a relation, with its mean tokens."""

    relation: int
    name: str
    tokens: float


@dataclass(frozen=True)
class Question:
    """A TRUE/FALSE question about one text, or about a pair of texts of two relations.

    `tokens` are its own, `share` the part of the rows or pairs that pass; `anchor` fixes which text is the anchor.
    """

    name: str
    texts: tuple[Text, ...]
    tokens: float
    share: float
    anchor: int | None = None


@dataclass(frozen=True)
class Joins:
    """Relations by their numbers of rows, the questions that join and filter them, and where they are priced."""

    rows: tuple[float, ...]
    questions: tuple[Question, ...]
    price: Price
    kv_budget: float = math.inf
    """KV tokens that may be resident."""

    @cached_property
    def relations(self) -> frozenset[int]:
        return frozenset(range(len(self.rows)))


@dataclass(frozen=True)
class Step:
    """Question number `question` is asked with its text number `anchor` resident; `retain`: it stays so."""

    question: int
    anchor: int
    retain: bool


@dataclass(frozen=True)
class State:
    """Where a plan stands: relations joined, questions asked, texts whose KV is resident."""

    joined: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()
    resident: frozenset[Text] = frozenset()


@dataclass(frozen=True)
class JoinPlan:
    """Steps in order, their seconds, and the most KV tokens resident between two of them."""

    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    kv_tokens: float = 0.0


def best_plan(joins: Joins) -> JoinPlan | None:
    """The plan of least seconds that keeps the KV budget; None where the questions do not connect all relations."""
    found: dict[State, list[JoinPlan]] = {State(): [JoinPlan()]}
    for _ in joins.questions:
        following: dict[State, list[JoinPlan]] = {}
        for state, plans in found.items():
            for step in steps_from(joins, state):
                seconds, after = applied(joins, state, step)
                kept = resident_tokens(joins, after)
                if kept <= joins.kv_budget:
                    _add(following.setdefault(after, []), plans, step, seconds, kept)
        found = following
    complete = [plan for state, plans in found.items() if state.joined >= joins.relations for plan in plans]
    return min(complete, key=lambda plan: (plan.seconds, plan.kv_tokens), default=None)


def steps_from(joins: Joins, state: State) -> Iterator[Step]:
    """What may come next: left-deep, so a join brings one relation to those joined before."""
    for number, question in enumerate(joins.questions):
        if number in state.asked or not _reachable(question, state):
            continue
        later = [q for n, q in enumerate(joins.questions) if n != number and n not in state.asked]
        for anchor, text in enumerate(question.texts):
            if question.anchor in (None, anchor):
                yield Step(number, anchor, False)
                if any(text in other.texts for other in later):
                    yield Step(number, anchor, True)


def applied(joins: Joins, state: State, step: Step) -> tuple[float, State]:
    """(seconds of a step, the state after it)."""
    question = joins.questions[step.question]
    text = question.texts[step.anchor]
    anchors = alive(joins, state, text.relation)
    there = text in state.resident
    if len(question.texts) == 1:
        work = prefill(0.0 if there else text.tokens) + asks(text.tokens, question.tokens)
        joined = state.joined
    else:
        other = question.texts[1 - step.anchor]
        partners = pairs_of(joins, state, question) / max(anchors, 1e-9)
        work = pair_join(text.tokens, partners, other.tokens + CUE_TOKENS, question.tokens, there)
        joined = state.joined | {text.relation, other.relation}
    resident = state.resident | {text} if step.retain else state.resident - {text}
    return joins.price(work * anchors), State(joined, state.asked | {step.question}, resident)


def rows_of(joins: Joins, state: State) -> float:
    """Expected rows of the relations joined so far, questions taken as independent."""
    if not state.joined:
        return 1.0
    own = math.prod(joins.rows[number] for number in state.joined)
    asked = [joins.questions[number] for number in state.asked]
    inside = [q.share for q in asked if all(text.relation in state.joined for text in q.texts)]
    return own * math.prod(inside)


def alive(joins: Joins, state: State, relation: int) -> float:
    """Expected distinct rows of a relation that are still there, `n` of which `r` rows were drawn: `n (1 - e^(-r/n))`.

    A relation not joined yet has the rows that its own questions left.
    """
    single = [
        q.share for n in state.asked if len((q := joins.questions[n]).texts) == 1 and q.texts[0].relation == relation
    ]
    rows = joins.rows[relation] * math.prod(single)
    if relation not in state.joined or rows <= 0:
        return rows
    return rows * -math.expm1(-rows_of(joins, state) / rows)


def pairs_of(joins: Joins, state: State, question: Question) -> float:
    """Expected distinct pairs that a question about two relations is asked of."""
    sides = [text.relation for text in question.texts]
    every = math.prod(alive(joins, state, relation) for relation in sides)
    return min(every, rows_of(joins, state)) if state.joined.issuperset(sides) else every


def resident_tokens(joins: Joins, state: State) -> float:
    """KV tokens of the texts that stay resident."""
    return sum(alive(joins, state, text.relation) * text.tokens for text in state.resident)


def _reachable(question: Question, state: State) -> bool:
    sides = {text.relation for text in question.texts}
    return len(sides) == 1 or not state.joined or bool(sides & state.joined)


def _add(kept: list[JoinPlan], plans: Sequence[JoinPlan], step: Step, seconds: float, tokens: float) -> None:
    """Add each plan with one step more, and drop those that another beats in seconds and KV tokens."""
    for plan in plans:
        new = replace(
            plan,
            steps=(*plan.steps, step),
            seconds=plan.seconds + seconds,
            kv_tokens=max(plan.kv_tokens, tokens),
        )
        if not any(old.seconds <= new.seconds and old.kv_tokens <= new.kv_tokens for old in kept):
            kept[:] = [old for old in kept if old.seconds < new.seconds or old.kv_tokens < new.kv_tokens]
            kept.append(new)
