"""A lane: the distinct inputs ("units") of the calls that read the same columns.

Equal inputs are one unit and are asked once. A unit carries its tokens while it waits,
its context while more is asked of it, and its answers for as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.compiled import Answers, CompiledCall, Tokenizer, input_columns
from quail_frames.runtime.kv.memory import Document, Memory
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.marks import UInt64, token_marks
from quail_frames.runtime.operators.inputs import InputColumn, TokenBlocks
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.ragged import Int32, Int64, Ragged

REMEMBERED = 1 << 22
"""Distinct inputs of a run that are recognised when they come again; beyond, the memory starts afresh."""
UNASKED, WAITING, ANSWERED, NULLED, REFUSED = range(5)
"""State of one call for one unit. NULLED: too long or not answered, null. REFUSED: too long, an error."""


class Growing:
    """An array that grows by doubling; `data[:size]` is in use."""

    def __init__(self, dtype: npt.DTypeLike, fill: float, width: int | None = None) -> None:
        self._fill = fill
        self.data = np.full((64,) if width is None else (64, width), fill, dtype=dtype)

    def reach(self, size: int) -> None:
        """Make room for `size` entries; new ones hold the fill value."""
        if size > len(self.data):
            shape = (max(size, 2 * len(self.data)) - len(self.data), *self.data.shape[1:])
            self.data = np.concatenate([self.data, np.full(shape, self._fill, dtype=self.data.dtype)])


class CallState:
    """State and answers of one call over the units of its lane."""

    def __init__(self, call: CompiledCall) -> None:
        self.call = call
        self.state = Growing(np.int8, UNASKED)
        self.values = Growing(call.value_type, 0)
        self.probabilities = self._probability_store(call)
        self.reasons: dict[int, str] = {}
        """Why units were not answered, where whoever was asked gave no answer."""

    @staticmethod
    def _probability_store(call: CompiledCall) -> Growing | None:
        spec = call.planned.call
        return Growing(np.float64, np.nan, len(spec.labels)) if getattr(spec, "probabilities", False) else None  # type: ignore[attr-defined]

    def reach(self, size: int) -> None:
        """Make room for `size` units."""
        for store in (self.state, self.values, self.probabilities):
            if store is not None:
                store.reach(size)

    def true(self, units: Int64) -> int:
        """How many of these units were answered TRUE; 0 for scores and labels."""
        values = self.values.data
        return int((values[units] == 1).sum()) if values.dtype == np.int8 else 0

    def store(self, units: Int64, answers: Answers) -> None:
        """Record answers."""
        self.values.data[units] = answers.values
        if self.probabilities is not None:
            self.probabilities.data[units] = answers.probabilities
        self.state.data[units] = ANSWERED

    def copy(self, unit: int, others: Int64) -> None:
        """The answer of one unit is that of the others too."""
        self.values.data[others] = self.values.data[unit]
        if self.probabilities is not None:
            self.probabilities.data[others] = self.probabilities.data[unit]
        self.state.data[others] = ANSWERED

    def give_up(self, units: Int64, reasons: Iterable[str]) -> None:
        """These units are null, for these reasons."""
        self.state.data[units] = NULLED
        self.reasons.update(zip(units.tolist(), reasons, strict=True))


class Lane:
    """Units over `columns`, and the calls asked of them."""

    def __init__(
        self,
        columns: Sequence[int],
        calls: Mapping[int, CompiledCall],
        tokenizer: Tokenizer,
        memory: Memory,
    ) -> None:
        self._memory = memory
        self.columns = tuple(columns)
        self.calls = {number: CallState(call) for number, call in calls.items()}
        self.blocks = TokenBlocks(self.columns)
        self._tokenizer = tokenizer
        self._numbers: dict[Hashable, int] = {}
        self._units = 0
        self.keys: list[Hashable] | None = None
        """The texts of each unit, by which another operator knows them; only where one asks the same."""
        instructions = {call.prompt.instruction_key: call.prompt.instruction for call in calls.values()}
        self.instruction_numbers = {key: number for number, key in enumerate(instructions)}
        self._instructions = [assemble(pieces, {}, 1).values for pieces in instructions.values()]
        documents = [c.prompt.document for c in calls.values() if c.prompt.document]
        self._document = documents[0] if documents else ()
        self._last_starts: UInt64 = np.zeros(0, dtype=np.uint64)
        self.start = Growing(np.uint64, 0)
        self.alike = Growing(np.bool_, False)
        self.documents: dict[int, Document] = {}
        self.context = Growing(np.int32, -1)
        self.instruction = Growing(np.int16, -1)
        self.document_tokens = Growing(np.int64, 0)
        self.value_tokens = Growing(np.int64, 0)
        self._block = Growing(np.int64, -1)
        self._row = Growing(np.int64, 0)
        per_unit = (
            self.start,
            self.alike,
            self.context,
            self.instruction,
            self.document_tokens,
            self.value_tokens,
            self._block,
            self._row,
        )
        self._stores: tuple[Growing | CallState, ...] = (*per_unit, *self.calls.values())

    @property
    def units(self) -> int:
        """Units seen so far."""
        return self._units

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of the inputs of a unit."""
        return float(self.value_tokens.data[: self._units].mean()) if self._units else 0.0

    def intake(self, columns: Mapping[int, InputColumn]) -> tuple[Int64, int]:
        """(unit of every row, number of the token block); unit -1 where an input is null."""
        own = [columns[column] for column in self.columns]
        units = self._number_rows(own)
        rows = self._rows_to_tokenise(units)
        values = {column: columns[column].tokens(rows, self._tokenizer) for column in self.columns}
        block = self.blocks.add(values)
        fresh = units[rows]
        self._block.data[fresh] = block
        self._row.data[fresh] = np.arange(len(rows))
        self.value_tokens.data[fresh] = sum(lists.lengths for lists in values.values())
        self._find_alike(fresh, values)
        return units, block

    def _find_alike(self, units: Int64, values: dict[int, Ragged]) -> None:
        """Mark units whose document is kept, or starts like another just read, far enough to be shared."""
        if not self._document or not len(units):
            return
        if self._memory.keeps_any:
            self.alike.data[units] = self._memory.keeps(self._document_keys(values, len(units)))
        size = self._memory.share_from * PAGE
        heads = {c: lists.heads(np.minimum(lists.lengths, size)) for c, lists in values.items()}
        starts = assemble(self._document, heads, len(units))
        long = starts.lengths >= size
        tokens = starts.values[starts.offsets[:-1][long][:, None] + np.arange(size)]
        marks = token_marks(tokens, np.arange(size, dtype=np.int32)).sum(axis=1, dtype=np.uint64)
        distinct, inverse, counts = np.unique(marks, return_inverse=True, return_counts=True)
        known = np.array([mark in self._memory.index for mark in distinct.tolist()], dtype=np.bool_)
        repeated = (counts > 1) | np.isin(distinct, self._last_starts) | known
        self.start.data[units[long]] = marks
        self.alike.data[units[long]] |= repeated[inverse]
        self._last_starts = distinct

    def _document_keys(self, values: dict[int, Ragged], rows: int) -> UInt64:
        """`Document.key` of each row's document."""
        documents = assemble(self._document, values, rows)
        positions = np.arange(len(documents.values)) - np.repeat(documents.offsets[:-1], documents.lengths)
        marks = token_marks(documents.values, positions.astype(np.int32))
        total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(marks, dtype=np.uint64)])
        return total[documents.offsets[1:]] - total[documents.offsets[:-1]]

    def documents_of(self, units: Int64) -> Ragged:
        """Token lists of the units' documents."""
        return assemble(self._document, self.values_of(units), len(units))

    def instruction_tokens(self, unit: int) -> Int32:
        """Tokens of the instruction that the unit's context holds behind its document; none where it holds none."""
        number = int(self.instruction.data[unit])
        return self._instructions[number] if number >= 0 else np.zeros(0, dtype=np.int32)

    def keys_of(self, units: Int64) -> list[Hashable]:
        """The texts by which another operator knows these units."""
        assert self.keys is not None
        return [self.keys[unit] for unit in units.tolist()]

    def values_of(self, units: Int64) -> dict[int, Ragged]:
        """Token lists of the units' inputs, by column."""
        return self.blocks.take(self._block.data[units], self._row.data[units])

    def _number_rows(self, columns: list[InputColumn]) -> Int64:
        keys = columns[0].keys()
        if len(columns) > 1:
            keys = list(zip(keys, *(column.keys() for column in columns[1:]), strict=True))
        if len(self._numbers) > REMEMBERED:
            self._numbers.clear()
        before, numbers, first = self._units, self._numbers, self._units - len(self._numbers)
        units = np.fromiter(
            (numbers.setdefault(key, first + len(numbers)) for key in keys), dtype=np.int64, count=len(keys)
        )
        self._units = first + len(numbers)
        if self.keys is not None:
            self.keys += dict.fromkeys(key for key, unit in zip(keys, units.tolist(), strict=True) if unit >= before)
        for store in self._stores:
            store.reach(self._units)
        nulls = np.logical_or.reduce([column.nulls() for column in columns])
        return np.where(nulls, -1, units)

    def _rows_to_tokenise(self, units: Int64) -> Int64:
        """First row of each unit that some call has not answered yet."""
        distinct, first = np.unique(units, return_index=True)
        first, distinct = first[distinct >= 0], distinct[distinct >= 0]
        open_calls = np.zeros(len(distinct), dtype=np.bool_)
        for call in self.calls.values():
            open_calls |= call.state.data[distinct] <= WAITING
        return first[open_calls]


def lanes_of(calls: Sequence[CompiledCall], tokenizer: Tokenizer, memory: Memory) -> tuple[list[Lane], list[int]]:
    """Lanes by the documents that calls read, and each call's lane; a call that needs none joins its columns' lane."""
    members: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for number in sorted(range(len(calls)), key=lambda number: not calls[number].prompt.document):
        columns, document = input_columns(calls[number].prompt), calls[number].prompt.document_key
        if not calls[number].prompt.document:
            document = next((key for own, key in members if own == columns), document)
        members.setdefault((columns, document), []).append(number)
    lanes = [
        Lane(columns, {n: calls[n] for n in numbers}, tokenizer, memory) for (columns, _), numbers in members.items()
    ]
    lane_of = {number: lane for lane, numbers in enumerate(members.values()) for number in numbers}
    return lanes, [lane_of[number] for number in range(len(calls))]
