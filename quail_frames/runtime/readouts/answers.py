"""Read-outs of engines that give texts instead of logits: which texts are answers, and whether likelihoods are needed.

Column i of the "logits" is answer i: its log-probability where the engine tells, else 0
for the answer given and minus infinity for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from quail_frames.errors import CallError
from quail_frames.plan.calls import AiClassify, AiScore
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.batch import ReadoutSpec
from quail_frames.runtime.readouts.letters import LettersReadout, letter_names
from quail_frames.runtime.readouts.one_of_many import OneOfMany
from quail_frames.runtime.readouts.one_row import Readout
from quail_frames.runtime.readouts.true_false import TrueFalseReadout

SINGLE_LETTERS = 52
TRUE_OR_FALSE = (("TRUE", "True"), ("FALSE", "False"))


@dataclass(frozen=True, eq=False)
class AnswerSpec(ReadoutSpec):
    """`answers[i]` are the texts that count as answer i, the one to ask for first; `scored`: their likelihoods too."""

    answers: tuple[tuple[str, ...], ...] = ()
    scored: bool = False

    @staticmethod
    def of(answers: tuple[tuple[str, ...], ...], scored: bool) -> AnswerSpec:
        """The spec of these answers."""
        return AnswerSpec(np.arange(len(answers), dtype=np.int32), answers=answers, scored=scored)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The text to ask for, of each answer."""
        return tuple(texts[0] for texts in self.answers)


def answer_readout(planned: PlannedCall) -> Readout:
    """TRUE or FALSE; a label's letter (`letters`); or the label itself (`trie_decode`).

    Raises
    ------
    CallError
        The call's labels or options rule it out.
    """
    call = planned.call
    if not isinstance(call, AiClassify):
        return TrueFalseReadout(AnswerSpec.of(TRUE_OR_FALSE, isinstance(call, AiScore)), 1)
    if planned.scoring == "letters":
        return _letters(call)
    if planned.scoring != "trie_decode":
        raise CallError(
            f"scoring={planned.scoring!r} of the classification of {call.columns[0]!r} reads the scores of tokens, "
            "which an endpoint does not give; use scoring='auto', 'letters' or 'trie_decode' (the label itself)"
        )
    if call.probabilities:
        raise CallError(
            f"scoring='trie_decode' of the classification of {call.columns[0]!r} gives no probabilities; "
            "use scoring='letters', or leave out probabilities=True"
        )
    labels = tuple((label.strip(),) for label in call.labels)
    if len(set(labels)) < len(labels):
        raise CallError(f"two labels of {call.columns[0]!r} differ in white space only; rename one")
    return OneOfMany(AnswerSpec.of(labels, scored=False))


def _letters(call: AiClassify) -> LettersReadout:
    names = tuple(islice(letter_names(), len(call.labels)))
    if len(names) < len(call.labels) or (call.probabilities and len(names) > SINGLE_LETTERS):
        most = SINGLE_LETTERS if call.probabilities else len(names)
        raise CallError(
            f"scoring='letters' has letters for {most} labels, not for {len(call.labels)}; "
            "use scoring='trie_decode', without probabilities"
        )
    return LettersReadout(AnswerSpec.of(tuple((name,) for name in names), call.probabilities), letters=names)
