"""What every maker of units starts from: the rows, the wordings that may be used, and how far the curriculum is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from quail_frames.tuning.examples import Item
from training.calls import ask
from training.corpus import Corpus
from training.wordings import Wordings

Unit = list[Item]
"""A text or two with all the questions that are asked of them: one tree."""
Random = random.Random


NEGATIVE_SIGN = (90, 240)
OTHER_TASKS = (220, 520)
ALL_TASKS = (330, 620)
NEGATIONS = (450, 700)
HARD_INTENTS = 1500
RELATIONS = (1300, 2000)
LAST_STAGE = 1 << 30
"""The curriculum, in units. From the balanced mixture the loss stays at chance for hundreds of steps: no answer follows
from the document or the question alone. So a run begins with one sign of opinion, which is learnt in twenty steps; the
other sign, intents, all tasks and negated wordings come in one after the other, each over the units named here. Wrong
intents are far ones up to `HARD_INTENTS`. Whether a statement follows from a text is learnt when sentiment and intents
stand: over `RELATIONS` such pairs and statements grow to two fifths of what is drawn.
"""
NEGATED = 0.15


def ramp(unit: int, start: int, end: int) -> float:
    """0 up to `start`, 1 from `end` on, and a straight line between.

    >>> [ramp(unit, 100, 200) for unit in (50, 150, 300)]
    [0.0, 0.5, 1.0]
    """
    return min(max((unit - start) / (end - start), 0.0), 1.0)


@dataclass(frozen=True)
class Builder:
    """Draws units from a corpus; `held_out` uses the wordings, rows and intents that training never sees."""

    corpus: Corpus
    held_out: bool = False
    unit: int = LAST_STAGE
    """Number of the unit in the run, which decides how far the curriculum is."""

    def at(self, number: int) -> Builder:
        """The builder of unit number `number` of a training run."""
        return replace(self, unit=number)

    @property
    def negated(self) -> float:
        """Share of negated wordings."""
        return NEGATED * ramp(self.unit, *NEGATIONS)

    @property
    def easy(self) -> bool:
        """Whether wrong intents are far from the right one."""
        return self.unit < HARD_INTENTS

    def wording(self, wordings: Wordings, rng: Random, negated: bool) -> str:
        """A wording that may be used: one of training, or one held out."""
        part = wordings.part(self.held_out)
        chosen = part.no if negated else part.yes
        if not chosen:
            chosen = wordings.no if negated else wordings.yes
        return rng.choice(chosen)

    def question(self, wordings: Wordings, truth: bool, rng: Random, doc: str, group: str, text: str, **x: str) -> Item:
        """One wording of a fact about the text, at times a negated one."""
        negated = bool(wordings.no) and rng.random() < self.negated
        question = self.wording(wordings, rng, negated).format(doc=doc, **x)
        return ask(question, text, float(truth != negated), group)


def noun(rng: Random, *others: str) -> str:
    """What the text is called."""
    return rng.choice(("the document", "the document", "the text", "this text", *others, *others, *others))


Maker = Callable[[Builder, Random], Unit]
"""Draws a unit of one task."""
