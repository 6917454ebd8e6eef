"""Asking a model through the public interface, and what came back as answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl

import quail_frames as qf
from benchmarks.quality.metrics import Answers
from quail_frames.errors import CallError
from quail_frames.plan.calls import Scoring

METHODS: tuple[Scoring, ...] = ("letters", "trie_tree", "decision_choice")


@dataclass(frozen=True)
class Result:
    """One task by one method: yes/no questions, or a choice among `labels`."""

    task: str
    method: str
    kind: str
    answers: Answers
    wordings: tuple[str, ...] = ()


def yes_no(task: str, engine: qf.Engine, frame: pl.DataFrame, questions: Mapping[str, str]) -> Result:
    """Scores of every question about column `text`; `questions` maps each wording to its Boolean column of truth.

    The answer is TRUE where the score is above one half, as in a filter.
    """
    names = [f"score {number}" for number in range(len(questions))]
    asked = [qf.ai_score(each, pl.col("text"), overflow="truncate") for each in questions]
    scores = qf.lazy(frame).with_columns(*(ask.alias(name) for ask, name in zip(asked, names, strict=True)))
    answered = scores.collect(engine=engine)
    score = np.concatenate([answered[name].to_numpy() for name in names])
    truth = np.concatenate([frame[column].to_numpy() for column in questions.values()])
    return Result(task, "TRUE/FALSE", "yes/no", _scored(score, truth, len(frame)), tuple(questions))


def pairs_yes_no(task: str, engine: qf.Engine, frame: pl.DataFrame, question: str) -> Result:
    """Scores of a question about several columns; column `truth` is Boolean."""
    asked = qf.lazy(frame).with_columns(qf.ai_score(question, overflow="truncate").alias("score"))
    score = asked.collect(engine=engine)["score"].to_numpy()
    return Result(task, "TRUE/FALSE", "yes/no", _scored(score, frame["truth"].to_numpy(), len(frame)), (question,))


def joined(task: str, engine: qf.Engine, left: pl.DataFrame, right: pl.DataFrame, question: str, **keys: str) -> Result:
    """An AI join; `left` has `item`, `right` has `partner`, and a pair is true where their columns `own` agree.

    With keys only the pairs of equal keys are asked and a pair is true where the left side's column `truth` says so.
    """
    sides = qf.lazy(left), qf.lazy(right)
    found = sides[0].ai_join(sides[1], question, overflow="truncate", **keys).select("item", "partner")
    given = set(found.collect(engine=engine).rows())
    plain = left.join(right, on=keys["on"]) if keys else left.join(right, how="cross")
    truth = (plain["truth"] if keys else plain["own"] == plain["own_right"]).to_numpy()
    said = np.array([pair in given for pair in plain.select("item", "partner").rows()])
    nothing = np.full(len(said), np.nan)
    items = plain["item"].rank("dense").to_numpy().astype(np.int64)
    answers = Answers(items, np.zeros(len(said), dtype=np.int64), truth.astype(np.int64), said == truth, nothing)
    return Result(task, "join", "yes/no", answers, (question,))


def choice(
    task: str, engine: qf.Engine, frame: pl.DataFrame, labels: Sequence[str], words: str, methods: Sequence[Scoring]
) -> list[Result]:
    """Labels of column `text` by every method that the model has; column `truth` holds the right label."""
    results = []
    for method in methods:
        given = _labels(engine, frame, labels, words, method)
        if given is not None:
            label, score = given
            truth = np.array([labels.index(each) for each in frame["truth"]], dtype=np.int64)
            items, same = np.arange(len(frame)), np.zeros(len(frame), dtype=np.int64)
            right = label == frame["truth"].to_numpy()
            results.append(Result(task, method, "choice", Answers(items, same, truth, right, score), (words,)))
    return results


def together(results: Sequence[Result]) -> Result:
    """Choices of one task among different labels as one result: every label of every list is a class of its own."""
    parts, items, labels = [], 0, 0
    for own in (result.answers for result in results):
        parts.append(replace(own, item=own.item + items, truth=own.truth + labels))
        items, labels = items + own.item.max() + 1, labels + own.truth.max() + 1
    names = [field.name for field in fields(Answers)]
    whole = Answers(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return replace(results[0], answers=whole)


def order_flips(
    engine: qf.Engine, frame: pl.DataFrame, labels: Sequence[str], words: str, method: Scoring, shuffles: int
) -> float | None:
    """Share of answers that change when the same labels are given in another order; None where the method cannot."""
    first = _labels(engine, frame, labels, words, method)
    if first is None:
        return None
    random, changed = np.random.default_rng(0), []
    for _ in range(shuffles):
        again = _labels(engine, frame, [labels[number] for number in random.permutation(len(labels))], words, method)
        assert again is not None
        changed.append(again[0] != first[0])
    return float(np.mean(changed))


def _labels(
    engine: qf.Engine, frame: pl.DataFrame, labels: Sequence[str], words: str, method: Scoring
) -> tuple[np.ndarray, np.ndarray] | None:
    """(label, its probability) of every row; None where the model or the labels rule the method out."""
    expr = qf.ai_classify(
        "text", labels, task_description=words, scoring=method, probabilities=True, overflow="truncate"
    )
    try:
        answered = qf.lazy(frame).with_columns(expr.alias("answer")).collect(engine=engine)["answer"]
    except CallError:
        return None
    shares = answered.struct.field("probabilities").struct.unnest().to_numpy()
    return answered.struct.field("label").to_numpy(), shares.max(axis=1)


def _scored(score: np.ndarray, truth: np.ndarray, rows: int) -> Answers:
    wordings = len(score) // max(rows, 1)
    items = np.tile(np.arange(rows), wordings)
    wording = np.repeat(np.arange(wordings), rows)
    said = truth.astype(np.bool_)
    return Answers(items, wording, said.astype(np.int64), (score > 0.5) == said, score.astype(np.float64))
