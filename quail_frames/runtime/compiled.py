"""A planned call made ready for a model: prompt pieces, read-out, and how answers are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from quail_frames.errors import CallError
from quail_frames.plan.calls import AiCall, AiClassify, AiScore
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.batch import Float32, Int32, ReadoutSpec
from quail_frames.runtime.readouts.answers import answer_readout
from quail_frames.runtime.readouts.decision_choice import DecisionChoiceReadout
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.readouts.letters import LettersReadout
from quail_frames.runtime.readouts.one_of_many import OneOfMany
from quail_frames.runtime.readouts.one_row import Readout
from quail_frames.runtime.readouts.trie_decode import TrieDecodeReadout
from quail_frames.runtime.readouts.trie_tree import TrieTreeReadout
from quail_frames.runtime.readouts.true_false import Float64, TrueFalseReadout, sigmoid
from quail_frames.runtime.tokens.layouts import (
    CUE,
    NO_MARKERS,
    Encode,
    Input,
    Markers,
    Prompt,
    build_pair_prompt,
    build_prompt,
    option_lines,
    option_objects,
)
from quail_frames.runtime.tokens.ragged import Ragged


class Tokenizer(Protocol):
    """What the runtime needs of a tokenizer."""

    bos_id: int | None

    def encode(self, texts: list[str]) -> Ragged:
        """Plain-text token ids of each text."""
        ...

    def decode(self, ids: Int32) -> str:
        """The text of these tokens."""
        ...


Scoring = Literal["letters", "trie_decode", "trie_tree", "decision_choice"]


@dataclass(frozen=True)
class DecisionFormat:
    """How the options of a model with a decision head were laid out in training.

    masked      side by side at equal positions, unseen by each other (False: in sequence, as plain text)
    blocks      `lines`: `\n- label: description`; `json`: one-line objects
    width       of the head, for its price
    questions   TRUE/FALSE questions are choices of the head too, of false and then true
    """

    masked: bool = True
    blocks: Literal["lines", "json"] = "lines"
    width: int = 128
    questions: bool = False

    def option_blocks(self, call: AiCall) -> list[str]:
        """The text of each option's block."""
        if isinstance(call, AiClassify):
            return option_lines(call) if self.blocks == "lines" else option_objects(call)
        return ["\n- FALSE", "\n- TRUE"] if self.blocks == "lines" else ['\n{"label": false}', '\n{"label": true}']


@dataclass(frozen=True)
class ModelTraits:
    """What a model's spec says about prompts and read-outs.

    `temperature` and `bias` calibrate TRUE/FALSE, `choice_temperature` and `letters_temperature` the probabilities of
    `decision_choice` and `letters`. `decision` is None where the model has no decision head. `default_label_scoring`
    is what `auto` means for this model; None: the cheapest method.

    reads            `tokens`: logits of tokens can be had; `answers`: only an answer as text, and how likely it was
    units_per_token  how many ids of the tokenizer make about one token of the model's own
    """

    markers: Markers = NO_MARKERS
    pooling: str = "max"
    temperature: float = 1.0
    bias: float = 0.0
    choice_temperature: float = 1.0
    letters_temperature: float = 1.0
    decision: DecisionFormat | None = None
    default_label_scoring: Scoring | None = None
    reads: Literal["tokens", "answers"] = "tokens"
    units_per_token: int = 1


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of `A` asks: truth (int8), score (float64) or label number (int16), and probabilities [A, M]."""

    values: npt.NDArray[np.generic]
    probabilities: Float64 | None = None


@dataclass(frozen=True, eq=False)
class CompiledCall:
    """One call of a chain, ready to be asked."""

    planned: PlannedCall
    prompt: Prompt
    readout: Readout

    @property
    def spec(self) -> ReadoutSpec:
        """What is read in each row."""
        return self.readout.spec

    @property
    def positions(self) -> int:
        """Positions of the prompt and the longest answer that are the same for every row."""
        return self.prompt.own_tokens + self.readout.depth

    @property
    def value_type(self) -> np.dtype[np.generic]:
        """How an answer is stored."""
        call = self.planned.call
        return np.dtype(
            np.int16 if isinstance(call, AiClassify) else np.float64 if isinstance(call, AiScore) else np.int8
        )

    def decode(self, logits: Float32) -> Answers:
        """Answers of the asks with these logits, [A * reads, N]; a read-out of several steps has its own `advance`."""
        if isinstance(self.readout, TrieTreeReadout):
            return self._decode_tree(self.readout, logits)
        if isinstance(self.readout, DecisionChoiceReadout) and not isinstance(self.planned.call, AiClassify):
            return self._decode_margins(self.readout.margins(logits))
        if isinstance(self.readout, OneOfMany | DecisionChoiceReadout):
            call = self.planned.call
            wanted = isinstance(call, AiClassify) and call.probabilities
            shares = self.readout.probabilities(logits) if wanted else None
            return Answers(self.readout.best(logits).astype(np.int16), shares)
        assert isinstance(self.readout, TrueFalseReadout)
        return self._decode_margins(self.readout.margins(logits))

    def _decode_margins(self, margins: Float64) -> Answers:
        if isinstance(self.planned.call, AiScore):
            return Answers(sigmoid(margins))
        return Answers((margins > 0).astype(np.int8))

    def _decode_tree(self, readout: TrieTreeReadout, logits: Float32) -> Answers:
        entries = readout.entries(logits)
        wanted = isinstance(self.planned.call, AiClassify) and self.planned.call.probabilities
        shares = readout.program.probabilities(entries) if wanted else None
        return Answers(readout.program.choose(entries).astype(np.int16), shares)


def compile_call(planned: PlannedCall, tokenizer: Tokenizer, traits: ModelTraits) -> CompiledCall:
    """Prompt pieces and read-out of a call: asked of single rows, or of pairs where the plan names anchor slots."""
    encode = piece_encoder(tokenizer)
    readout = make_readout(planned, tokenizer, traits)
    letters = readout.letters if isinstance(readout, LettersReadout) else None
    build = build_pair_prompt if planned.anchors else build_prompt
    return CompiledCall(planned, build(planned, encode, letters=letters, markers=traits.markers), readout)


def make_readout(planned: PlannedCall, tokenizer: Tokenizer, traits: ModelTraits) -> Readout:
    """The read-out that the plan names.

    Raises
    ------
    CallError
        The call's labels or options rule it out with this model.
    """
    call, encode = planned.call, piece_encoder(tokenizer)
    if traits.reads == "answers":
        return answer_readout(planned)
    if not isinstance(call, AiClassify) and planned.scoring != "decision_choice":
        return TrueFalseReadout.of(encode, pooling=traits.pooling, temperature=traits.temperature, bias=traits.bias)
    if planned.scoring == "decision_choice":
        return _decision_readout(call, encode, traits)
    assert isinstance(call, AiClassify)
    if planned.scoring == "letters":
        return LettersReadout.of(encode, len(call.labels), traits.letters_temperature, call.probabilities)
    if planned.scoring == "trie_tree":
        return TrieTreeReadout.of(LabelTokens.of(tokenizer, call.labels))
    if planned.scoring == "trie_decode" and call.probabilities:
        raise CallError(
            f"scoring='trie_decode' of the classification of {call.columns[0]!r} follows one path and gives no "
            "probabilities; use scoring='trie_tree' or 'letters', or leave out probabilities=True"
        )
    return TrieDecodeReadout.of(LabelTokens.of(tokenizer, call.labels))


def _decision_readout(call: AiCall, encode: Encode, traits: ModelTraits) -> DecisionChoiceReadout:
    form = traits.decision
    if form is None:
        raise CallError(
            f"scoring='decision_choice' of the question about {call.columns[0]!r} needs a model with a decision "
            "head, which this one has not; use scoring='auto', 'letters', 'trie_decode' or 'trie_tree'"
        )
    cue, about = CUE + traits.markers.after, isinstance(call, AiClassify)
    return DecisionChoiceReadout.of(
        encode,
        form.option_blocks(call),
        cue,
        masked=form.masked,
        temperature=traits.choice_temperature if about else traits.temperature,
        bias=0.0 if about else traits.bias,
        probabilities=not isinstance(call, AiClassify) or call.probabilities,
    )


def piece_encoder(tokenizer: Tokenizer) -> Encode:
    """Encodes one prompt piece."""
    return lambda text: tokenizer.encode([text]).values


def input_columns(prompt: Prompt) -> tuple[int, ...]:
    """Operator inputs that the prompt shows, in order."""
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    return tuple(dict.fromkeys(piece.column for piece in pieces if isinstance(piece, Input)))
