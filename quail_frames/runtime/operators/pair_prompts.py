"""The prompts of a pair join: what every pair of a partner asks, how long prompts are, and whole ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quail_frames.plan.physical import PairJoin
from quail_frames.runtime.batch import AskBlock, Int32
from quail_frames.runtime.compiled import CompiledCall, Tokenizer
from quail_frames.runtime.kv.memory import Document
from quail_frames.runtime.operators.alike_partners import AlikePartners, sorted_questions
from quail_frames.runtime.operators.anchors import Anchor
from quail_frames.runtime.operators.asks import ask_tokens, cut_values, suffix_block
from quail_frames.runtime.operators.candidates import PartnerSide
from quail_frames.runtime.operators.inputs import InputColumn, first_rows, number_keys
from quail_frames.runtime.tokens.assemble import assemble, concatenate
from quail_frames.runtime.tokens.layouts import own_tokens
from quail_frames.runtime.tokens.ragged import Int64, Ragged


@dataclass(frozen=True, eq=False)
class PairPrompts:
    """A join's call with its partners.

    partners  rows and distinct units of the partner side
    question  what each unit asks on the anchor's context
    values    tokens of the partner's columns, of each unit
    alike     units whose questions begin alike
    left      tokens of a question that are asked of a pair alone, at least
    frame     tokens behind the anchor's document that are the same for all pairs
    limit     tokens of the longest prompt
    """

    call: CompiledCall
    limit: int
    partners: PartnerSide
    question: Ragged
    values: dict[int, Ragged]
    alike: AlikePartners
    left: int
    frame: Int32

    @staticmethod
    def of(
        plan: PairJoin,
        call: CompiledCall,
        partners: pa.RecordBatch,
        tokenizer: Tokenizer,
        limit: int,
        later: Sequence[pa.RecordBatch] = (),
    ) -> PairPrompts:
        """Every distinct partner is tokenised once; those that begin alike are neighbours.

        `later`: partners that other joins will ask the same anchors about.
        """
        unit_of_row, values, question = _questions(plan, call, partners, tokenizer)
        units = len(question)
        left = int(call.readout.tails.lengths.max()) + 1
        others = (_questions(plan, call, each, tokenizer)[2] for each in later)
        every = concatenate([question, *(_unasked(each, question) for each in others)])
        order = sorted_questions(every)
        alike = AlikePartners.of(every.take(order), left).part(order < units)
        order = order[order < units]
        if alike.levels:
            values = {column: lists.take(order) for column, lists in values.items()}
            question = question.take(order)
            unit_of_row = np.append(np.argsort(order), -1)[unit_of_row]
        frame = assemble(call.prompt.instruction, {}, 1).values
        return PairPrompts(call, limit, PartnerSide(unit_of_row, units), question, values, alike, left, frame)

    def keys_of_units(self, partners: pa.RecordBatch, names: tuple[str, ...]) -> list[Hashable]:
        """The texts of each unit."""
        columns = [InputColumn(name, partners.column(name)) for name in names]
        keys = list(zip(*(column.keys() for column in columns), strict=True))
        return [keys[row] for row in first_rows(self.partners.unit_of_row).tolist()]

    def document(self, anchor: Anchor) -> Document:
        """The anchor's document, assembled once."""
        if anchor.document is None:
            anchor.document = Document.of(assemble(self.call.prompt.document, anchor.values, 1).values)
        return anchor.document

    def document_tokens(self, anchor: Anchor) -> int:
        """Tokens of the anchor's document."""
        return own_tokens(self.call.prompt.document) + sum(len(lists.values) for lists in anchor.values.values())

    def trunk_tokens(self, anchor: Anchor) -> int:
        """Tokens that all pairs of the anchor share: document and frame."""
        return self.document_tokens(anchor) + len(self.frame)

    def tokens(self, anchor: Anchor, units: Int64) -> Int64:
        """Tokens of the whole prompt of each pair, uncut."""
        lengths: Int64 = self.trunk_tokens(anchor) + self.question.lengths[units]
        return lengths

    def whole_tokens(self, anchor: Anchor, units: Int64) -> Int64:
        """The same, as far as the model takes them."""
        return np.minimum(self.tokens(anchor, units), self.limit)

    def whole_block(self, anchor: Anchor, units: Int64) -> AskBlock:
        """Whole prompts, cut to what the model takes, on no context."""
        prompt, count = self.call.prompt, len(units)
        same = {column: lists.take(np.zeros(count, dtype=np.int64)) for column, lists in anchor.values.items()}
        values = same | {column: lists.take(units) for column, lists in self.values.items()}
        cut = cut_values(values, self.limit - self.call.positions)
        none = np.zeros(count, dtype=np.int64)
        tokens = ask_tokens(self.call, (*prompt.document, *prompt.instruction, *prompt.question), cut, none)
        return suffix_block(self.call, np.full(count, -1, dtype=np.int32), none, tokens, none)


def _questions(
    plan: PairJoin, call: CompiledCall, partners: pa.RecordBatch, tokenizer: Tokenizer
) -> tuple[Int64, dict[int, Ragged], Ragged]:
    """(unit of every row, tokens of each unit's columns, what each unit asks)."""
    first = len(plan.anchor_inputs)
    columns = [InputColumn(name, partners.column(name)) for name in plan.partner_inputs]
    unit_of_row, units = number_keys(columns)
    rows = first_rows(unit_of_row)
    values = {first + n: column.tokens(rows, tokenizer) for n, column in enumerate(columns)}
    return unit_of_row, values, ask_tokens(call, call.prompt.question, values, np.zeros(units, dtype=np.int64))


def _unasked(later: Ragged, now: Ragged) -> Ragged:
    """The later questions that are not asked now: of a pair that is, the answer will be known."""
    own = {question.tobytes() for question in now.lists()}
    new = [number for number, question in enumerate(later.lists()) if question.tobytes() not in own]
    return later.take(np.array(new, dtype=np.int64))
