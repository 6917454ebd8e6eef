"""Which engine of a group holds which documents: those that a query's operators left resident for later ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from quail_frames.runtime.group.pieces import Rows
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.tokens.ragged import Int64


class Owners:
    """Engines by query and texts of a row.

    Texts are known by their hash, so that a large input is not held here: two that collide cost a document computed
    twice, no more.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[int, int]] = defaultdict(dict)

    def of(self, query: int, rows: pa.RecordBatch) -> Int64:
        """The engine that holds each row's documents, -1 where none does."""
        known = self._known.get(query)
        if not known:
            return nobody(rows)
        return np.array([known.get(key, -1) for key in _keys(rows)], dtype=np.int64)

    def remember(self, query: int, rows: Rows, engine: int) -> None:
        """These rows went to this engine, which keeps their documents."""
        batch = rows.rows if isinstance(rows, AnchorBatch) else rows
        self._known[query].update(dict.fromkeys(_keys(batch), engine))

    def forget(self, query: int) -> None:
        """The query is over."""
        self._known.pop(query, None)


def nobody(rows: pa.RecordBatch) -> Int64:
    """No engine, for each row."""
    return np.full(rows.num_rows, -1, dtype=np.int64)


def _keys(rows: pa.RecordBatch) -> Iterator[int]:
    texts = [column.to_pylist() for column in rows.columns if pa.types.is_string(column.type)]
    return map(hash, zip(*texts, strict=True))
