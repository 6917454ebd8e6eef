"""`auto` made concrete: a call's layout and label scoring, from the call and the model alone.

Rows, memory and devices have no say here, so answers do not depend on them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from quail_frames.cost.choices import auto_scoring
from quail_frames.cost.shapes import ModelShape
from quail_frames.errors import CallError
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.compiled import ModelTraits, Scoring, Tokenizer, make_readout, piece_encoder
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.readouts.letters import letter_tokens
from quail_frames.runtime.tokens.layouts import QUESTION_FIRST_FROM, Encode, build_prompt

UNKNOWN_SELECTIVITY = 0.2
CHOSEN_HERE = ("auto", "by_cost")
"""`by_cost` is the optimizer's to choose; a call that comes here with it was left open."""


def resolve_call(
    call: AiCall,
    inputs: tuple[int, ...],
    anchors: tuple[int, ...],
    tokenizer: Tokenizer,
    traits: ModelTraits,
    shape: ModelShape,
) -> PlannedCall:
    """The call with its physical choices made; `anchors` are its slots of the anchor side, where it is asked of pairs.

    Raises
    ------
    CallError
        An option that the call's columns or labels, or this model, rule out.
    """
    selectivity = UNKNOWN_SELECTIVITY if call.selectivity is None else call.selectivity
    planned = PlannedCall(call, inputs, "document_first", "true_false", selectivity, anchors)
    if isinstance(call, AiClassify):
        planned = replace(planned, scoring=_scoring(planned, call, tokenizer, traits, shape))
    elif traits.decision is not None and traits.decision.questions:
        planned = replace(planned, scoring="decision_choice")
    planned = replace(planned, layout=_layout(planned, tokenizer, traits))
    if isinstance(call, AiClassify):
        make_readout(planned, tokenizer, traits)
    return planned


def _layout(
    planned: PlannedCall, tokenizer: Tokenizer, traits: ModelTraits
) -> Literal["document_first", "question_first"]:
    call = planned.call
    if len(planned.inputs) > 1:
        if call.layout == "question_first":
            names = ", ".join(map(repr, call.columns))
            raise CallError(
                f"layout='question_first' takes calls of one column; {call.kind} reads {names}: use 'document_first'"
            )
        return "document_first"
    if call.layout in CHOSEN_HERE:
        own = build_prompt(planned, piece_encoder(tokenizer), markers=traits.markers).own_tokens
        return "question_first" if own >= QUESTION_FIRST_FROM * traits.units_per_token else "document_first"
    return call.layout  # type: ignore[return-value]


def _scoring(
    planned: PlannedCall, call: AiClassify, tokenizer: Tokenizer, traits: ModelTraits, shape: ModelShape
) -> Scoring:
    if call.scoring not in CHOSEN_HERE:
        return call.scoring  # type: ignore[return-value]
    if traits.default_label_scoring is not None:
        return traits.default_label_scoring
    if traits.reads == "answers":
        return "letters" if call.probabilities else "trie_decode"
    labels = LabelTokens.of(tokenizer, call.labels)
    encode, count = piece_encoder(tokenizer), len(call.labels)
    letters = tuple(letter_tokens(encode, count))
    enough = len(letters) == count
    added = _own_tokens(planned, encode, letters) - _own_tokens(planned, encode, None) if enough else None
    return auto_scoring(shape, labels.trie, call.probabilities, labels.word_ends, added, enough)


def _own_tokens(planned: PlannedCall, encode: Encode, letters: tuple[str, ...] | None) -> int:
    """The call's own tokens in one layout, so that the scoring does not depend on where the words stand."""
    return build_prompt(replace(planned, layout="document_first", anchors=()), encode, letters=letters).own_tokens
