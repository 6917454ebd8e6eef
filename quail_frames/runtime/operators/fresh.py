"""Asks of units whose document is not resident: each pays for its document, and may leave it for others.

A document is asked alone, on what is resident of it, behind the call's own words
(`question_first`), or cut to the model's context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from quail_frames.runtime.batch import Int32
from quail_frames.runtime.kv.memory import Document
from quail_frames.runtime.operators.asks import (
    ask_tokens,
    context_block,
    cut_asks,
    cut_values,
    fresh_asks,
    shared_asks,
    suffix_block,
)
from quail_frames.runtime.operators.placement import Placement
from quail_frames.runtime.operators.queue import UnitQueue
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.ragged import Int64, Ragged, common_start

ALIKE_AT_ONCE = 256
NOWHERE = -1
NO_TOKENS = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Alike:
    """One ask on what is resident of its document.

    It sees `prefix` tokens of context `sees`, and `keep` of its own stay in `context` (NOWHERE: in none).
    """

    document: Document
    sees: int
    context: int
    prefix: int
    keep: int
    unit: int = -1
    suffix: Int32 = field(default_factory=lambda: NO_TOKENS)


class FreshAsks:
    """The units of one call that wait with their whole prompt; `tag` makes the tag of their blocks."""

    def __init__(self, place: Placement, tag: Callable[[Int64], object]) -> None:
        self._place, self._tag = place, tag
        self.queue = UnitQueue()
        self._shared: int | None = None

    def close(self) -> list[int]:
        """The context that holds the call's own words."""
        return [] if self._shared is None else [self._shared]

    def fill(self, room: Room) -> None:
        """Asks of units from the front of the queue, as far as batch and memory have room."""
        place = self._place
        shared = place.instruction if place.question_first else 0
        most = room.left // max(place.call.prompt.own_tokens - shared, 1) + 1
        units = self.queue.peek(most)
        if not len(units) or not (room.left or room.empty):
            return
        cut = place.too_long(units)
        units = units[: int((cut != cut[0]).argmax()) or len(units)]
        if cut[0]:
            self._fill_cut(room, units)
        elif place.question_first:
            self._fill_shared(room, units)
        else:
            alike = place.lane.alike.data[units] | place.keeps_alike
            units = units[: int((alike != alike[0]).argmax()) or len(units)]
            fill = self._fill_alike if alike[0] else self._fill_documents
            fill(room, units)

    def _fill_cut(self, room: Room, units: Int64) -> None:
        """Documents cut to the model's context, each for this call; what others begin with is shared as ever."""
        place = self._place
        for unit in units:
            one = np.array([unit])
            if not place.call.prompt.document:
                if not room.fitting(np.full(1, place.limit)):
                    return
                room.add(cut_asks(place.lane, place.call, one, place.steps(one), place.limit), self._tag(one))
            elif not self._add_cut(room, one):
                return
            self.queue.drop(1)

    def _add_cut(self, room: Room, unit: Int64) -> bool:
        """One cut document on what is resident of it; False where the batch has no room."""
        place, lane = self._place, self._place.lane
        prompt, values = place.call.prompt, cut_values(lane.values_of(unit), place.limit - place.call.positions)
        document = Document.of(assemble(prompt.document, values, 1).values)
        suffix = ask_tokens(place.call, (*prompt.instruction, *prompt.question), values, place.steps(unit)).values
        held = lane.documents.get(int(unit[0])) if lane.context.data[unit[0]] >= 0 else None
        prefix = room.memory.resident(document) if held is None else common_start(held.tokens, document.tokens)
        if not room.fitting(np.array([len(document.tokens) + len(suffix) - prefix])):
            return False
        context, keep = int(lane.context.data[unit[0]]), 0
        if held is None:
            admitted = room.memory.admit(document, len(document.tokens), place.report)
            context, prefix = admitted or (NOWHERE, 0)
            if admitted is not None:
                keep = len(document.tokens) - prefix
                lane.context.data[unit], lane.instruction.data[unit] = context, -1
                lane.document_tokens.data[unit] = len(document.tokens)
                lane.documents[int(unit[0])] = document
        tail = Ragged.of([np.concatenate([document.tokens, suffix])[prefix:]])
        contexts, prefixes, kept = np.array([context]), np.array([prefix]), np.array([keep])
        room.add(suffix_block(place.call, contexts, prefixes, tail, kept), self._tag(unit))
        return True

    def _fill_shared(self, room: Room, units: Int64) -> None:
        place = self._place
        own = place.instruction
        opened = self._shared is None and room.memory.fitting(np.array([own])) > 0
        if opened:
            self._shared = int(room.memory.open(np.array([own]))[0])
            tokens = assemble(place.call.prompt.instruction, {}, 1)
            room.add(context_block(self._shared, tokens), None)
        if self._shared is None:
            self._fill_documents(room, units)
            return
        lengths = place.prompt_tokens(units) - own
        count = room.fitting(lengths) or int(opened and len(room.blocks) == 1)
        if count:
            self.queue.drop(count)
            self._add_shared(room, units[:count], self._shared)

    def _add_shared(self, room: Room, units: Int64, shared: int) -> None:
        place = self._place
        own, steps = place.instruction, place.steps(units)
        forks = np.full(len(units), -1, dtype=np.int32)
        if place.rounds is not None:
            forks = place.rounds.fork(room.memory, units, shared, own, place.prompt_tokens(units))
        room.add(shared_asks(place.lane, place.call, units, steps, shared, own, forks), self._tag(units))

    def _fill_documents(self, room: Room, units: Int64) -> None:
        place = self._place
        units = units[: room.fitting(place.prompt_tokens(units))]
        if not len(units):
            return
        document = place.lane.value_tokens.data[units] + place.document_own
        kept = document + (place.instruction if place.shares_instruction else 0)
        wanted = place.still_wanted(units)
        kept = np.where(wanted & ~room.memory.can_hold(kept), 0, np.where(wanted, kept, 0))
        units, kept = self._wait_for_memory(room, units, kept)
        if not len(units):
            return
        if place.rounds is not None and not place.question_first:
            kept = place.rounds.keep_fresh(room.memory, units, kept, place.prompt_tokens(units))
        contexts = np.full(len(units), -1, dtype=np.int64)
        holding = np.flatnonzero(kept)
        contexts[holding] = room.memory.open(kept[holding])
        if not place.question_first:
            place.note_resident(units, contexts, document[: len(units)])
        self.queue.drop(len(units))
        asks = fresh_asks(place.lane, place.call, units, place.steps(units), contexts, kept)
        room.add(asks, self._tag(units))

    def _fill_alike(self, room: Room, units: Int64) -> None:
        """Documents that may begin like another, or that come back later: one by one, each on what is resident."""
        place = self._place
        pieces = (*place.call.prompt.instruction, *place.call.prompt.question)
        units = units[:ALIKE_AT_ONCE]
        suffixes = ask_tokens(place.call, pieces, place.lane.values_of(units), place.steps(units))
        wanted = place.still_wanted(units) | (place.rounds is not None)
        asked: list[Alike] = []
        left = room.left
        rows = zip(
            units.tolist(), place.lane.documents_of(units).lists(), suffixes.lists(), wanted.tolist(), strict=True
        )
        for unit, tokens, suffix, keep in rows:
            document = Document.of(tokens)
            before = asked[-1] if asked and asked[-1].document.key == document.key else None
            trail = place.trail(suffix)
            held = room.memory.resident(document, trail) if before is None else len(tokens) + place.instruction
            left -= len(tokens) + len(suffix) - held
            if left < 0 and (asked or not room.empty):
                break
            new = self._begun(room, document, trail) if before is None else self._behind(room, document, before, keep)
            if new is None:
                break
            asked.append(replace(new, unit=unit, suffix=suffix))
        if asked:
            self._add_alike(room, asked)
        elif room.empty and room.forced:
            self._fill_documents(room, units[:1])

    def _begun(self, room: Room, document: Document, trail: Int32) -> Alike | None:
        """A document on what is resident of it, and of the trail behind it; None where the memory is short."""
        place = self._place
        kept = len(document.tokens) + (place.instruction if place.shares_instruction else 0)
        admitted = room.memory.admit(document, kept, place.report, trail)
        if admitted is None:
            return None
        context, prefix = admitted
        return Alike(document, context, context, prefix, max(kept - prefix, 0))

    def _behind(self, room: Room, document: Document, before: Alike, keep: bool) -> Alike | None:
        """The document of the unit before, whose context holds it and the instruction; a copy of it to keep."""
        prefix = len(document.tokens) + self._place.instruction
        if not keep:
            return Alike(document, before.sees, NOWHERE, prefix, 0)
        forks = room.memory.fork(before.sees, prefix, np.array([prefix]))
        return Alike(document, before.sees, int(forks[0]), prefix, 0) if len(forks) else None

    def _add_alike(self, room: Room, asked: list[Alike]) -> None:
        place = self._place
        units, sees, contexts, prefixes, keep = (
            np.array([getattr(each, name) for each in asked]) for name in ("unit", "sees", "context", "prefix", "keep")
        )
        tails = Ragged.of(np.concatenate([each.document.tokens, each.suffix])[each.prefix :] for each in asked)
        self.queue.drop(len(units))
        place.lane.documents |= {each.unit: each.document for each in asked if each.context != NOWHERE}
        place.note_resident(units, contexts, np.array([len(each.document.tokens) for each in asked]))
        if place.rounds is not None:
            keep = place.rounds.keep_admitted(room.memory, units, contexts, prefixes, keep, tails.lengths)
        block = suffix_block(place.call, sees, prefixes, tails, keep)
        room.add(replace(block, into=contexts.astype(np.int32)), self._tag(units))

    def _wait_for_memory(self, room: Room, units: Int64, kept: Int64) -> tuple[Int64, Int64]:
        """The leading units whose kept tokens fit now; where nothing else can go on, one, unkept."""
        count = room.memory.fitting(kept)
        if count == 0 and room.empty and room.forced:
            return units[:1], np.zeros(1, dtype=np.int64)
        return units[:count], kept[:count]
