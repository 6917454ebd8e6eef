"""Cutting a run's input into pieces for several engines, and putting what they answer back into the input's order."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quail_frames.errors import QuailFramesError
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.tokens.ragged import Int64

PIECE_BYTES = 1 << 16
"""Text of a piece: some 16 thousand tokens, a batch or two of a GPU."""

Rows = Any
"""A record batch of a chain's rows, or an `AnchorBatch`."""


@dataclass(eq=False)
class Piece:
    """A run of input rows: `first` numbers its first row in the whole input, `own` in its engine's.

    `out` collects what the engine answers for it; `decided` counts its leading rows that are, `done` says that all are.
    """

    rows: Rows
    first: int
    length: int
    own: int = -1
    decided: int = 0
    done: bool = False
    out: list[pa.RecordBatch] = field(default_factory=list)


class Source:
    """Pieces of a run's input, each for whichever engine asks first unless its rows are owned by one."""

    def __init__(self, batches: Iterator[Rows], owner: Callable[[pa.RecordBatch], Int64]) -> None:
        self._batches, self._owner = batches, owner
        self._waiting: dict[int, deque[Piece]] = defaultdict(deque)
        self._rows = 0
        self.pieces: deque[Piece] = deque()
        """All pieces cut so far that are not merged yet, in the input's order."""

    def take(self, engine: int) -> Piece | None:
        """The next piece for this engine; None where there is none left."""
        while True:
            for queue in (self._waiting[engine], self._waiting[-1]):
                if queue:
                    return queue.popleft()
            batch = next(self._batches, None)
            if batch is None:
                return None
            for owner, piece in self._cut(batch):
                self._waiting[owner].append(piece)
                self.pieces.append(piece)

    def _cut(self, batch: Rows) -> Iterator[tuple[int, Piece]]:
        rows = batch.rows if isinstance(batch, AnchorBatch) else batch
        owners = self._owner(rows)
        part = np.cumsum(_text_bytes(rows)) // PIECE_BYTES
        changes = np.flatnonzero((np.diff(owners) != 0) | (np.diff(part) != 0)) + 1
        bounds = [0, *changes.tolist(), rows.num_rows]
        for start, stop in pairwise(bounds):
            if stop > start:
                piece = Piece(_sliced(batch, start, stop), self._rows + start, stop - start)
                yield int(owners[start]), piece
        self._rows += rows.num_rows


class Merger:
    """Puts engines' outputs back into the input's order; `key` is the column that numbers rows."""

    def __init__(self, source: Source, key: str, limit: int | None) -> None:
        self._source, self._key, self._limit = source, key, limit
        self._given: dict[int, list[Piece]] = defaultdict(list)
        self._sent: dict[int, int] = defaultdict(int)
        self._starts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._decided = self._kept = 0
        self.failure: tuple[int, QuailFramesError] | None = None

    @property
    def full(self) -> bool:
        """The run's limit is reached."""
        return self._limit is not None and self._kept >= self._limit

    def give(self, engine: int) -> Rows | None:
        """The next rows for an engine; None where there are none, or none are wanted any more."""
        piece = None if self.failure is not None or self.full else self._source.take(engine)
        if piece is None:
            return None
        piece.own = self._sent[engine]
        self._sent[engine] += piece.length
        self._given[engine].append(piece)
        self._starts[engine].append((piece.own, piece.first))
        return piece.rows

    def row(self, engine: int, own: int) -> int:
        """The input's number of an engine's row."""
        starts = self._starts[engine]
        start, first = starts[max(bisect_right(starts, own, key=itemgetter(0)) - 1, 0)] if starts else (0, 0)
        return first + own - start

    def undecided(self, engine: int) -> tuple[int, int] | None:
        """The first and last row of what the engine still has in work; None where it has nothing."""
        given = self._given[engine]
        bounds = [(piece.first + piece.decided, piece.first + piece.length - 1) for piece in given]
        return (min(bounds)[0], max(bounds)[1]) if bounds else None

    def accept(self, engine: int, batch: pa.RecordBatch) -> None:
        """An output batch of an engine, whose rows and `decided` are numbered as the engine sees them."""
        rows = batch[self._key].to_numpy(zero_copy_only=False).astype(np.int64)
        decided = int(batch.schema.metadata[b"decided"])
        for piece in self._given[engine]:
            inside = (rows >= piece.own) & (rows < piece.own + piece.length)
            piece.out.append(_numbered(batch.filter(pa.array(inside)), self._key, piece.first - piece.own))
            piece.decided = min(max(decided - piece.own, 0), piece.length)
            piece.done = piece.decided == piece.length
        self._given[engine] = [piece for piece in self._given[engine] if not piece.done]

    def end(self, engine: int) -> None:
        """The engine's run is over; of rows that it left undecided none are wanted."""
        for piece in self._given[engine]:
            piece.done = True
        self._given[engine] = []

    def fail(self, engine: int, error: QuailFramesError) -> None:
        """An engine's run failed, at its own row `error.row` where it says one, else at the first that it had in work.

        The earliest failure is raised.
        """
        own, work = getattr(error, "row", None), self.undecided(engine)
        row = self.row(engine, own) if own is not None else self._decided if work is None else work[0]
        if own is not None:
            error.row = row  # type: ignore[attr-defined]
        if self.failure is None or row < self.failure[0]:
            self.failure = (row, error)

    def ready(self) -> Iterator[pa.RecordBatch]:
        """Outputs of the pieces at the front that are decided; raises a failure once what stands before it is out."""
        pieces = self._source.pieces
        while pieces and not self.full:
            piece = pieces[0]
            failed = self.failure is not None and piece.first + piece.length > self.failure[0]
            if failed and self.failure is not None:
                yield from self._emitted(piece, self.failure[0])
                raise self.failure[1]
            if not piece.done:
                return
            pieces.popleft()
            yield from self._emitted(piece, piece.first + piece.length)
        if self.failure is not None and not pieces:
            raise self.failure[1]

    def _emitted(self, piece: Piece, decided: int) -> Iterator[pa.RecordBatch]:
        self._decided = decided
        for batch in piece.out:
            left = None if self._limit is None else self._limit - self._kept
            cut = batch if left is None else batch.slice(0, left)
            self._kept += cut.num_rows
            if cut.num_rows or batch is piece.out[-1]:
                yield cut.replace_schema_metadata({"decided": str(decided)})


def _text_bytes(rows: pa.RecordBatch) -> Int64:
    """UTF-8 bytes of each row's texts, and one for the row itself."""
    sizes = np.ones(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _sliced(batch: Rows, start: int, stop: int) -> Rows:
    """Rows of a batch, copied: a slice on its way to another process would take the whole batch along."""
    wanted = pa.array(np.arange(start, stop))
    if not isinstance(batch, AnchorBatch):
        return batch.take(wanted)
    rows, own = batch.rows.take(wanted), batch.candidates
    if own is None:
        return AnchorBatch(rows)
    low, high = own.offsets[start], own.offsets[stop]
    return AnchorBatch(rows, Candidates(own.offsets[start : stop + 1] - low, own.starts[low:high], own.stops[low:high]))


def _numbered(batch: pa.RecordBatch, key: str, shift: int) -> pa.RecordBatch:
    """The batch with its row numbers moved."""
    place = batch.schema.get_field_index(key)
    moved = batch[key].to_numpy(zero_copy_only=False).astype(np.int64) + shift
    return batch.set_column(place, batch.schema.field(place), pa.array(moved, pa.uint64()))
