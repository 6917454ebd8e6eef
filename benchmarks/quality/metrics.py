"""Figures of answers: balanced accuracy, AUC, calibration error, and their intervals by resampling items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BINS = 10
RESAMPLES = 300

Bool = npt.NDArray[np.bool_]
Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """Answers to one task by one method, as arrays of one length.

    item     number of what was asked about; resampling draws items
    wording  number of the question's wording; figures are means over wordings
    truth    number of the right answer (yes/no: 1 or 0)
    right    whether it was given
    score    yes/no: the probability of TRUE; choice: that of the label given; NaN where the method gives none
    """

    item: Int
    wording: Int
    truth: Int
    right: Bool
    score: Float

    def __len__(self) -> int:
        return len(self.item)

    def take(self, rows: Int) -> Answers:
        """The chosen answers."""
        return Answers(self.item[rows], self.wording[rows], self.truth[rows], self.right[rows], self.score[rows])

    def by_wording(self) -> list[Answers]:
        """The answers to each wording."""
        return [self.take(np.flatnonzero(self.wording == number)) for number in np.unique(self.wording)]


Figure = Callable[[Answers], float]


def balanced_accuracy(answers: Answers) -> float:
    """Mean over wordings of the mean, over right answers, of the share that was found."""
    return float(np.mean([_balanced(own) for own in answers.by_wording()]))


def worst_wording(answers: Answers) -> float:
    """Balanced accuracy of the wording that does worst."""
    return min(_balanced(own) for own in answers.by_wording())


def accuracy(answers: Answers) -> float:
    """Share of right answers."""
    return float(answers.right.mean())


def area(answers: Answers) -> float:
    """Mean over wordings of the probability that a yes scores above a no (ties count half); NaN without either."""
    return float(np.mean([_area(own.score, own.truth == 1) for own in answers.by_wording()]))


def calibration_error(predicted: Float, true: Bool, bins: int = BINS) -> float:
    """Expected calibration error: distance of mean prediction and share of truth, over bins of equal width.

    Naeini, Cooper and Hauskrecht 2015.

    >>> calibration_error(np.array([0.9, 0.9, 0.1, 0.1]), np.array([True, True, False, False]))
    0.1
    """
    total = sum(count * abs(mean - share) for mean, share, count in reliability(predicted, true, bins))
    return round(float(total) / max(len(predicted), 1), 12)


def reliability(predicted: Float, true: Bool, bins: int = BINS) -> list[tuple[float, float, int]]:
    """(mean prediction, share of truth, answers) of every bin that holds any."""
    number = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    held = [number == each for each in np.unique(number)]
    return [(float(predicted[own].mean()), float(true[own].mean()), int(own.sum())) for own in held]


def interval(figure: Figure, answers: Answers, seed: int = 0) -> tuple[float, float]:
    """95% interval of a figure: the percentiles over resampled items (Efron 1979)."""
    random = np.random.default_rng(seed)
    order = np.argsort(answers.item, kind="stable")
    _, starts = np.unique(answers.item[order], return_index=True)
    rows = np.split(order, starts[1:])
    values = []
    for _ in range(RESAMPLES):
        drawn = random.integers(0, len(rows), len(rows))
        values.append(figure(answers.take(np.concatenate([rows[number] for number in drawn]))))
    known = np.array(values)[~np.isnan(values)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
    return float(low), float(high)


def _balanced(answers: Answers) -> float:
    return float(np.mean([answers.right[answers.truth == each].mean() for each in np.unique(answers.truth)]))


def _area(score: Float, yes: Bool) -> float:
    positive, negative = score[yes], score[~yes]
    if not len(positive) or not len(negative) or np.isnan(score).any():
        return float("nan")
    above = positive[:, None] - negative[None, :]
    return float(((above > 0) + 0.5 * (above == 0)).mean())
