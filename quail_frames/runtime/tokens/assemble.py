"""Joining prompt pieces with the tokens of many rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quail_frames.runtime.tokens.layouts import Input, Piece
from quail_frames.runtime.tokens.ragged import Int64, Ragged, offsets_of, ranges


def piece_lengths(pieces: Sequence[Piece], values: Mapping[int, Ragged], rows: int) -> Int64:
    """Tokens of the joined pieces for every row, [rows]."""
    total = np.zeros(rows, dtype=np.int64)
    for piece in pieces:
        total += values[piece.column].lengths if isinstance(piece, Input) else len(piece)
    return total


def assemble(pieces: Sequence[Piece], values: Mapping[int, Ragged], rows: int) -> Ragged:
    """The pieces joined, with list r of `values[column]` in place of each input, for every row r."""
    offsets = offsets_of(piece_lengths(pieces, values, rows))
    out = np.empty(int(offsets[-1]), dtype=np.int32)
    cursor = offsets[:-1].copy()
    for piece in pieces:
        if isinstance(piece, Input):
            ragged = values[piece.column]
            out[ranges(cursor, ragged.lengths)] = ragged.values
            cursor += ragged.lengths
        else:
            out[cursor[:, None] + np.arange(len(piece))] = piece
            cursor += len(piece)
    return Ragged(out, offsets)


def concatenate(lists: Sequence[Ragged]) -> Ragged:
    """The lists of several Raggeds, one after the other."""
    lengths = np.concatenate([ragged.lengths for ragged in lists])
    return Ragged(np.concatenate([ragged.values for ragged in lists]), offsets_of(lengths))
