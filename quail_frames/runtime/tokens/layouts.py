"""Prompt layouts: how a call becomes token pieces around the values of a row.

A prompt is `document | instruction | question`, each piece tokenised alone, so that ids
never depend on what follows and everything before the question is a context that other
asks share:

- `document` holds the row's values (document_first) or nothing (question_first);
- `instruction` is common to all calls of a kind over that document (document_first), or
  holds the whole call, once for a column (question_first);
- `question` is the ask's own suffix, ending in the answer cue (of `decision_choice` in the heading of the list: its
  read-out feeds the options and the cue).

Piece texts follow docs/prompts.md. Ids of a piece are an int32 array; a row's value is an `Input`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.physical import PlannedCall
from quail_frames.plan.template import Slot
from quail_frames.runtime.tokens.ragged import Int32

TRUE_FALSE = "Evaluate TRUE or FALSE for the following question: "
CHOOSE_LABEL = "Choose the category that fits best. Answer with the category."
CHOOSE_LETTER = "Choose the category that fits best. Answer with the letter of the category."
DOCUMENT = "DOCUMENT:\n"
CUE = "\nANSWER:"
CATEGORIES = "\n\nCategories:"
QUESTION_FIRST_FROM = 128
"""`layout="auto"` puts the question first when the call's own tokens are this many or more."""

Encode = Callable[[str], Int32]


@dataclass(frozen=True, slots=True)
class Input:
    """Place of the row's value for input column number `column` of the operator."""

    column: int


Piece = Int32 | Input


@dataclass(frozen=True)
class Prompt:
    """The pieces of one call, ready to be joined with a row's tokens.

    `document_key` and `instruction_key` are equal for calls whose pieces are equal: such
    calls share the context that ends with the piece.
    """

    document: tuple[Piece, ...]
    instruction: tuple[Piece, ...]
    question: tuple[Piece, ...]
    document_key: str
    instruction_key: str

    @cached_property
    def own_tokens(self) -> int:
        """Tokens of the prompt that are the same for every row."""
        return own_tokens((*self.document, *self.instruction, *self.question))


def own_tokens(pieces: Sequence[Piece]) -> int:
    """Tokens of the pieces that are not the row's."""
    return sum(len(piece) for piece in pieces if not isinstance(piece, Input))


@dataclass(frozen=True)
class Markers:
    """Token texts around every prompt: BOS and chat turns, where a model's spec has them."""

    before: str = ""
    after: str = ""
    bos: int | None = None


NO_MARKERS = Markers()


def document_heading(slot: int, slots: int) -> str:
    """Heading over the text of a slot; numbered where the call has several.

    >>> document_heading(1, 2)
    'DOCUMENT {1}:\\n'
    """
    return DOCUMENT if slots == 1 else f"DOCUMENT {{{slot}}}:\n"


def question_text(call: AiCall) -> str:
    """The template as a question about documents that stand elsewhere in the prompt.

    One document: a placeholder at either end goes away, one inside becomes "the document".
    Several: the question keeps its markers `{0}`, `{1}`.
    """
    pieces = call.template.pieces
    slots = call.template.inputs
    if not any(isinstance(piece, str) and piece.strip() for piece in pieces):
        return ""
    if len(slots) > 1:
        return call.template.render(tuple(f"{{{slot}}}" for slot in range(len(call.columns)))).strip()
    texts = ["" if isinstance(piece, Slot) else piece for piece in pieces]
    while texts and not texts[0].strip():
        texts.pop(0)
        pieces = pieces[1:]
    while texts and not texts[-1].strip():
        texts.pop()
        pieces = pieces[:-1]
    inner = ["the document" if isinstance(piece, Slot) else piece for piece in pieces]
    return "".join(inner).strip()


def option_lines(call: AiClassify, letters: Sequence[str] | None = None) -> list[str]:
    """A line of the list for each label; in `decision_choice` these are the option blocks."""
    lines = []
    for number, label in enumerate(call.labels):
        description = call.descriptions[number] if call.descriptions else None
        name = f"{letters[number]}: {label}" if letters else label
        lines.append(f"\n- {name}: {description}" if description else f"\n- {name}")
    return lines


def option_objects(call: AiClassify) -> list[str]:
    """The option blocks as one-line JSON objects, for models that were trained with them."""
    descriptions = call.descriptions or (None,) * len(call.labels)
    pairs = zip(call.labels, descriptions, strict=True)
    objects = [{"label": label} | ({"description": text} if text else {}) for label, text in pairs]
    return ["\n" + json.dumps(each, ensure_ascii=False) for each in objects]


def instruction_texts(planned: PlannedCall, letters: Sequence[str] | None) -> tuple[str, str, str]:
    """(instruction common to the kind of call, the call's own words, what stands before the cue).

    The last is a classification's list; of `decision_choice` only its heading, for the blocks are fed by the read-out.
    """
    call = planned.call
    question = question_text(call)
    if not isinstance(call, AiClassify):
        return TRUE_FALSE, question, ""  # where a head decides, its read-out feeds FALSE, TRUE and the cue
    own = "".join(f" {text}" for text in (question, call.task_description) if text)
    lines = [] if planned.scoring == "decision_choice" else option_lines(call, letters)
    return (CHOOSE_LETTER if letters else CHOOSE_LABEL), own, CATEGORIES + "".join(lines)


def build_prompt(
    planned: PlannedCall, encode: Encode, *, letters: Sequence[str] | None = None, markers: Markers = NO_MARKERS
) -> Prompt:
    """The prompt of a call asked of single rows."""
    instruction, own, options = instruction_texts(planned, letters)
    slots = planned.call.template.inputs or (0,)
    start = _start(encode, markers)
    decides = planned.scoring == "decision_choice"
    cue = "" if decides else CUE + markers.after
    if planned.layout == "question_first":
        heading, *row = _documents(planned, slots, encode, lead="\n\n")
        shared = (*start, encode(instruction + own + ("" if decides else options)), heading)
        key = f"question_first {planned.call.identity}"
        return Prompt((), shared, (*row, encode(options if decides else cue)), document_key=key, instruction_key=key)
    document = (*start, *_documents(planned, slots, encode, lead=""))
    return Prompt(
        document,
        (encode("\n\n" + instruction),),
        (encode(own + options + cue),),
        document_key=_document_key(planned, slots),
        instruction_key=instruction,
    )


def build_pair_prompt(
    planned: PlannedCall, encode: Encode, *, letters: Sequence[str] | None = None, markers: Markers = NO_MARKERS
) -> Prompt:
    """The prompt of a call asked of pairs: the anchor's documents, a frame, then the partner's.

    A join's frame holds its whole question, so a pair adds only the partner and the cue.
    A classification's list follows the partner.
    """
    slots = planned.call.template.inputs
    anchors = tuple(slot for slot in slots if slot in planned.anchors)
    partners = tuple(slot for slot in slots if slot not in planned.anchors)
    instruction, own, options = instruction_texts(planned, letters)
    classify = isinstance(planned.call, AiClassify)
    note = [f"The document above is DOCUMENT {{{anchors[0]}}}."] if len(anchors) == 1 else []
    words = " ".join(note if classify else [*note, instruction + own])
    frame = "\n\n" + (words + "\n\n" if words else "") + f"DOCUMENT {{{partners[0]}}}:\n"
    cue = "" if planned.scoring == "decision_choice" else CUE + markers.after
    tail = ("\n\n" + instruction + own + options if classify else "") + cue
    partner = _documents(planned, partners, encode, lead="", slots_of_call=slots)[1:]
    return Prompt(
        (*_start(encode, markers), *_documents(planned, anchors, encode, lead="")),
        (encode(frame),),
        (*partner, encode(tail)),
        document_key=_document_key(planned, anchors),
        instruction_key=frame,
    )


def _document_key(planned: PlannedCall, slots: Sequence[int]) -> str:
    numbers = tuple(slots) if len(slots) > 1 else ()
    return f"documents {[planned.inputs[slot] for slot in slots]} numbered {numbers}"


def _start(encode: Encode, markers: Markers) -> tuple[Int32, ...]:
    pieces = [] if markers.bos is None else [np.array([markers.bos], dtype=np.int32)]
    return (*pieces, encode(markers.before)) if markers.before else tuple(pieces)


def _documents(
    planned: PlannedCall, slots: Sequence[int], encode: Encode, *, lead: str, slots_of_call: Sequence[int] | None = None
) -> tuple[Piece, ...]:
    """Heading and value of each slot; the first heading starts with `lead`, the others with a blank line."""
    count = len(slots_of_call or slots)
    pieces: list[Piece] = []
    for number, slot in enumerate(slots):
        heading = document_heading(slot, count)
        pieces += [encode((lead if number == 0 else "\n\n") + heading), Input(planned.inputs[slot])]
    return tuple(pieces)
