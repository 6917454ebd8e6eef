"""Questions and choices as planned calls, the way the engine would plan them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.physical import PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.tuning.examples import Item

Layout = Literal["document_first", "question_first"]
Scoring = Literal["letters", "decision_choice"]
CHOICES: tuple[Scoring, ...] = ("letters", "decision_choice", "decision_choice")
"""How choices are scored: twice as many by the decision head, which is the model's own method."""


def ask(
    question: str, text: str, target: float, group: str, *, weight: float = 1.0, layout: Layout = "document_first"
) -> Item:
    """A TRUE/FALSE question about one text."""
    call = AiIf(Template((question,)), ("text",))
    return Item(PlannedCall(call, (0,), layout, "true_false"), (text,), target, weight, group)


def ask_pair(template: str, texts: tuple[str, str], anchor: int | None, target: float, group: str) -> Item:
    """A TRUE/FALSE question about two texts, `{0}` and `{1}` in the template, asked like a join's pair.

    Without an anchor it is asked like a question over two columns of one row.
    """
    call = AiIf(_template(template), ("a", "b"))
    anchors = () if anchor is None else (anchor,)
    return Item(PlannedCall(call, (0, 1), "document_first", "true_false", anchors=anchors), texts, target, 1.0, group)


def choose(
    question: str,
    text: str,
    labels: Sequence[str],
    target: int,
    group: str,
    *,
    scoring: Scoring,
    descriptions: Sequence[str | None] | None = None,
    layout: Layout = "document_first",
) -> Item:
    """A choice of one label for one text."""
    template = Template((question + "\n\n", Slot(0))) if question else Template((Slot(0),))
    described = tuple(descriptions) if descriptions else None
    call = AiClassify(template, ("text",), labels=tuple(labels), descriptions=described)
    return Item(PlannedCall(call, (0,), layout, scoring), (text,), float(target), 1.0, group)


def choose_pair(
    template: str,
    texts: tuple[str, str],
    anchor: int,
    labels: Sequence[str],
    target: int,
    group: str,
    scoring: Scoring,
) -> Item:
    """A choice of one label for two texts."""
    call = AiClassify(_template(template), ("a", "b"), labels=tuple(labels))
    planned = PlannedCall(call, (0, 1), "document_first", scoring, anchors=(anchor,))
    return Item(planned, texts, float(target), 1.0, group)


def _template(text: str) -> Template:
    parts = re.split(r"\{([01])\}", text)
    return Template(tuple(Slot(int(part)) if number % 2 else part for number, part in enumerate(parts) if part))
