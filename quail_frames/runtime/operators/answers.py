"""Answers as Arrow arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quail_frames.plan.calls import AiClassify
from quail_frames.plan.conditions import NULL, TRUE, Truth
from quail_frames.runtime.operators.lane import CallState
from quail_frames.runtime.tokens.ragged import Int64


def truth_of_mask(array: pa.Array) -> Truth:
    """Three-valued truths of a nullable Boolean array."""
    values = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int8)
    return np.where(array.is_null().to_numpy(zero_copy_only=False), NULL, values).astype(np.int8)


def truth_array(truth: Truth) -> pa.Array:
    """Boolean array; NULL becomes null."""
    return pa.array(truth == TRUE, mask=truth >= NULL)


def answer_array(store: CallState, units: Int64, known: npt.NDArray[np.bool_]) -> pa.Array:
    """Answers of the units; null where not `known`.

    Boolean, Float64 or String; with probabilities a struct {label, probabilities}.
    """
    call = store.call.planned.call
    values = store.values.data[units]
    if not isinstance(call, AiClassify):
        return pa.array(values == TRUE if values.dtype == np.int8 else values, mask=~known)
    labels = pa.array([*call.labels, None], pa.string()).take(pa.array(np.where(known, values, len(call.labels))))
    if store.probabilities is None:
        return labels
    shares = store.probabilities.data[units]
    fields = [pa.array(shares[:, number], mask=~known) for number in range(len(call.labels))]
    each = pa.StructArray.from_arrays(fields, names=list(call.labels), mask=pa.array(~known))
    return pa.StructArray.from_arrays([labels, each], names=["label", "probabilities"], mask=pa.array(~known))
