"""Input columns of an operator: Arrow arrays in, keys of equal inputs and token lists out."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quail_frames.errors import ColumnError
from quail_frames.runtime.compiled import Tokenizer
from quail_frames.runtime.tokens.assemble import concatenate
from quail_frames.runtime.tokens.ragged import Int64, Ragged, offsets_of

LONG_KEY = 64
"""Texts beyond this many characters are remembered by a 128-bit hash instead of themselves."""


@dataclass(frozen=True, eq=False)
class InputColumn:
    """One column of a record batch: texts, or lists of token ids already encoded."""

    name: str
    array: pa.Array

    def __post_init__(self) -> None:
        kind = self.array.type
        tokens = pa.types.is_list(kind) and pa.types.is_int32(kind.value_type)
        if not (tokens or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise ColumnError(
                f"input column {self.name!r} has type {kind}; cast it to string (or list<int32> of token ids)"
            )

    @property
    def is_tokens(self) -> bool:
        """The column holds token ids."""
        return bool(pa.types.is_list(self.array.type))

    def nulls(self) -> npt.NDArray[np.bool_]:
        """True where the value is null."""
        return np.asarray(self.array.is_null().to_numpy(zero_copy_only=False))

    def keys(self) -> list[Hashable]:
        """One hashable key a row; equal values have equal keys. Null rows: None."""
        if self.is_tokens:
            lists = _token_lists(self.array)
            data, offsets = lists.values.tobytes(), (lists.offsets * 4).tolist()
            return [_short(data[a:b]) for a, b in itertools.pairwise(offsets)]
        texts = self.array.to_pylist()
        return [text if text is None or len(text) <= LONG_KEY else _short(text.encode()) for text in texts]

    def tokens(self, rows: Int64, tokenizer: Tokenizer) -> Ragged:
        """Token lists of the chosen rows; a null has none."""
        if self.is_tokens:
            return _token_lists(self.array).take(rows)
        return tokenizer.encode(self.array.take(pa.array(rows)).fill_null("").to_pylist())


def _short(data: bytes) -> bytes:
    return data if len(data) <= 2 * LONG_KEY else hashlib.blake2b(data, digest_size=16).digest()


def _token_lists(array: pa.Array) -> Ragged:
    offsets = array.offsets.to_numpy().astype(np.int64)
    return Ragged(array.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])


def number_keys(columns: Sequence[InputColumn]) -> tuple[Int64, int]:
    """(unit of every row, how many units): equal inputs have one unit, a row with a null has -1."""
    keys = list(zip(*(column.keys() for column in columns), strict=True))
    numbers: dict[Hashable, int] = {}
    nulls = np.logical_or.reduce([column.nulls() for column in columns])
    units = [-1 if null else numbers.setdefault(key, len(numbers)) for key, null in zip(keys, nulls, strict=True)]
    return np.array(units, dtype=np.int64), len(numbers)


def first_rows(units: Int64) -> Int64:
    """The first row of each unit, in unit order."""
    distinct, first = np.unique(units, return_index=True)
    return first[distinct >= 0]


class TokenBlocks:
    """Token lists of the input columns, a block for each batch read; a block goes when its rows are done."""

    def __init__(self, columns: Sequence[int]) -> None:
        self.columns = tuple(columns)
        self._blocks: dict[int, dict[int, Ragged]] = {}
        self._next = 0

    def add(self, values: dict[int, Ragged]) -> int:
        """Number of the new block."""
        self._blocks[self._next] = values
        self._next += 1
        return self._next - 1

    def drop(self, block: int) -> None:
        """Forget a block."""
        self._blocks.pop(block, None)

    def take(self, blocks: Int64, rows: Int64) -> dict[int, Ragged]:
        """For each column, list `rows[i]` of block `blocks[i]`, in the order given."""
        if len(blocks) and (blocks == blocks[0]).all():
            own = self._blocks[int(blocks[0])]
            return {column: own[column].take(rows) for column in self.columns}
        distinct = np.unique(blocks)
        starts = offsets_of(np.array([self._size(block) for block in distinct]))[:-1]
        shifted = rows + starts[np.searchsorted(distinct, blocks)]
        joined = {c: concatenate([self._blocks[b][c] for b in distinct.tolist()]) for c in self.columns}
        return {column: joined[column].take(shifted) for column in self.columns}

    def _size(self, block: int) -> int:
        return len(next(iter(self._blocks[block].values())))
