"""One call among those of its lane: what its prompts are made of, and what of them other asks use again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.cost.programs import Price
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.operators.lane import UNASKED, Lane
from quail_frames.runtime.operators.rounds import Rounds
from quail_frames.runtime.readouts.trie_decode import TrieDecodeReadout
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.layouts import own_tokens
from quail_frames.runtime.tokens.ragged import Int32, Int64


class Placement:
    """Call `number` in `lane`; `retain`: its documents stay for a later operator."""

    def __init__(self, number: int, lane: Lane, limit: int, retain: bool, report: RunReport) -> None:
        self.lane, self.limit, self.report = lane, limit, report
        self.state = lane.calls[number]
        self.call: CompiledCall = self.state.call
        self.retain = retain and self.call.planned.layout == "document_first"
        self.keeps_alike = self.retain or bool(self.call.planned.anchors)
        self.instruction = own_tokens(self.call.prompt.instruction)
        self.document_own = own_tokens(self.call.prompt.document)
        self.question_own = own_tokens(self.call.prompt.question)
        self.longest_tail = int(self.call.readout.tails.lengths.max())
        self.read_tokens = max(self.longest_tail + 1, *(-read for read in self.call.readout.reads))
        self.siblings = [other for other in lane.calls.values() if self._shares_document(other.call)]
        self.siblings_with_rounds = [s for s in self.siblings if isinstance(s.call.readout, TrieDecodeReadout)]
        self.shares_instruction = self.keeps_alike or any(
            other.call.prompt.instruction_key == self.call.prompt.instruction_key for other in self.siblings
        )
        readout = self.call.readout
        self.rounds: Rounds | None = None
        if isinstance(readout, TrieDecodeReadout):
            self.rounds = Rounds(lane, self.state, readout, self.siblings, self.keeps_alike)

    @property
    def question_first(self) -> bool:
        """The call's own words are one context for all units."""
        return self.call.planned.layout == "question_first"

    @property
    def instruction_number(self) -> int:
        """Which instruction a context holds after its document, as the lane numbers them."""
        return self.lane.instruction_numbers[self.call.prompt.instruction_key]

    def too_long(self, units: Int64) -> npt.NDArray[np.bool_]:
        """Units whose prompt and answer are longer than the model's context."""
        return self.lane.value_tokens.data[units] + self.call.positions > self.limit

    def steps(self, units: Int64) -> Int64:
        """Which step of the read-out each unit is at."""
        return np.zeros(len(units), dtype=np.int64) if self.rounds is None else self.rounds.steps.data[units]

    def prompt_tokens(self, units: Int64) -> Int64:
        """Tokens of the units' whole prompts, with what the read-out feeds after them."""
        tails = self.call.readout.tails.lengths[self.steps(units)]
        return self.lane.value_tokens.data[units] + self.call.prompt.own_tokens + tails

    def note_resident(self, units: Int64, contexts: Int64, documents: Int64) -> None:
        """The units' documents are in these contexts, behind each the instruction where calls share it."""
        self.lane.context.data[units] = contexts
        self.lane.document_tokens.data[units] = documents
        self.lane.instruction.data[units] = self.instruction_number if self.shares_instruction else -1

    def trail(self, suffix: Int32) -> Int32:
        """What of an ask behind its document need not be computed where it is resident: all that is not read."""
        return suffix[: max(len(suffix) - self.read_tokens, 0)]

    def still_wanted(self, units: Int64) -> npt.NDArray[np.bool_]:
        """Units whose document another call, or a later operator, may ask about."""
        if self.question_first:
            return np.zeros(len(units), dtype=np.bool_)
        wanted = np.full(len(units), self.retain)
        for sibling in self.siblings:
            wanted |= sibling.state.data[units] == UNASKED
        return wanted

    def price(self) -> Price:
        """Tokens that an ask is expected to compute; those of the document are paid once by a lane's calls."""
        values = self.lane.mean_tokens
        if self.question_first:
            return Price(self.question_own + values)
        return Price(self.instruction + self.question_own, id(self.lane), self.document_own + values)

    def _shares_document(self, other: CompiledCall) -> bool:
        same = other.prompt.document_key == self.call.prompt.document_key
        return same and other is not self.call and not self.question_first
