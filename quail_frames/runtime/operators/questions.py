"""One call's way through a chain: which units wait for it, how they are asked, what comes back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.plan.calls import Overflow
from quail_frames.runtime.batch import Float32, Int32
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.kv.memory import Document, Memory
from quail_frames.runtime.operators.asks import (
    ask_tokens,
    context_block,
    cut_asks,
    fresh_asks,
    shared_asks,
    suffix_block,
    suffix_tokens,
)
from quail_frames.runtime.operators.lane import UNASKED, WAITING, Lane
from quail_frames.runtime.operators.rounds import Rounds, waiting
from quail_frames.runtime.readouts.trie_decode import TrieDecodeReadout
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.layouts import own_tokens
from quail_frames.runtime.tokens.ragged import Int64, Ragged


@dataclass(frozen=True, eq=False)
class Asked:
    """Tag of a block: these units were asked this question."""

    question: Question
    units: Int64


PEEK = 4096
ALIKE_AT_ONCE = 256


class UnitQueue:
    """Units in the order they came, taken from the front."""

    def __init__(self) -> None:
        self._parts: deque[Int64] = deque()
        self.size = 0

    def push(self, units: Int64) -> None:
        """Add to the end."""
        if len(units):
            self._parts.append(units)
            self.size += len(units)

    def peek(self, most: int) -> Int64:
        """Up to `most` units from the front, left in place."""
        if len(self._parts) > 1:
            self._parts = deque([np.concatenate(self._parts)])
        return self._parts[0][:most] if self._parts else np.zeros(0, dtype=np.int64)

    def put_back(self, count: int, units: Int64) -> None:
        """Replace `count` units at the front (after `peek`) by these."""
        self.drop(count)
        if len(units):
            self._parts.appendleft(units)
            self.size += len(units)

    def drop(self, count: int) -> None:
        """Remove `count` units from the front (after `peek`)."""
        if count:
            rest = self._parts.popleft()[count:]
            self.size -= count
            if len(rest):
                self._parts.appendleft(rest)


class Question:
    """Asks one call of the units of a lane.

    A unit whose document is resident is asked on it; one whose document is not pays for
    it, and leaves it resident while other calls of the lane may still want it.
    """

    def __init__(self, number: int, lane: Lane, limit: int, retain: bool, report: RunReport) -> None:
        self.number = number
        self.lane = lane
        self.state = lane.calls[number]
        self.call: CompiledCall = self.state.call
        self._limit = limit
        self._retain = retain and self.call.planned.layout == "document_first"
        self._report = report
        self._resident, self._fresh, self._going = UnitQueue(), UnitQueue(), UnitQueue()
        self._shared: int | None = None
        self._instruction = own_tokens(self.call.prompt.instruction)
        self._document_own = own_tokens(self.call.prompt.document)
        self._question_own = own_tokens(self.call.prompt.question)
        self._siblings = [other for other in lane.calls.values() if self._shares_document(other.call)]
        self._siblings_with_rounds = [
            other for other in self._siblings if isinstance(other.call.readout, TrieDecodeReadout)
        ]
        self._shares_instruction = any(
            other.call.prompt.instruction_key == self.call.prompt.instruction_key for other in self._siblings
        )
        readout = self.call.readout
        self._longest_tail = int(readout.tails.lengths.max())
        self.rounds: Rounds | None = None
        if isinstance(readout, TrieDecodeReadout):
            self.rounds = Rounds(
                lane, self.state, readout, self._siblings, self._retain or bool(self.call.planned.anchors)
            )

    @property
    def overflow(self) -> Overflow:
        """What the call does with a prompt that is too long."""
        return self.call.planned.call.overflow

    @property
    def ready_tokens(self) -> int:
        """About how many tokens the queued asks need."""
        units = self._fresh.peek(PEEK)
        fresh = int(self.lane.value_tokens.data[units].sum()) + len(units) * self.call.prompt.own_tokens
        resident = self._resident.size * (self._instruction + self._question_own)
        return fresh + resident + self._going.size * self._longest_tail

    @property
    def question_first(self) -> bool:
        """The call's own words are one context for all units."""
        return self.call.planned.layout == "question_first"

    def too_long(self, units: Int64) -> npt.NDArray[np.bool_]:
        """Units whose prompt and answer are longer than the model's context."""
        return self.lane.value_tokens.data[units] + self.call.positions > self._limit

    def push(self, units: Int64) -> None:
        """Units that want an answer."""
        self.state.state.data[units] = WAITING
        if self.rounds is not None:
            self.rounds.reach()
        self._queue(units)

    def fill_resident(self, room: Room) -> None:
        """Further rounds, then asks on resident documents."""
        self._fill_going(room)
        cost = self._instruction + self._question_own + self._longest_tail
        while self._resident.size:
            units = self._resident.peek(max(room.left // cost, 1 if room.empty else 0))
            if not len(units):
                return
            holds = self.lane.instruction.data[units] == self.instruction_number
            self._resident.drop(len(units))
            for group, with_instruction in ((units[holds], False), (units[~holds], True)):
                if len(group):
                    self._add_suffixes(room, group, with_instruction)

    def fill_fresh(self, room: Room) -> None:
        """Asks of units whose document is not resident."""
        self._requeue_resident(room)
        shared = self._instruction if self.question_first else 0
        most = room.left // max(self.call.prompt.own_tokens - shared, 1) + 1
        units = self._fresh.peek(most)
        if not len(units) or not (room.left or room.empty):
            return
        cut = self.too_long(units)
        if cut.any():
            units = units[: int(cut.argmax())] if not cut[0] else units[:1]
        if cut[0]:
            self._fill_cut(room, units)
        elif self.question_first:
            self._fill_shared(room, units)
        else:
            alike = self.lane.alike.data[units] | self._retain | bool(self.call.planned.anchors)
            units = units[: int((alike != alike[0]).argmax()) or len(units)]
            fill = self._fill_alike if alike[0] else self._fill_documents
            fill(room, units)

    def accept(self, memory: Memory, units: Int64, logits: Float32) -> Int64:
        """Take in the logits of the units' asks; returns the units that they decide."""
        if self.rounds is None:
            self.state.store(units, self.call.decode(logits))
            return units
        decided = self.rounds.advance(units, logits)
        self.rounds.finish(memory, units[decided])
        undecided = units[~decided]
        kept = self.rounds.contexts(undecided) >= 0
        self._going.push(undecided[kept])
        self._queue(undecided[~kept])
        return units[decided]

    def close(self) -> list[int]:
        """Contexts that the question itself holds."""
        own = [] if self._shared is None else [self._shared]
        return own if self.rounds is None else [*own, *self.rounds.close()]

    @property
    def instruction_number(self) -> int:
        """Which instruction a context holds after its document, as the lane numbers them."""
        return self.lane.instruction_numbers[self.call.prompt.instruction_key]

    def _queue(self, units: Int64) -> None:
        """Units to be asked on their resident document, or with their whole prompt."""
        resident = self._askable_on_resident(units)
        self._resident.push(units[resident])
        self._fresh.push(units[~resident])

    def _askable_on_resident(self, units: Int64) -> npt.NDArray[np.bool_]:
        """The document is there, and need not be cut for this call."""
        resident = (self.lane.context.data[units] >= 0) & (not self.question_first)
        return resident & ~self.too_long(units)

    def _steps(self, units: Int64) -> Int64:
        return np.zeros(len(units), dtype=np.int64) if self.rounds is None else self.rounds.steps.data[units]

    def _prompt_tokens(self, units: Int64) -> Int64:
        """Tokens of the units' whole prompts, with what the read-out feeds after them."""
        tails = self.call.readout.tails.lengths[self._steps(units)]
        return self.lane.value_tokens.data[units] + self.call.prompt.own_tokens + tails

    def _fill_going(self, room: Room) -> None:
        if self.rounds is not None and self._going.size:
            units = self._going.peek(max(room.left // self._longest_tail, 1 if room.empty else 0))
            if len(units):
                self._going.drop(len(units))
                room.add(self.rounds.asks(room.memory, units), Asked(self, units))

    def _requeue_resident(self, room: Room) -> None:
        """A unit that waited for two calls may have become resident through the other one."""
        units = self._fresh.peek(PEEK)
        resident = self._askable_on_resident(units)
        if resident.any():
            self._fresh.put_back(len(units), units[~resident])
            self._resident.push(units[resident])
            self.fill_resident(room)

    def _shares_document(self, other: CompiledCall) -> bool:
        same = other.prompt.document_key == self.call.prompt.document_key
        return same and other is not self.call and not self.question_first

    def _add_suffixes(self, room: Room, units: Int64, with_instruction: bool) -> None:
        tokens = suffix_tokens(self.lane, self.call, units, self._steps(units), with_instruction)
        prefix = self.lane.document_tokens.data[units] + (0 if with_instruction else self._instruction)
        if self.rounds is not None:
            keep = self.rounds.keep_suffixes(room.memory, units, prefix, tokens.lengths)
            leaves = self._shares_instruction or not with_instruction
            self.lane.instruction.data[units[keep > 0]] = self.instruction_number if leaves else -1
        else:
            commit = with_instruction and self._shares_instruction and self._room_for_instruction(room, units)
            keep = np.full(len(units), self._instruction if commit else 0, dtype=np.int64)
        block = suffix_block(self.call, self.lane.context.data[units], prefix, tokens, keep)
        room.add(block, Asked(self, units))

    def _room_for_instruction(self, room: Room, units: Int64) -> bool:
        """Leave the instruction behind the documents, unless something else is kept or being kept there."""
        taken = (self.lane.instruction.data[units] >= 0) | waiting(self._siblings_with_rounds, units)
        if taken.any():
            return False
        contexts = self.lane.context.data[units]
        lengths = self.lane.document_tokens.data[units] + self._instruction
        if not room.memory.extend(contexts, lengths):
            return False
        self.lane.instruction.data[units] = self.instruction_number
        return True

    def _fill_cut(self, room: Room, units: Int64) -> None:
        if room.fitting(np.full(1, self._limit)):
            self._fresh.drop(1)
            room.add(cut_asks(self.lane, self.call, units, self._steps(units), self._limit), Asked(self, units))

    def _fill_shared(self, room: Room, units: Int64) -> None:
        own = self._instruction
        opened = self._shared is None and room.memory.fitting(np.array([own])) > 0
        if opened:
            self._shared = int(room.memory.open(np.array([own]))[0])
            tokens = assemble(self.call.prompt.instruction, {}, 1)
            room.add(context_block(self._shared, tokens), None)
        if self._shared is None:
            self._fill_documents(room, units)
            return
        lengths = self._prompt_tokens(units) - own
        count = room.fitting(lengths) or int(opened and len(room.blocks) == 1)
        if count:
            self._fresh.drop(count)
            self._add_shared(room, units[:count], self._shared)

    def _add_shared(self, room: Room, units: Int64, shared: int) -> None:
        own, steps = self._instruction, self._steps(units)
        forks = np.full(len(units), -1, dtype=np.int32)
        if self.rounds is not None:
            forks = self.rounds.fork(room.memory, units, shared, own, self._prompt_tokens(units))
        room.add(shared_asks(self.lane, self.call, units, steps, shared, own, forks), Asked(self, units))

    def _fill_documents(self, room: Room, units: Int64) -> None:
        units = units[: room.fitting(self._prompt_tokens(units))]
        if not len(units):
            return
        document = self.lane.value_tokens.data[units] + self._document_own
        kept = document + (self._instruction if self._shares_instruction else 0)
        wanted = self._still_wanted(units)
        kept = np.where(wanted & ~room.memory.can_hold(kept), 0, np.where(wanted, kept, 0))
        units, kept = self._wait_for_memory(room, units, kept)
        if not len(units):
            return
        if self.rounds is not None and not self.question_first:
            kept = self.rounds.keep_fresh(room.memory, units, kept, self._prompt_tokens(units))
        contexts = np.full(len(units), -1, dtype=np.int64)
        holding = np.flatnonzero(kept)
        contexts[holding] = room.memory.open(kept[holding])
        if not self.question_first:
            self._note_resident(units, contexts, document[: len(units)])
        self._fresh.drop(len(units))
        asks = fresh_asks(self.lane, self.call, units, self._steps(units), contexts, kept)
        room.add(asks, Asked(self, units))

    def _fill_alike(self, room: Room, units: Int64) -> None:
        """Documents that may begin like another, or that come back later: one by one, each on what is resident."""
        pieces = (*self.call.prompt.instruction, *self.call.prompt.question)
        instruction = self._instruction if self._shares_instruction else 0
        units = units[:ALIKE_AT_ONCE]
        suffixes = ask_tokens(self.call, pieces, self.lane.values_of(units), self._steps(units))
        asked: list[tuple[int, int, int, Int32, Int32]] = []
        left = room.left
        rows = zip(units.tolist(), self.lane.documents_of(units).lists(), suffixes.lists(), strict=True)
        for unit, tokens, suffix in rows:
            document = Document.of(tokens)
            left -= len(tokens) + len(suffix) - room.memory.resident(document)
            if left < 0 and (asked or not room.empty):
                break
            admitted = room.memory.admit(document, len(tokens) + instruction, self._report)
            if admitted is None:
                break
            self.lane.documents[unit] = document
            asked.append((unit, *admitted, tokens, suffix))
        if asked:
            self._add_alike(room, asked, instruction)
        elif room.empty and room.forced:
            self._fill_documents(room, units[:1])

    def _add_alike(self, room: Room, asked: list[tuple[int, int, int, Int32, Int32]], instruction: int) -> None:
        units, contexts, prefixes = (np.array([entry[place] for entry in asked]) for place in range(3))
        lengths = np.array([len(entry[3]) for entry in asked])
        tails = Ragged.of(np.concatenate([tokens[prefix:], suffix]) for _, _, prefix, tokens, suffix in asked)
        self._fresh.drop(len(units))
        self._note_resident(units, contexts, lengths)
        keep = lengths + instruction - prefixes
        if self.rounds is not None:
            keep = self.rounds.keep_admitted(room.memory, units, contexts, prefixes, keep, tails.lengths)
        room.add(suffix_block(self.call, contexts, prefixes, tails, keep), Asked(self, units))

    def _note_resident(self, units: Int64, contexts: Int64, documents: Int64) -> None:
        self.lane.context.data[units] = contexts
        self.lane.document_tokens.data[units] = documents
        self.lane.instruction.data[units] = self.instruction_number if self._shares_instruction else -1

    def _still_wanted(self, units: Int64) -> npt.NDArray[np.bool_]:
        """Units whose document another call, or a later operator, may ask about."""
        if self.question_first:
            return np.zeros(len(units), dtype=np.bool_)
        wanted = np.full(len(units), self._retain)
        for sibling in self._siblings:
            wanted |= sibling.state.data[units] == UNASKED
        return wanted

    def _wait_for_memory(self, room: Room, units: Int64, kept: Int64) -> tuple[Int64, Int64]:
        """The leading units whose kept tokens fit now; where nothing else can go on, one, unkept."""
        count = room.memory.fitting(kept)
        if count == 0 and room.empty and room.forced:
            return units[:1], np.zeros(1, dtype=np.int64)
        return units[:count], kept[:count]
