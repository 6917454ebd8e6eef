"""Calibration: one temperature (and for TRUE/FALSE a bias) that makes scores probabilities, and how well it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.utils.rnn import pad_sequence

BINS = 10
ABSENT = -1e4
"""Stands in for an option that a choice has not; finite, so that the temperature's gradient is."""


@dataclass(frozen=True)
class Calibration:
    """The score is `sigmoid(margin / temperature + bias)`, or the softmax of `logits / temperature`."""

    temperature: float = 1.0
    bias: float = 0.0


def fit_true_false(margins: Tensor, truth: Tensor) -> Calibration:
    """Platt scaling (Platt 1999): the temperature and bias of least cross-entropy.

    Parameters
    ----------
    margins, truth
        Log-odds of TRUE before calibration and what is true (0 or 1), shape (answers,) each.
    """
    logs = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    margins, truth = margins.to(torch.float64), truth.to(torch.float64)

    def loss() -> Tensor:
        return binary_cross_entropy_with_logits(margins * torch.exp(-logs[0]) + logs[1], truth)

    _minimise(logs, loss)
    temperature, bias = logs.detach().tolist()
    return Calibration(math.exp(temperature), bias)


def fit_choice(logits: Sequence[Tensor], targets: Sequence[int]) -> Calibration:
    """Temperature scaling (Guo et al. 2017, arXiv:1706.04599) of choices with any number of options."""
    if not len(logits):
        return Calibration()
    logs = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    padded = pad_sequence([each.to(torch.float64) for each in logits], batch_first=True, padding_value=ABSENT)
    numbers = torch.tensor(targets)
    _minimise(logs, lambda: cross_entropy(padded * torch.exp(-logs[0]), numbers))
    return Calibration(math.exp(logs.detach().item()))


def _minimise(values: Tensor, loss: Callable[[], Tensor]) -> None:
    optimizer = torch.optim.LBFGS([values], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        result = loss()
        result.backward()
        return result.item()

    optimizer.step(closure)


def expected_calibration_error(scores: Tensor, truth: Tensor, bins: int = BINS) -> float:
    """Mean distance between score and share of truth, over bins of equal width, weighted by their answers.

    >>> expected_calibration_error(torch.tensor([0.9, 0.9, 0.1, 0.1]), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    0.1...
    """
    numbers = (scores * bins).long().clamp_max(bins - 1)
    distance = 0.0
    for number in range(bins):
        inside = numbers == number
        if inside.any():
            gap = (scores[inside].double().mean() - truth[inside].double().mean()).abs()
            distance += float(gap) * int(inside.sum()) / len(scores)
    return distance


def area_under_curve(scores: Tensor, truth: Tensor) -> float:
    """Probability that a true answer scores higher than a false one; ties count half.

    >>> area_under_curve(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
    0.75
    """
    positive, negative = scores[truth > 0.5], scores[truth <= 0.5]
    if not len(positive) or not len(negative):
        return float("nan")
    above = positive[:, None] - negative[None, :]
    return float(((above > 0).double() + 0.5 * (above == 0)).mean())
