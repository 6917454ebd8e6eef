"""One call's way through a chain: which units wait for it, how they are asked, what comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.cost.programs import Price
from quail_frames.plan.calls import Overflow
from quail_frames.runtime.batch import Float32
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.operators.asks import suffix_block, suffix_tokens
from quail_frames.runtime.operators.fresh import FreshAsks
from quail_frames.runtime.operators.known import KnownRows
from quail_frames.runtime.operators.lane import UNASKED, WAITING, Lane
from quail_frames.runtime.operators.placement import Placement
from quail_frames.runtime.operators.queue import UnitQueue
from quail_frames.runtime.operators.rounds import waiting
from quail_frames.runtime.operators.twins import Twins
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.ragged import Int64


@dataclass(frozen=True, eq=False)
class Asked:
    """Tag of a block: these units were asked this question."""

    question: Question
    units: Int64

    def part(self, rows: Int64) -> Asked:
        """The tag of some of the block's asks."""
        return Asked(self.question, self.units[rows])


PEEK = 4096


class Question:
    """Asks one call of the units of a lane.

    A unit whose document is resident is asked on it; one whose document is not pays for
    it, and leaves it resident while other calls of the lane may still want it.
    """

    def __init__(self, number: int, lane: Lane, limit: int, retain: bool, report: RunReport) -> None:
        self.number = number
        self.lane = lane
        self._place = Placement(number, lane, limit, retain, report)
        self.state, self.call, self.rounds = self._place.state, self._place.call, self._place.rounds
        self._resident, self._going = UnitQueue(), UnitQueue()
        self._fresh = FreshAsks(self._place, lambda units: Asked(self, units))
        self._twins = Twins(self._place)
        self._known: KnownRows | None = None

    @property
    def overflow(self) -> Overflow:
        """What the call does with a prompt that is too long."""
        return self.call.planned.call.overflow

    @property
    def ready_tokens(self) -> int:
        """About how many tokens the queued asks need."""
        units = self._fresh.queue.peek(PEEK)
        fresh = int(self.lane.value_tokens.data[units].sum()) + len(units) * self.call.prompt.own_tokens
        resident = self._resident.size * (self._place.instruction + self._place.question_own)
        return fresh + resident + self._going.size * self._place.longest_tail

    def too_long(self, units: Int64) -> npt.NDArray[np.bool_]:
        """Units whose prompt and answer are longer than the model's context."""
        return self._place.too_long(units)

    def share_answers(self, known: KnownRows) -> None:
        """Take from `known` what other operators were told, and leave there what this one is."""
        self._known = known
        self.lane.keys = self.lane.keys or []

    def recall(self, units: Int64) -> Int64:
        """Answer the units whose texts another operator has asked about; returns those."""
        if self._known is None or not len(units):
            return units[:0]
        slots = self._known.slots(self.lane.keys_of(units))
        found = np.flatnonzero(slots >= 0)
        if len(found):
            self._known.recall(slots[found], self.state, units[found])
        return units[found]

    def leave(self, units: Int64) -> None:
        """Leave the units' answers to other operators that ask the same."""
        if self._known is not None:
            self._known.add(self.lane.keys_of(units), self.state, units)

    def push(self, units: Int64) -> None:
        """Units that want an answer."""
        self.state.state.data[units] = WAITING
        if self.rounds is not None:
            self.rounds.reach()
        long = self.too_long(units)
        if long.any():
            units = np.concatenate([units[~long], self._twins.to_ask(units[long])])
        self._queue(units)

    def withdraw(self) -> None:
        """Units whose document was not touched yet want no answer any more; they may be pushed again."""
        units = self._fresh.queue.take_all()
        begun = np.zeros(len(units), dtype=np.bool_) if self.rounds is None else self.rounds.begun(units)
        self._fresh.queue.push(units[begun])
        self.state.state.data[units[~begun]] = UNASKED
        self.state.state.data[self._twins.forget(units[~begun])] = UNASKED

    def price(self) -> Price:
        """Tokens that an ask is expected to compute, with those of its document apart."""
        return self._place.price()

    def fill_resident(self, room: Room) -> None:
        """Further rounds, then asks on resident documents."""
        self._fill_going(room)
        cost = self._place.instruction + self._place.question_own + self._place.longest_tail
        while self._resident.size:
            units = self._resident.peek(max(room.left // cost, 1 if room.empty else 0))
            if not len(units):
                return
            holds = self.lane.instruction.data[units] == self._place.instruction_number
            self._resident.drop(len(units))
            for group, with_instruction in ((units[holds], False), (units[~holds], True)):
                if len(group):
                    self._add_suffixes(room, group, with_instruction)

    def fill_fresh(self, room: Room) -> None:
        """Asks of units whose document is not resident."""
        self._requeue_resident(room)
        self._fresh.fill(room)

    def give_up(self, memory: Memory, units: Int64, reasons: Iterable[str]) -> None:
        """These units' asks were not answered."""
        for unit, reason in zip(units.tolist(), reasons, strict=True):
            own = np.append(unit, self._twins.forget(np.array([unit])))
            self.state.give_up(own, [reason] * len(own))
        if self.rounds is not None:
            self.rounds.finish(memory, units)

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

    def answer_twins(self, units: Int64) -> Int64:
        """Units whose texts, once cut, are those of decided ones: they have their answers."""
        return self._twins.answer(units)

    def close(self) -> list[int]:
        """Contexts that the question itself holds."""
        own = self._fresh.close()
        return own if self.rounds is None else [*own, *self.rounds.close()]

    def _queue(self, units: Int64) -> None:
        """Units to be asked on their resident document, or with their whole prompt."""
        resident = self._askable_on_resident(units)
        self._resident.push(units[resident])
        self._fresh.queue.push(units[~resident])

    def _askable_on_resident(self, units: Int64) -> npt.NDArray[np.bool_]:
        """The document is there, and need not be cut for this call."""
        resident = (self.lane.context.data[units] >= 0) & (not self._place.question_first)
        return resident & ~self.too_long(units)

    def _fill_going(self, room: Room) -> None:
        if self.rounds is not None and self._going.size:
            units = self._going.peek(max(room.left // self._place.longest_tail, 1 if room.empty else 0))
            if len(units):
                self._going.drop(len(units))
                room.add(self.rounds.asks(room.memory, units), Asked(self, units))

    def _requeue_resident(self, room: Room) -> None:
        """A unit that waited for two calls may have become resident through the other one."""
        units = self._fresh.queue.peek(PEEK)
        resident = self._askable_on_resident(units)
        if resident.any():
            self._fresh.queue.put_back(len(units), units[~resident])
            self._resident.push(units[resident])
            self.fill_resident(room)

    def _add_suffixes(self, room: Room, units: Int64, with_instruction: bool) -> None:
        tokens = suffix_tokens(self.lane, self.call, units, self._place.steps(units), with_instruction)
        prefix = self.lane.document_tokens.data[units] + (0 if with_instruction else self._place.instruction)
        if self.rounds is not None:
            keep = self.rounds.keep_suffixes(room.memory, units, prefix, tokens.lengths)
            leaves = self._place.shares_instruction or not with_instruction
            self.lane.instruction.data[units[keep > 0]] = self._place.instruction_number if leaves else -1
        else:
            commit = with_instruction and self._place.shares_instruction and self._room_for_instruction(room, units)
            keep = np.full(len(units), self._place.instruction if commit else 0, dtype=np.int64)
        block = suffix_block(self.call, self.lane.context.data[units], prefix, tokens, keep)
        room.add(block, Asked(self, units))

    def _room_for_instruction(self, room: Room, units: Int64) -> bool:
        """Leave the instruction behind the documents, unless something else is kept or being kept there."""
        taken = (self.lane.instruction.data[units] >= 0) | waiting(self._place.siblings_with_rounds, units)
        if taken.any():
            return False
        contexts = self.lane.context.data[units]
        lengths = self.lane.document_tokens.data[units] + self._place.instruction
        if not room.memory.extend(contexts, lengths):
            return False
        self.lane.instruction.data[units] = self._place.instruction_number
        return True
