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

from quail_frames.cost.work import EVERYTHING, Reach, Work, pair_join

Price = Callable[[Work], float]
"""Seconds of some work."""


@dataclass(frozen=True)
class Text:
    """What a question reads of a row: a column of a relation, with its mean tokens and how many of them differ."""

    relation: int
    name: str
    tokens: float
    distinct: float = math.inf


@dataclass(frozen=True)
class Form:
    """A question's own tokens where one of its texts is the anchor.

    `document` stand around the anchor's text, `frame` once behind it, `suffix` around every partner's text;
    `head_rows` of the whole output head are read for an answer.
    """

    document: float = 0.0
    frame: float = 0.0
    suffix: float = 4.0
    head_rows: float = 1.0


@dataclass(frozen=True)
class Question:
    """A TRUE/FALSE question about a pair of texts of two relations.

    Parameters
    ----------
    forms
        The question with each of its texts as the anchor.
    share
        The part of the pairs that pass.
    anchor
        The text that is the anchor, where that is fixed.
    candidates
        The part of all pairs that keys and predicates leave to be asked.
    needs
        Further relations that keys and predicates read: they are joined before.
    brings
        The relation that it has to bring, where only one of its two may be joined later than the other.
    """

    name: str
    texts: tuple[Text, Text]
    forms: tuple[Form, Form]
    share: float
    anchor: int | None = None
    candidates: float = 1.0
    needs: frozenset[int] = frozenset()
    brings: int | None = None


@dataclass(frozen=True)
class Joins:
    """Relations by their numbers of rows, the questions that join them, and where they are priced.

    `resident` texts are in memory row by row before the first join, because what stands below asks about them; they
    take no part of the budget.
    """

    rows: tuple[float, ...]
    questions: tuple[Question, ...]
    price: Price
    kv_budget: float = math.inf
    """KV tokens that may be resident."""
    resident: frozenset[Text] = frozenset()
    reach: Reach = EVERYTHING

    @cached_property
    def relations(self) -> frozenset[int]:
        return frozenset(range(len(self.rows)))

    def anchored(self, anchors: Sequence[int | None]) -> Joins:
        """The same with each question's anchor fixed, or left open where None is given."""
        fixed = (replace(each, anchor=anchor) for each, anchor in zip(self.questions, anchors, strict=True))
        return replace(self, questions=tuple(fixed))


@dataclass(frozen=True, order=True)
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

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the questions in the order asked."""
        return tuple(step.question for step in self.steps)

    @property
    def rank(self) -> tuple[float, float, tuple[Step, ...]]:
        """Of plans that cost the same the first in the order of their steps, whatever other plans were looked at."""
        return self.seconds, self.kv_tokens, self.steps


Known = dict[tuple[frozenset[int], int, int, bool], float]
"""Seconds of a step by (questions asked before, its question, its anchor, whether the anchor is resident)."""


def best_plan(joins: Joins, as_written: bool = False, known: Known | None = None) -> JoinPlan | None:
    """The plan of least seconds that keeps the KV budget; None where the questions do not connect all relations.

    Parameters
    ----------
    as_written
        Only plans that ask the questions in the order in which they stand.
    known
        Seconds that were worked out for the same relations and questions, whatever anchors are fixed; it is added to.
    """
    known = {} if known is None else known
    found: dict[State, list[JoinPlan]] = {State(resident=joins.resident): [JoinPlan()]}
    for _ in joins.questions:
        following: dict[State, list[JoinPlan]] = {}
        room: dict[State, float] = {}
        for state, plans in found.items():
            for step in steps_from(joins, state):
                if as_written and step.question != len(state.asked):
                    continue
                after = state_after(joins, state, step)
                kept = room[after] if after in room else room.setdefault(after, resident_tokens(joins, after))
                if kept <= joins.kv_budget:
                    text = joins.questions[step.question].texts[step.anchor]
                    key = (state.asked, step.question, step.anchor, text in state.resident)
                    seconds = known[key] if key in known else known.setdefault(key, step_seconds(joins, state, step))
                    _add(following.setdefault(after, []), plans, step, seconds, kept)
        found = following
    complete = [plan for state, plans in found.items() if state.joined >= joins.relations for plan in plans]
    return min(complete, key=lambda plan: plan.rank, default=None)


def steps_from(joins: Joins, state: State) -> Iterator[Step]:
    """What may come next: left-deep, so a join brings one relation to those joined before."""
    for number, question in enumerate(joins.questions):
        if number in state.asked or not _reachable(question, state):
            continue
        for anchor, text in enumerate(question.texts):
            if question.anchor in (None, anchor):
                yield Step(number, anchor, False)
                others = (q for n, q in enumerate(joins.questions) if n != number and n not in state.asked)
                if any(text in other.texts for other in others):
                    yield Step(number, anchor, True)


def state_after(joins: Joins, state: State, step: Step) -> State:
    """Where a plan stands behind a step."""
    question = joins.questions[step.question]
    text = question.texts[step.anchor]
    joined = state.joined.union(each.relation for each in question.texts)
    resident = state.resident | {text} if step.retain else state.resident - {text}
    return State(joined, state.asked | {step.question}, resident)


def step_seconds(joins: Joins, state: State, step: Step) -> float:
    """Seconds of a step: its anchors computed where they are not resident, and all their partners asked."""
    question, reach = joins.questions[step.question], joins.reach
    text, form = question.texts[step.anchor], question.forms[step.anchor]
    anchors = alive(joins, state, text)
    document, suffix = form.document + text.tokens, form.suffix + question.texts[1 - step.anchor].tokens
    partners = pairs_of(joins, state, question) / max(anchors, 1e-9)
    there = text in state.resident
    work = pair_join(document, partners, suffix, form.frame, there, "tree", form.head_rows, reach)
    return joins.price(work * anchors)


def rows_of(joins: Joins, state: State) -> float:
    """Expected rows of the relations joined so far, questions taken as independent."""
    return every_row(joins, state) * math.prod(joins.questions[number].share for number in state.asked)


def every_row(joins: Joins, state: State) -> float:
    """Rows of the relations joined so far that keys and predicates leave, whatever the answers."""
    if not state.joined:
        return 1.0
    own = math.prod(joins.rows[number] for number in state.joined)
    return own * math.prod(joins.questions[number].candidates for number in state.asked)


def alive(joins: Joins, state: State, text: Text) -> float:
    """Expected distinct texts that are still there: `n (1 - (1 - share)^(rows each))`.

    All of them until their relation is joined.
    """
    different = min(text.distinct, joins.rows[text.relation])
    if text.relation not in state.joined or different <= 0:
        return different
    return still_there(different, every_row(joins, state), rows_of(joins, state))


def still_there(different: float, before: float, rows: float) -> float:
    """Expected different ones of `different` among `rows` that are left of `before`, each as likely as the others."""
    each, share = before / max(different, 1e-9), min(1.0, rows / max(before, 1e-9))
    return different * (1 - (1 - share) ** each if each > 1 else each * share)


def pairs_of(joins: Joins, state: State, question: Question) -> float:
    """Expected distinct pairs that a question about two relations is asked of."""
    every = math.prod(alive(joins, state, text) for text in question.texts) * question.candidates
    both = state.joined.issuperset(text.relation for text in question.texts)
    return min(every, rows_of(joins, state)) if both else every


def resident_tokens(joins: Joins, state: State) -> float:
    """KV tokens of the texts that steps keep resident."""
    return sum(alive(joins, state, text) * text.tokens for text in state.resident - joins.resident)


def _reachable(question: Question, state: State) -> bool:
    """Whether what the question reads is joined, but for the relation that it brings."""
    if not state.joined >= question.needs:
        return False
    if question.brings is not None and question.brings in state.joined:
        return False
    return not state.joined or any(text.relation in state.joined for text in question.texts)


def _add(kept: list[JoinPlan], plans: Sequence[JoinPlan], step: Step, seconds: float, tokens: float) -> None:
    """Add each plan with one step more, and drop those that another beats in seconds and KV tokens."""
    for plan in plans:
        new = JoinPlan((*plan.steps, step), plan.seconds + seconds, max(plan.kv_tokens, tokens))
        if not any(_beats(old, new) for old in kept):
            kept[:] = [old for old in kept if not _beats(new, old)]
            kept.append(new)


def _beats(one: JoinPlan, other: JoinPlan) -> bool:
    return one.seconds <= other.seconds and one.kv_tokens <= other.kv_tokens and one.rank <= other.rank
