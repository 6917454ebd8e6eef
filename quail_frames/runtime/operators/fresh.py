"""Asks of units whose document is not resident: each pays for its document, and may leave it for others.

A document is asked alone, on what is resident of it, behind the call's own words
(`question_first`), or cut to the model's context.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from quail_frames.runtime.batch import Int32
from quail_frames.runtime.kv.memory import Document
from quail_frames.runtime.operators.asks import (
    ask_tokens,
    context_block,
    cut_asks,
    fresh_asks,
    shared_asks,
    suffix_block,
)
from quail_frames.runtime.operators.placement import Placement
from quail_frames.runtime.operators.queue import UnitQueue
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.ragged import Int64, Ragged

ALIKE_AT_ONCE = 256


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
        if cut.any():
            units = units[: int(cut.argmax())] if not cut[0] else units[:1]
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
        place = self._place
        if room.fitting(np.full(1, place.limit)):
            self.queue.drop(1)
            room.add(cut_asks(place.lane, place.call, units, place.steps(units), place.limit), self._tag(units))

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
        instruction = place.instruction if place.shares_instruction else 0
        units = units[:ALIKE_AT_ONCE]
        suffixes = ask_tokens(place.call, pieces, place.lane.values_of(units), place.steps(units))
        asked: list[tuple[int, int, int, Int32, Int32]] = []
        left = room.left
        rows = zip(units.tolist(), place.lane.documents_of(units).lists(), suffixes.lists(), strict=True)
        for unit, tokens, suffix in rows:
            document = Document.of(tokens)
            left -= len(tokens) + len(suffix) - room.memory.resident(document)
            if left < 0 and (asked or not room.empty):
                break
            admitted = room.memory.admit(document, len(tokens) + instruction, place.report)
            if admitted is None:
                break
            place.lane.documents[unit] = document
            asked.append((unit, *admitted, tokens, suffix))
        if asked:
            self._add_alike(room, asked, instruction)
        elif room.empty and room.forced:
            self._fill_documents(room, units[:1])

    def _add_alike(self, room: Room, asked: list[tuple[int, int, int, Int32, Int32]], instruction: int) -> None:
        place = self._place
        units, contexts, prefixes = (np.array([entry[number] for entry in asked]) for number in range(3))
        lengths = np.array([len(entry[3]) for entry in asked])
        tails = Ragged.of(np.concatenate([tokens[prefix:], suffix]) for _, _, prefix, tokens, suffix in asked)
        self.queue.drop(len(units))
        place.note_resident(units, contexts, lengths)
        keep = lengths + instruction - prefixes
        if place.rounds is not None:
            keep = place.rounds.keep_admitted(room.memory, units, contexts, prefixes, keep, tails.lengths)
        room.add(suffix_block(place.call, contexts, prefixes, tails, keep), self._tag(units))

    def _wait_for_memory(self, room: Room, units: Int64, kept: Int64) -> tuple[Int64, Int64]:
        """The leading units whose kept tokens fit now; where nothing else can go on, one, unkept."""
        count = room.memory.fitting(kept)
        if count == 0 and room.empty and room.forced:
            return units[:1], np.zeros(1, dtype=np.int64)
        return units[:count], kept[:count]
