"""What a batch makes the device do, by the formulas of the cost model."""

from __future__ import annotations

import numpy as np

from quail_frames.cost.work import Work
from quail_frames.runtime.batch import Batch, ReadoutSpec
from quail_frames.runtime.compiled import DecisionFormat


def batch_work(batch: Batch, vocabulary: int) -> Work:
    """What one batch makes the device do, by the formulas of `quail_frames.cost.work` (tree path)."""
    lengths = np.concatenate([segments.lengths for segments in batch.segments])
    unit = np.concatenate([segments.unit for segments in batch.segments])
    context = np.where(unit >= 0, np.append(batch.unit_lengths, 0)[unit], 0)
    rows = sum(
        _head_rows(len(read.rows), _entries(read.readout), read.readout.normalize, vocabulary) for read in batch.reads
    )
    return Work(
        new_tokens=len(batch),
        attention_pairs=float((lengths * context + lengths * (lengths + 1) / 2).sum()),
        kv_written=float((batch.slots >= 0).sum()),
        kv_read=float(batch.unit_lengths.sum() + lengths.sum()),
        head_rows=rows,
        merged_tokens=float(lengths[unit >= 0].sum()),
    )


def _entries(readout: ReadoutSpec) -> int:
    """Head rows multiplied for each row read; a decision head's option takes three times its width."""
    return 3 * DecisionFormat().width if readout.options else len(readout.token_ids)


def _head_rows(rows: int, entries: int, whole: bool, vocabulary: int) -> float:
    return float(rows) if whole else rows * entries / vocabulary
