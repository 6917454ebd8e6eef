"""The suite's results in words, as JSON, and as plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show
from benchmarks.quality.asking import Result
from benchmarks.quality.metrics import (
    accuracy,
    area,
    balanced_accuracy,
    calibration_error,
    interval,
    reliability,
    worst_wording,
)

COLUMNS = ("task", "scored by", "answers", "bal. acc.", "95% interval", "worst wording", "AUC", "ECE")


@dataclass(frozen=True)
class Row:
    """Figures of one task by one method; NaN where a figure has no meaning."""

    task: str
    method: str
    kind: str
    answers: int
    balanced_accuracy: float
    interval: tuple[float, float]
    worst_wording: float
    accuracy: float
    area: float
    area_interval: tuple[float, float]
    calibration_error: float

    @staticmethod
    def of(result: Result) -> Row:
        """The figures of a result."""
        answers, several = result.answers, len(result.wordings) > 1
        scored = result.kind == "yes/no" and not np.isnan(answers.score).any()
        return Row(
            result.task,
            result.method,
            result.kind,
            len(answers),
            balanced_accuracy(answers),
            interval(balanced_accuracy, answers),
            worst_wording(answers) if several else math.nan,
            accuracy(answers),
            area(answers) if scored else math.nan,
            interval(area, answers) if scored else (math.nan, math.nan),
            math.nan if np.isnan(answers.score).any() else calibration_error(*predictions([result])),
        )

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        low, high = self.interval
        figures = (self.worst_wording, self.area, self.calibration_error)
        shown = ("" if math.isnan(figure) else f"{figure:.3f}" for figure in figures)
        between = f"{low:.2f} to {high:.2f}"
        return (self.task, self.method, str(self.answers), f"{self.balanced_accuracy:.3f}", between, *shown)


def predictions(results: Sequence[Result]) -> tuple[np.ndarray, np.ndarray]:
    """What was predicted and whether it was so: of yes/no the score of TRUE, of a choice that of the label given."""
    scored = [result for result in results if not np.isnan(result.answers.score).any()]
    score = np.concatenate([result.answers.score for result in scored])
    true = [own.answers.truth == 1 if own.kind == "yes/no" else own.answers.right for own in scored]
    return score, np.concatenate(true)


@dataclass(frozen=True)
class ModelReport:
    """Everything that the suite says of one model; `yes_no` and `choices` are bins of a reliability diagram."""

    model: str
    rows: tuple[Row, ...]
    flips: Mapping[str, float | None]
    seconds: float
    yes_no: tuple[tuple[float, float, int], ...]
    choices: tuple[tuple[float, float, int], ...]
    calibration_error: float

    @staticmethod
    def of(model: str, results: Sequence[Result], flips: Mapping[str, float | None], seconds: float) -> ModelReport:
        """From the results of all tasks; calibration is pooled over questions and choices by the best scoring."""
        asked = [result for result in results if result.kind == "yes/no"]
        chosen = [result for result in results if result.method == best_method(results)]
        bins = [tuple(reliability(*predictions(own))) if own else () for own in (asked, chosen)]
        error = calibration_error(*predictions([*asked, *chosen]))
        return ModelReport(model, tuple(map(Row.of, results)), flips, seconds, bins[0], bins[1], error)

    def show(self) -> None:
        """Print the table."""
        flips = ", ".join(f"{name} {share:.1%}" for name, share in self.flips.items() if share is not None)
        caption = (
            f"ECE over the suite {self.calibration_error:.3f}; answers changed by another order of labels: {flips}; "
            f"{self.seconds:,.0f} s"
        )
        show(f"Quality of {self.model}", COLUMNS, [row.cells() for row in self.rows], caption)

    def figures(self) -> dict[str, Any]:
        """For JSON; null where a figure has no meaning."""
        bins = {"yes_no": self.yes_no, "choices": self.choices}
        rest = {"flips": dict(self.flips), "seconds": self.seconds, "calibration_error": self.calibration_error}
        return {
            "model": self.model,
            "tasks": [_without_nan(row.__dict__) for row in self.rows],
            "reliability": bins,
            **rest,
        }


def _without_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: tuple(value) if isinstance(value, tuple) else (value,) for name, value in figures.items()}
    known = {name: [None if each != each else each for each in value] for name, value in values.items()}
    return {name: value if len(value) > 1 else value[0] for name, value in known.items()}


def best_method(results: Sequence[Result]) -> str:
    """The label scoring of highest accuracy over all choices."""
    methods = {result.method for result in results if result.kind == "choice"}
    means = {
        method: float(np.mean([accuracy(each.answers) for each in results if each.method == method]))
        for method in sorted(methods)
    }
    return max(means, key=means.__getitem__, default="")


def plot(reports: Sequence[ModelReport], folder: Path) -> list[Path]:
    """A reliability diagram and the balanced accuracies, as PNG files in the folder.

    Raises
    ------
    SystemExit
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plots draws with matplotlib, which is not installed: pip install matplotlib") from None
    folder.mkdir(parents=True, exist_ok=True)
    diagram, bars = Figure(figsize=(9, 4.5), layout="constrained"), Figure(figsize=(10, 6), layout="constrained")
    _reliability(diagram, reports)
    _accuracies(bars, reports)
    paths = [folder / "reliability.png", folder / "accuracy.png"]
    for figure, path in zip((diagram, bars), paths, strict=True):
        figure.savefig(path, dpi=120)
    return paths


def _reliability(figure: Any, reports: Sequence[ModelReport]) -> None:
    for axes, name in zip(figure.subplots(1, 2), ("yes_no", "choices"), strict=True):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for report in reports:
            bins = getattr(report, name)
            if bins:
                predicted, true, counts = np.array(bins).T
                line = axes.plot(predicted, true, label=report.model)[0]
                axes.scatter(predicted, true, s=10 + 200 * counts / counts.sum(), color=line.get_color())
        axes.set_title({"yes_no": "Questions: score of TRUE", "choices": "Choices: probability of the label"}[name])
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.legend(loc="upper left")


def _accuracies(figure: Any, reports: Sequence[ModelReport]) -> None:
    axes = figure.subplots()
    names = list(dict.fromkeys(f"{row.task} ({row.method})" for report in reports for row in report.rows))
    height = 0.8 / len(reports)
    for number, report in enumerate(reports):
        found = {f"{row.task} ({row.method})": row for row in report.rows}
        places = np.array([place for place, name in enumerate(names) if name in found]) + number * height
        rows = [found[name] for name in names if name in found]
        middle = np.array([row.balanced_accuracy for row in rows])
        ends = np.abs(np.array([row.interval for row in rows]).T - middle)
        axes.barh(places, middle, height, xerr=ends, label=report.model, error_kw={"linewidth": 1})
    axes.set_yticks(np.arange(len(names)) + 0.4 - height / 2, names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("balanced accuracy, with 95% interval")
    axes.legend()
