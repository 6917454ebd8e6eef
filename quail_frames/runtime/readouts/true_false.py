"""TRUE/FALSE: the answer is TRUE iff the best TRUE row's logit beats the best FALSE row's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.errors import ModelError
from quail_frames.runtime.batch import Float32, Int32, ReadoutSpec, TrueFalseMargin
from quail_frames.runtime.readouts.one_row import OneRow
from quail_frames.runtime.tokens.layouts import Encode

Float64 = npt.NDArray[np.float64]
TRUE_TEXTS = ("TRUE", " TRUE", "True", " True")
FALSE_TEXTS = ("FALSE", " FALSE", "False", " False")


@dataclass(frozen=True, eq=False)
class TrueFalseReadout(OneRow):
    """First tokens of TRUE, True, FALSE, False, with and without a leading space.

    score = sigmoid((pool(TRUE logits) - pool(FALSE logits)) / temperature + bias), where
    pool is max, or log-sum-exp where the model's spec says so. TRUE iff score > 0.5.
    """

    spec: ReadoutSpec
    true_tokens: int
    pooling: str = "max"
    temperature: float = 1.0
    bias: float = 0.0

    @staticmethod
    def of(encode: Encode, *, pooling: str = "max", temperature: float = 1.0, bias: float = 0.0) -> TrueFalseReadout:
        """The read-out for a model's tokens."""
        true_ids, false_ids = _first_tokens(encode, TRUE_TEXTS), _first_tokens(encode, FALSE_TEXTS)
        if np.intersect1d(true_ids, false_ids).size:
            raise ModelError("TRUE and FALSE begin with the same token in this model's vocabulary; use another model")
        answer = TrueFalseMargin(len(true_ids), pooling, temperature, bias)
        spec = ReadoutSpec(np.concatenate([true_ids, false_ids]), answer=answer)
        return TrueFalseReadout(spec, len(true_ids), pooling, temperature, bias)

    def margins(self, logits: Float32) -> Float64:
        """Calibrated log-odds of TRUE, [A], from logits [A, N], or from the one column of a device that did this."""
        if self.spec.answered(logits):
            return logits[:, 0].astype(np.float64)
        by_token = np.ascontiguousarray(logits.T)  # NumPy reduces few long rows ten times as fast as many short ones
        true, false = by_token[: self.true_tokens], by_token[self.true_tokens :]
        pool = np.maximum if self.pooling == "max" else np.logaddexp
        difference = pool.reduce(true, axis=0).astype(np.float64) - pool.reduce(false, axis=0)
        return difference / self.temperature + self.bias


def sigmoid(margins: Float64) -> Float64:
    """1 / (1 + exp(-x)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -margins))


def _first_tokens(encode: Encode, texts: tuple[str, ...]) -> Int32:
    return np.unique(np.array([encode(text)[0] for text in texts], dtype=np.int32))
